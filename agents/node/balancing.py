"""Jobs that go where there is less to do, by themselves (protocol 5.14).

Each agent measures what the job groups that it leads take of it, and says so with its ``Follow``: every voter
of the catalog log hears it every ten seconds. The leader of the voters, where ``cluster.balance`` is set,
plans moves by Flux's rule (``elf.planning.balance``), at a pace that the log's own decisions set
(``elf.planning.pacing``). A decision is an entry of the log, ``JobGroupAssigned``, with the reasons; the
leader of the job's group carries it out like a move by hand (``Hosting.assigned``).

States: none but what was heard of late. Loads are thirty seconds old at most, so a new leader of the voters
knows as much after its first ten seconds; what was decided, it has from the log. A job's load goes with the
job: it is counted where the log says that the job's group is, whoever said it last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from agents.node import scaling
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import LOADS_MAX, AgentLoad, AssignJobGroup, DecideTrees, GroupLoad, TreesDecided
from elf.job.spec import group_uid, job_of
from elf.planning import balance as flux
from elf.planning.pacing import Pace, paced, turn

NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
LOOK_MS: Final = 10_000
"""Over so long an agent measures what it does."""
STALE_MS: Final = 30_000
"""What an agent has said is believed for so long."""
BUSY_LEAST: Final = 20_000
"""Where nobody does more than so much, in millionths of a core, it does not matter who does it."""
AHEAD_MS: Final = 60_000
"""A decision from further in the future is of one whose clock was wrong. It holds its own job, of which
nothing older becomes an entry, and not the others."""
AGENTS_MAX: Final = 16_384
"""Agents whose loads are kept."""


class OwnLoad:
    """What this agent does, from what its parts have counted: CPU time in µs since their beginnings."""

    def __init__(self) -> None:
        self.said: AgentLoad | None = None
        """None: not measured yet."""
        self._groups: dict[str, int] = {}
        self._windows: dict[str, int] = {}
        self._rest = 0
        self._at_ms: int | None = None

    def due(self, now_ms: int) -> bool:
        return self._at_ms is None or now_ms - self._at_ms >= LOOK_MS

    def look(
        self,
        groups: Mapping[str, int],
        rest: int,
        now_ms: int,
        windows: Mapping[str, int] = NOTHING,
        always: Collection[str] = (),
    ) -> None:
        """A group that has come since the last look is not said yet: it would seem idle. ``windows``: what of
        it is for windows; ``always``: groups that are said also where they are idle."""
        before_ms = self._at_ms
        if before_ms is not None and now_ms > before_ms:

            def load(us: int, before_us: int) -> int:
                return max(0, us - before_us) * 1_000 // (now_ms - before_ms)

            loads = {uid: load(us, self._groups[uid]) for uid, us in groups.items() if uid in self._groups}
            made = {uid: load(us, self._windows.get(uid, us)) for uid, us in windows.items()}
            named = [uid for uid in loads if loads[uid] or uid in always]
            said = sorted(named, key=lambda uid: (-loads[uid], uid))[:LOADS_MAX]
            others = sum(loads[uid] for uid in loads.keys() - set(said))
            told = tuple(GroupLoad(uid, loads[uid], made.get(uid, 0)) for uid in said)
            self.said = AgentLoad(load(rest, self._rest) + others, told)
        self._groups, self._rest, self._at_ms = dict(groups), rest, now_ms
        self._windows = dict(windows)


class Balancing:
    """As the leader of the voters; every voter listens, since it may lead them next."""

    def __init__(self, log: CatalogLog, pace: Pace | None) -> None:
        """``pace``: None: nothing moves by itself."""
        self.pace = pace
        self._log = log
        self._said: dict[str, tuple[AgentLoad, int]] = {}
        """By address, and when (ms)."""
        self._next_ms = 0

    def heard(self, address: str, load: AgentLoad | None, now_ms: int) -> None:
        """An agent says what it does. Of job groups only those are its to speak of that the log has there."""
        if load is not None and (address in self._said or len(self._said) < AGENTS_MAX):
            self._said[address] = self._own(address, load), now_ms

    def decide(self, now_ms: int) -> Sequence[AssignJobGroup | DecideTrees]:
        """What is due now, one change at a time a job: trees of those that scale by themselves, and moves."""
        if now_ms < self._next_ms:
            return ()
        pace = self.pace or Pace()
        self._next_ms = now_ms + pace.period_ms
        decided = list(self._log.assignments)
        moved = [(one.uid, one.at_ms) for one in decided if one.at_ms - now_ms <= AHEAD_MS]
        ahead = {one.uid for one in decided if one.at_ms - now_ms > AHEAD_MS}
        jobs = [(job_of(uid), at_ms) for uid, at_ms in moved]
        paces = paced(pace, jobs, set(map(job_of, ahead)), now_ms)
        trees = scaling.due(self._log, self.said(now_ms), paces, now_ms)
        if self.pace is None:
            return trees
        changing = {unit for one in trees for unit in _units(one)}
        for one in decided:
            if isinstance(one, TreesDecided) and now_ms - one.at_ms < pace.cool_ms:
                changing |= _units(one)
        return (*trees, *self._moves(self.pace, moved, ahead | changing, now_ms))

    def _moves(
        self, pace: Pace, moved: Sequence[tuple[str, int]], changing: Collection[str], now_ms: int
    ) -> Sequence[AssignJobGroup]:
        loads = self.loads(now_ms)
        if max((load.total for load in loads.values()), default=0.0) < BUSY_LEAST:
            return ()
        due = turn(pace, flux.imbalance(loads), moved, changing, now_ms)
        found: dict[str, AssignJobGroup] = {}
        if due.due:
            for move in flux.balance(loads, due.held).moves:
                found.setdefault(job_of(move.unit), self._assign(move, due.reasons[0], now_ms))
        return tuple(found.values())

    def said(self, now_ms: int) -> dict[str, AgentLoad]:
        """What agents have said of late, by address, of themselves and of the job groups that the log has
        there."""
        self._forget(now_ms)
        return {at: self._own(at, load) for at, (load, _) in self._said.items()}

    def _forget(self, now_ms: int) -> None:
        self._said = {at: said for at, said in self._said.items() if now_ms - said[1] <= STALE_MS}

    def _own(self, address: str, load: AgentLoad) -> AgentLoad:
        own = tuple(one for one in load.groups if self._log.leader(one.uid) == address)
        return AgentLoad(load.rest, own)

    def loads(self, now_ms: int) -> dict[str, flux.Load]:
        """By address, in millionths of a core: of the agents that have said it of late."""
        self._forget(now_ms)
        newest: dict[str, tuple[int, float]] = {}
        for load, at_ms in self._said.values():
            for one in load.groups:
                newest[one.uid] = max(newest.get(one.uid, (-1, 0.0)), (at_ms, float(one.load)))
        units: dict[str, dict[str, float]] = {address: {} for address in self._said}
        for uid, (_, size) in newest.items():
            if (where := self._log.leader(uid)) in units:
                units[where][uid] = size
        return {at: flux.Load(units[at], float(load.rest)) for at, (load, _) in self._said.items()}

    def _assign(self, move: flux.Move, why: str, now_ms: int) -> AssignJobGroup:
        def core(load: float) -> str:
            return f"{load / 1e6:.1%} of a core"

        said = (
            f"it takes {core(move.size)}; its agent did {core(move.origin_load)}, this one "
            f"{core(move.target_load)}; {why}"
        )
        return AssignJobGroup(uid=move.unit, origin=move.origin, target=move.target, at_ms=now_ms, why=said)


def _units(one: DecideTrees | TreesDecided) -> set[str]:
    """The job groups of a job that gets other trees."""
    return {group_uid(one.uid, place) for place in range(max(one.before, one.trees))}
