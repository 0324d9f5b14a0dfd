"""The command lines of the queue for offline runs: ``elf offline submit`` and the others (``QUEUE``)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from elf.cli.options import (
    DEFAULT_ADDRESS,
    ArchivePaths,
    ArchiveQuery,
    Cluster,
    ColumnTypes,
    Connect,
    Creator,
    FromMoment,
    GeoipOption,
    KeysOption,
    SqlFile,
    ToMoment,
    databases,
)

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


Out = Annotated[
    Path,
    typer.Option("--out", metavar="FILE", help="Where the rows go: .parquet, .csv or .json (a line a row)."),
]
QueryText = Annotated[str | None, typer.Option("--query", "-q", help="The query.", metavar="SQL")]
Compare = Annotated[
    str | None,
    typer.Option(
        "--compare", metavar="JOB", help="Instead: hold the windows of a running job against Spark's."
    ),
]
Windows = Annotated[
    int | None, typer.Option("--windows", min=1, help="With --compare: only the last so many.")
]
Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline", metavar="10m", help="From then on; what counts under --evict-runs mdf or mlf."
    ),
]


def submit(
    out: Out,
    query: QueryText = None,
    file: SqlFile = None,
    archive: ArchivePaths = None,
    begin: FromMoment = None,
    end: ToMoment = None,
    column: ColumnTypes = None,
    compare: Compare = None,
    windows: Windows = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the run is called.")
    ] = None,
    priority: Annotated[
        Priority, typer.Option("--priority", help="Research gives way to production.")
    ] = Priority.RESEARCH,
    deadline: Deadline = None,
    queue: QueueFolder = None,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = "elf",
    creator: Creator = None,
    keys: KeysOption = None,
) -> int:
    """Put a query over archived lines, or a check of a job, into the queue, and print the run's name."""
    from elf.cli import offline_queue

    return offline_queue.submit(
        offline_queue.SubmitOptions(
            wanted=offline_queue.Wanted(
                query=ArchiveQuery(query, file, archive or (), begin, end, column or ()),
                job=compare,
                windows=windows,
                connect=connect,
                cluster=cluster,
            ),
            out=out,
            name=name,
            production=priority is Priority.PRODUCTION,
            deadline=deadline,
            queue=offline_queue.folder_of(queue),
            creator=creator,
        )
    )


def show(
    queue: QueueFolder = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a run.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Live, until no run is left.")] = False,
    every: Annotated[bool, typer.Option("--all", help="With the runs that are over.")] = False,
) -> int:
    """Show the runs of the queue: how far they are, and how long they still take."""
    from elf.cli import offline_queue

    return offline_queue.show(offline_queue.folder_of(queue), as_json=json, watch=watch, every=every)


def wait(runs: RunNames, queue: QueueFolder = None) -> int:
    """Wait for runs, showing how far they are; non-zero when one of them has failed or was cancelled."""
    from elf.cli import offline_queue

    return offline_queue.wait(offline_queue.folder_of(queue), runs)


def suspend(
    runs: RunNames, queue: QueueFolder = None, creator: Creator = None, keys: KeysOption = None
) -> int:
    """Suspend runs: their tasks stop behind the file that they are at, and nothing is lost."""
    return _ask(runs, "suspend", queue, creator)


def resume(
    runs: RunNames, queue: QueueFolder = None, creator: Creator = None, keys: KeysOption = None
) -> int:
    """Resume runs that were suspended, or have failed, where they stopped."""
    return _ask(runs, "resume", queue, creator)


def cancel(
    runs: RunNames, queue: QueueFolder = None, creator: Creator = None, keys: KeysOption = None
) -> int:
    """Cancel runs: their tasks are stopped at once, and what they have done is dropped."""
    return _ask(runs, "cancel", queue, creator)


def _ask(runs: list[str], what: str, queue: Path | None, creator: str | None) -> int:
    from elf.cli import offline_queue

    return offline_queue.ask(offline_queue.folder_of(queue), runs, what, creator)


def schedule(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its runs are called after it.")],
    cron: Annotated[
        str,
        typer.Argument(
            metavar="CRON", help="Minute, hour, day, month, day of the week: '30 2 * * 1-5'; or @daily."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where the rows go, as of submit; %Y, %m, %d, %H and %M are those of the moment.",
        ),
    ],
    query: QueryText = None,
    file: SqlFile = None,
    archive: ArchivePaths = None,
    begin: FromMoment = None,
    end: ToMoment = None,
    column: ColumnTypes = None,
    compare: Compare = None,
    windows: Windows = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --compare: judge each window once, from now on.")
    ] = False,
    zone: Annotated[
        str, typer.Option("--zone", metavar="ZONE", help="Whose clocks are meant, such as Europe/Berlin.")
    ] = "UTC",
    priority: Annotated[
        Priority, typer.Option("--priority", help="Research gives way to production.")
    ] = Priority.PRODUCTION,
    deadline: Deadline = None,
    late: Annotated[
        str,
        typer.Option("--late", metavar="1h", help="A moment is served so much later; then it is missed."),
    ] = "1h",
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of your schedule of this name.")
    ] = False,
    queue: QueueFolder = None,
    connect: Connect = DEFAULT_ADDRESS,
    cluster: Cluster = "elf",
    creator: Creator = None,
    keys: KeysOption = None,
) -> int:
    """Submit a query, or a check of a job, at times; each --from and --to is told from the moment.

    elf offline schedule nightly '30 2 * * *' --compare busy --from yesterday --to today --out 'busy-%d.json'
    """
    from elf.cli import offline_queue, offline_schedule

    return offline_schedule.schedule(
        offline_schedule.ScheduleOptions(
            name=name,
            cron=cron,
            zone=zone,
            wanted=offline_queue.Wanted(
                query=ArchiveQuery(query, file, archive or (), begin, end, column or ()),
                job=compare,
                windows=windows,
                connect=connect,
                cluster=cluster,
                follow=follow,
            ),
            out=out,
            production=priority is Priority.PRODUCTION,
            deadline=deadline,
            late=late,
            replace=replace,
            queue=offline_queue.folder_of(queue),
            creator=creator,
        )
    )


def schedules(
    queue: QueueFolder = None,
    json: Annotated[bool, typer.Option("--json", help="A JSON object a schedule.")] = False,
) -> int:
    """Show the schedules of the queue: when each comes next, its last run, and what it has missed."""
    from elf.cli import offline_queue, offline_schedule

    return offline_schedule.show(offline_queue.folder_of(queue), as_json=json)


def unschedule(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="As elf offline schedules names them.")
    ],
    queue: QueueFolder = None,
    creator: Creator = None,
    keys: KeysOption = None,
) -> int:
    """Drop schedules; the runs that they have made stay."""
    from elf.cli import offline_queue, offline_schedule

    return offline_schedule.unschedule(offline_queue.folder_of(queue), names, creator)


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
    quota: Annotated[
        list[str] | None,
        typer.Option(
            "--quota",
            metavar="NAME=NUMBER",
            help="Of each person: runs, production (runs of that priority), bytes (that come with a run).",
        ),
    ] = None,
    signed: Annotated[
        bool,
        typer.Option("--signed", help="Take only what persons of the cluster of --keys sign and may ask."),
    ] = False,
    geoip: GeoipOption = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Stop when no run is left that is not suspended.")
    ] = False,
    keys: KeysOption = None,
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
            signed=signed,
            quotas=tuple(quota or ()),
        )
    )


QUEUE: Final[dict[str, Callable[..., int]]] = {
    "submit": submit,
    "schedule": schedule,
    "queue": show,
    "schedules": schedules,
    "wait": wait,
    "suspend": suspend,
    "resume": resume,
    "cancel": cancel,
    "unschedule": unschedule,
    "serve": serve,
}
"""By name, in the order of the help."""
