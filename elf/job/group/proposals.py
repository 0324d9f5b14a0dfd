"""What the catalog log should say of the job groups here and does not say yet: new jobs and versions,
versions and jobs that are over, job groups that have moved, and who bootstraps those of key ranges
(``elf.job.catalog.bootstrap``).

One voter after the other is asked, since the log's leader may have died with the job group that has moved. A
job group is *stirred* while the log may lack something of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from elf.job.catalog.bootstrap import Bootstrap
from elf.job.catalog.flowgroups import RangeGroup
from elf.job.catalog.log import CatalogLog
from elf.job.effects import Effect, Send
from elf.job.group.group import JobGroup
from elf.job.messages.groups import DropJob
from elf.job.messages.log import DropJobEntry, MoveJobGroup, Proposal
from elf.job.spec import JobSpec, job_of
from elf.security.authored import Authorship, stale
from elf.wire.base import Answer

ASKING_MS: Final = 250
"""The pause between two requests to voters of the log, one after the other, while it lacks something: a voter
may be dead or replaced, and nobody has noticed."""


class Proposals:
    """The proposals of the ``job_groups`` at ``address``, by uid. ``led``: the terms of those that we lead,
    and of key ranges; ``grace_ms``: how long a founder may take; ``voters``: those of a job, by its uid."""

    def __init__(
        self,
        address: str,
        log: CatalogLog,
        groups: Mapping[str, JobGroup],
        led: Mapping[str, int],
        grace_ms: int,
        voters: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._address = address
        self._log = log
        self._job_groups = groups
        self._led = led
        self.dropping = Dropping(log)
        self.founders = Founders(address, log, grace_ms, voters)
        self._stirred: set[str] = set()
        self._next_ms: int | None = None
        self._asked = 0

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._job_groups or self._led or self.dropping or self.founders)

    def stir(self, uid: str, at_ms: int) -> None:
        """The log may lack something of a job group."""
        self._stirred.add(uid)
        self.hurry(at_ms)

    def stir_all(self) -> None:
        self._stirred = {*self._job_groups, *self._led}

    def hurry(self, at_ms: int = 0) -> None:
        """Propose it by then."""
        self._next_ms = at_ms if self._next_ms is None else min(self._next_ms, at_ms)

    def deadline(self) -> int | None:
        return self._next_ms

    def say(self, voters: Sequence[str], now_ms: int) -> list[Effect]:
        """Send the proposals to the next of the log's ``voters``; job groups with none left are no longer
        stirred."""
        found = self._found() if voters else []
        self._asked += bool(voters)
        self._next_ms = now_ms + ASKING_MS if self._stirred or found else None
        return [Send(voters[self._asked % len(voters)], proposal) for proposal in found]

    def _found(self) -> list[Proposal]:
        found: list[Proposal] = []
        for uid in sorted(self._stirred):
            group = self._job_groups.get(uid)
            master = group.master if group is not None and group.is_saved else None
            proposals = [*(master.proposals(self._log) if master is not None else ()), *self._moved(uid)]
            if not proposals and (group is None or master is not None):
                self._stirred.discard(uid)
            found.extend(proposals)
        return [*found, *self.founders.proposals(), *self.dropping.proposals()]

    def _moved(self, uid: str) -> list[MoveJobGroup]:
        """The proposal to move a job group that is here to here, if the catalog log has it elsewhere."""
        term = self._led.get(uid)
        if term is None or self._log.leader(uid) in (None, self._address):
            return []
        return [MoveJobGroup(uid=uid, leader=self._address, term=term)]


class Dropping:
    """Jobs that are over here, until the catalog log has their tombstones; and those who wait for that. With
    keys a job is over when the log says so: a signed DROP is proposed for as long as it is fresh."""

    def __init__(self, log: CatalogLog) -> None:
        self._log = log
        self._uids: dict[str, DropJobEntry] = {}
        self._asked: dict[str, list[DropJob]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def __bool__(self) -> bool:
        return bool(self._uids)

    def add(self, spec: JobSpec, author: Authorship | None = None) -> None:
        uid = spec.uid
        if author is not None or uid not in self._uids:
            self._uids[uid] = DropJobEntry(uid=uid, author=author, name=spec.name, creator=spec.creator)

    def release(self, uid: str) -> None:
        """Another agent has to propose it."""
        self._uids.pop(uid, None)

    def proposals(self) -> list[DropJobEntry]:
        """What the log should say and does not say yet."""
        self._uids = {uid: said for uid, said in self._uids.items() if not self._log.is_dropped(uid)}
        return [said for _, said in sorted(self._uids.items())]

    def expire(self, now_ms: int) -> list[Effect]:
        """The voters have not taken these in time, and will not any more: the jobs go on."""
        late = [
            uid
            for uid, said in self._uids.items()
            if said.author and stale(said.author.authored, now_ms / 1_000)
        ]
        for uid in late:
            del self._uids[uid]
        error = "the voters of the catalog log have not answered in time: it is not dropped; say it again"
        asked = [one for uid in late for one in self._asked.pop(uid, [])]
        return [Send(one.origin, Answer(id=one.id, error=error)) for one in asked]

    def asked(self, request: DropJob) -> None:
        self._asked.setdefault(request.uid, []).append(request)

    def dropped(self, uid: str) -> list[Effect]:
        """The log has the tombstone: tell those who wait."""
        return [Send(one.origin, Answer(id=one.id)) for one in self._asked.pop(uid, [])]


class Founders:
    """Proposals that the key range group which we lead has begun, and that another agent is to bootstrap one
    of a job that we lead, if nobody does."""

    def __init__(
        self, address: str, log: CatalogLog, grace_ms: int, voters: Callable[[str], tuple[str, ...]]
    ) -> None:
        self._address = address
        self._log = log
        self._grace_ms = grace_ms
        self._voters = voters
        self._bootstrapped: dict[str, str] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._named: list[Bootstrap] = []

    def __bool__(self) -> bool:
        """Whether a group here waits for the log."""
        return bool(self._bootstrapped)

    def wait_for(self, uid: str, founder: str) -> None:
        """We lead the group of a key range, which this agent has bootstrapped (empty: the first founder)."""
        self._bootstrapped[uid] = founder

    def wait_no_more(self, uid: str) -> None:
        self._bootstrapped.pop(uid, None)

    def look(self, led: Collection[str], now_ms: int) -> None:
        """Name another founder for what has not begun in time, of the jobs of these job groups."""
        waiting = [(uid, group) for uid, group in self._log.unbegun() if job_of(uid) in led]
        names = [(uid, group.founder) for uid, group in waiting]
        self._since = {name: self._since.get(name, now_ms) for name in names}
        self._named = []
        for uid, group in waiting:
            late = now_ms - self._since[uid, group.founder] >= self._grace_ms
            if late or not self._log.is_member(group.founder):
                self._named += self._instead(uid, group)

    def _instead(self, uid: str, group: RangeGroup) -> list[Bootstrap]:
        near = (self._log.agent_at(at) for at in (self._address, *self._voters(job_of(uid))))
        able = [agent for agent in near if agent and agent not in (group.founder, *group.replaced)]
        return [Bootstrap(uid, group.founder, agent) for agent in able[:1]]

    def proposals(self) -> list[DropJobEntry]:
        """What the log should say and does not say yet."""
        begun = [
            Bootstrap(uid, founder or self._log.job_groups.founders(uid)[0])
            for uid, founder in sorted(self._bootstrapped.items())
            if founder or self._log.job_groups.founders(uid)
        ]
        return [
            DropJobEntry(uid=said.uid)
            for said in (*begun, *self._named)
            if not self._log.is_dropped(said.uid)
        ]

    def why(self, spec: JobSpec, now_ms: int) -> str:
        """Why nothing of a job is committed: the roots of these key ranges are missing; empty: all are
        there."""
        groups = {self._log.job_groups.of(flow.uid): flow for flow in spec.flows}
        found = []
        for uid, group in self._log.unbegun():
            flow = groups.get(uid)
            if flow is not None:
                place, count = flow.fragment.range
                left_ms = self._grace_ms - (now_ms - self._since.get((uid, group.founder), now_ms))
                founder = self._log.name_of(group.founder) or group.address
                found.append(
                    f"key range {place + 1} of {count} has no root yet: {founder} was to bootstrap its group "
                    f"and has not; another agent is named in {max(0, left_ms) // 1000} s"
                )
        return "; ".join(found)
