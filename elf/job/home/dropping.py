"""Jobs that are over here, until the stream log has their tombstones; and who waits for these."""

from __future__ import annotations

from elf.job.effects import Effect, Send
from elf.job.log.streamlog import StreamLog
from elf.job.messages import Answer, DropJob, DropJobEntry


class Dropping:
    """See the module's docstring."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._uids: set[str] = set()
        self._asked: dict[str, list[DropJob]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._uids

    def __bool__(self) -> bool:
        return bool(self._uids)

    def add(self, uid: str) -> None:
        self._uids.add(uid)

    def release(self, uid: str) -> None:
        """It is for another agent to say so."""
        self._uids.discard(uid)

    def wishes(self) -> list[DropJobEntry]:
        """What the log is to say and does not say yet."""
        self._uids = {uid for uid in self._uids if not self._log.is_dropped(uid)}
        return [DropJobEntry(uid=uid) for uid in sorted(self._uids)]

    def asked(self, request: DropJob) -> None:
        self._asked.setdefault(request.uid, []).append(request)

    def dropped(self, uid: str) -> list[Effect]:
        """The log says so: who waits is told."""
        return [Send(one.origin, Answer(id=one.id)) for one in self._asked.pop(uid, [])]
