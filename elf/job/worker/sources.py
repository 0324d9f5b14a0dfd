"""The sources of a stream on one agent: how far each was read, and the watermark that they promise together.

A source that is silent for a while does not hold the watermark. One that nobody could look at is not silent.
For those who may run the agent's work again, sources have numbers (``elf.job.reexecution``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from elf.job.checkpoint import SourceCheckpoint, StreamCheckpoint
from elf.job.reexecution import SOURCES_MAX, SourceAt, SourceOffsets

LONG_AGO: Final = -(1 << 62)
"""Event time before every event time: nothing was read yet."""
STALL_MS: Final = 2_000
"""An agent looks at its files, or says that they are silent, several times in that long."""


@dataclass
class Source:
    """``highest``: event time; ``heard_ms``: clock at the last chunk; ``number``: see
    ``elf.job.reexecution``, 0 where the next row gives it one."""

    highest: int = LONG_AGO
    heard_ms: int = 0
    end: int = 0
    number: int = 0


class Sources:
    """``idle_ms``: a source silent for that long does not hold the watermark."""

    def __init__(self, idle_ms: int) -> None:
        self.highest = LONG_AGO
        """The highest event time of all that there ever were."""
        self._idle_ms = idle_ms
        self._known: dict[str, Source] = {}
        self._started_ms: int | None = None
        self._looked_ms: int | None = None
        self._number = 0

    def restore(self, checkpoint: StreamCheckpoint, *, numbered: bool) -> None:
        """Go on from a checkpoint; ``numbered``: its numbers still say the same."""
        self.highest, self._number = checkpoint.highest, checkpoint.number
        for one in checkpoint.sources:
            self._known[one.id] = Source(one.highest, 0, one.end, one.number if numbered else 0)

    def image(self) -> tuple[tuple[SourceCheckpoint, ...], int]:
        """(all of them, the last number), for the checkpoint."""
        known = sorted(self._known.items())
        return tuple(SourceCheckpoint(name, s.highest, s.end, s.number) for name, s in known), self._number

    def of(self, name: str, start: int) -> Source:
        """A source from which a chunk comes; ``start``: where it begins, if it is the first."""
        return self._known.setdefault(name, Source(end=start))

    def heard(self, source: Source, end: int, now_ms: int) -> None:
        """A chunk of it was taken."""
        source.heard_ms, source.end = now_ms, end
        self.highest = max(self.highest, source.highest)

    def forget(self, names: Iterable[str]) -> None:
        """These will never have more."""
        for name in names:
            self._known.pop(name, None)

    @property
    def tell(self) -> bool:
        """Whether any of those that may have more has told an event time."""
        return any(source.highest != LONG_AGO for source in self._known.values())

    def ends(self) -> dict[str, int]:
        """How far each was read."""
        return {name: source.end for name, source in self._known.items()}

    # -- event times -----------------------------------------------------------------------------------------

    def highest_of(self, name: str) -> int:
        """The highest event time that a source has had (``LONG_AGO``: none)."""
        return self._known[name].highest

    def highest_before(self, name: str) -> int:
        """The highest event time of a source; of an unread source, the lowest of all others."""
        known = self._known.get(name)
        if known is not None and known.highest != LONG_AGO:
            return known.highest
        return min((s.highest for s in self._known.values() if s.highest != LONG_AGO), default=LONG_AGO)

    def awake(self, now_ms: int) -> None:
        """While nobody looked at the sources (the process was stopped, or reading held back) they were not
        silent: else the first one that is read again would close windows on the others' unread lines."""
        looked, self._looked_ms = self._looked_ms, now_ms
        if looked is None or self._started_ms is None or now_ms - looked < STALL_MS:
            return
        self._started_ms += now_ms - looked
        for source in self._known.values():
            source.heard_ms += now_ms - looked

    def watermark_us(self, now_ms: int) -> int:
        """The lowest event time that its sources still promise; with every source idle, the clock less the
        idle timeout."""
        recently, started_ms = now_ms - self._idle_ms, self._begun(now_ms)
        talking = [
            s.highest
            for s in self._known.values()
            if max(s.heard_ms, started_ms) > recently and s.highest != LONG_AGO
        ]
        if talking:
            return min(talking)
        if started_ms > recently:
            return self.highest
        return max(self.highest, recently * 1000)

    def _begun(self, now_ms: int) -> int:
        """When it was first asked what is idle."""
        self._started_ms = now_ms if self._started_ms is None else self._started_ms
        return self._started_ms

    # -- for those who may run it again ----------------------------------------------------------------------

    def before(self, source: Source, start: int, now_ms: int) -> SourceOffsets | None:
        """The source offsets before a chunk that starts there, whose source is no longer idle; None where it
        was read before."""
        offsets = self.offsets(now_ms, speaks=source)
        return offsets if start >= source.end else None

    def offsets(self, now_ms: int, speaks: Source | None = None) -> SourceOffsets | None:
        """The present source offsets; None with too many files. Sources that are not waited for now are
        *asleep* from here on."""
        recently, started_ms = now_ms - self._idle_ms, self._begun(now_ms)
        for source in self._known.values():
            if source is not speaks and max(source.heard_ms, started_ms) <= recently:
                source.number = 0
        if speaks is not None and not speaks.number:
            self._number = speaks.number = self._number + 1
        if len(self._known) > SOURCES_MAX:
            return None
        at = (SourceAt(name, s.end, s.highest, not s.number) for name, s in self._known.items())
        return SourceOffsets(self._number, now_ms, tuple(at))
