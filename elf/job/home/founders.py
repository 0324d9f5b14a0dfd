"""What the stream log is to say of the homes of key ranges (``elf.job.log.founding``): that one has begun
whose group we lead, and that another agent is to found one of a job that we lead, if nobody does."""

from __future__ import annotations

from collections.abc import Callable, Collection

from elf.job.log.flowhomes import RangeHome
from elf.job.log.founding import Founding
from elf.job.log.streamlog import StreamLog
from elf.job.messages import DropJobEntry
from elf.job.spec import JobSpec, job_of


class Founders:
    """Of the agent at ``address``. ``grace_ms``: so long a founder may take; ``keepers``: the agents that
    keep a job, by its uid."""

    def __init__(
        self, address: str, log: StreamLog, grace_ms: int, keepers: Callable[[str], tuple[str, ...]]
    ) -> None:
        self._address = address
        self._log = log
        self._grace_ms = grace_ms
        self._keepers = keepers
        self._founded: dict[str, str] = {}
        self._since: dict[tuple[str, str], int] = {}
        self._named: list[Founding] = []

    def __bool__(self) -> bool:
        """Whether a group here waits for the log."""
        return bool(self._founded)

    def wait_for(self, uid: str, founder: str) -> None:
        """We lead the group of a key range, which this agent has founded (empty: the first that was to)."""
        self._founded[uid] = founder

    def wait_no_more(self, uid: str) -> None:
        self._founded.pop(uid, None)

    def look(self, led: Collection[str], heard: Callable[[], Collection[str]], now_ms: int) -> None:
        """Name somebody for what has not begun in time, of the jobs of these homes. ``heard``: homes whose
        roots have spoken; one that the log does not have as begun is led by an earlier elf."""
        waiting = [(uid, home) for uid, home in self._log.unbegun() if job_of(uid) in led]
        names = [(uid, home.founder) for uid, home in waiting]
        self._since = {name: self._since.get(name, now_ms) for name in names}
        spoken = heard() if waiting else ()
        self._named = []
        for uid, home in waiting:
            if uid in spoken:
                self._named.append(Founding(uid, home.founder))
                continue
            late = now_ms - self._since[uid, home.founder] >= self._grace_ms
            if late or not self._log.is_member(home.founder):
                self._named += self._instead(uid, home)

    def _instead(self, uid: str, home: RangeHome) -> list[Founding]:
        near = (self._log.agent_at(at) for at in (self._address, *self._keepers(job_of(uid))))
        able = [agent for agent in near if agent and agent not in (home.founder, *home.replaced)]
        return [Founding(uid, home.founder, agent) for agent in able[:1]]

    def wishes(self) -> list[DropJobEntry]:
        """What the log is to say and does not say yet."""
        begun = [
            Founding(uid, founder or self._log.homes.founders(uid)[0])
            for uid, founder in sorted(self._founded.items())
            if founder or self._log.homes.founders(uid)
        ]
        return [
            DropJobEntry(uid=said.uid)
            for said in (*begun, *self._named)
            if not self._log.is_dropped(said.uid)
        ]

    def why(self, spec: JobSpec, now_ms: int) -> str:
        """Why nothing of a job is committed: the roots of these key ranges are not there; empty: all are."""
        homes = {self._log.homes.of(flow.uid): flow for flow in spec.flows}
        found = []
        for uid, home in self._log.unbegun():
            flow = homes.get(uid)
            if flow is not None:
                place, count = flow.fragment.range
                left_ms = self._grace_ms - (now_ms - self._since.get((uid, home.founder), now_ms))
                founder = self._log.name_of(home.founder) or home.address
                found.append(
                    f"key range {place + 1} of {count} has no root yet: {founder} was to found its home and "
                    f"has not; another agent is named in {max(0, left_ms) // 1000} s"
                )
        return "; ".join(found)
