"""``elf bench since``: a job begins an hour ago, on simulated agents that have archived that hour; how long,
in virtual time, until its first window of the past is committed, and until all are?

An agent reads a slice of its archive in the time that the simulation gives to any long work. Rows are few:
what is measured is the way of the protocol, from CREATE JOB to windows, and not how fast rows are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from typer import Option

from agents.tasks.past import SLICE_ROWS
from elf.errors import ElfError
from lab.bench.options import Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch, median
from lab.chaos.agent import SimAgent
from lab.chaos.books import windows_of
from lab.chaos.engine import SECOND, plan
from lab.chaos.jobs import since
from lab.chaos.world import World

WINDOW_S: Final = 60
STEP_MS: Final = 10
LIMIT_MS: Final = 60_000
TARGET_MS: Final = (1_000.0, 2_000.0)
"""Of the first window and of all."""


class Reader(SimAgent):
    past_rows = SLICE_ROWS


class Archived(World):
    agent_type = Reader


class Came(msgspec.Struct, frozen=True):
    """Virtual ms from CREATE JOB to the first window of the past, and to all of so many."""

    first_ms: float
    all_ms: float
    windows: int


@dataclass(frozen=True)
class Since(Bench[str, Came]):
    """With other seeds in each run."""

    agents: Annotated[int, Option(help="Simulated agents.", min=1)] = 64
    minutes: Annotated[int, Option(help="What they have archived.", min=2)] = 60
    every_ms: Annotated[int, Option(help="Between two rows of an agent.", min=1)] = 2_000
    repeat: Repeat = 3

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Came]]:
        seeds = iter(range(1, self.repeat + 1))
        return {"elf": lambda: self._came(next(seeds))}

    def _came(self, seed: int) -> Came:
        world = Archived(seed, self.agents, checking=False)
        world.now = now = 100_000_000
        begin = now - 60_000 * self.minutes
        for agent in world.agents:
            for place, ts in enumerate(range(begin, now, self.every_ms)):
                agent.log.add(1_000 * ts, "abcdef"[(place + agent.index) % 6])
        world.start_all(world.agents)
        world.run_until(lambda: all(not agent.tasks["clicks"].unread for agent in world.agents))
        world.run(3_000)
        created = world.now
        since_us = 1_000 * begin
        world.submit(0, since(plan(WINDOW_S), since_us), "past")
        starts = set(
            range(
                -(-since_us // (WINDOW_S * SECOND)) * WINDOW_S * SECOND,
                1_000 * now - WINDOW_S * SECOND,
                WINDOW_S * SECOND,
            )
        )
        first_ms: float | None = None
        while world.now - created < LIMIT_MS:
            world.run(STEP_MS)
            there = self._there(world)
            if there and first_ms is None:
                first_ms = world.now - created
            if first_ms is not None and starts <= there.keys():
                wrong = [start for start in starts if there[start] != self.agents]
                if wrong:
                    raise ElfError(f"{len(wrong)} windows of the past lack agents")
                return Came(first_ms, world.now - created, len(starts))
        raise ElfError(
            f"after {LIMIT_MS / 1000:g} s of virtual time {len(there)} of {len(starts)} windows are there"
        )

    @staticmethod
    def _there(world: World) -> dict[int, int]:
        """How many agents are in each window that is committed, by its start (µs)."""
        log = world.longest()
        found = {}
        for spec in log.jobs() if log is not None else ():
            for row in world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
                for span, status, _ in windows_of(row):
                    found[span[0]] = int(str(status["reported"]))
        return found

    def report(self, runs: Mapping[str, Sequence[Came]]) -> Report:
        came = runs["elf"]
        first, all_ = (median(came, name) for name in ("first_ms", "all_ms"))
        facts: dict[str, object] = {
            "agents": self.agents,
            "minutes": self.minutes,
            "windows": came[0].windows,
        }
        facts |= {"first_ms": first, "all_ms": all_, "virtual": True}
        figures = [
            Figure("first window of the past", first, "ms of virtual time", {"target": TARGET_MS[0]}),
            Figure("all windows of the past", all_, "ms of virtual time", {"target": TARGET_MS[1]}),
        ]
        return Report(facts, figures)
