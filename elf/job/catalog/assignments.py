"""What was decided of jobs by itself, as the entries of the catalog log say, and whether it was done.

A *decision* is an entry ``JobGroupAssigned``: the group has gone when a ``JobGroupMoved`` after it names
the target. Or it is a ``TreesDecided`` or a ``PauseDecided``: the job has its trees, or looks that far
apart, when a ``VersionAdded`` after it says so, unless that version is aborted. What is asked here is a
function of the log: whoever leads its voters next finds the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from elf.job.messages.log import JobGroupAssigned, JobGroupMoved, PauseDecided, TreesDecided, VersionEnded
from elf.job.spec import JobSpec, job_of

Decided = JobGroupAssigned | TreesDecided | PauseDecided

DECIDED_MS: Final = 60_000
"""A decision that is heard later than this is no longer carried out."""
TRIES: Final = 3
"""So often trees are decided of one version: one whose master dies meanwhile is decided again, and what is
always refused is not decided for ever."""
KEPT: Final = 512
"""The last decisions, which are shown; more than can be made in an hour (``elf.planning.pacing``)."""


class Assignments:
    """Those of one log."""

    def __init__(self) -> None:
        self._last: dict[str, Decided] = {}
        self._all: deque[Decided] = deque(maxlen=KEPT)
        self._gone: set[int] = set()
        """The numbers of those that were carried out."""
        self._versions: dict[str, dict[int, int]] = {}
        """Which entries have added the versions that jobs have instead of their first ones."""

    def add(self, entry: Decided) -> None:
        if len(self._all) == KEPT:
            self._gone.discard(self._all[0].seq)
        self._last[entry.uid] = entry
        self._all.append(entry)

    def moved(self, entry: JobGroupMoved) -> None:
        """A job group has gone somewhere."""
        last = self._last.get(entry.uid)
        if isinstance(last, JobGroupAssigned) and last.target == entry.leader:
            self._gone.add(last.seq)

    def version(self, spec: JobSpec, seq: int) -> None:
        """A job has another version."""
        self._versions.setdefault(spec.uid, {})[spec.version] = seq
        last = self._last.get(spec.uid)
        if last is not None and not spec.unusable and _is_done(last, spec):
            self._gone.add(last.seq)

    def ended(self, entry: VersionEnded, newest: JobSpec) -> None:
        """A version of a job is over, another one is not; one that is the ``newest`` was aborted."""
        last = self._last.get(entry.uid)
        if isinstance(last, TreesDecided | PauseDecided) and newest.version == entry.version:
            self._gone.discard(last.seq)

    def detached(self, uid: str, version: int) -> None:
        """A version of a job reads nothing any more."""
        self._versions.get(uid, {}).pop(version, None)

    def in_vain(self, spec: JobSpec, kind: type[Decided] = TreesDecided) -> int:
        """How many decisions of a kind on a version came to nothing, if no other version is there or under
        way. The entries of other versions do not matter: they may be forgotten."""
        added = self._versions.get(spec.uid, {}).get(spec.version, 0)
        return sum(isinstance(one, kind) and one.uid == spec.uid and one.seq > added for one in self)

    def forget(self, job: str) -> None:
        """A job is over; what was decided of it is shown for a while."""
        self._versions.pop(job, None)
        for uid in [uid for uid in self._last if job_of(uid) == job]:
            del self._last[uid]

    def last(self, uid: str) -> Decided | None:
        """What was decided last of a job group."""
        return self._last.get(uid)

    def left_behind(self, uid: str) -> str:
        """The agent from which a job group has gone, as was decided last; empty: nothing of the kind was.
        It had too much to do, and need not have the group's records either."""
        last = self._last.get(uid)
        gone = isinstance(last, JobGroupAssigned) and self.was_carried_out(last)
        return last.origin if isinstance(last, JobGroupAssigned) and gone else ""

    def was_carried_out(self, entry: Decided) -> bool:
        return entry.seq in self._gone

    def __iter__(self) -> Iterator[Decided]:
        """The last ones, in their order."""
        return iter(self._all)


def _is_done(entry: Decided, spec: JobSpec) -> bool:
    """Whether a version does what was decided."""
    match entry:
        case TreesDecided():
            return entry.trees == spec.plan.trees
        case PauseDecided():
            return spec.definition.chosen is not None and spec.definition.chosen.poll_ms == entry.pause_ms
        case JobGroupAssigned():
            return False
