"""Who waits for a job, or for a change of it, and hears how that has ended.

What needs a PREPARE ends later than it was asked for. Of a replicated job nobody hears anything before its
group has committed the last word on its versions.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from elf.job.effects import Effect, SaveJob, Send
from elf.job.home.master import Master
from elf.job.messages import Answer, CreateJob, JobFacts, SteerJob


class Changes:
    """Those of one job. ``creator``: who waits for the job itself."""

    def __init__(self, creator: CreateJob | None = None) -> None:
        self.creator = creator
        self._asker: SteerJob | None = None
        self._ended: list[tuple[SteerJob, str]] = []
        """How changes have ended, for those who asked for them."""
        self._unsaved: SaveJob | None = None
        """The last word on its versions, while its group has not committed that."""

    @property
    def durable(self) -> bool:
        return self._unsaved is None

    def asked(self, request: SteerJob) -> None:
        """What is asked for is under way."""
        if request.verb in ("pause", "empty"):
            self._ended.append((request, ""))
        else:
            self._asker = request

    def saving(self, effects: list[Effect]) -> None:
        """The group is to commit what these say of the job."""
        self._unsaved = next((e for e in reversed(effects) if isinstance(e, SaveJob)), self._unsaved)

    def saved(self, job: SaveJob) -> bool:
        """The group has committed a record; whether that is the last word."""
        if self._unsaved != job:
            return False
        self._unsaved = None
        return True

    def answers(self, master: Master, facts: Callable[[], JobFacts]) -> list[Effect]:
        """For those who can be told by now."""
        if self._asker is not None and master.outcome is not None:
            error = f"nothing is changed: {master.outcome}" if master.outcome else ""
            self._ended.insert(0, (self._asker, error))
            self._asker = None
        if not self.durable:
            return []
        ended, self._ended = self._ended, []
        found = [_told(request, facts, error) for request, error in ended]
        if self.creator is not None and master.state != "preparing":
            found.append(_told(self.creator, facts))
            self.creator = None
        return found

    def moved(self, name: str) -> list[Effect]:
        """Who waits hears that another agent may go on with it, or not."""
        waiting = (*(request for request, _ in self._ended), self._asker, self.creator)
        error = f"the home of job {name} moved meanwhile; DESCRIBE {name} says what has become of that"
        return [Send(one.origin, Answer(id=one.id, error=error)) for one in waiting if one is not None]

    def not_created(self, error: str) -> list[Effect]:
        """The creator, if it still waits, does so no more."""
        request, self.creator = self.creator, None
        return [Send(request.origin, Answer(id=request.id, error=error))] if request is not None else []


def _told(request: SteerJob | CreateJob, facts: Callable[[], JobFacts], error: str = "") -> Effect:
    body = b"" if error else msgspec.msgpack.encode(facts())
    return Send(request.origin, Answer(id=request.id, error=error, body=body))
