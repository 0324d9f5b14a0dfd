"""What a stream's worker computes for jobs in Python: partial aggregates, or rows, of each chunk as it comes.

Taps know no lateness, and panes only where a query has a window; rows beyond the future bound or outside the
roster are left out as everywhere. What was given is in the stream's checkpoint until the job says that its
own checkpoint has it (protocol 14.5). The next life of the agent gives it again, and does not give what the
job has when it reads that again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from elf.batch import encode
from elf.job.checkpoint import TapsCheckpoint
from elf.job.ports import ChunkLike, MapFailed, MapperPort
from elf.job.program.spec import Tap, Tapped
from elf.job.worker.assigning import Mask, View
from elf.ql.plan import Fragment

UNKEPT_BYTES_MAX: Final = 32 << 20
"""What is kept of one job's rows; of a job that is slower than its rows the oldest are given up."""
Ends = Mapping[tuple[str, str], int]
"""How far the rows of taps were given: (tap, source) → end."""


class _Job:
    """The taps of one job. ``ends``: how far the rows of each were given; ``unkept``: what was given, and is
    not known to be durable with the job."""

    def __init__(self, taps: tuple[Tap, ...], pane_us: int) -> None:
        self.taps = taps
        self.pane_us = pane_us
        self.mappers: list[MapperPort] = []
        self.ends: dict[tuple[str, str], int] = {}
        self.unkept: deque[Tapped] = deque()
        self.unkept_bytes = 0
        self.told_pane: int | None = None

    def keep(self, unkept: Iterable[Tapped]) -> None:
        """These, and no others."""
        self.unkept = deque(unkept)
        self.unkept_bytes = sum(len(one.payload) for one in self.unkept)

    def give(self, one: Tapped) -> None:
        self.unkept.append(one)
        self.unkept_bytes += len(one.payload)
        while self.unkept_bytes > UNKEPT_BYTES_MAX:
            self.unkept_bytes -= len(self.unkept.popleft().payload)


class Taps:
    """The taps of one stream, by job."""

    def __init__(self, mapper: Callable[[Fragment], MapperPort]) -> None:
        self._mapper = mapper
        self._jobs: dict[str, _Job] = {}
        self._again: list[Tapped] = []
        self.failed: dict[str, str] = {}
        """Jobs whose taps have ended, as they cannot be computed, and why; whoever tells it empties it."""

    def restore(self, kept: Iterable[TapsCheckpoint], ends: Mapping[str, Ends]) -> None:
        """Go on from a checkpoint. ``ends``: what jobs durably have, by uid."""
        for one in kept:
            job = self._put(one.uid, one.taps, one.pane_us)
            job.ends.update({(tap, source): end for tap, source, end in one.ends})
            for tapped, end in ends.get(one.uid, {}).items():
                job.ends[tapped] = max(end, job.ends.get(tapped, 0))
            job.keep(one.unkept)
            self._again += job.unkept

    def put(self, uid: str, taps: tuple[Tap, ...], pane_us: int = 0) -> bool:
        """The taps of a job are these; an empty set ends them. False: there is nothing new in that."""
        job = self._jobs.get(uid)
        if (job is None and not taps) or (job is not None and taps):
            return False
        self._remove(uid)
        if taps:
            for mapper in self._put(uid, taps, pane_us).mappers:
                mapper.prepare()
        return True

    def _put(self, uid: str, taps: tuple[Tap, ...], pane_us: int) -> _Job:
        job = self._jobs[uid] = _Job(taps, pane_us)
        job.mappers = [self._mapper(tap.fragment) for tap in taps]
        return job

    def _remove(self, uid: str) -> None:
        job = self._jobs.pop(uid, None)
        for mapper in job.mappers if job is not None else ():
            mapper.close()

    def __bool__(self) -> bool:
        """Whether any job has taps here, or is still to be given something."""
        return bool(self._jobs) or bool(self._again)

    def fragments(self) -> list[Fragment]:
        return [tap.fragment for job in self._jobs.values() for tap in job.taps]

    def kept(self, uid: str, given: Iterable[tuple[str, str, int]]) -> None:
        """A job durably has the rows of its taps up to there."""
        job, ends = self._jobs.get(uid), {(tap, source): end for tap, source, end in given}
        if job is not None:
            job.keep(one for one in job.unkept if one.end > ends.get((one.name, one.source), 0))

    def again(self) -> tuple[Tapped, ...]:
        """What the last life of the agent has given, once."""
        found, self._again = tuple(self._again), []
        return found

    def feed(self, view: View, chunk: ChunkLike) -> tuple[Tapped, ...]:
        """What a chunk comes to for each tap, also if that is nothing."""
        if not self._jobs:
            return ()
        mask = ~view.future if view.wanted is None else ~view.future & view.wanted
        found: list[Tapped] = []
        shared: dict[tuple[int, int], pa.Table] = {}
        for uid, job in list(self._jobs.items()):
            for tap, mapper in zip(job.taps, job.mappers, strict=True):
                tapped, end = (tap.name, chunk.source.id), chunk.end
                begin = job.ends.get(tapped, 0)
                if end <= begin:
                    continue
                begin = begin if begin > chunk.start else 0
                wanted = begin, tap.pane_us
                if wanted not in shared:
                    shared[wanted] = _rows(view, mask & (view.offsets >= begin) if begin else mask, tap)
                try:
                    table = mapper.run(shared[wanted]) if shared[wanted].num_rows else None
                except MapFailed as error:
                    self.failed[uid] = f"it cannot be computed: {error}"
                    self._remove(uid)
                    break
                payload = encode(table) if table is not None and table.num_rows else b""
                one = Tapped(uid, tap.name, payload, chunk.source.id, end)
                job.ends[tapped] = end
                if payload:
                    job.give(one)
                found.append(one)
        return tuple(found)

    def passed(self, watermark_us: int) -> tuple[Tapped, ...]:
        """All rows before that event time have come, for jobs whose panes end there."""
        found: list[Tapped] = []
        for uid, job in self._jobs.items():
            if job.pane_us and (pane := watermark_us // job.pane_us) != job.told_pane:
                job.told_pane = pane
                found.append(Tapped(uid, "", b"", until_us=watermark_us))
        return tuple(found)

    def gone(self, sources: Iterable[str]) -> None:
        """These will never have more."""
        left = frozenset(sources)
        for job in self._jobs.values():
            job.ends = {tapped: end for tapped, end in job.ends.items() if tapped[1] not in left}

    def checkpoint(self) -> tuple[TapsCheckpoint, ...]:
        """All of it."""
        return tuple(
            TapsCheckpoint(
                uid,
                job.taps,
                job.pane_us,
                tuple((*tapped, end) for tapped, end in job.ends.items()),
                tuple(job.unkept),
            )
            for uid, job in self._jobs.items()
        )

    def close(self) -> None:
        for uid in list(self._jobs):
            self._remove(uid)


def _rows(view: View, mask: Mask, tap: Tap) -> pa.Table:
    """The chosen rows; in panes, where a tap has a window, those that have an event time."""
    pane_us = tap.pane_us
    mask = mask & view.timed if pane_us else mask
    panes = view.ts // pane_us if pane_us else np.zeros(len(view.ts), dtype=np.int64)
    whole = bool(mask.all())
    rows = view.rows if whole else view.rows.filter(pa.array(mask))
    return rows.append_column("_pane", pa.array(panes if whole else panes[mask]))
