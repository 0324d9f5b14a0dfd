"""The demo's story: the fleet gathers, a job is submitted, windows come, Spark checks them, everything is
gone.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from elf.cli.compare import check_spark
from elf.cli.demo import fleet as layout
from elf.cli.demo.fleet import CLICKS, CLUSTER, Fleet, Place
from elf.cli.demo.show import Scene, screen
from elf.cli.errors import INTERRUPTED
from elf.cli.printing import console, use_utf8
from elf.cli.processes import Processes, Running, ended
from elf.cli.tree import read_tree, shape
from elf.client import Client, Window, connect, user_name
from elf.errors import ElfError, UserError
from elf.job.spec import topics_of
from overlay.ids import closeness, node_id, to_int

JOB: Final = "micro_promotion"
GATHER_SECS: Final = 45.0
"""How long the agents have to find each other."""

WINDOW_WAIT_SECS: Final = 30.0
"""How long a window may be overdue before the demo gives up."""

POLL_SECS: Final = 0.25


@dataclass(frozen=True)
class DemoOptions:
    """The command line of ``elf demo``."""

    windows: int
    window_seconds: int
    rate: float
    keep: Path | None


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
    with _folder(options.keep) as folder, ended() as processes:
        began = time.monotonic()
        places = layout.places(folder)
        fleet = layout.start(processes, places, options.rate)
        out.print(f"starting {len(places)} agents in {folder}", highlight=False)
        address = asyncio.run(_live(processes, fleet, options, out, began))
        processes.stop(fleet.generators)
        return _compare(processes, address)


def _check_offline() -> None:
    """Raise ``UserError`` now rather than after half a minute when Spark can't run here."""
    check_spark()
    from spark_backend import java

    java.ensure()


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="elf-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UserError(f"{keep} is there already; --keep wants a new or empty folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


# -- live ----------------------------------------------------------------------------------------------------


async def _live(processes: Processes, fleet: Fleet, options: DemoOptions, out: Console, began: float) -> str:
    """Gather, submit, show windows; the address of the agent that it all went through is returned."""
    story = asyncio.ensure_future(_story(fleet, options, out, began))
    watch = asyncio.ensure_future(_watch(processes, (*fleet.agents, *fleet.generators)))
    try:
        await asyncio.wait({story, watch}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not story.done():
            watch.result()
        return await story
    finally:
        for task in (story, watch):
            task.cancel()
        await asyncio.gather(story, watch, return_exceptions=True)


async def _watch(processes: Processes, children: tuple[Running, ...]) -> None:
    """Ends, with an error, when a process does."""
    while True:
        processes.check(children)
        await asyncio.sleep(POLL_SECS)


async def _story(fleet: Fleet, options: DemoOptions, out: Console, began: float) -> str:
    place = submit_place(fleet.places, user_name())
    async with await _reached(place, began) as client:
        await _gathered(client, fleet, began)
        gathered = time.monotonic() - began
        out.print(f"{len(fleet.places)} agents are members after {gathered:.1f} s", highlight=False)
        sql = job_sql(options.window_seconds)
        out.print(f'\nelf sql --connect {place.address} -e "{sql};"', markup=False, highlight=False)
        said = await client.sql(sql)
        out.print(f"{said.text}\n", markup=False, highlight=False)
        await _windows(client, fleet, place, options, out)
    return place.address


async def _reached(place: Place, began: float) -> Client:
    """A client of an agent that may still be starting."""
    while True:
        client = connect(place.address, cluster=CLUSTER)
        try:
            return await client.open()
        except ElfError as error:
            if time.monotonic() - began > GATHER_SECS:
                raise ElfError(f"{place.name} did not come up within {GATHER_SECS:g} s: {error}") from None
            await asyncio.sleep(POLL_SECS)


async def _gathered(client: Client, fleet: Fleet, began: float) -> None:
    """Until every agent is a live member of its stream, with something read."""
    wanted = {(place.stream, place.name) for place in fleet.places}
    while True:
        members = (await client.sql("SHOW MEMBERS")).table
        rows = members.to_pylist() if members is not None else []
        missing = wanted - {(row["stream"], row["agent"]) for row in rows if row["state"] == "live"}
        if not missing:
            return
        if time.monotonic() - began > GATHER_SECS:
            names = ", ".join(sorted(name for _, name in missing))
            raise ElfError(f"not all agents are members after {GATHER_SECS:g} s; missing: {names}")
        await asyncio.sleep(POLL_SECS)


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
