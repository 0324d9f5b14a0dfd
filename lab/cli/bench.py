"""``elf bench``: a command for each bench, made of its class, whose fields are the options.

A class is imported when its command is asked for: most benches import whole agents.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from elf.cli.options import JsonLine, SeveralValues

if TYPE_CHECKING:
    from lab.bench.runner import Bench

BENCHES: Final = {
    "ingest": (
        "lab.bench.ingest.Ingest",
        "Events a second of one agent's ingest path, one core, against DuckDB on the same file.",
    ),
    "cbt": (
        "lab.bench.cbt.Cbt",
        "Word count in the buffer tree, against a dict, pyarrow, DuckDB and Google's hash maps.",
    ),
    "sliding": (
        "lab.bench.sliding.SlidingWindows",
        "Windows that slide, against tumbling ones of the same events, and against DuckDB; one thread.",
    ),
    "windows": (
        "lab.bench.windows.Windows",
        "Ten windows on one job, against one, in CPU time; one thread.",
    ),
    "graph": (
        "lab.bench.graph.GraphRanks",
        "PageRank of a window's edges by WITH GRAPH, against scipy alone, in CPU time; one thread.",
    ),
    "sharing": (
        "lab.bench.sharing.Sharing",
        "A job with longer windows beside another: on its panes, or on own ones, in CPU time; one thread.",
    ),
    "idle": (
        "lab.bench.idle.Idle",
        "CPU and memory of an agent that has nothing to do, without a job and with one.",
    ),
    "guest": (
        "lab.bench.guest.Guest",
        "nginx's answers beside an agent whose jobs want twice its share, and beside none.",
    ),
    "within": (
        "lab.bench.within.bench.Within",
        "Do jobs keep what they promise (WITHIN): on fleets, under overload, and beside Spark?",
    ),
    "page": (
        "lab.bench.page.Page",
        "What subscribers of a job, and a browser with the page, take from an agent; how soon it is seen.",
    ),
    "tables": (
        "lab.bench.tables.Tables",
        "Rows of a table are asked for by key while windows go in: how soon are they there?",
    ),
    "control": (
        "lab.bench.control_measures.Control",
        "Real agents on loopback: how soon they are ready, run a job, hear a notice, give a window's result.",
    ),
    "security": (
        "lab.bench.security.SecurityCost",
        "The same fleet without keys and with them: a window's delay, and CPU from logs to windows.",
    ),
    "failover": (
        "lab.bench.failover.Failover",
        "Agents are killed, restarted or stopped while they work: how long until the next correct window?",
    ),
    "wan": (
        "lab.bench.wan.Wan",
        "Real agents in three regions joined by slow links: bytes across borders, and how late windows are.",
    ),
    "copies": (
        "lab.bench.copies.Copies",
        "Eager copies beside lazy ones: CPU and bytes, and rows lost of an agent that is gone with its disk.",
    ),
    "outputs": (
        "lab.bench.outputs.bench.Outputs",
        "Masters are killed while windows go to a real PostgreSQL: is every window there, and right?",
    ),
    "offload": (
        "lab.bench.offload.Offload",
        "A costly map in Python leaves its web server: what both agents take of a core, before and after.",
    ),
    "since": (
        "lab.bench.since.Since",
        "Simulated agents with an hour of archives each: how soon windows of a job that begins there come.",
    ),
    "durability": (
        "lab.bench.durability.Durability",
        "What it costs that nothing is lost: a stream task with and without syncs; fsyncs of a fleet.",
    ),
    "jobs": (
        "lab.bench.jobs.Jobs",
        "Many jobs of few queries on a fleet, beside those queries alone: CPU, messages, disk, memory.",
    ),
    "campaign": (
        "lab.bench.campaign.Campaign",
        "Posts beside many agents: who sells most, a closer look while it runs, the same windows by Spark.",
    ),
    "topk": (
        "lab.bench.topk.TopK",
        "What goes up of a LIMIT's groups: thresholds beside all groups, TPUT and APPROXIMATE.",
    ),
    "samples": (
        "lab.bench.samples.Samples",
        "Do the intervals of SAMPLE hold the truth? A drawn log by elf run, whole and in samples.",
    ),
    "plan": (
        "lab.bench.plan.Planning",
        "From text to plan: every example, and a thousand jobs that share flows; CPU time of one thread.",
    ),
    "differential": (
        "lab.bench.differential.bench.Differential",
        "Random queries over random logs: live, DuckDB on all rows and Spark; non-zero when they differ.",
    ),
    "rotation": (
        "lab.bench.rotation.bench.RotationBench",
        "A log is rotated in every way, its agent dies meanwhile: is each row in a window or in a named gap?",
    ),
    "inputs": (
        "lab.bench.inputs.bench.InputsBench",
        "curl, OpenTelemetry, rsyslog and nginx send, and their agent is killed: what is lost, or twice?",
    ),
    "fuzz": (
        "lab.bench.fuzz.bench.Fuzz",
        "Frames that no honest agent sends, by the million: does any agent stop, fail, grow or change?",
    ),
    "native": (
        "lab.bench.native.bench.Native",
        "The native extractor against DuckDB's SQL, on drawn and spoilt lines: non-zero when they differ.",
    ),
    "offline": (
        "lab.bench.offline.Offline",
        "Spark over an archive of 30 days, against a query by hand and the raw log; one hour; compare.",
    ),
    "queue": (
        "lab.bench.queue.Queue",
        "A production run beside a research run on a standalone Spark of this machine, and each alone.",
    ),
    "peers": (
        "lab.bench.peers.bench.Peers",
        "Polars, Flink, Spark, Pathway and Bytewax on elf's job and one core; all answers must be the same.",
    ),
    "stages": (
        "lab.bench.stages.Stages",
        "A job of two stages with one root and with several, simulated with a core each: the second stage.",
    ),
    "history": (
        "lab.bench.history.History",
        "The rows of a window, out of a day of archives on many agents.",
    ),
    "paper": (
        "lab.bench.paper.bench.Paper",
        "The figures of the paper's evaluation, from one command: curves, where elf loses, one page.",
    ),
    "all": (
        "lab.bench.suite.Suite",
        "Every bench, in sizes that take half an hour in all: one table, a row a figure, with its command.",
    ),
}
"""By command, the class and the help."""


class Benches(TyperGroup):
    """Makes each command when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(BENCHES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command_of(cmd_name) if cmd_name in BENCHES else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in BENCHES.items()])


class SeveralEngines(SeveralValues):
    """A command whose ``--engines`` and ``--install`` take all words up to the next option."""

    several: ClassVar[tuple[str, ...]] = ("--engines", "--install")


app = typer.Typer(cls=Benches, help="Measure elf on this machine.", no_args_is_help=True)


@app.callback()
def _measure() -> None:
    pass


def command_of(name: str) -> Any:
    """The command of one bench."""
    path, help = BENCHES[name]
    module, _, cls = path.rpartition(".")
    bench = getattr(importlib.import_module(module), cls)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    kind: type[TyperCommand] = SeveralEngines if name == "peers" else TyperCommand
    alone.command(name, cls=kind, help=help)(run_of(bench))
    return typer.main.get_command(alone)


def run_of(bench: Callable[..., Bench[Any, Any]]) -> Callable[..., int]:
    """What typer calls: a function whose parameters are those fields of the bench that are options."""

    def run(*, as_json: bool, **options: object) -> int:
        return bench(**options).perform(as_json=as_json)

    hints = get_type_hints(bench, include_extras=True)
    options = [one for one in inspect.signature(bench).parameters.values() if is_option(hints[one.name])]
    parameters = [one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name]) for one in options]
    json = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonLine)
    run.__signature__ = inspect.Signature([*parameters, json])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*parameters, json)}
    return run


def is_option(hint: object) -> bool:
    """Whether a field is one: others are for tests."""
    return get_origin(hint) is Annotated
