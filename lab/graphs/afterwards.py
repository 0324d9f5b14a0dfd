"""What an iteration of a real computation (``elf.job.graphs``) costs after a change of its parts, beside one
that has begun with as many: messages, bytes and edges, which are counted, and CPU time.

Nothing goes wrong here, and messages come in the order in which they were sent. The agent of the master has
no part. Both computations go on in turns, iteration by iteration, so that what else the machine does falls on
both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import median
from time import process_time
from typing import Final

from elf.job.graphs.part import SLOTS
from elf.job.program.values import unpack_value
from elf.planning.stretches import moved
from lab.graphs.chaos import MASTER, Fleet, Ranks, graph

VERTICES, EDGES, SEED = 20_000, 80_000, 1
ITERATIONS: Final = 30


class Long(Ranks):
    iterations = ITERATIONS


@dataclass
class Iteration:
    """``cpu``: seconds of all agents together."""

    messages: int = 0
    bytes: int = 0
    cpu: float = 0.0


class Computation:
    """``parts`` at first; ``agents`` besides that of the master."""

    def __init__(self, agents: int, parts: int, *, ring: bool = False) -> None:
        edges = graph(Random(SEED), agents, VERTICES, EDGES // agents)
        self._fleet = Fleet(Random(SEED), Long, {"m": [], **edges}, parts, ring=ring)
        self.iterations: dict[int, Iteration] = {}
        self.moved = 0
        """Ranges of vertices, of ``SLOTS``."""
        for name, seat in self._fleet.seats.items():
            if name != MASTER:
                seat.job.on_timer()
        self._pass_on()
        self._fleet.ask({"begin": True})

    @property
    def number(self) -> int:
        return int(self._fleet.state["number"])

    @property
    def is_over(self) -> bool:
        return bool(self._fleet.state["phase"] == "idle")

    @property
    def edges(self) -> int:
        """Of the busiest part."""
        jobs = [self._fleet.seats[name].job for name in self._fleet.state["of"]]
        return max(len(job._agent().part.places) for job in jobs)

    @property
    def slots(self) -> int:
        """Of the largest part."""
        return max(int(high - low) for low, high in self._fleet.state["of"].values())

    def scale(self, by: int) -> None:
        """Within the next iterations."""
        before = {**self._fleet.state["of"]}
        self._fleet.ask({"scale": by})
        while len(self._fleet.state["of"]) == len(before):
            self.step()
        self.moved = moved(before, self._fleet.state["of"])

    def step(self) -> None:
        """Until another iteration has begun, or all are over."""
        now = self.number
        while self.number == now and not self.is_over:
            self._pass_on()

    def _pass_on(self) -> None:
        for seat in self._fleet.seats.values():
            waiting, seat.waiting = seat.waiting, {}
            for to, value in waiting.values():
                started = process_time()
                word = unpack_value(value)
                self._fleet.seats[to].job.on_recv(seat.at, word)
                if isinstance(word, dict) and word["graph"] in ("go", "values", "done"):
                    found = self.iterations.setdefault(int(word["number"]), Iteration())
                    found.messages += 1
                    found.bytes += len(value)
                    found.cpu += process_time() - started


@dataclass(frozen=True)
class Afterwards:
    """Over a computation that has begun so: ``edges`` of the busiest part, ``messages`` and ``bytes`` of an
    iteration, and ``cpu``, of all agents together, the median of the ratios of iterations. ``moved`` and
    ``largest``: shares of all vertices, that have moved, and of the largest part over the mean of parts."""

    moved: float
    largest: float
    edges: float
    messages: float
    bytes: float
    cpu: float


def afterwards(before: int, after: int, *, ring: bool = False) -> Afterwards:
    """From ``before`` parts to ``after``."""
    agents = max(before, after)
    other, one = Computation(agents, after), Computation(agents, before, ring=ring)
    while one.number < 1:
        one.step()
    one.scale(after - before)
    for _ in range(3):  # what is made once for a layout is made
        one.step()
    first = one.number
    while other.number < first:
        other.step()
    while not (one.is_over and other.is_over):
        one.step()
        other.step()
    pairs = [(one.iterations[n], other.iterations[n]) for n in range(first, ITERATIONS)]
    ours, theirs = pairs[-1]
    ratios = [a.cpu / b.cpu for a, b in pairs]
    return Afterwards(
        one.moved / SLOTS,
        one.slots * after / SLOTS,
        one.edges / other.edges,
        ours.messages / theirs.messages,
        ours.bytes / theirs.bytes,
        median(ratios),
    )
