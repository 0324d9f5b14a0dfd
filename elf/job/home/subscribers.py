"""Who reads a job's windows at its home, and what they are told.

A subscription is a lease, which its reader renews. Each window is published once a revision, when it is
committed, with its number; a reader asks for the numbers that it has missed (``elf.wire.heard``), and
whoever comes later for all after the last one that it had. Early results (``elf.job.home.early``) are made
only while somebody reads.
"""

from __future__ import annotations

import msgspec

from elf.job.effects import Effect, ReadWindows, Send
from elf.job.events import EarlyMade
from elf.job.home.early import EarlyResults
from elf.job.home.master import Master
from elf.job.messages import Answer, EarlyState, JobFailed, SubscribeJob, WindowResult

LEASE_MS = 10_000
"""A subscriber that does not renew for so long is forgotten."""
ORPHAN_MS = 30_000
"""A one-shot SELECT's job that nobody reads for so long is dropped."""


class Subscribers:
    """Those of the windows of one master. ``published``: the number of the last ones."""

    def __init__(self, master: Master, now_ms: int, published: int) -> None:
        self._master = master
        self._until_ms: dict[str, int] = {}
        self._read_ms = now_ms
        self._published = published
        self._early = EarlyResults()

    def __bool__(self) -> bool:
        return bool(self._until_ms)

    def add(self, request: SubscribeJob, now_ms: int) -> list[Effect]:
        self._until_ms[request.origin] = now_ms + LEASE_MS
        self._read_ms = now_ms
        found: list[Effect] = [Send(request.origin, Answer(id=request.id))]
        if request.after is not None and request.after < self._published:
            found.append(ReadWindows(self._master.spec, request, after=request.after))
        return found

    def expire(self, now_ms: int) -> None:
        self._until_ms = {to: until for to, until in self._until_ms.items() if until > now_ms}

    def orphaned(self, now_ms: int) -> bool:
        """Whether it is a one-shot job that nobody has read for long."""
        one_shot = not self._master.spec.replicated
        return one_shot and not self and now_ms - self._read_ms > ORPHAN_MS

    # -- what they are told ----------------------------------------------------------------------------------

    def publish(self, result: WindowResult) -> list[Effect]:
        """They are committed."""
        self._published = max(self._published, result.number)
        return self._tell(self.marked(result))

    def marked(self, result: WindowResult) -> WindowResult:
        """A result as it goes out."""
        changes = self._master.spec.plan.fragment.changes_us is not None
        return msgspec.structs.replace(result, changes=True) if changes else result

    def failed(self, text: str) -> list[Effect]:
        return self._tell(JobFailed(job=self._master.spec.uid, text=text))

    def _tell(self, message: WindowResult | JobFailed) -> list[Effect]:
        return [Send(to, message) for to in self._until_ms]

    # -- early results ---------------------------------------------------------------------------------------

    def take_early(self, state: EarlyState) -> None:
        """A member's open panes."""
        self._early.take(state)

    def early_due_ms(self) -> int | None:
        return self._early.due_ms(self._master.current) if self else None

    def make_early(self, now_ms: int) -> list[Effect]:
        return list(self._early.make(self._master.current, now_ms)) if self else []

    def early_made(self, event: EarlyMade, now_ms: int) -> list[Effect]:
        """Publish them, unless some of these windows are committed meanwhile."""
        self._early.made()
        result, done = event.result, self._master.assembled_us()
        found = self.make_early(now_ms)
        if result is None or (done is not None and done > result.first_us):
            return found
        return [*self._tell(self.marked(result)), *found]


def numbered(result: WindowResult, number: int) -> WindowResult:
    """A result whose commit has its number now; 0: it has had it before, or needs none."""
    return msgspec.structs.replace(result, number=number, before=number - 1) if number else result
