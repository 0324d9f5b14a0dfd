"""The demo's story, and what it shows while the job runs (in place in a terminal, plain lines otherwise): the
fleet gathers, a job is submitted, windows come, Spark checks them, everything is gone.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from elf.cli.compare import check_spark
from elf.cli.demo import fleet as layout
from elf.cli.demo.fleet import CLICKS, CLUSTER, Fleet, Place, gathered, reached, told, workplace
from elf.cli.errors import INTERRUPTED
from elf.cli.printing import console, rich_table, use_utf8
from elf.cli.processes import Processes, ended
from elf.cli.tree import read_tree, shape
from elf.client import Client, Window, user_name
from elf.client.values import cell, for_terminal
from elf.errors import ElfError
from elf.job.spec import topics_of
from overlay.ids import closeness, node_id, to_int

JOB: Final = "micro_promotion"
WINDOW_WAIT_SECS: Final = 30.0
"""How long a window may be overdue before the demo gives up."""


@dataclass(frozen=True)
class Scene:
    """What stays the same from window to window, but for the tree, which may still grow."""

    job: str
    submitted_to: str
    master: str
    tree: str


class Screen(Protocol):
    """Where windows are shown."""

    def show(self, window: Window, scene: Scene) -> None: ...


def facts_of(window: Window) -> str:
    """Time, coverage and speed of a window in a line."""
    status = window.status
    rows = _number(status.get("rows_in"))
    seconds = (window.end - window.start).total_seconds() if window.start and window.end else 0.0
    span = f"{window.start:%H:%M:%S} – {window.end:%H:%M:%S}" if window.start and window.end else "all"
    speed = f", {rows / seconds:,.0f} rows/s" if seconds else ""
    late = _number(status.get("late"))
    revision = f", revision {window.revision}" if window.revision else ""
    return (
        f"{span}  {cell(status.get('reported'))} of {cell(status.get('expected'))} agents, "
        f"{rows:,} rows{speed}, {late} late{revision}"
    )


@contextmanager
def screen(console: Console) -> Iterator[Screen]:
    """A screen on that console."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield _LiveScreen(live)
    else:
        yield _PlainScreen(console)


class _LiveScreen:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, window: Window, scene: Scene) -> None:
        head = Text.assemble((scene.job, "bold"), f"  {facts_of(window)}")
        foot = Text(f"submitted to {scene.submitted_to}, master {scene.master}\ntree: {scene.tree}", "dim")
        self._live.update(Group(head, rich_table(window.table), foot), refresh=True)


class _PlainScreen:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._scene: Scene | None = None

    def show(self, window: Window, scene: Scene) -> None:
        if scene != self._scene:
            self._print(f"{scene.job}: submitted to {scene.submitted_to}, master {scene.master}")
            self._print(f"tree: {scene.tree}")
            self._scene = scene
        self._print(f"{facts_of(window)}")
        names = [name for name in window.table.column_names if not name.startswith("window_")]
        rows = zip(*(window.table[name].to_pylist() for name in names), strict=True)
        for place, row in enumerate(rows, 1):
            self._print(f"  {place:2}. {'  '.join(map(cell, row))}")

    def _print(self, line: str) -> None:
        self._console.print(for_terminal(line), soft_wrap=True)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class DemoOptions:
    """The command line of ``elf demo``."""

    windows: int
    window_seconds: int
    rate: float
    keep: Path | None
    agents: int = len(layout.STREAMS)
    """Of an application; the plain demo has one for each of its logs."""


def job_sql(window_seconds: int) -> str:
    """The statement that the demo submits: the paper's micro-promotion."""
    return (
        f"CREATE JOB {JOB} AS\n"
        "SELECT product, SUM(clicks_count) AS clicks FROM clicks WHERE store == 'video_games'\n"
        f"GROUP BY product ORDER BY clicks DESC LIMIT 10 WINDOWING {window_seconds} SECONDS"
    )


def run_demo(options: DemoOptions) -> int:
    """Play; 0 when live and offline agree. Raises ``ElfError`` when something does not come about."""
    use_utf8()
    _check_offline()
    out = console(sys.stdout)
    with workplace(options.keep) as folder, ended() as processes:
        began = time.monotonic()
        places = layout.places(folder)
        fleet = layout.start(processes, places, options.rate)
        out.print(f"starting {len(places)} agents in {folder}", highlight=False)
        address = asyncio.run(told(processes, fleet, _story(fleet, options, out, began)))
        processes.stop(fleet.generators)
        return _compare(processes, address)


def _check_offline() -> None:
    """Raise ``UserError`` now rather than after half a minute when Spark can't run here."""
    check_spark()
    from spark_backend import java

    java.ensure()


# -- live ----------------------------------------------------------------------------------------------------


async def _story(fleet: Fleet, options: DemoOptions, out: Console, began: float) -> str:
    place = submit_place(fleet.places, user_name())
    async with await reached(place, began) as client:
        await gathered(client, fleet, began)
        seconds = time.monotonic() - began
        out.print(f"{len(fleet.places)} agents are members after {seconds:.1f} s", highlight=False)
        sql = job_sql(options.window_seconds)
        out.print(f'\nelf sql --connect {place.address} -e "{sql};"', markup=False, highlight=False)
        said = await client.sql(sql)
        out.print(f"{said.text}\n", markup=False, highlight=False)
        await _windows(client, fleet, place, options, out)
    return place.address


async def _windows(client: Client, fleet: Fleet, place: Place, options: DemoOptions, out: Console) -> None:
    names = {one.address: f"{one.name} ({one.address})" for one in fleet.places}
    with screen(out) as shown:
        windows = client.subscribe(JOB, options.windows)
        limit = options.window_seconds + WINDOW_WAIT_SECS
        while (window := await _next(windows, limit)) is not None:
            facts = read_tree(await client.tree(JOB))
            master = names.get(facts.master, facts.master)
            shown.show(window, Scene(JOB, names[place.address], master, str(shape(facts.flows[0]))))


async def _next(windows: AsyncGenerator[Window, None], limit_secs: float) -> Window | None:
    """The next window; None at the end. Raises ``ElfError`` when it is overdue."""
    try:
        async with asyncio.timeout(limit_secs):
            return await anext(windows, None)
    except TimeoutError:
        raise ElfError(f"no window of {JOB} came within {limit_secs:g} s") from None


def submit_place(places: Sequence[Place], creator: str) -> Place:
    """A shop's agent that will not be the job's master: that is nearest to one of the job's two keys."""
    masters = [
        min(places, key=lambda place: closeness(to_int(key), node_id(place.address)))
        for key in topics_of(JOB, creator)
    ]
    return next(place for place in places if place.stream == CLICKS and place not in masters)


# -- offline -------------------------------------------------------------------------------------------------


def _compare(processes: Processes, address: str) -> int:
    """``elf compare``, as a process: Spark's own processes are then in a group that can be ended."""
    args = ["compare", JOB, "--connect", address, "--cluster", CLUSTER]
    print(f"\nelf compare {JOB} --connect {address}", flush=True)
    compare = processes.start("elf compare", "elf.cli.main", args, None)
    status = compare.process.wait()
    return status if status >= 0 else INTERRUPTED
