"""Jobs that are read by others (FROM JOB, ``elf.ql.jobs``): what is known of them, and what may not happen to
them meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING

from agents.answering.asks import Ask
from elf.errors import UserError
from elf.job import messages as say
from elf.job.log.readers import is_read, readable_as
from elf.job.log.streamlog import StreamLog
from elf.job.rollup.rooted import event_time
from elf.job.spec import JobSpec
from elf.ql.plan import Plan
from elf.windows import Landmark

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql.jobs import Read

Inspect = Callable[[JobSpec, int], Generator[list[Ask], list[say.Answer], say.JobFacts]]


class JobReads:
    """``find`` a job by name and creator; ``inspect`` asks its home for its facts."""

    def __init__(self, log: StreamLog, find: Callable[[str, str], JobSpec], inspect: Inspect) -> None:
        self._log = log
        self._find = find
        self._inspect = inspect

    def read(self, name: str, creator: str) -> Read:
        """A job that a query reads. Raises ``UserError``."""
        from elf.ql.jobs import Read

        spec = self._find(name, creator)
        if readable_as(self._log, spec.uid) is None:
            raise UserError(
                f"job {name} is being changed: while the windows of two of its versions are made it can't be "
                f"read; DESCRIBE {name} tells until when"
            )
        return Read(spec.uid, spec.name, spec.plan)

    def unread(self, spec: JobSpec) -> None:
        """Raises ``UserError`` when other jobs read this one."""
        readers = self._log.read_by(spec.uid)
        if readers:
            raise UserError(is_read(spec.name, readers))

    def since(self, plan: Plan) -> Generator[list[Ask], list[say.Answer], Plan]:
        """The plan, with the landmark of the job that it reads if its windows are that job's. On finite input
        both begin with the first row. Raises ``UserError``.
        """
        if not plan.reads or plan.stages or not any(isinstance(kind, Landmark) for kind in plan.windows):
            return plan
        spec = self._log.job(plan.reads[0])
        if spec is None:
            raise UserError("the job that is read has been dropped meanwhile")
        facts = yield from self._inspect(spec, 0)
        made = next((one for one in facts.versions if one.spec.version == facts.spec.version), None)
        if made is None or made.first_pane is None or facts.state == "preparing":
            raise UserError(f"job {spec.name} is still being prepared; try again in a moment")
        first_us = event_time(made.first_pane, plan.fragment.pane_us)
        if first_us is None:
            return plan
        landmark_us = (made.landmarks or (first_us,))[-1]
        return replace(plan, since=(landmark_us, max(landmark_us, facts.committed_us or landmark_us)))
