"""``elf bench``: a command for each bench, whose options are its fields, and ``all`` of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elf.cli.choices import BenchFormat, BenchKeys, BenchQuery, Detect, RotationWriter, Strike
from elf.cli.options import SeveralEngines

if TYPE_CHECKING:
    from elf.bench.runner import Bench

app = typer.Typer(help="Measure elf on this machine.", no_args_is_help=True)

_Repeat = Annotated[int, typer.Option("--repeat", min=1, help="Runs of each; the median counts.")]
_Json = Annotated[bool, typer.Option("--json", help="The last line is one JSON object.")]
_Hour = Annotated[int, typer.Option("--rows", min=1, help="Events in the hour.")]
_Products = Annotated[int, typer.Option("--products", min=1, help="Distinct keys, Zipf 1.2.")]
_Agents = Annotated[int, typer.Option("--agents", min=1, help="How many agents.")]
_Hosts = Annotated[
    int, typer.Option("--hosts", min=0, help="So many processes share the agents; 0: each has its own.")
]
_Jobs = Annotated[int, typer.Option("--jobs", min=1, help="How many jobs.")]
_Fragments = Annotated[int, typer.Option("--distinct", min=1, help="Different fragments among them.")]
_Window = Annotated[int, typer.Option("--window", min=1, help="Seconds of a window.")]
_Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the figures: .png or .svg.")]


def _perform(bench: Bench[Any, Any], as_json: bool) -> int:
    from elf.bench.runner import perform

    return perform(bench, as_json=as_json)


@app.command()
def ingest(
    input: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="A log file; one is generated if absent.")
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="SQL", help="The query; one for generated logs if absent."),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Lines, where they are generated.")] = 1_000_000,
    format: Annotated[BenchFormat, typer.Option("--format", help="The file's format.")] = BenchFormat.JSON,
    repeat: _Repeat = 3,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="So many jobs on the stream.")] = 1,
    distinct: _Fragments = 1,
    cores: Annotated[
        int, typer.Option("--cores", min=1, max=2, help="2: read and map beside each other.")
    ] = 1,
    archive: Annotated[bool, typer.Option("--archive", help="Archive every line, too.")] = False,
    json: _Json = False,
    plot: _Plot = None,
) -> int:
    """Events a second of one agent's ingest path, one core, against DuckDB on the same file."""
    from elf.bench.ingest import QUERIES, Ingest
    from elf.bench.measure import Task

    sql = query or QUERIES.get(format.value, QUERIES["combined"])
    task = Task("", format.value, sql, "", jobs, distinct, cores, archive)
    return _perform(Ingest(input, task, repeat, rows, plot), json)


@app.command()
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
    from elf.bench.cbt import Cbt, sides_of, works_of

    works = works_of(
        keys.value, distinct or [1_000_000], rows, key_length, memory_max << 20 if memory_max else None
    )
    return _perform(Cbt(works, sides_of(only), repeat, plot), json)


@app.command()
def sliding(
    rows: _Hour = 2_000_000,
    products: _Products = 200_000,
    size: Annotated[int, typer.Option("--size", min=1, help="Seconds of a window.")] = 300,
    slide: Annotated[int, typer.Option("--slide", min=1, help="Seconds between windows.")] = 5,
    repeat: _Repeat = 3,
    json: _Json = False,
) -> int:
    """Windows that slide, against tumbling ones of the same events, and against DuckDB; one thread."""
    from elf.bench.sliding import SlidingWindows

    return _perform(SlidingWindows(rows, products, size, slide, repeat), json)


@app.command()
def windows(
    rows: _Hour = 1_000_000,
    products: _Products = 10_000,
    repeat: _Repeat = 3,
    json: _Json = False,
) -> int:
    """Ten windows on one job, against one, in CPU time; one thread."""
    from elf.bench.windows import Windows

    return _perform(Windows(rows, products, repeat), json)


@app.command()
def sharing(
    rows: _Hour = 1_000_000,
    products: _Products = 10_000,
    short: Annotated[int, typer.Option("--short", min=1, help="Seconds of a window of the first job.")] = 1,
    long: Annotated[int, typer.Option("--long", min=2, help="Seconds of a window of the other.")] = 60,
    repeat: _Repeat = 3,
    json: _Json = False,
) -> int:
    """A job with longer windows beside another: on its panes, or on own ones, in CPU time; one thread."""
    from elf.bench.sharing import Sharing

    return _perform(Sharing(rows, products, short, long, repeat), json)


@app.command()
def idle(
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long each time.")] = 30,
    json: _Json = False,
) -> int:
    """CPU and memory of an agent that has nothing to do, without a job and with one."""
    from elf.bench.idle import Idle

    return _perform(Idle(seconds), json)


@app.command()
def control(
    agents: _Agents = 16,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often each thing is done.")] = 15,
    hosts: _Hosts = 0,
    json: _Json = False,
) -> int:
    """Real agents on loopback: how soon they are ready, run a job, hear a notice, give a window's result."""
    from elf.bench.control_measures import Control

    return _perform(Control(agents, rounds, hosts), json)


@app.command()
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
    from elf.bench.failover import Failover

    bench = Failover(agents, strikes, by.value, window_ms, detect.value, seed, at_once, before)
    return _perform(bench, json)


@app.command()
def durability(
    rows: Annotated[int, typer.Option("--rows", min=1000, help="Clicks for the lane.")] = 1_000_000,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Runs of each side; medians.")] = 5,
    agents: Annotated[int, typer.Option("--agents", min=1, help="Agents of the fleet.")] = 3,
    jobs: _Jobs = 100,
    fragments: _Fragments = 10,
    window: _Window = 5,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long fsyncs are counted.")] = 20.0,
    backlog: Annotated[int, typer.Option("--backlog", min=1, help="MiB before a starting agent.")] = 1024,
    json: _Json = False,
) -> int:
    """What it costs that nothing is lost: a lane with and without waiting for the disk; fsyncs of a fleet."""
    from elf.bench.durability import Durability

    return _perform(Durability(rows, repeat, agents, jobs, fragments, window, seconds, backlog), json)


@app.command()
def jobs(
    jobs: _Jobs = 1000,
    distinct: Annotated[int, typer.Option("--distinct", min=1, help="Different queries among them.")] = 50,
    agents: _Agents = 3,
    window: _Window = 5,
    windows: Annotated[int, typer.Option("--windows", min=1, help="How many are measured.")] = 6,
    at_once: Annotated[int, typer.Option("--at-once", min=1, help="Statements under way.")] = 8,
    hosts: _Hosts = 0,
    lines: Annotated[float, typer.Option("--lines", min=0.1, help="Lines a second, of all agents.")] = 15.0,
    json: _Json = False,
) -> int:
    """Many jobs of few queries on a fleet, beside those queries alone: CPU, messages, disk, memory."""
    from elf.bench.jobs import Jobs

    return _perform(Jobs(jobs, distinct, agents, window, windows, at_once, hosts, lines), json)


@app.command()
def topk(
    agents: _Agents = 6,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows of a pane, of all agents.")] = 200_000,
    keys: Annotated[int, typer.Option("--keys", min=2, help="Different keys.")] = 50_000,
    skew: Annotated[float, typer.Option("--skew", min=0, help="Of Zipf's law; 0: all keys alike.")] = 1.05,
    first: Annotated[int, typer.Option("--first", min=1, help="The LIMIT.")] = 10,
    panes: Annotated[int, typer.Option("--panes", min=1, help="How many; means.")] = 20,
    json: _Json = False,
) -> int:
    """What goes up of a LIMIT's groups: thresholds beside all groups, TPUT and APPROXIMATE."""
    from elf.bench.topk import TopK

    return _perform(TopK(agents, rows, keys, skew, first, panes), json)


@app.command()
def plan(
    jobs: _Jobs = 1000,
    fragments: _Fragments = 100,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Plans of each example; medians.")] = 9,
    json: _Json = False,
) -> int:
    """From text to plan: every example, and a thousand jobs that share flows; CPU time of one thread."""
    from elf.bench.plan import Planning

    return _perform(Planning(jobs, fragments, repeat), json)


@app.command()
def differential(
    queries: Annotated[int, typer.Option("--queries", min=1, help="How many random queries.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed, the same queries and logs.")] = 1,
    only: Annotated[
        int | None, typer.Option("--only", min=0, metavar="NUMBER", help="This query of the seed alone.")
    ] = None,
    json: _Json = False,
) -> int:
    """Random queries over random logs: live, DuckDB on all rows and Spark; non-zero when they differ."""
    from elf.bench.differential.bench import Differential

    return _perform(Differential(queries, seed, only), json)


@app.command()
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
    from elf.bench.rotation.bench import RotationBench

    bench = RotationBench(tuple(only or ()), random, seed, parallel, quick, keep, writer.value)
    return _perform(bench, json)


@app.command(cls=SeveralEngines)
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
    if install:
        from elf.bench.peers.engines import install as install_engines

        return install_engines(install, envs.expanduser().absolute())
    from elf.bench.peers.bench import Peers

    return _perform(Peers(query.value, rows, repeat, engines or None, envs, plot), json)


@app.command(name="all")
def every(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="These benches only; repeat it.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Write the table there: docs/benchmarks.md."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="As small as they can be: to try them, not to measure.")
    ] = False,
    json: _Json = False,
) -> int:
    """Every bench, in sizes that take half an hour in all: one table, a row a figure, with its command."""
    from elf.bench.suite import Suite

    return _perform(Suite(tuple(only or ()), quick, markdown), json)
