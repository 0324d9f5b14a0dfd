"""Python jobs on virtual time: each runs in line, in the process of the test; everything else of it is
real."""

from __future__ import annotations

from collections.abc import Callable

from elf.job.program.calls import JobEffect
from elf.job.program.port import (
    CallProgram,
    ProgramActed,
    ProgramEffect,
    ProgramEvent,
    ProgramState,
    StartProgram,
    StopProgram,
)
from elf.job.program.runner import JobRunner, failure_of


def no_queries(*_: object) -> tuple[bytes, str]:
    return b"", "there are no queries on virtual time"


class InlineJobs:
    """``later`` posts an event to the agent, after a while."""

    def __init__(self, later: Callable[[ProgramEvent], None]) -> None:
        self._later = later
        self.runners: dict[str, JobRunner] = {}

    def perform(self, effect: ProgramEffect) -> None:
        match effect:
            case StartProgram(spec, place):
                runner = JobRunner(spec.text, spec.filename, spec.name, spec.creator, no_queries, spec.taps)
                runner.start(place)
                self.runners[spec.uid] = runner
                self._later(ProgramState(spec.uid, "running"))
            case StopProgram(uid):
                self.runners.pop(uid)
            case CallProgram(uid, event, place, payload):
                if uid not in self.runners:
                    return
                effects: list[JobEffect] = []
                try:
                    self.runners[uid].handle(event, place, payload, effects)
                except Exception as error:
                    self._later(ProgramState(uid, "failing", failure_of(error, "job.py").text))
                self._later(ProgramActed(uid, tuple(effects)))
