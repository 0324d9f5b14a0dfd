"""``elf offline``: the archive without the fleet, by Spark.

``run`` answers any query over archived lines; Spark parses them itself. Nothing half-written is taken for a
result: ``--out`` appears whole or not at all. ``submit`` puts such a query into a queue, which ``serve``
works on (``elf.cli.offline_queue``).
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from elf.cli.options import (
    DEFAULT_ADDRESS,
    ArchivePaths,
    Cluster,
    ColumnTypes,
    Connect,
    Creator,
    FromMoment,
    GeoipOption,
    JobName,
    KeysOption,
    Output,
    OutputOption,
    SqlFile,
    ToMoment,
    databases,
)
from elf.errors import UserError

LOCAL: Final = "local[*]"
SparkMaster = Annotated[
    str,
    typer.Option("--master", metavar="URL", help="Spark's: local[N], spark://HOST:PORT, yarn, k8s://URL."),
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf", metavar="KEY=VALUE", help="A setting of Spark's, or of Hadoop's (spark.hadoop.…)."
    ),
]


class Priority(StrEnum):
    """``elf offline submit --priority``"""

    PRODUCTION = "production"
    RESEARCH = "research"


class EvictRuns(StrEnum):
    """``elf offline serve --evict-runs``"""

    MR = "mr"
    LR = "lr"
    PR = "pr"
    MDF = "mdf"
    MLF = "mlf"


class EvictTasks(StrEnum):
    """``elf offline serve --evict-tasks``"""

    SRT = "srt"
    LRT = "lrt"
    RANDOM = "random"


class Select(StrEnum):
    """``elf offline serve --select``"""

    PRIORITY = "priority"
    EDF = "edf"
    LLF = "llf"


QueueFolder = Annotated[
    Path | None,
    typer.Option(
        "--queue",
        envvar="ELF_OFFLINE_QUEUE",
        metavar="DIR",
        show_default="~/.local/state/elf/queue",
        help="The folder of the queue: who may write to it may use it.",
    ),
]
RunNames = Annotated[list[str], typer.Argument(metavar="RUN...", help="As elf offline queue names them.")]

app = typer.Typer(
    help="Queries over the archive, by Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _offline() -> None:
    pass


@app.command()
def recluster(
    stream: Annotated[str, typer.Argument(metavar="STREAM")],
    by: Annotated[str, typer.Argument(metavar="BY")],
    column: Annotated[str, typer.Argument(metavar="COLUMN", help="Such as c_ip.")],
    archive: ArchivePaths = None,
) -> int:
    """Sort the archived rows of each hour by a column, so that queries for some of its values read little.

    elf offline recluster access BY c_ip --archive /var/lib/elf/archive
    """
    if by.upper() != "BY":
        raise UserError(f"say elf offline recluster {stream} BY {column}, not {by}")
    if not archive:
        raise UserError("give the archive to sort: --archive PATH (archive.path of the agents)")
    from agents.disk import modes
    from agents.recluster import recluster as sort
    from elf.cli.printing import say

    modes.close()  # as the agent's own: what it writes is for whoever may read the archive
    for path in archive:
        done = sort(path, stream, column, tell=lambda line: say(f"elf: {line}"))
        if not done.files:
            say(f"elf: nothing to do: the rows of {stream} in {path} are sorted by {column}")
            continue
        left = f"; {done.left} files were in use or gone, and are as they were" if done.left else ""
        say(
            f"elf: {done.rows:,} rows of {stream} in {path} are sorted by {column}, in {done.files} files in "
            f"place of {done.replaced} (layout {done.number}){left}"
        )
        if done.without:
            say(
                f"elf: no line of {len(done.without)} of the files has {column}, such as {done.without[0]}: "
                "they have parts of their own, of no value"
            )
    return 0


@app.command()
def run(
    query: Annotated[str | None, typer.Option("--query", "-q", help="The query.", metavar="SQL")] = None,
    file: SqlFile = None,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB", help="A running job's query, and its agents' archives."),
    ] = None,
    archive: ArchivePaths = None,
    begin: FromMoment = None,
    end: ToMoment = None,
    column: ColumnTypes = None,
    geoip: GeoipOption = None,
    output: OutputOption = Output.TABLE,
    json: Annotated[bool, typer.Option("--json", help="Short for --output json.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Short for --output csv.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write the rows there: .parquet, .csv or .json (a line a row)."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print what Spark would read, and its plan, instead.")
    ] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Name files that are damaged, and answer without them.")
    ] = False,
    master: SparkMaster = LOCAL,
    conf: SparkConf = None,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = "elf",
    keys: KeysOption = None,
) -> int:
    """Answer one query over archived lines with Spark, which parses them itself."""
    from elf.cli.offline_run import OfflineOptions, run_offline

    if json and csv:
        raise UserError("give --json or --csv, not both")
    options = OfflineOptions(
        text=query,
        file=file,
        job=job,
        archives=tuple(archive or ()),
        begin=begin,
        end=end,
        columns=tuple(column or ()),
        geoip=databases(geoip),
        output=Output.JSON if json else Output.CSV if csv else output,
        out=out,
        explain=explain,
        skip_damaged=skip_damaged,
        master=master,
        conf=tuple(conf or ()),
        connect=connect,
        cluster=cluster,
    )
    return run_offline(options)


@app.command()
def backfill(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="A running job.")] = None,
    query: Annotated[
        str | None,
        typer.Option(
            "--query", "-q", metavar="SQL", help="Instead: a SELECT … SINCE, whose windows are printed."
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="WHEN", help="Windows that start then or later; default: its SINCE."),
    ] = None,
    archive: ArchivePaths = None,
    geoip: GeoipOption = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Name files that are damaged, and go on without them.")
    ] = False,
    windows: Annotated[
        int | None, typer.Option("--windows", metavar="N", min=1, help="Of a SELECT: end after so many.")
    ] = None,
    output: OutputOption = Output.TABLE,
    master: SparkMaster = LOCAL,
    conf: SparkConf = None,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = "elf",
    creator: Creator = None,
    keys: KeysOption = None,
) -> int:
    """Make the windows of before a job began with Spark, from the archive; the job keeps them.

    elf offline backfill busy --from '-30 days'
    """
    from elf.cli.backfill import BackfillOptions
    from elf.cli.backfill import backfill as fill

    return fill(
        BackfillOptions(
            job=job,
            text=query,
            begin=begin,
            archives=tuple(archive or ()),
            geoip=databases(geoip),
            skip_damaged=skip_damaged,
            windows=windows,
            output=output,
            master=master,
            conf=tuple(conf or ()),
            connect=connect,
            cluster=cluster,
            creator=creator,
        )
    )


@app.command()
def export(
    job: JobName,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", help="Where to: .parquet, .csv or .json (a line a row)."),
    ],
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="WHEN", help="Windows that start then or later; default: all."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="Windows that start before then; default: all.")
    ] = None,
    all_revisions: Annotated[
        bool, typer.Option("--all-revisions", help="Every revision of a window, not its last one alone.")
    ] = False,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = "elf",
    keys: KeysOption = None,
) -> int:
    """Write the past windows of a job that are kept to a file, with what each says about itself."""
    from elf.cli.export import export_windows

    return export_windows(connect, cluster, job, begin or "", end or "", out, all_revisions=all_revisions)


# -- the queue -----------------------------------------------------------------------------------------------


@app.command()
def submit(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Where the rows go: .parquet, .csv or .json (a line a row)."
        ),
    ],
    query: Annotated[str | None, typer.Option("--query", "-q", help="The query.", metavar="SQL")] = None,
    file: SqlFile = None,
    archive: ArchivePaths = None,
    begin: FromMoment = None,
    end: ToMoment = None,
    column: ColumnTypes = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the run is called.")
    ] = None,
    priority: Annotated[
        Priority, typer.Option("--priority", help="Research gives way to production.")
    ] = Priority.RESEARCH,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="10m", help="From now on; what counts under --evict-runs mdf or mlf."
        ),
    ] = None,
    queue: QueueFolder = None,
) -> int:
    """Put a query over archived lines into the queue, and print the run's name."""
    from elf.cli import offline_queue

    return offline_queue.submit(
        offline_queue.SubmitOptions(
            text=query,
            file=file,
            archives=tuple(archive or ()),
            begin=begin,
            end=end,
            columns=tuple(column or ()),
            out=out,
            name=name,
            production=priority is Priority.PRODUCTION,
            deadline=deadline,
            queue=offline_queue.folder_of(queue),
        )
    )


@app.command("queue")
def show(
    queue: QueueFolder = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a run.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Live, until no run is left.")] = False,
    every: Annotated[bool, typer.Option("--all", help="With the runs that are over.")] = False,
) -> int:
    """Show the runs of the queue: how far they are, and how long they still take."""
    from elf.cli import offline_queue

    return offline_queue.show(offline_queue.folder_of(queue), as_json=json, watch=watch, every=every)


@app.command()
def wait(runs: RunNames, queue: QueueFolder = None) -> int:
    """Wait for runs, showing how far they are; non-zero when one of them has failed or was cancelled."""
    from elf.cli import offline_queue

    return offline_queue.wait(offline_queue.folder_of(queue), runs)


@app.command()
def suspend(runs: RunNames, queue: QueueFolder = None) -> int:
    """Suspend runs: their tasks stop behind the file that they are at, and nothing is lost."""
    from elf.cli import offline_queue

    return offline_queue.ask(offline_queue.folder_of(queue), runs, "suspend")


@app.command()
def resume(runs: RunNames, queue: QueueFolder = None) -> int:
    """Resume runs that were suspended, or have failed, where they stopped."""
    from elf.cli import offline_queue

    return offline_queue.ask(offline_queue.folder_of(queue), runs, "resume")


@app.command()
def cancel(runs: RunNames, queue: QueueFolder = None) -> int:
    """Cancel runs: their tasks are stopped at once, and what they have done is dropped."""
    from elf.cli import offline_queue

    return offline_queue.ask(offline_queue.folder_of(queue), runs, "cancel")


@app.command()
def serve(
    queue: QueueFolder = None,
    master: SparkMaster = LOCAL,
    conf: SparkConf = None,
    slots: Annotated[
        int | None,
        typer.Option("--slots", min=1, max=4_096, help="Tasks at a time; default: the cores that Spark has."),
    ] = None,
    evict_runs: Annotated[
        EvictRuns, typer.Option("--evict-runs", help="Which run gives way; mdf and mlf go by deadline.")
    ] = EvictRuns.MR,
    evict_tasks: Annotated[
        EvictTasks, typer.Option("--evict-tasks", help="Which of its tasks: shortest remaining time first.")
    ] = EvictTasks.SRT,
    select: Annotated[
        Select | None,
        typer.Option("--select", help="Which run is served first; only its own goes with each."),
    ] = None,
    geoip: GeoipOption = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when no run is left that is not suspended.")
    ] = False,
) -> int:
    """Work on the queue with one Spark, until it is asked to stop (SIGTERM, Ctrl-C)."""
    from elf.cli import offline_queue

    return offline_queue.serve(
        offline_queue.ServeOptions(
            queue=offline_queue.folder_of(queue),
            master=master,
            conf=tuple(conf or ()),
            slots=slots,
            evict_runs=evict_runs.value,
            evict_tasks=evict_tasks.value,
            select=None if select is None else select.value,
            geoip=databases(geoip),
            until_idle=until_idle,
        )
    )
