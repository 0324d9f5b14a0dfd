"""``elf offline``: the archive without the fleet, by Spark.

``run`` answers any query over archived lines; Spark parses them itself. Nothing half-written is taken for a
result: ``--out`` appears whole or not at all. ``submit`` puts such a query into a queue, which ``serve``
works on (``elf.cli.queue_commands``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
    JobName,
    KeysOption,
    Output,
    OutputOption,
    SqlFile,
    ToMoment,
    databases,
    group,
)
from elf.cli.queue_commands import LOCAL, QUEUE, SparkConf, SparkMaster
from elf.errors import UserError

app = group("Queries over the archive, by Spark.")


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
        query=ArchiveQuery(query, file, archive or (), begin, end, column or ()),
        job=job,
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
def reduce(
    out: Annotated[
        str,
        typer.Option("--out", metavar="FILE", help="Where they go: a path, or a URI, in .states."),
    ],
    query: Annotated[str | None, typer.Option("--query", "-q", help="The query.", metavar="SQL")] = None,
    file: SqlFile = None,
    archive: ArchivePaths = None,
    begin: FromMoment = None,
    end: ToMoment = None,
    column: ColumnTypes = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Name files that are damaged, and reduce the others.")
    ] = False,
    master: SparkMaster = LOCAL,
    conf: SparkConf = None,
) -> int:
    """Reduce an archive to the partial states of a query, which are merged elsewhere.

    elf offline reduce --archive /srv/elf/archive -f daily.sql --from 2026-01-01 --out eu.states
    """
    from elf.cli.offline_reduce import ReduceOptions, run_reduce

    options = ReduceOptions(
        query=ArchiveQuery(query, file, archive or (), begin, end, column or ()),
        out=out,
        skip_damaged=skip_damaged,
        master=master,
        conf=tuple(conf or ()),
    )
    return run_reduce(options)


@app.command()
def merge(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Of elf offline reduce, or merge: paths, or URIs.")
    ],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Partial states again (.states), or rows (.parquet, .csv, .json)."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    json: Annotated[bool, typer.Option("--json", help="Short for --output json.")] = False,
) -> int:
    """Merge partial states of several regions, to rows or to partial states again.

    elf offline merge eu.states ap.states --out daily.parquet
    """
    from elf.cli.offline_reduce import run_merge

    return run_merge(files, out, Output.JSON if json else output)


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


for _name, _command in QUEUE.items():
    app.command(_name)(_command)
