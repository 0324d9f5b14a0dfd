"""Which job somebody means, what its master and the roots of its flows are asked, and what people are told
where one of these is not at work: as much as this agent and the one that the log names know.

A job group goes on with most of the agents that keep it. Who keeps it only these know; that its leader is
taken for dead, or is no leader, everybody can find out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

import msgspec

from agents.answering.asks import SILENT, Ask, ToAddress
from agents.answering.fleet import Fleet
from elf.errors import UserError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import not_led
from elf.job.messages.groups import Inspect, JobStatus
from elf.job.messages.inquiries import FlowStatus, InspectFlow
from elf.job.program.spec import ProgramSpec
from elf.job.spec import Flow, JobSpec
from elf.job.work import InspectWork, JobWork, WorkStatus
from elf.wire.base import Answer, Request
from elf.wire.clients import ONE_SHOT_PREFIX

LEADERS_ASKED_MAX: Final = 16
"""Agents that are asked which jobs they are masters of."""


class Masters:
    """Those of all jobs. What asks them is part of a procedure (``agents.answering.asks``)."""

    def __init__(self, log: CatalogLog, fleet: Fleet) -> None:
        self._log = log
        self._fleet = fleet

    def find(self, name: str, creator: str) -> JobSpec:
        """A job as a person names it. Raises ``UserError``."""
        spec = self._log.find_job(name, creator)
        if spec is None:
            specs = [s for s in self._log.jobs() if not s.name.startswith(ONE_SHOT_PREFIX)]
            if self._log.find_program(name, creator) is not None:
                raise UserError(
                    f"job {name} is written in Python, it has no windows: DESCRIBE {name} tells more"
                )
            if owners := sorted(s.creator for s in specs if s.name == name):
                raise UserError(
                    f"there are jobs {name} of {', '.join(owners)}, none of {creator}: --creator says whose"
                )
            names = sorted({*(s.name for s in specs), *(s.name for s in self._log.programs())})
            raise UserError(
                f"there is no job {name}; " + (f"jobs: {', '.join(names)}" if names else "there are none")
            )
        return spec

    def own(self, name: str, creator: str) -> JobSpec:
        """A job that somebody is to change: their own, and nobody else's of that name. Raises ``UserError``
        that names the owner."""
        spec = self.find(name, creator)
        check_owner(spec, creator)
        return spec

    def leader(self, spec: JobSpec) -> str:
        """Where a job group is now."""
        return self._log.leader(spec.uid) or spec.leader

    def newest(self, spec: JobSpec) -> JobSpec:
        """A job as the log has it by now: an ALTER gives it other flows."""
        return self._log.job(spec.uid) or spec

    def is_paused(self, spec: JobSpec) -> bool:
        """Whether the log has no version of it that makes windows."""
        return self._log.is_paused(spec.uid)

    def ask(self, spec: JobSpec, request: Request) -> Generator[list[Ask], list[Answer], Answer]:
        """What a job's master answers. Raises ``UserError`` with what it says against it."""
        (answer,) = yield [ToAddress(spec.leader, request)]
        if answer.error:
            said = answer.error.removeprefix(f"job {spec.name} ")
            raise UserError(f"job {spec.name}: {self.said(spec.leader, said)}")
        return answer

    def inspect(self, spec: JobSpec, windows: int) -> Generator[list[Ask], list[Answer], JobStatus]:
        """What a job's master knows of it, with its last ``windows``. Raises ``UserError``, as ``ask``."""
        request = Inspect(id=0, origin="", uid=spec.uid, windows=windows)
        return facts_of((yield from self.ask(spec, request)))

    def ask_roots(
        self, spec: JobSpec, request: Callable[[Flow], Request], *, first_ranges: bool = False
    ) -> Generator[list[Ask], list[Answer], list[Answer]]:
        """What the root of each of a job's flows answers (``first_ranges``: of those that all its agents have
        between them). Raises ``UserError`` with what one says against it."""
        flows = [flow for flow in spec.flows if not first_ranges or not flow.fragment.range[0]]
        answers = yield [ToAddress(flow.leader, request(flow)) for flow in flows]
        for flow, answer in zip(flows, answers, strict=True):
            if answer.error:
                raise UserError(f"job {spec.name}: {self.told_by_root(flow, answer.error)}")
        return answers

    def inspect_flows(self, spec: JobSpec) -> Generator[list[Ask], list[Answer], list[FlowStatus]]:
        """What the roots of a job's flows know. Raises ``UserError``, as ``ask_roots``."""
        answers = yield from self.ask_roots(spec, lambda flow: InspectFlow(id=0, origin="", uid=flow.uid))
        return [msgspec.msgpack.decode(answer.body, type=FlowStatus) for answer in answers]

    def led(
        self, specs: Sequence[JobSpec]
    ) -> Generator[list[Ask], list[Answer], tuple[dict[str, str], dict[str, JobWork]]]:
        """By uid: of jobs whose masters are not at work, why; and what the others say of their work."""
        job_groups: dict[str, list[JobSpec]] = {}
        for spec in specs:
            job_groups.setdefault(self.leader(spec), []).append(spec)
        silent = self._fleet.silent(job_groups)
        found = {s.uid: self.said(at, SILENT) for at in silent for s in job_groups[at]}
        works: dict[str, JobWork] = {}
        asked = [at for at in job_groups if at not in silent][:LEADERS_ASKED_MAX]
        answers = yield [
            ToAddress(at, InspectWork(id=0, origin="", flows=(), jobs=tuple(s.uid for s in job_groups[at])))
            for at in asked
        ]
        for at, answer in zip(asked, answers, strict=True):
            why, there = answer.error or not_led(self._log), dict[str, JobWork]()
            if not answer.error:
                there = {one.job: one for one in msgspec.msgpack.decode(answer.body, type=WorkStatus).jobs}
            found |= {s.uid: self.said(at, why) for s in job_groups[at] if s.uid not in there}
            works |= there
        return found, works

    def said(self, address: str, error: str, who: str = "its master") -> str:
        """What it says against a question, or what its silence means."""
        named = f"{who}, {self._fleet.named(address)},"
        if error != SILENT:
            return f"{named} says: {error}"
        if not self._fleet.silent([address]):
            return f"{named} does not answer; try again in a moment"
        return f"{named} is not heard of; another one goes on when most of those that keep the job are there"

    def told_by_root(self, flow: Flow, error: str) -> str:
        """The same of the root of a job's flow."""
        return self.said(flow.leader, error, "the root of its flow")


def check_owner(spec: JobSpec | ProgramSpec, creator: str) -> None:
    """Raises ``UserError`` where a job is not this creator's."""
    if spec.creator != creator:
        raise UserError(
            f"job {spec.name} is {spec.creator}'s, and only {spec.creator} may change it (this is {creator})"
        )


def facts_of(answer: Answer) -> JobStatus:
    if answer.error:
        raise UserError(answer.error)
    return msgspec.msgpack.decode(answer.body, type=JobStatus)
