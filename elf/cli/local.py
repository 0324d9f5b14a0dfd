"""The commands that need no fleet: ``run``, ``generate``, ``demo``, ``bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elf.cli.choices import (
    BenchFormat,
    BenchKeys,
    BenchQuery,
    DemoApp,
    Detect,
    LogKind,
    Output,
    RotationWriter,
    Strike,
)
from elf.cli.options import OutputOption, SeveralEngines, SeveralValues, SqlFile, one_text


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command(cls=SeveralValues)(run)
    app.command()(demo)
    app.command()(generate)
    app.add_typer(_bench, name="bench")


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
        typer.Option("--stream", metavar="NAME=PATH...", help="Log files of a stream of that name."),
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="combined, common or json; told from the lines if absent.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="COLUMN", help="The column with the event time.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=TYPE",
            help="A column's type: bigint, double, text, boolean or timestamp; others are told from samples.",
        ),
    ] = None,
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
    """Answer one query over log files, through the same agents, trees and masters as a fleet."""
    from elf.cli.run import RunOptions, run_query

    sql = one_text(query, file, "-q SQL and -f FILE")
    options = RunOptions(
        tuple(inputs or ()),
        tuple(stream or ()),
        format,
        timestamp,
        tuple(column or ()),
        agents,
        output,
        status,
        summary,
    )
    return run_query(sql, options)


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
    from elf.cli.demo import DemoOptions, run_app, run_demo

    if app is not None:
        return run_app(app.value, DemoOptions(windows, window_seconds or 3, rate, keep, agents))
    return run_demo(DemoOptions(windows, window_seconds or 5, rate, keep))


_bench = typer.Typer(help="Measure elf on this machine.", no_args_is_help=True)

_Repeat = Annotated[int, typer.Option("--repeat", min=1, help="Runs of each; the median counts.")]
_Json = Annotated[bool, typer.Option("--json", help="The last line is one JSON object.")]
_Products = Annotated[int, typer.Option("--products", min=1, help="Distinct keys, Zipf 1.2.")]
_Hosts = Annotated[
    int, typer.Option("--hosts", min=0, help="So many processes share the agents; 0: each has its own.")
]
_Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the figures: .png or .svg.")]


def generate(
    kind: Annotated[
        LogKind,
        typer.Argument(
            help="clicks: the click stream of an e-commerce site, JSON lines (Figure 4 of the paper); "
            "access: a web access log in the combined format; posts: a social network's, with a spam "
            "campaign in them, JSON lines (section 4.1)."
        ),
    ],
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="Where to; - is standard output.")],
    rows: Annotated[
        int | None, typer.Option("--rows", min=0, help="How many lines (default 100000 without --rate).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same lines.")] = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", min=0.001, help="Append at so many lines a second, with the time of the clock."
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="With --rate: stop after that.")
    ] = None,
    per_second: Annotated[
        float,
        typer.Option("--per-second", min=0.001, help="Without --rate: lines in a second of event time."),
    ] = 1000,
    start: Annotated[
        str, typer.Option("--start", help="Without --rate: event time of the first line, UTC.")
    ] = "2026-01-01T00:00:00Z",
    disorder: Annotated[
        float | None,
        typer.Option(
            "--disorder", min=0, help="Lines may be so many seconds behind, most less (0.5; access 0)."
        ),
    ] = None,
    bad: Annotated[float, typer.Option("--bad", min=0, max=1, help="Share of lines that don't parse.")] = 0,
) -> int:
    """Write a log file to try elf on."""
    from elf.cli.generate import GenerateOptions, generate

    if disorder is None:
        disorder = 0 if kind is LogKind.ACCESS else 0.5
    return generate(
        GenerateOptions(kind.value, out, rows, seed, rate, seconds, per_second, start, disorder, bad)
    )


@_bench.command()
def ingest(
    input: Annotated[Path, typer.Option("--input", metavar="FILE", help="A log file.")],
    query: Annotated[str, typer.Option("--query", metavar="SQL", help="The query.")],
    format: Annotated[BenchFormat, typer.Option("--format", help="The file's format.")] = BenchFormat.JSON,
    repeat: _Repeat = 3,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="So many jobs on the stream.")] = 1,
    distinct: Annotated[int, typer.Option("--distinct", min=1, help="Different fragments among them.")] = 1,
    cores: Annotated[
        int, typer.Option("--cores", min=1, max=2, help="2: read and map beside each other.")
    ] = 1,
    archive: Annotated[bool, typer.Option("--archive", help="Archive every line, too.")] = False,
    json: _Json = False,
    plot: _Plot = None,
) -> int:
    """Events a second of one agent's ingest path, one core, against DuckDB on the same file."""
    from elf.bench.ingest import Task, bench_ingest

    task = Task(str(input), format.value, query, "", jobs, distinct, cores, archive)
    return bench_ingest(input, task, repeat, as_json=json, plot=plot)


@_bench.command()
def cbt(
    keys: Annotated[BenchKeys, typer.Option("--keys", help="How keys are drawn; unique: each once.")] = (
        BenchKeys.ZIPF
    ),
    distinct: Annotated[
        list[int] | None,
        typer.Option("--distinct", min=1, help="Different keys; repeat it for a curve. Default 1000000."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Keys counted (20000000; unique: as many as differ).")
    ] = None,
    key_length: Annotated[int, typer.Option("--key-length", min=1, max=1024, help="Bytes of a key.")] = 12,
    memory_max: Annotated[
        int | None, typer.Option("--memory-max", min=1, metavar="MIB", help="The tree spills past so much.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="SIDE", help="Run these sides only (elf, dict, …).")
    ] = None,
    repeat: _Repeat = 3,
    json: _Json = False,
    plot: _Plot = None,
) -> int:
    """Word count in the buffer tree, against a dict, pyarrow, DuckDB and Google's hash maps."""
    from elf.bench.cbt import bench_cbt, sides_of, works_of

    works = works_of(
        keys.value, distinct or [1_000_000], rows, key_length, memory_max << 20 if memory_max else None
    )
    return bench_cbt(works, sides_of(only), repeat, as_json=json, plot=plot)


@_bench.command()
def sliding(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Events in the hour.")] = 2_000_000,
    products: _Products = 200_000,
    size: Annotated[int, typer.Option("--size", min=1, help="Seconds of a window.")] = 300,
    slide: Annotated[int, typer.Option("--slide", min=1, help="Seconds between windows.")] = 5,
    repeat: _Repeat = 3,
    json: _Json = False,
) -> int:
    """Windows that slide, against tumbling ones of the same events, and against DuckDB; one thread."""
    from elf.bench.sliding import Shape, bench_sliding

    return bench_sliding(Shape(rows, products, size, slide), repeat, as_json=json)


@_bench.command()
def windows(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Events in the hour.")] = 1_000_000,
    products: _Products = 10_000,
    repeat: _Repeat = 3,
    json: _Json = False,
) -> int:
    """Ten windows on one job, against one, in CPU time; one thread."""
    from elf.bench.windows import bench_windows

    return bench_windows(rows, products, repeat, as_json=json)


@_bench.command()
def sharing(
    rows: Annotated[int, typer.Option("--rows", min=1, help="Events in the hour.")] = 1_000_000,
    products: _Products = 10_000,
    short: Annotated[int, typer.Option("--short", min=1, help="Seconds of a window of the first job.")] = 1,
    long: Annotated[int, typer.Option("--long", min=2, help="Seconds of a window of the other.")] = 60,
    repeat: _Repeat = 3,
    json: _Json = False,
) -> int:
    """A job with longer windows beside another: on its panes, or on own ones, in CPU time; one thread."""
    from elf.bench.sharing import bench_sharing

    return bench_sharing(rows, products, short, long, repeat, as_json=json)


@_bench.command()
def idle(
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long each time.")] = 30,
    json: _Json = False,
) -> int:
    """CPU and memory of an agent that has nothing to do, without a job and with one."""
    from elf.bench.idle import bench_idle

    return bench_idle(seconds, as_json=json)


@_bench.command()
def control(
    agents: Annotated[int, typer.Option("--agents", min=1, help="How many agents.")] = 16,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each thing is done.")] = 15,
    hosts: _Hosts = 0,
    json: _Json = False,
) -> int:
    """Real agents on loopback: how soon they are ready, run a job, hear a notice, give a window's result."""
    from elf.bench.control import bench_control

    return bench_control(agents, rounds, hosts, as_json=json)


@_bench.command()
def failover(
    agents: Annotated[int, typer.Option("--agents", min=3, help="How many agents.")] = 16,
    strikes: Annotated[int, typer.Option("--strikes", min=1, help="How often one of them is struck.")] = 6,
    by: Annotated[Strike, typer.Option("--by", help="SIGKILL, SIGTERM, or SIGSTOP for 10 s.")] = Strike.KILL,
    window_ms: Annotated[int, typer.Option("--window-ms", min=100, help="Length of a window.")] = 1000,
    detect: Annotated[Detect, typer.Option("--detect", help="The agents' cluster.detect.")] = Detect.DEFAULT,
    seed: Annotated[int, typer.Option("--seed", help="Which agents are struck, and when.")] = 1,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=2, help="How many are struck at once.")] = 1,
    before: Annotated[
        str | None, typer.Option("--from", help="A checkout of an earlier elf: upgrade the agents from it.")
    ] = None,
    json: _Json = False,
) -> int:
    """Agents are killed, restarted or stopped while they work: how long until the next correct window?"""
    from elf.bench.failover import Options, bench_failover

    options = Options(agents, strikes, by.value, window_ms, detect.value, seed, at_once, before)
    return bench_failover(options, as_json=json)


@_bench.command()
def durability(
    rows: Annotated[int, typer.Option("--rows", min=1000, help="Clicks for the lane.")] = 1_000_000,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Runs of each side; medians.")] = 5,
    agents: Annotated[int, typer.Option("--agents", min=1, help="Agents of the fleet.")] = 3,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many jobs.")] = 100,
    fragments: Annotated[int, typer.Option("--distinct", min=1, help="Different fragments among them.")] = 10,
    window: Annotated[int, typer.Option("--window", min=1, help="Seconds of a window.")] = 5,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long fsyncs are counted.")] = 20.0,
    backlog: Annotated[int, typer.Option("--backlog", min=1, help="MiB before a starting agent.")] = 1024,
    json: _Json = False,
) -> int:
    """What it costs that nothing is lost: a lane with and without waiting for the disk; fsyncs of a fleet."""
    from elf.bench.durability import Options, bench_durability

    options = Options(rows, repeat, agents, jobs, fragments, window, seconds, backlog)
    return bench_durability(options, as_json=json)


@_bench.command()
def jobs(
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many jobs.")] = 1000,
    distinct: Annotated[int, typer.Option("--distinct", min=1, help="Different queries among them.")] = 50,
    agents: Annotated[int, typer.Option("--agents", min=1, help="How many agents.")] = 3,
    window: Annotated[int, typer.Option("--window", min=1, help="Seconds of a window.")] = 5,
    windows: Annotated[int, typer.Option("--windows", min=1, help="How many are measured.")] = 6,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Statements under way.")] = 8,
    hosts: _Hosts = 0,
    lines: Annotated[float, typer.Option("--lines", min=0.1, help="Lines a second, of all agents.")] = 15.0,
    json: _Json = False,
) -> int:
    """Many jobs of few queries on a fleet, beside those queries alone: CPU, messages, disk, memory."""
    from elf.bench.jobs import Options, bench_jobs

    return bench_jobs(Options(jobs, distinct, agents, window, windows, at_once, hosts, lines), as_json=json)


@_bench.command()
def topk(
    agents: Annotated[int, typer.Option("--agents", min=1, help="How many agents.")] = 6,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of a pane, of all agents.")] = 200_000,
    keys: Annotated[int, typer.Option("--keys", min=2, help="Different keys.")] = 50_000,
    skew: Annotated[float, typer.Option("--skew", min=0, help="Of Zipf's law; 0: all keys alike.")] = 1.05,
    first: Annotated[int, typer.Option("--first", min=1, help="The LIMIT.")] = 10,
    panes: Annotated[int, typer.Option("--panes", min=1, help="How many; means.")] = 20,
    json: _Json = False,
) -> int:
    """What goes up of a LIMIT's groups: thresholds beside all groups, TPUT and APPROXIMATE."""
    from elf.bench.topk import bench_topk

    return bench_topk(agents, rows, keys, skew, first, panes, as_json=json)


@_bench.command()
def plan(
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many jobs.")] = 1000,
    fragments: Annotated[
        int, typer.Option("--distinct", min=1, help="Different fragments among them.")
    ] = 100,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Plans of each example; medians.")] = 9,
    json: _Json = False,
) -> int:
    """From text to plan: every example, and a thousand jobs that share flows; CPU time of one thread."""
    from elf.bench.plan import bench_plan

    return bench_plan(jobs, fragments, repeat, as_json=json)


@_bench.command()
def differential(
    queries: Annotated[int, typer.Option("--queries", min=1, help="How many random queries.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same queries and logs.")] = 1,
    only: Annotated[
        int | None, typer.Option("--only", min=0, metavar="NUMBER", help="This query of the seed alone.")
    ] = None,
    json: _Json = False,
) -> int:
    """Random queries over random logs: live, DuckDB on all rows and Spark; non-zero when they differ."""
    from elf.bench.differential.bench import Options, bench_differential

    return bench_differential(Options(queries, seed, only), as_json=json)


@_bench.command()
def rotation(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Cells whose names begin so.")
    ] = None,
    random: Annotated[
        int, typer.Option("--random", min=0, help="So many random cells instead of the matrix.")
    ] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same random cells.")] = 1,
    parallel: Annotated[int, typer.Option("--parallel", min=1, help="So many cells at a time.")] = 4,
    quick: Annotated[bool, typer.Option("--quick", help="A handful of cells.")] = False,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="DIR", help="Work in DIR and leave all of it there.")
    ] = None,
    writer: Annotated[
        RotationWriter, typer.Option("--writer", help="nginx with logrotate, or the same in Python.")
    ] = RotationWriter.NGINX,
    json: _Json = False,
) -> int:
    """A log is rotated in every way, its agent dies meanwhile: is each row in a window or in a named gap?"""
    from elf.bench.rotation.bench import Options, bench_rotation

    options = Options(tuple(only or ()), random, seed, parallel, quick, keep, writer.value)
    return bench_rotation(options, as_json=json)


@_bench.command(cls=SeveralEngines)
def peers(
    query: Annotated[BenchQuery, typer.Option("--query", help="The job.")] = BenchQuery.INGEST,
    rows: Annotated[
        int | None, typer.Option("--rows", min=1, help="Events (ingest: 1000000, sliding: 400000).")
    ] = None,
    engines: Annotated[
        list[str] | None,
        typer.Option("--engines", metavar="NAME...", help="These, not all that are installed."),
    ] = None,
    envs: Annotated[Path, typer.Option("--envs", metavar="DIR", help="Where their environments are.")] = (
        Path("~/.cache/elf/peers")
    ),
    install: Annotated[
        list[str] | None,
        typer.Option(
            "--install", metavar="NAME...", help="Make environments for these, and measure nothing."
        ),
    ] = None,
    repeat: _Repeat = 3,
    json: _Json = False,
    plot: _Plot = None,
) -> int:
    """Polars, Flink, Spark, Pathway and Bytewax on elf's job and one core; all answers must be the same."""
    from elf.bench.peers import bench
    from elf.bench.peers import engines as known

    if install:
        return known.install(install, envs.expanduser().absolute())
    return bench.bench_peers(query.value, rows, repeat, engines or None, envs, as_json=json, plot=plot)
