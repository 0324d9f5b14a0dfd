"""A master that is moved while a window is under way: real nodes of a simulated fleet, each with a core of
its own (``lab.bench.simulated``), one job whose windows have many keys.

*Instant* is what ``ALTER JOB … MOVE TO`` does: leadership goes to a member of the job's group, which has the
state. Its pause is the time in which no agent is the master. A window is a second; a move that is asked for
at a drawn moment of it seldom meets a commit, one that is sent with the line that ends the window always
does.

*Disruptive* is what the product never does: to stop the master, to pack what its group keeps, to send it, and
to go on from it elsewhere. It is made of what the product does when an agent enters a group (the same
functions, their CPU measured on the same state), one after the other, over a link of ``LINK_BITS_PER_S``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final, TypeVar

from agents.disk import groupstore
from elf.errors import ElfError
from elf.job.group.port import InstallJobGroup, LoadJobGroup, SummariseJobGroup
from elf.job.group.records import group_key
from elf.job.spec import JobSpec
from elf.wire.clients import Execute
from lab.bench.control_fleet import SECOND_US, STREAM, line_of
from lab.bench.control_measures import create
from lab.bench.simulated.costs import Costs
from lab.bench.simulated.fleet import SimFleet
from lab.chaos.disk import SimStore
from lab.moving.groups import Cost

T = TypeVar("T")
NODES: Final = 5
"""All of them are in the job's group."""
LINK_MS: Final = 0.5
LINK_BITS_PER_S: Final = 1e9
JOB: Final = "moved"
QUERY: Final = "user, COUNT(*) AS n FROM clicks GROUP BY user ORDER BY n DESC, user LIMIT 10"
MOVER: Final = "client:mover"
SECOND_MS: Final = 1_000.0
TICK_MS: Final = 0.25
GIVE_UP_MS: Final = 20_000.0
WARM: Final = 2
"""Windows that are not counted."""


@dataclass(frozen=True)
class Moved:
    """Times in ms. ``own``: of windows that nobody disturbs; ``drawn``: with a move at a drawn moment;
    ``met``: with a move that meets the commit; ``gaps``: how long no agent was the master, of all moves; and
    what a disruptive move is made of."""

    keys: int
    own: Sequence[float]
    drawn: Sequence[float]
    met: Sequence[float]
    gaps: Sequence[float]
    disruptive: Sequence[Cost]

    @property
    def instant_ms(self) -> float:
        return statistics.median(self.gaps)

    @property
    def beyond_ms(self) -> float:
        """Of a window, when a move is asked for at any moment: the median beyond its own time."""
        return statistics.median(self.drawn) - statistics.median(self.own)

    @property
    def cost(self) -> Cost:
        """Of a disruptive move, the one whose pause is the median."""
        found = sorted(self.disruptive, key=lambda one: one.pause_ms)
        return found[len(found) // 2]

    def facts(self) -> dict[str, float]:
        own = statistics.median(self.own)
        return {
            "window_ms": round(own, 2),
            "beyond_ms": round(self.beyond_ms, 2),
            "met_beyond_ms": round(statistics.median(self.met) - own, 2),
            "instant_ms": round(self.instant_ms, 2),
            "disruptive_ms": round(self.cost.pause_ms, 2),
        }


def moved(keys: int, rounds: int, seed: int, costs: Costs) -> Moved:
    """So many windows of each kind, in turn."""
    fleet = SimFleet(NODES, seed, costs, LINK_MS)
    own, drawn, met = list[float](), list[float](), list[float]()
    disruptive = list[Cost]()
    with fleet.running():
        fleet.sql(create(JOB, QUERY))
        work = _Work(fleet, keys)
        for _ in range(WARM):
            work.window()
        for _ in range(rounds):
            own.append(work.window())
            drawn.append(work.window(move_ms=SECOND_MS * fleet.world.rng.random()))
            met.append(work.window(move_ms=SECOND_MS))
            disruptive.append(work.disruptive())
    return Moved(keys, own, drawn, met, work.gaps, disruptive)


class _Work:
    def __init__(self, fleet: SimFleet, keys: int) -> None:
        self.gaps: list[float] = []
        self._fleet = fleet
        self._keys = keys
        self._reader = fleet.subscribe(JOB)
        self._requests = count(1_000_000)
        self._starts = (fleet.next_us + n * SECOND_US for n in count())
        fleet.pause()

    def window(self, move_ms: float | None = None) -> float:
        """From the line that ends it at the last agent to its result, in ms; a move to the next agent is sent
        so long after the window's first line."""
        fleet, world = self._fleet, self._fleet.world
        start = next(self._starts)
        fleet.forget()
        each = self._keys // NODES
        for number, agent in enumerate(world.agents):
            rows = [
                line_of(start + (n % 900) * 1_000, number * each + n).decode().strip() for n in range(each)
            ]
            world.after(0, agent, partial(agent.tasks[STREAM].feed, rows))
        fleet.all_said("read")
        world.run(SECOND_MS)
        fleet.forget()
        target, began, gap = self._next(), world.exact, 0.0
        if move_ms is not None:
            said = Execute(
                request=next(self._requests), sql=f"ALTER JOB {JOB} MOVE TO '{target}'", creator="me"
            )
            world.at(began + move_ms, partial(world.from_client, world.agents[-1], MOVER, said))
        for number in range(NODES):
            fleet.write(number, start + SECOND_US, 1, SECOND_MS)
        ends = start + SECOND_US
        while ends not in fleet.results(self._reader) or (move_ms is not None and self._leader() != target):
            world.run(TICK_MS)
            gap += 0.0 if self._is_led() else TICK_MS
            if world.exact - began > GIVE_UP_MS:
                raise ElfError(f"no window, or no move to {target}, within {GIVE_UP_MS / 1e3:g} s")
        if move_ms is not None:
            self.gaps.append(gap)
        world.run(SECOND_MS)
        return fleet.results(self._reader)[ends] - max(one.began for one in fleet.all_said("read"))

    def _is_led(self) -> bool:
        uid = self._spec.uid
        return any(agent.node.job_groups.has(uid) for agent in self._fleet.world.agents)

    def disruptive(self) -> Cost:
        """What it would take to go on elsewhere from all that the group keeps now."""
        spec, uids = self._spec, tuple(self._fleet.flows(JOB))
        store = next(a.store for a in self._fleet.world.agents if a.address == self._leader())
        key = group_key(spec.uid)
        state, packed = _timed(lambda: groupstore.summary(store, SummariseJobGroup(key, 1, spec.uid, uids)))
        other = SimStore(None, 0)
        try:
            _, written = _timed(lambda: groupstore.install(other, InstallJobGroup(key, state)))
            _, read = _timed(lambda: groupstore.load(other, LoadJobGroup(key, 1, spec.uid, uids)))
        finally:
            other.close()
        way = LINK_MS + 8e3 * len(state) / LINK_BITS_PER_S
        return Cost(packed, written + read, way)

    @property
    def _spec(self) -> JobSpec:
        spec = self._fleet.world.agents[-1].node.log.find_job(JOB, "me")
        if spec is None:
            raise ElfError(f"there is no job {JOB}")
        return spec

    def _leader(self) -> str:
        return self._fleet.world.agents[-1].node.log.leader(self._spec.uid) or ""

    def _next(self) -> str:
        """Another agent than the master's."""
        addresses = [agent.address for agent in self._fleet.world.agents]
        return addresses[(addresses.index(self._leader()) + 1) % NODES]


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """What comes of it, and its CPU in ms."""
    began = time.thread_time_ns()
    found = work()
    return found, (time.thread_time_ns() - began) / 1e6
