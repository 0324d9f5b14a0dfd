"""What the catalog log makes of a job group that has moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.flowgroups import FlowGroups
from elf.job.catalog.log import CatalogLog
from elf.job.group.reconfiguration import proposed
from elf.job.messages.log import AddJob, JobGroupMoved, MoveJobGroup
from elf.job.spec import JobSpec
from lab.chaos.engine import plan, spec_of
from tests.support.proposing import Proposals


class Searched(FlowGroups):
    """One that looks at every flow there ever was."""

    def __init__(self) -> None:
        super().__init__()
        self._over: set[str] = set()

    def ended(self, flow: str) -> None:
        super().ended(flow)
        self._over.add(flow)

    def flows(self, leader: str) -> tuple[str, ...]:
        return tuple(uid for uid, of in self._job_groups.items() if of == leader and uid not in self._over)


class Rebuilt(CatalogLog):
    """One that looks at every spec that it has, at each move."""

    def __init__(self) -> None:
        super().__init__()
        self.job_groups = Searched()

    def _move(self, entry: JobGroupMoved) -> None:
        self.job_groups.move(entry)
        for uid in self.job_groups.flows(entry.uid):
            self._flows[uid] = replace(self._flows[uid], leader=entry.leader)
        self._jobs = {uid: self._moved(spec, entry) for uid, spec in self._jobs.items()}
        for uid, made in self._versions.items():
            self._versions[uid] = {number: self._moved(spec, entry) for number, spec in made.items()}


class Counting(CatalogLog):
    """One that says how many specs it has put together again."""

    made = 0

    def _moved(self, spec: JobSpec, entry: JobGroupMoved) -> JobSpec:
        self.made += 1
        return super()._moved(spec, entry)


@given(st.integers(0, 1 << 30), st.integers(0, 80))
def test_a_move_is_seen_in_every_spec_that_it_concerns(seed: int, steps: int) -> None:
    proposals = Proposals(seed, Rebuilt(), CatalogLog())
    for _ in range(steps):
        proposals.step()
        whole, log = proposals.logs
        assert proposals.answers(log) == proposals.answers(whole)
        known = [(one.ever(uid), one.versions(uid)) for uid in proposals.jobs for one in (whole, log)]
        assert known[::2] == known[1::2], "of those that are dropped, too"


def test_a_move_touches_the_jobs_that_name_flows_of_that_master() -> None:
    log = Counting()
    for n in range(50):
        made = plan(2, where=str(n % 10))
        spec = spec_of(f"job{n}", "me", 1, made, (), master="here:1")
        grow(log, AddJob(spec=spec.with_flows(proposed(spec, b"k" * 16, "here:1"))))
    moved, *others = log.jobs()
    grow(log, MoveJobGroup(uid=moved.uid, leader="there:1", term=1))
    assert log.made == 2 * 5, "it and its four readers, each in two places"
    assert {spec.flows[0].leader for spec in log.readers(moved.flows[0].uid)} == {"there:1"}
    assert {spec.master for spec in others} == {"here:1"}
