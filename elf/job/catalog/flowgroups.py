"""Which job groups the flows of the catalog log are in, and who bootstraps those of key ranges.

A flow is in the job group of the job that brought it. If it is of a key range after that job's first, and an
agent was at the range's address when its entry came, it is in the range's own job group
(``elf.job.spec.group_uid``). The job's spec says where a job group is; this module says where that of a key
range is. Who bootstraps it if the first founder does not: ``elf.job.catalog.bootstrap``. A further tree of a
job in Python has a group that is bootstrapped, moved and forgotten as that of a key range.

All of it follows from the entries of the log, in their order; none of it is stored or sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from elf.fields import replace
from elf.job.catalog.bootstrap import Bootstrap
from elf.job.messages.log import JobGroupMoved
from elf.job.spec import Flow, JobSpec, group_uid


class RangeGroup(msgspec.Struct, frozen=True):
    """The job group of a key range after a job's first. ``founder``: the id of the agent that bootstraps it,
    which was at ``address`` when the log came to its first flow; another agent there later never does.
    ``replaced``: earlier founders (``elf.job.catalog.bootstrap``); ``begun``: it has been bootstrapped."""

    founder: str
    address: str
    replaced: tuple[str, ...] = ()
    begun: bool = False


class FlowGroups:
    """The job groups of one log. A job group is named by its uid: that of its job, or of the key range."""

    def __init__(self) -> None:
        self._job_groups: dict[str, str] = {}
        """By flow."""
        self._flows: dict[str, dict[str, None]] = {}
        """By job group, its flows that have not ended."""
        self._ranges: dict[str, RangeGroup] = {}
        self._unbegun: dict[str, None] = {}
        self._terms: dict[str, int] = {}
        """The term of the last move of each job group."""

    # -- what the log tells ----------------------------------------------------------------------------------

    def add(self, flow: Flow, spec: JobSpec, agents_at: Callable[[str], Sequence[str]]) -> bool:
        """A job names a flow: a new flow is in the job's group or, where its key range is elsewhere, in the
        range's group; whether that group is new. ``agents_at``: the agent at an address, by id."""
        if flow.uid in self._job_groups:
            return False
        leader = group_uid(spec.uid, flow.fragment.range[0])
        there = agents_at(flow.leader)
        apart = leader != spec.uid and flow.leader != spec.leader and spec.replicated
        founds = leader not in self._ranges and apart and bool(there)
        if founds:
            self._ranges[leader] = RangeGroup(there[-1], flow.leader)
            self._unbegun[leader] = None
        of = self._job_groups[flow.uid] = leader if leader in self._ranges else spec.uid
        self._flows.setdefault(of, {})[flow.uid] = None
        return founds

    def add_tree(self, uid: str, founder: str, address: str) -> None:
        """A job in Python has a further tree: its group is as that of a key range."""
        self._ranges[uid] = RangeGroup(founder, address)
        self._unbegun[uid] = None

    def ended(self, flow: str) -> None:
        """A flow has ended."""
        leader = self._job_groups[flow]
        del self._flows[leader][flow]
        if not self._flows[leader]:
            del self._flows[leader]

    def move(self, entry: JobGroupMoved) -> None:
        """A job group has moved; that of a key range has begun."""
        self._terms[entry.uid] = entry.term
        if entry.uid in self._ranges:
            self._begin(entry.uid)
            self._ranges[entry.uid] = replace(self._ranges[entry.uid], address=entry.leader)

    def decide(self, said: Bootstrap) -> None:
        """The job group of a key range has begun, or another agent is to bootstrap it."""
        leader = self._ranges.get(said.leader)
        if leader is None or leader.begun or said.founder != leader.founder:
            return
        if not said.instead:
            self._begin(said.leader)
        elif said.instead not in (leader.founder, *leader.replaced):
            replaced = (*leader.replaced, leader.founder)
            self._ranges[said.leader] = replace(leader, founder=said.instead, replaced=replaced)

    def _begin(self, uid: str) -> None:
        self._ranges[uid] = replace(self._ranges[uid], begun=True)
        self._unbegun.pop(uid, None)

    def forget(self, job_groups: Iterable[str]) -> None:
        """Forget the job groups of key ranges of a job that is over."""
        for leader in job_groups:
            self._ranges.pop(leader, None)
            self._unbegun.pop(leader, None)

    # -- what is asked ---------------------------------------------------------------------------------------

    def of(self, flow: str) -> str | None:
        """The job group of a flow: that of the job that brought it, or of its key range of that job. The job
        group of a flow that has ended may be forgotten."""
        return self._job_groups.get(flow)

    def flows(self, leader: str) -> tuple[str, ...]:
        """The flows of a job group that have not ended."""
        return tuple(self._flows.get(leader, ()))

    def address(self, uid: str) -> str | None:
        """Where the job group of a key range is, or is to be; None: the range has no job group of its own."""
        return self._ranges[uid].address if uid in self._ranges else None

    def term(self, uid: str) -> int:
        """The term of the last move of a job group; 0: it never moved."""
        return self._terms.get(uid, 0)

    def named(self, agent_id: str) -> tuple[str, ...]:
        """Job groups of key ranges that an agent is to bootstrap, and that have never moved."""
        named = (uid for uid, leader in self._ranges.items() if leader.founder == agent_id)
        return tuple(uid for uid in named if uid not in self._terms)

    def unbegun(self) -> tuple[tuple[str, RangeGroup], ...]:
        """The job groups of key ranges that nobody has bootstrapped yet, as far as the log says."""
        return tuple((uid, self._ranges[uid]) for uid in self._unbegun)

    def has_begun(self, uid: str, founder: str) -> bool | None:
        """Whether the job group of a key range is the group that this agent has bootstrapped; None: the log
        has not decided it."""
        leader = self._ranges.get(uid)
        if leader is None or founder not in (leader.founder, *leader.replaced):
            return None  # the log has not come to it
        if founder != leader.founder:
            return False
        return True if leader.begun else None

    def founders(self, uid: str) -> tuple[str, ...]:
        """The founders that were named for the job group of a key range, in order."""
        leader = self._ranges.get(uid)
        return () if leader is None else (*leader.replaced, leader.founder)

    def group(self, uid: str) -> str:
        """The name of a job group's Raft group; it differs when another agent bootstraps that of a key
        range."""
        leader = self._ranges.get(uid)
        return uid if leader is None or not leader.replaced else f"{uid}!{leader.founder}"
