"""Graph computations (``elf.job.graphs``) while agents crash, lose their disks and leave, the master moves,
and parts are spread anew, from a seed.

The jobs are real. What an agent promises them (protocol 14.1 to 14.4, 14.8, 14.9) is a few lines here: a call
counts when a checkpoint has it, what it sends leaves then, and comes once, in any order. Every result is held
against one of the same edges on one agent, to the last bit, and that against plain Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pyarrow as pa

from elf.job.graphs import Components, GraphJob, KMeans, MultiSourcePaths, PageRank, ShortestPaths
from elf.job.program.calls import Place
from elf.job.program.host import JobError
from elf.job.program.seats import masters_name
from elf.job.program.values import pack_value, unpack_value
from lab.graphs.plain import Edge, clusters, components, distances, number_of, ranks

MASTER: Final = "master"
AGENTS: Final = (1, 3, 8)
STEPS: Final = 2_000
CALM_STEPS: Final = 100_000
STEP_MS: Final = 5
FATES: Final = {"crash": 12, "scale": 20, "moves": 3, "loses": 1, "leaves": 1}
"""How often of 1,000 steps."""


class Stuck(Exception):
    """A computation that does not end though nothing is wrong any more."""


class _Drawn(GraphJob):
    """The edges of an agent are drawn by its name."""

    edges = "SELECT one, other, COUNT(*) AS n FROM clicks GROUP BY one, other"
    ends: Sequence[str] = ("one", "other")
    pause, patience, rows = 0.0, 15.0, 1_000_000

    def own_edges(self) -> pa.Table:
        host: Any = self._host
        pairs = host.fleet.edges[self.me]
        return pa.table(
            [[a for a, _ in pairs], [b for _, b in pairs], [1] * len(pairs)], ["one", "other", "n"]
        )


class Ranks(_Drawn, PageRank):
    iterations = 12


class Hang(_Drawn, Components):
    least = 1


class Ways(_Drawn, ShortestPaths):
    source = "v0"


class Many(_Drawn, MultiSourcePaths):
    sources: Sequence[str] = ("v5", "v0", "nowhere", "v17")


class Groups(_Drawn, KMeans):
    """A point for each beginning of an edge: how many there are, and numbers of their ends, of which some are
    NULL."""

    edges = "SELECT one, COUNT(*) AS n, SUM(m) AS m FROM clicks GROUP BY one"
    ends, columns, clusters, iterations = ("one",), ("n", "m"), 6, 8

    def own_edges(self) -> pa.Table:
        host: Any = self._host
        pairs = host.fleet.edges[self.me]
        numbers = [number_of(other) for _, other in pairs]
        return pa.table([[one for one, _ in pairs], [1] * len(pairs), numbers], ["one", "n", "m"])


KINDS: Final[tuple[type[_Drawn], ...]] = (Ranks, Hang, Ways, Many, Groups)


@dataclass
class Seat:
    """An agent, or the master: its job, and what of it is durable."""

    name: str
    at: str
    id: int
    job: Any = None
    sent: int = 0
    seen: set[tuple[int, int]] = field(default_factory=set)
    waiting: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    durable: tuple[bytes, int, frozenset[tuple[int, int]], dict[int, tuple[str, bytes]]] = (
        b"",
        0,
        frozenset(),
        {},
    )


class _Host:
    """Where a job runs."""

    def __init__(self, fleet: Fleet, seat: Seat) -> None:
        self.fleet, self._seat = fleet, seat

    def place(self) -> Place:
        fleet, seat = self.fleet, self._seat
        return Place(seat.at, fleet.now_ms, seat.name == MASTER, "" if seat.name == MASTER else fleet.at)

    def send_to(self, node: str, message: object, tree: int, *, at_once: bool = False) -> None:
        fleet, seat = self.fleet, self._seat
        is_masters = node == masters_name(1) or (node == fleet.at and seat.name != MASTER)
        to = MASTER if is_masters else node
        seat.sent += 1
        seat.waiting[seat.sent] = (to, pack_value(message))


class Fleet:
    """``kind``: the job; ``edges``: those of each agent."""

    def __init__(
        self,
        rng: Random,
        kind: type[_Drawn],
        edges: Mapping[str, list[Edge]],
        parts: int,
        *,
        ring: bool = False,
    ) -> None:
        self.rng, self.edges, self.now_ms, self._ids = rng, edges, 1_000_000, 0
        self._kind = type(kind.__name__, (kind,), {"parts": parts, "ring": ring})
        self.at = next(iter(edges))
        self.seats: dict[str, Seat] = {}
        for name in edges:
            self._add(name, name)
        self._add(MASTER, self.at)
        self.results: list[dict[str, Any]] = []
        self.layouts: set[int] = set()
        self.away: set[str] = set()
        """Those who neither hear nor say anything."""

    def _add(self, name: str, at: str) -> None:
        self._ids += 1
        self.seats[name] = Seat(name, at, self._ids)
        self._start(self.seats[name])
        self._save(self.seats[name])

    def _start(self, seat: Seat) -> None:
        kept, seat.sent, seen, waiting = seat.durable
        seat.job, seat.seen, seat.waiting = (
            self._kind("graph", "me", _Host(self, seat)),
            set(seen),
            {**waiting},
        )
        if kept:
            seat.job.restore_beside(unpack_value(kept))

    def _save(self, seat: Seat) -> None:
        kept = pack_value(seat.job.kept_beside(), 16 << 20)
        seat.durable = (kept, seat.sent, frozenset(seat.seen), {**seat.waiting})

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.seats[MASTER].job._master().state
        return state

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self, fates: Mapping[str, int]) -> None:
        self.now_ms += STEP_MS
        drawn = self.rng.randrange(1_000)
        for fate, often in fates.items():
            if (drawn := drawn - often) < 0:
                getattr(self, fate)()
                return
        seat = self.rng.choice([seat for name, seat in self.seats.items() if name not in self.away])
        kind = self.rng.randrange(10)
        if kind == 0:
            seat.job.on_timer()
        elif kind < 4:
            self._save(seat)
        else:
            self._deliver(seat)
        self._look()

    def _deliver(self, seat: Seat) -> None:
        """One of the slices that are durable at their sender, to its receiver, perhaps again."""
        if not (waiting := seat.durable[3]):
            return
        number = self.rng.choice(list(waiting))
        to, value = waiting[number]
        name = (seat.id, number)
        if to in self.away:
            return
        receiver = self.seats.get(to)
        if receiver is None:  # it has left: its parent gets it, the master itself what the master has sent
            del waiting[number]
            seat.waiting.pop(number, None)
            seat.sent += 1
            seat.waiting[seat.sent] = (MASTER, value)
            self._save(seat)
        elif name in receiver.durable[2]:
            del waiting[number]
            seat.waiting.pop(number, None)
        elif name not in receiver.seen:
            receiver.seen.add(name)
            receiver.job.on_recv(seat.at, unpack_value(value))

    def _look(self) -> None:
        result = self.state["result"]
        self.layouts.add(self.state["layout"])
        if result is not None and (not self.results or self.results[-1]["run"] != result["run"]):
            self.results.append(result)

    def ask(self, message: object) -> object:
        try:
            return self.seats[MASTER].job.deliver(b"", message)
        except JobError:
            return None

    # -- fates -----------------------------------------------------------------------------------------------

    def crash(self) -> None:
        self._start(self.rng.choice(list(self.seats.values())))

    def scale(self) -> None:
        self.ask({"scale": self.rng.choice([-2, -1, 1, 2])})

    def moves(self) -> None:
        """The master is elsewhere."""
        self.at = self.rng.choice([name for name in self.seats if name != MASTER])
        self.seats[MASTER].at = self.at
        self._start(self.seats[MASTER])

    def loses(self) -> None:
        """An agent comes back without its disk."""
        name = self.rng.choice([name for name in self.seats if name != MASTER])
        self._add(name, name)

    def leaves(self) -> None:
        """For good; two stay."""
        names = [name for name in self.seats if name not in (MASTER, self.at)]
        if len(names) > 1:
            del self.seats[self.rng.choice(names)]


# -- a history -----------------------------------------------------------------------------------------------


def graph(rng: Random, agents: int, vertices: int, edges: int) -> dict[str, list[Edge]]:
    """Of each agent some edges, of which others have some too."""
    return {
        f"a{agent}": [
            (f"v{int(vertices * rng.random() ** 2)}", f"v{rng.randrange(vertices)}") for _ in range(edges)
        ]
        for agent in range(agents)
    }


def calm(fleet: Fleet) -> dict[str, Any]:
    """The result of a computation that begins now, while nothing goes wrong."""
    fleet.ask({"begin": True})
    for _ in range(CALM_STEPS):
        if fleet.state["phase"] == "idle" and (fleet.results or fleet.state["error"]):
            if not fleet.results or fleet.results[-1]["run"] != fleet.state["run"]:
                raise Stuck(fleet.state["error"])
            return fleet.results[-1]
        fleet.step({})
    raise Stuck(f"{fleet.state['phase']}, iteration {fleet.state['number']}, {fleet.state['note']}")


def alone(kind: type[_Drawn], edges: Mapping[str, list[Edge]], seed: int) -> pa.Table:
    """What one agent makes of the edges of several."""
    one = Fleet(Random(seed), kind, {"a": [edge for some in edges.values() for edge in some]}, 1)
    one.seats["a"].job.on_timer()
    one._save(one.seats["a"])
    while not one.state["agents"]:
        one.step({})
    return calm(one)["rows"]


@dataclass(frozen=True)
class Story:
    """What came of a seed: ``wrong`` is empty if all is right."""

    kind: str
    agents: int
    results: int
    layouts: int
    wrong: tuple[str, ...]


def story(seed: int, agents: int, steps: int = STEPS, fates: Mapping[str, int] = FATES) -> Story:
    """``agents``: with one of them nothing can leave or be spread."""
    rng = Random(f"graphs {seed} {agents}")
    kind = KINDS[seed % len(KINDS)]
    edges = graph(rng, agents, 60, 40)
    fleet = Fleet(rng, kind, edges, rng.randint(1, agents), ring=seed % 2 == 1)
    for _ in range(steps):
        if fleet.state["phase"] == "idle" and fleet.state["agents"]:
            fleet.ask({"begin": True})
        fleet.step(fates)
    wrong = list[str]()
    try:
        calm(fleet)
    except Stuck as error:
        wrong.append(f"it does not end: {error}")
    for result in fleet.results:
        own = {name: edges[name] for name in result["members"]}
        if not result["rows"].equals(alone(kind, own, seed)):
            wrong.append(f"run {result['run']} on {result['parts']} agents is not that of one")
        wrong += [f"run {result['run']}: {one}" for one in faults(kind, own, result["rows"].to_pylist())]
    return Story(kind.__name__, agents, len(fleet.results), len(fleet.layouts), tuple(wrong))


# -- beside plain Python -------------------------------------------------------------------------------------


def faults(
    kind: type[_Drawn], edges: Mapping[str, list[Edge]], rows: list[dict[str, Any]]
) -> tuple[str, ...]:
    pairs = {edge for some in edges.values() for edge in some}
    if kind is Hang:
        found = {(row["component"], row["size"]) for row in rows}
        return () if found == components(pairs) else ("its components are others",)
    if kind is Many:
        paths = {(row["source"], row["vertex"], row["distance"]) for row in rows}
        wanted = {(one, *way) for one in Many.sources for way in distances(pairs, one).items()}
        return () if paths == wanted else ("its paths are others",)
    if kind is Groups:
        every = [edge for some in edges.values() for edge in some]
        return same_clusters(rows, clusters(every, Groups.clusters, Groups.iterations))
    values = {row["vertex"]: row["value"] for row in rows}
    truth = ranks(pairs, Ranks.iterations) if kind is Ranks else distances(pairs, Ways.source)
    if values.keys() != truth.keys():
        return ("its vertices are others",)
    far = [v for v, value in values.items() if not math.isclose(value, truth[v], rel_tol=1e-12)]
    return (f"{len(far)} values are others",) if far else ()


def same_clusters(rows: list[dict[str, Any]], truth: dict[str, tuple[str, float]]) -> tuple[str, ...]:
    if {row["vertex"]: row["cluster"] for row in rows} != {one: name for one, (name, _) in truth.items()}:
        return ("its clusters are others",)
    near = {"rel_tol": 1e-12, "abs_tol": 1e-12}  # a point may be a cluster of its own
    far = [row for row in rows if not math.isclose(row["distance"], truth[row["vertex"]][1], **near)]
    return (f"{len(far)} distances are others",) if far else ()
