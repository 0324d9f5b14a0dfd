"""The commands that need no fleet: ``run``, ``demo``, those that look after an agent of this machine, and
those of the laboratory (``lab``).

The laboratory measures and simulates elf and makes logs to try it on. Every checkout and source distribution
has it; a package for servers may do without it, since nothing else of elf needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from elf.cli.options import (
    DEFAULT_ADDRESS,
    ArchivePaths,
    Cluster,
    ColumnTypes,
    Connect,
    FromMoment,
    GeoipOption,
    KeysOption,
    Output,
    OutputOption,
    SeveralValues,
    Shown,
    SqlFile,
    ToMoment,
    databases,
    one_text,
)
from elf.cli.usage import examples
from elf.errors import UserError

LABORATORY: Final = {
    "generate": "Write a log file to try elf on.",
    "bench": "Measure elf on this machine.",
    "sim": "Simulate a fleet on virtual time.",
}
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="The name or the text of their format (docs/formats.md); told from the lines if absent.",
    ),
]
TimestampOption = Annotated[
    str | None, typer.Option("--timestamp", metavar="COLUMN", help="The column with the event time.")
]
ZoneOption = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="Of the clocks whose times lines have that name no zone, as Europe/Berlin (default UTC).",
    ),
]
DATA_DIR: Final = "/var/lib/elf"
"""An agent's, where its configuration gives none."""


class DemoApp(StrEnum):
    """The paper's applications (``elf.examples``)."""

    MICRO_PROMOTION = "micro-promotion"
    PRODUCT_BUNDLING = "product-bundling"
    SALE_PREDICTION = "sale-prediction"
    SPAM = "spam"


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command(cls=SeveralValues, epilog=examples("run"))(run)
    app.command("test", epilog=examples("test"))(try_out)
    app.command(cls=SeveralValues, epilog=examples("report"))(report)
    app.command(epilog=examples("graph"))(graph)
    app.command(epilog=examples("demo"))(demo)
    app.command(epilog=examples("audit"))(audit)
    app.command(epilog=examples("backup"))(backup)
    app.command(epilog=examples("reload"))(reload)
    app.command("support-bundle", epilog=examples("support-bundle"))(support_bundle)
    _register_laboratory(app)


def run(
    query: Annotated[str | None, typer.Option("--query", "-q", help="The query.", metavar="SQL")] = None,
    file: SqlFile = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="PATH...",
            help="Log files: any name after FROM, and *, means these. -: standard input; windows come while "
            "it is written (rows more than 2 seconds late are left out, unless the query says LATENESS).",
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="NAME=PATH...",
            help="Log files of a stream of that name; with --archive NAME alone: only this stream.",
        ),
    ] = None,
    archive: ArchivePaths = None,
    begin: FromMoment = None,
    end: ToMoment = None,
    speed: Annotated[
        float | None,
        typer.Option(
            "--speed",
            metavar="TIMES",
            min=0.001,
            help="Archived lines come so many times as fast as they did, and windows as they are complete; "
            "default: as fast as it goes.",
        ),
    ] = None,
    format: FormatOption = None,
    timestamp: TimestampOption = None,
    column: ColumnTypes = None,
    timezone: ZoneOption = None,
    geoip: GeoipOption = None,
    agents: Annotated[int, typer.Option("--agents", min=1, help="How many agents share the inputs.")] = 1,
    output: OutputOption = Output.TABLE,
    status: Annotated[
        bool, typer.Option("--status", help="After each window, whom and what it covers.")
    ] = False,
    summary: Annotated[
        Path | None,
        typer.Option("--summary", metavar="FILE", help="Write figures of the run there, as JSON."),
    ] = None,
) -> int:
    """Answer one query over log files, or an archive's lines, through the same agents, trees and masters as a
    fleet."""
    from elf.cli.run import LineOptions, RunOptions, run_query

    sql = one_text(query, file, "-q SQL and -f FILE")
    options = RunOptions(
        tuple(inputs or ()),
        tuple(stream or ()),
        LineOptions(format, timestamp, timezone, tuple(column or ()), databases(geoip)),
        agents,
        output,
        status,
        summary,
        tuple(archive or ()),
        begin,
        end,
        speed,
    )
    return run_query(sql, options)


def try_out(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files of tests (docs/testing.md).", show_default=False),
    ],
    only: Annotated[
        str | None, typer.Option("--only", metavar="TEXT", help="Tests with this in their names.")
    ] = None,
    output: Annotated[
        Shown, typer.Option("--output", help="A line a test and what differs, or an object a test.")
    ] = Shown.TABLE,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write it there as well, for a CI server.")
    ] = None,
) -> int:
    """Give lines to formats, queries and configurations, and compare windows, rows and rejects with what is
    expected. 1 if something differs."""
    from elf.cli.testing.report import try_files

    return try_files(files, only, output, junit)


def report(
    html: Annotated[
        Path, typer.Option("--html", metavar="FILE", help="Where it goes; what is there is replaced.")
    ],
    inputs: Annotated[
        list[str] | None, typer.Option("--input", metavar="PATH...", help="Log files; -: standard input.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", "-q", metavar="SQL", help="Of the files; default: the panels of a web log."),
    ] = None,
    file: SqlFile = None,
    job: Annotated[
        str | None, typer.Option("--job", metavar="JOB", help="Instead: a job of the fleet, its windows.")
    ] = None,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="With --job: windows from then on.")
    ] = "-1 day",
    until: Annotated[str, typer.Option("--until", metavar="WHEN", help="With --job: windows before.")] = "",
    format: FormatOption = None,
    timestamp: TimestampOption = None,
    column: ColumnTypes = None,
    timezone: ZoneOption = None,
    geoip: GeoipOption = None,
    title: Annotated[str | None, typer.Option("--title", help="What stands above it.")] = None,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = "elf",
    keys: KeysOption = None,
) -> int:
    """Write one HTML file that reads without a network: panels or a query over log files, or the windows of a
    job."""
    from elf.cli.report import ReportOptions, of_job, of_logs
    from elf.cli.run import LineOptions

    if (job is None) == (not inputs):
        raise UserError("give log files (--input PATH...) or a job (--job JOB), one of them")
    if job is not None:
        given: dict[str, object] = {"-q": query, "-f": file, "--format": format, "--timestamp": timestamp}
        given |= {"--column": column, "--timezone": timezone, "--geoip": geoip}
        if said := [name for name, value in given.items() if value]:
            raise UserError(f"{', '.join(said)} does not go with --job: a job has its query and its lines")
        return of_job(html, job, since, until, connect, cluster, title)
    sql = None if query is None and file is None else one_text(query, file, "-q SQL and -f FILE")
    lines = LineOptions(format, timestamp, timezone, tuple(column or ()), databases(geoip))
    return of_logs(ReportOptions(html, tuple(inputs or ()), sql, lines, title))


def graph(
    plot: Annotated[Path, typer.Option("--plot", metavar="FILE", help="The picture: .png or .svg.")],
    edges: Annotated[
        str, typer.Option("--edges", metavar="FILE", help="Rows of JSON; - is standard input.")
    ] = "-",
    title: Annotated[str, typer.Option("--title", help="What stands above it.")] = "",
) -> int:
    """Draw edges, the first two columns of rows that elf has written as JSON, as a graph."""
    from elf.cli.graph import draw

    return draw(edges, plot, title)


def demo(
    app: Annotated[
        DemoApp | None,
        typer.Option("--app", help="One of the paper's applications on a smaller fleet, instead of a query."),
    ] = None,
    agents: Annotated[int, typer.Option("--agents", min=2, max=8, help="With --app: how many.")] = 6,
    windows: Annotated[
        int, typer.Option("--windows", min=1, help="Windows (an application's epochs) before comparing.")
    ] = 4,
    window_seconds: Annotated[
        int | None,
        typer.Option("--window-seconds", min=1, help="Length of a window (default 5; applications 3)."),
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Lines a second of each generator.")] = 400,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Work in DIR and leave it there.")
    ] = None,
) -> int:
    """Start eight agents and their logs on this machine, watch a job, and check it offline with Spark."""
    from elf.cli.demo.apps import run_app
    from elf.cli.demo.play import DemoOptions, run_demo

    _require("elf demo")

    if app is not None:
        return run_app(app.value, DemoOptions(windows, window_seconds or 3, rate, keep, agents))
    return run_demo(DemoOptions(windows, window_seconds or 5, rate, keep))


def audit(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="The agent's data_dir (default /var/lib/elf)."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="One file, or a folder of them, instead: a copy."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Records from then on: 10m, 2h, 7d ago, or a time."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Whether records were changed or removed; 1 if so.")
    ] = False,
    output: Annotated[Shown, typer.Option("--output", help="How records are written.")] = Shown.TABLE,
) -> int:
    """What an agent on this machine has done for whom: statements, code, members, refusals."""
    from elf.cli.audit import show, verdict

    if data_dir is not None and file is not None:
        raise UserError("give --data-dir or --file, not both")
    place = file if file is not None else (data_dir or Path(DATA_DIR)) / "audit"
    state = None if file is not None else (data_dir or Path(DATA_DIR)) / "elf.sqlite"
    return verdict(place, state) if verify else show(place, since, output)


def backup(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where it goes (a .tar.gz).")],
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="The data_dir of any agent of the fleet.")
    ] = Path(DATA_DIR),
    keys: Annotated[
        bool, typer.Option("--keys", help="Also the keys of this host, and the key of its masks.")
    ] = False,
) -> int:
    """Write all jobs, outputs, alerts and aggregates of the fleet, with their functions and tables, as
    statements that make them again (elf sql -f). The agent may run."""
    from elf.cli.backup import back_up

    return back_up(data_dir, out, keys=keys)


def reload(
    data_dir: Annotated[Path, typer.Option("--data-dir", metavar="DIR", help="The agent's data_dir.")] = Path(
        DATA_DIR
    ),
) -> int:
    """Have the agent on this machine read its configuration again, and print what has changed, or why nothing
    has (SIGHUP does the same). No row is lost or counted twice."""
    from elf.cli.reloading import ask_again

    return ask_again(data_dir)


def support_bundle(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where it goes (a .tar.gz).")] = Path(
        "elf-support.tar.gz"
    ),
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="The agent's configuration.")
    ] = Path("/etc/elf/elf.yaml"),
) -> int:
    """Collect what elf's makers need to know of an agent on this machine, without personal data: no rows, no
    names, no addresses, no keys, no statements. Look at it before you send it."""
    from elf.cli.support import collect

    return collect(config, out)


def _register_laboratory(app: typer.Typer) -> None:
    """Add the commands of the laboratory; where it is not installed, one line about each."""
    if find_spec("lab") is not None:
        from lab import cli

        cli.register(app)
        return
    for name, text in LABORATORY.items():
        anything = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        app.command(name, help=text, context_settings=anything)(_absent(f"elf {name}"))


def _require(command: str) -> None:
    """Raises ``UserError`` where a command needs the laboratory and it is not there."""
    if find_spec("lab") is None:
        raise UserError(
            f"{command} needs elf's laboratory, which is not installed here: "
            "run it from a checkout of elf (make install), or install a package that has it"
        )


def _absent(command: str) -> Callable[[], None]:
    def run() -> None:
        _require(command)

    return run
