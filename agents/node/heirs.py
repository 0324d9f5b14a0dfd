"""Who is to lead a job group next gets ready first (protocol 5.13):

    (a member) ─▶ warming ─ it has nothing left to make ─▶ holding ─ nothing is under way ─▶ handed over
                     ╰────────────────── ``READY_MS`` have gone by ────────────────────╯

*Warming*: it makes the last windows of the job once more, while we make others, and again from where it was,
until there are none that it has not made (``agents.committing.warming``). A member hears that a record is
committed with the next one, so it makes what is left when it leads, before its first window. *Holding*: we
wait for a moment in which no pane and no window is half made, as that would have to be begun anew. Both are
for speed alone, so both are bounded: a member that does not answer leads as soon as one that is ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elf.job.effects import Send
from elf.job.group.groups import JobGroups
from elf.job.messages.groups import GetReady, Ready

READY_MS: Final = 3_000
ASK_MS: Final = 500
"""Before a member that does not answer is asked once more."""
REST_MS: Final = 20
"""Between two looks whether anything is under way."""


@dataclass
class _Heir:
    """``asked_ms``: None: it has answered."""

    address: str
    since_ms: int
    asked_ms: int | None = None
    made_us: int | None = None
    answers: int = 0
    is_warm: bool = False
    """Its last two answers are the same."""


class Heirs:
    """Those of the job groups that we lead, while we hand these over."""

    def __init__(self, job_groups: JobGroups) -> None:
        self._job_groups = job_groups
        self._heirs: dict[str, _Heir] = {}
        self._sends: list[Send] = []

    def ready(self, uid: str, address: str, now_ms: int) -> bool:
        """Whether a member may lead a job group now."""
        heir = self._heirs.get(uid)
        if heir is None or heir.address != address or now_ms - heir.since_ms > 2 * READY_MS:
            heir = self._heirs[uid] = _Heir(address, now_ms)
        if now_ms - heir.since_ms >= READY_MS:
            return True
        if self._job_groups.has(uid) and not heir.is_warm:  # key ranges and jobs in Python make no windows
            self._ask(uid, heir, now_ms)
            return False
        return self._job_groups.is_at_rest(uid)

    def _ask(self, uid: str, heir: _Heir, now_ms: int) -> None:
        if heir.asked_ms is None or now_ms - heir.asked_ms >= ASK_MS:
            heir.asked_ms = now_ms
            self._sends.append(Send(heir.address, GetReady(uid=uid)))

    def heard(self, sender: str, said: Ready) -> bool:
        """Whether that is an heir's word."""
        heir = self._heirs.get(said.uid)
        if heir is None or heir.address != sender:
            return False
        heir.is_warm = heir.answers > 0 and heir.made_us == said.made_us
        heir.asked_ms, heir.made_us, heir.answers = None, said.made_us, heir.answers + 1
        return True

    def forget(self, uid: str) -> None:
        """We do not lead the group any more."""
        self._heirs.pop(uid, None)

    def take(self) -> list[Send]:
        """What is to be said."""
        sends, self._sends = self._sends, []
        return sends
