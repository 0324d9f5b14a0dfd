"""The commands that ask a running agent: ``sql``, ``shell``, ``ui``, ``submit``, ``query``, ``jobs``,
``members``, ``streams``, ``top``, ``tap``, ``tree``, ``compare``, ``leave``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elf.cli.options import (
    DEFAULT_ADDRESS,
    Cluster,
    Connect,
    Creator,
    GeoipOption,
    JobName,
    KeysOption,
    Output,
    OutputOption,
    Shown,
    SqlFile,
    SqlText,
    SqlWords,
    TreeName,
    databases,
    one_text,
)
from elf.cli.usage import examples

_CLUSTER = "elf"

Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Between two looks at the agents.")
]
Rounds = Annotated[
    int | None, typer.Option("--rounds", min=1, help="Print so many, one below the other, and end.")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    commands = (
        sql,
        shell,
        ui,
        flight,
        mcp,
        submit,
        query,
        jobs,
        members,
        streams,
        top,
        dash,
        tap,
        tree,
        compare,
        leave,
    )
    for command in commands:
        app.command(epilog=examples(command.__name__))(command)


def sql(
    words: SqlWords = None,
    text: SqlText = None,
    file: SqlFile = None,
    connect: Connect = DEFAULT_ADDRESS,
    output: OutputOption = Output.TABLE,
    windows: Annotated[
        int | None, typer.Option("--windows", min=1, help="End a SELECT or SUBSCRIBE after so many windows.")
    ] = None,
    status: Annotated[
        bool,
        typer.Option("--status", help="After each window, also a whole one, whom and what it covers."),
    ] = False,
    wait: Annotated[
        int | None,
        typer.Option(
            "--wait", min=1, metavar="AGENTS", help="First wait until so many agents are live, 2 min at most."
        ),
    ] = None,
    creator: Creator = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """Perform statements; a SELECT or SUBSCRIBE prints windows until Ctrl-C or --windows."""
    from elf.cli.ask import perform

    statements = one_text(text, file, "SQL, -e SQL and -f FILE", words)
    return perform(
        connect, cluster, statements, output, windows=windows, status=status, creator=creator, wait=wait
    )


def shell(
    connect: Connect = DEFAULT_ADDRESS,
    creator: Creator = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """A prompt for statements, with history and completion."""
    from elf.cli.shell import run_shell

    return run_shell(connect, cluster, creator)


def ui(
    connect: Connect = DEFAULT_ADDRESS,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="A loopback address; port 0: any free one."),
    ] = "127.0.0.1:7073",
    creator: Creator = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """The fleet in a browser, until Ctrl-C: open the link that it prints, which is yours alone."""
    from elf.cli.ui import serve

    return serve(connect, cluster, listen, creator)


def flight(
    connect: Connect = DEFAULT_ADDRESS,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="A loopback address; port 0: any free one."),
    ] = "127.0.0.1:7074",
    windows: Annotated[
        int,
        typer.Option("--windows", min=1, max=1_000, help="Of a SELECT over live streams, and a SUBSCRIBE."),
    ] = 1,
    creator: Creator = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """A door for Arrow Flight SQL (pandas, polars, DuckDB, ADBC), which only reads, until Ctrl-C: it prints
    where it is, and a token that is yours alone."""
    from elf.cli.doors import serve_flight

    return serve_flight(connect, cluster, listen, windows, creator)


def mcp(
    connect: Connect = DEFAULT_ADDRESS,
    windows: Annotated[
        int, typer.Option("--windows", min=1, max=100, help="Of a SELECT over live streams, and a SUBSCRIBE.")
    ] = 1,
    statements: Annotated[
        int, typer.Option("--statements", min=1, help="The budget: statements an hour.")
    ] = 60,
    rows: Annotated[int, typer.Option("--rows", min=1, help="The budget: rows of an answer.")] = 200,
    answered: Annotated[
        int, typer.Option("--bytes", min=1_000, help="The budget: bytes of all answers an hour.")
    ] = 2 << 20,
    creator: Creator = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """A server of the Model Context Protocol over standard input and output, which only reads and has a
    budget: a program with a language model starts it."""
    from elf.cli.doors import serve_tools
    from elf.doors.budget import Limits

    return serve_tools(connect, cluster, windows, Limits(statements, rows, answered), creator)


def submit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A Python file with one subclass of elf.job.Job.")
    ],
    name: Annotated[str | None, typer.Option("--name", help="The job's name (default: the file's).")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Instead of the job of that name.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Another value for an attribute of the job's class."
        ),
    ] = None,
    creator: Creator = None,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """Check a job written in Python and send it to all agents; DROP JOB ends it."""
    from elf.cli.ask import submit_file

    return submit_file(connect, cluster, file, name, settings or (), replace=replace, creator=creator)


def query(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Its name, or CREATOR/NAME.")],
    message: Annotated[
        str | None, typer.Argument(metavar="MESSAGE", help="What its deliver gets: JSON, else a text.")
    ] = None,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """Ask a job's master, as other jobs do; the reply as JSON. An SQL job gives its last window."""
    from elf.cli.ask import query_job

    return query_job(connect, cluster, job, message)


def jobs(
    connect: Connect = DEFAULT_ADDRESS,
    output: OutputOption = Output.TABLE,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """The jobs of the fleet, and who their masters are."""
    from elf.cli.ask import perform

    return perform(connect, cluster, "SHOW JOBS", output)


def members(
    connect: Connect = DEFAULT_ADDRESS,
    output: OutputOption = Output.TABLE,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """The agents of each stream."""
    from elf.cli.ask import perform

    return perform(connect, cluster, "SHOW MEMBERS", output)


def streams(
    connect: Connect = DEFAULT_ADDRESS,
    output: OutputOption = Output.TABLE,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """The streams of the fleet."""
    from elf.cli.ask import perform

    return perform(connect, cluster, "SHOW STREAMS", output)


def top(
    connect: Connect = DEFAULT_ADDRESS,
    every: Every = 2.0,
    rounds: Rounds = None,
    output: Annotated[Shown, typer.Option("--output", help="How it is written.")] = Shown.TABLE,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """The agents at work, live, until Ctrl-C: what each reads, leaves out, uses and is behind."""
    from elf.cli.top import show_top

    return show_top(connect, cluster, every, rounds, output)


def dash(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]...", help="Whose windows are shown (default: four).")
    ] = None,
    connect: Connect = DEFAULT_ADDRESS,
    every: Every = 2.0,
    rounds: Rounds = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """The agents at work and the last windows of jobs on one screen, live, until Ctrl-C."""
    from elf.cli.dash import show_dash

    return show_dash(connect, cluster, jobs or (), every, rounds)


def tap(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream's name.")],
    connect: Connect = DEFAULT_ADDRESS,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="End after so many rows.")] = None,
    where: Annotated[
        str, typer.Option("--where", metavar="CONDITION", help="Only such rows, as after WHERE.")
    ] = "",
    columns: Annotated[
        str, typer.Option("--columns", metavar="A,B,…", help="Only these, beside time and agent.")
    ] = "",
    output: OutputOption = Output.TABLE,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """Rows of a stream as its agents read them, until Ctrl-C or --limit."""
    from elf.cli.tap import tap_stream

    names = [name.strip() for name in columns.split(",") if name.strip()]
    return tap_stream(connect, cluster, stream, where, names, limit, output)


def tree(
    job: TreeName,
    connect: Connect = DEFAULT_ADDRESS,
    json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw it: .png or .svg.")
    ] = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """The reduction tree of a job from its root down (one for each of its flows), and who reads it; or a
    stream's (stream:NAME)."""
    from elf.cli.tree import show_tree

    return show_tree(connect, cluster, job, as_json=json, plot=plot)


def compare(
    job: JobName,
    connect: Connect = DEFAULT_ADDRESS,
    windows: Annotated[int | None, typer.Option("--windows", min=1, help="Only the last so many.")] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="Only windows from then on: '-6 hours', 2d, 2026-01-31T12:00 (UTC).",
        ),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="WHEN", help="Only windows before then.")] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page with all of it there.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="As one JSON object; with --follow one a window.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on: judge each window once, soon after it is committed.")
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="Between two looks of --follow, such as 30s or 5m.")
    ] = "60s",
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="End --follow after so many looks.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="HOST:PORT | FILE.prom", help="Where --follow shows elf_compare_* metrics."
        ),
    ] = None,
    notify: Annotated[
        str | None,
        typer.Option("--notify", metavar="URL", help="Where --follow sends what is unexplained, as JSON."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help="Spark's: local[N], spark://HOST:PORT, yarn; default: local[*]."
        ),
    ] = None,
    geoip: GeoipOption = None,
    cluster: Cluster = _CLUSTER,
    keys: KeysOption = None,
) -> int:
    """Hold a job's windows against its query run by Spark over the archive, and say why they differ.

    Exit status: 0 all equal, 1 different and explained, 2 unexplained, 64 the command line is wrong, 69
    nothing could be compared.
    """
    from elf.cli.compare import Asked, Fleet, compare_job

    return compare_job(
        Asked(
            Fleet(connect, cluster, job),
            windows=windows,
            begin=begin,
            end=end,
            report=report,
            as_json=json,
            master=master,
            follow=follow,
            every=every,
            rounds=rounds,
            metrics=metrics,
            notify=notify,
            geoip=databases(geoip),
        )
    )


def leave(
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = _CLUSTER,
    force: Annotated[
        bool, typer.Option("--force", help="Also when something waits until a dead agent is back, then.")
    ] = False,
    dead: Annotated[
        str | None,
        typer.Option("--dead", metavar="AGENT", help="Take off this one instead, which is gone for good."),
    ] = None,
    keys: KeysOption = None,
) -> int:
    """Have the agent at --connect hand over what it has and leave the fleet."""
    from elf.cli.ask import leave_fleet, take_off

    if dead is not None:
        return take_off(connect, cluster, dead)
    return leave_fleet(connect, cluster, force=force)
