"""Where job groups were to go, as the entries of the catalog log say, and whether they went.

A *decision* is an entry ``JobGroupAssigned``; the group has gone when a ``JobGroupMoved`` after it names the
target. What is asked here is a function of the log: whoever leads its voters next finds the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from elf.job.messages.log import JobGroupAssigned, JobGroupMoved
from elf.job.spec import job_of

KEPT: Final = 512
"""The last decisions, which are shown; more than can be made in an hour (``elf.planning.pacing``)."""


class Assignments:
    """Those of one log."""

    def __init__(self) -> None:
        self._last: dict[str, JobGroupAssigned] = {}
        self._all: deque[JobGroupAssigned] = deque(maxlen=KEPT)
        self._gone: set[int] = set()
        """The numbers of those that were carried out."""

    def add(self, entry: JobGroupAssigned) -> None:
        if len(self._all) == KEPT:
            self._gone.discard(self._all[0].seq)
        self._last[entry.uid] = entry
        self._all.append(entry)

    def moved(self, entry: JobGroupMoved) -> None:
        """A job group has gone somewhere."""
        last = self._last.get(entry.uid)
        if last is not None and last.target == entry.leader:
            self._gone.add(last.seq)

    def forget(self, job: str) -> None:
        """A job is over; what was decided of it is shown for a while."""
        for uid in [uid for uid in self._last if job_of(uid) == job]:
            del self._last[uid]

    def last(self, uid: str) -> JobGroupAssigned | None:
        """What was decided last of a job group."""
        return self._last.get(uid)

    def was_carried_out(self, entry: JobGroupAssigned) -> bool:
        return entry.seq in self._gone

    def __iter__(self) -> Iterator[JobGroupAssigned]:
        """The last ones, in their order."""
        return iter(self._all)
