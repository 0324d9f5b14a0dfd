"""Which versions have read each flow, from which entry of the log on, and up to which: so what any root that
had come less far may have believed of the flow's readers (``elf.job.units``, protocol 6.10).

A tombstone (``elf.job.catalog.compaction``) does not say which flows its version read. So nothing is claimed
of prefixes of the log that end before the last tombstone, or before the end of what that hides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from elf.job.spec import JobSpec

ENDED_MAX: Final = 16
"""Readings of a flow that are over and still known."""


@dataclass
class _Reading:
    """A version that reads a flow from entry ``first`` to entry ``end`` (None: still)."""

    spec: JobSpec
    first: int
    end: int | None = None

    def is_at(self, seq: int) -> bool:
        return self.first <= seq and (self.end is None or seq < self.end)


class Readings:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._of: dict[str, list[_Reading]] = defaultdict(list)
        self._gone: dict[str, int] = {}
        """For flows of which readings were forgotten the last end of one."""
        self._unclear = 0
        self._hidden: set[str] = set()

    def begin(self, uid: str, spec: JobSpec, seq: int) -> None:
        self._of[uid].append(_Reading(spec, seq))

    def end(self, uid: str, job: str, version: int, seq: int) -> None:
        for one in self._of.get(uid, ()):
            if (one.spec.uid, one.spec.version) == (job, version) and one.end is None:
                one.end = seq
        over = [one for one in self._of.get(uid, ()) if one.end is not None]
        for one in over[:-ENDED_MAX]:
            self._of[uid].remove(one)
            self._gone[uid] = max(self._gone.get(uid, 0), one.end or 0)

    def hide(self, job: str, seq: int) -> None:
        """Something of a job is or was over that is not known here."""
        self._hidden.add(job)
        self._unclear = seq

    def drop(self, job: str, seq: int, *, known: bool) -> None:
        """A job is dropped."""
        if not known or job in self._hidden:
            self.hide(job, seq)

    def forget(self, uid: str) -> None:
        """A flow has ended."""
        self._of.pop(uid, None)
        self._gone.pop(uid, None)

    def fit_since(self, uid: str, spec: JobSpec, fits: Callable[[Collection[JobSpec]], bool]) -> int:
        """The first entry from which on all that read a flow fitted, up to the entry of a version that reads
        it; 0: they always did."""
        there, floor = self._of[uid], max(self._unclear, self._gone.get(uid, 0))
        found = at = next(
            one.first for one in there if (one.spec.uid, one.spec.version) == (spec.uid, spec.version)
        )
        edges = {edge for one in there for edge in (one.first, one.end) if edge is not None and edge < at}
        for edge in sorted(edges, reverse=True):
            if not fits([one.spec for one in there if one.is_at(edge)]):
                return min(max(found, floor), at)
            found = edge
        if uid not in self._gone and self._unclear <= found < at:
            return 0
        return min(max(found, floor), at)
