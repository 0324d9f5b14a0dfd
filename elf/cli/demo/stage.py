"""What every demo needs: a folder, a fleet that gathers, and a watch on its processes while the story is
told."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from elf.cli.demo.fleet import CLUSTER, Fleet, Place
from elf.cli.processes import Processes, Running
from elf.client import Client, connect
from elf.errors import ElfError, UserError

GATHER_SECS: Final = 45.0
"""How long the agents have to find each other."""

POLL_SECS: Final = 0.25

T = TypeVar("T")


@contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """A folder that is gone afterwards, or the one that is to be kept."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="elf-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UserError(f"{keep} is there already; --keep wants a new or empty folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


async def told(processes: Processes, fleet: Fleet, story: Coroutine[Any, Any, T]) -> T:
    """What a story comes to. Ends with an error when one of the fleet's processes does."""
    telling = asyncio.ensure_future(story)
    watch = asyncio.ensure_future(_watch(processes, (*fleet.agents, *fleet.generators)))
    try:
        await asyncio.wait({telling, watch}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done() and not telling.done():
            watch.result()
        return await telling
    finally:
        for task in (telling, watch):
            task.cancel()
        await asyncio.gather(telling, watch, return_exceptions=True)


async def _watch(processes: Processes, children: tuple[Running, ...]) -> None:
    """Ends, with an error, when a process does."""
    while True:
        processes.check(children)
        await asyncio.sleep(POLL_SECS)


async def reached(place: Place, began: float) -> Client:
    """A client of an agent that may still be starting."""
    while True:
        client = connect(place.address, cluster=CLUSTER)
        try:
            return await client.open()
        except ElfError as error:
            if time.monotonic() - began > GATHER_SECS:
                raise ElfError(f"{place.name} did not come up within {GATHER_SECS:g} s: {error}") from None
            await asyncio.sleep(POLL_SECS)


async def gathered(client: Client, fleet: Fleet, began: float) -> None:
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
