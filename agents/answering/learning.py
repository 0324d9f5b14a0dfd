"""What running jobs cost, for every planner; and how a job group learns it of its own job, and keeps it
(protocol 5.16)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from agents.answering.asks import Ask, Procedure, Save
from agents.answering.fleet import Fleet
from agents.answering.learned import job_costs
from agents.answering.workers import ask_all, members_of
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.costs import learned_in
from elf.job.spec import JobSpec
from elf.job.stamps import InspectStamps, StampStatus
from elf.job.work import InspectWork, WorkStatus
from elf.planning.costs import JobCosts, is_news
from elf.planning.latency import POLL_S
from elf.wire.base import Answer
from elf.wire.clients import Reply

AGENTS_MAX: Final = 64
"""That are asked of a job: its master and roots first."""


class Learning:
    """At one agent."""

    def __init__(self, log: CatalogLog, fleet: Fleet) -> None:
        self._log = log
        self._fleet = fleet

    def of(
        self, spec: JobSpec
    ) -> Generator[list[Ask], list[Answer], tuple[JobCosts | None, dict[str, WorkStatus]]]:
        """What is known of a job that runs (None: nothing); and what its agents have counted, by address."""
        agents = members_of(self._fleet, spec)
        asked = agents[:AGENTS_MAX]
        flows = tuple(flow.uid for flow in spec.flows)
        stamps = InspectStamps(id=0, origin="", flows=flows, jobs=(spec.uid,))
        stamped = [one for one in (yield from ask_all(asked, stamps, StampStatus)).values() if one]
        work = InspectWork(id=0, origin="", flows=flows, jobs=(spec.uid,), costs=True)
        worked = {at: one for at, one in (yield from ask_all(asked, work, WorkStatus)).items() if one}
        return job_costs(spec, stamped, worked, poll_ms(self._log, spec), agents), worked

    def keep(self, spec: JobSpec, now_ms: int) -> Procedure:
        """As its master: what is new is kept in the job's record."""
        found, worked = yield from self.of(spec)
        known = next((one for one in learned_in(worked.values()) if one.job == spec.uid), None)
        if found is not None and is_news(found, known):
            yield [Save(replace(found, at_ms=now_ms))]
        return Reply(request=0)


def poll_ms(log: CatalogLog, spec: JobSpec) -> int:
    """That agents use for the streams of a job now."""
    streams = set(spec.plan.streams)
    chosen = (one.definition.chosen for one in log.jobs() if streams & set(one.plan.streams))
    return min((one.poll_ms for one in chosen if one is not None), default=round(1000 * POLL_S))
