"""What was received, as an input: the lines of a spool, in chunks of one origin each.

An *origin* (``syslog:10.0.0.7``) is the source of its lines: it has its own lateness, and a silent one holds
up no window. A block of the spool has lines of many origins, mixed; it is handed out as one chunk an origin,
in the order in which they first appear in it, so that a hundred senders cost no more than one. A position
between two of these chunks says which block it is, and how many are handed out: what is read again is cut
alike.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from agents.inputs.split import split
from agents.inputs.spool import KEYS, LOSS, Record, Segment, Spool, found_again, records, size_of
from agents.inputs.values import Chunk, Counters, Position, Source, Unresting
from elf.errors import InputError
from elf.fields import replace
from elf.job.gaps import Missed

SILENT_MS: Final = 600_000
"""An origin that says nothing for so long is no source any more; it may become one again."""
FULL: Final = "it was not taken, and its sender could not wait"
DAMAGED: Final = "the spool is damaged there"
GONE: Final = "the spool was removed, or a part of it"
_HEAD_BYTES: Final = 64
FEW: Final = 8
PACE_MS: Final = 5
"""Of more than a few origins small blocks are not read at once: a chunk of a few lines costs half a
millisecond, so each of them takes a tenth of a core at most."""


@dataclass
class _Group:
    """What a block has of one origin."""

    pieces: list[Record] = field(default_factory=list)


class Spooled(Unresting):
    """See the module's docstring. ``positions``: of the last checkpoint."""

    def __init__(
        self, stream: str, spool: Spool, *, max_line_bytes: int, positions: tuple[Position, ...]
    ) -> None:
        self.counters = Counters()
        self.spool = spool
        self._max_line_bytes = max_line_bytes
        self._place = f"spool:{stream}"
        found = next((one for one in positions if one.source == self._place), None)
        self._at = found.offset if found is not None else spool.begin
        """Where the block begins that is handed out, or else the next one."""
        self._end = self._at + (found.head_bytes if found is not None else 0)
        self._done = found.generation if found is not None else 0
        """Chunks of it that were handed out."""
        self._groups: deque[tuple[str, _Group]] = deque()
        self._heard: dict[str, int | None] = {
            one.path: None for one in positions if one.source != self._place
        }
        self._origins: tuple[Position, ...] = ()
        self._gaps: list[Missed] = []
        self._finished: list[str] = []
        self._open: tuple[Segment, int] | None = None
        self._paced_ms = self._pace_ms = 0
        """When the last block was read, and how long the next one waits after it."""

    @property
    def exhausted(self) -> bool:
        """More may always come."""
        return False

    @property
    def unread(self) -> int:
        waiting = sum(one.end - one.offset for _, group in tuple(self._groups) for one in group.pieces)
        waiting += self.spool.waiting
        return self.spool.durable - max(self._at, self._end if self._groups else 0) + waiting

    @property
    def has_new_sources(self) -> bool:
        """Rows of a block that are not handed out yet may be as old as those that are."""
        return bool(self._groups)

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next lines of one origin; None when there are no more right now. Raises ``InputError`` when the
        spool has failed."""
        if (failure := self.spool.failure) is not None:
            raise InputError(
                f"cannot write to the spool {self.spool.folder}: {failure.strerror}"
            ) from failure
        self._forget_silent(now_ms)
        while not self._groups:
            if self._waits(bytes_max, now_ms) or not self._next_block(bytes_max):
                return None
            self._paced_ms, self._pace_ms = now_ms, PACE_MS * max(len(self._groups) - FEW, 0)
        origin, group = self._groups.popleft()
        self._heard[origin] = now_ms
        chunk = self._chunk(origin, group)
        self._done += 1
        if not self._groups:
            self._at, self._done = self._end, 0
        return chunk

    # -- blocks ----------------------------------------------------------------------------------------------

    def _waits(self, bytes_max: int, now_ms: int) -> bool:
        """Whether more should come first."""
        is_small = self.spool.durable - self._at < bytes_max
        return is_small and 0 <= now_ms - self._paced_ms < self._pace_ms

    def _next_block(self, bytes_max: int) -> bool:
        """Whether there is one. One that was begun before a restart has the bytes that it had."""
        size = self._end - self._at if self._done else 0
        found = self._records(size or max(bytes_max, _HEAD_BYTES), exactly=bool(size))
        if not found:
            return False
        groups: dict[str, _Group] = {}
        for one in found:
            if one.kind == LOSS and not self._done:
                self._lose(one)
            elif one.kind not in (KEYS, LOSS):
                groups.setdefault(one.origin, _Group()).pieces.append(one)
        self._end = found[-1].end
        self._groups = deque(list(groups.items())[self._done :])
        if not self._groups:
            self._at, self._done = self._end, 0
        return True

    def _lose(self, one: Record) -> None:
        _, size = msgspec.msgpack.decode(one.data, type=tuple[int, int])
        self._miss(one.origin, one.offset, size or None, FULL)

    def _miss(self, origin: str, offset: int, size: int | None, why: str) -> None:
        self.counters.lost_bytes += size or 0
        self._gaps.append(Missed(self._id(origin), origin, offset, size, why, ended=True))

    def _records(self, bytes_max: int, *, exactly: bool) -> list[Record]:
        """The next ones, of one segment, about so many bytes."""
        durable = self.spool.durable
        while self._at < durable:
            segment = self.spool.segment_at(self._at)
            if segment is None:
                return []
            if segment.base > self._at:
                self._miss("spool", self._at, segment.base - self._at, GONE)
                self._pass_to(segment.base)
            stop = min(segment.end, durable)
            data = self._bytes(segment, min(bytes_max, stop - self._at))
            size = size_of(data)
            if size > len(data) and not exactly:
                data = self._bytes(segment, min(size, stop - self._at))
            found = list(records(data, self._at))
            if found:
                return found
            again = found_again(self._bytes(segment, stop - self._at), 0)
            behind = stop if again is None else self._at + again
            self._miss("spool", self._at, behind - self._at, DAMAGED)
            self._pass_to(behind)
        return []

    def _pass_to(self, offset: int) -> None:
        self._at = self._end = offset
        self._done = 0

    def _bytes(self, segment: Segment, count: int) -> bytes:
        if self._open is None or self._open[0].base != segment.base:
            self._shut()
            self._open = segment, os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        return os.pread(self._open[1], count, self._at - segment.base)

    # -- lines -----------------------------------------------------------------------------------------------

    def _id(self, origin: str) -> str:
        return f"{self._place}:{origin}"

    def _chunk(self, origin: str, group: _Group) -> Chunk:
        """Lines keep the offsets that they have in the spool."""
        source = Source(self._id(origin), origin)
        pieces = group.pieces
        begins = np.cumsum([0, *(len(one.data) for one in pieces[:-1])])
        shifts = np.array([one.lines_at for one in pieces], np.int64) - begins
        found = split(source, b"".join(one.data for one in pieces), 1, self._max_line_bytes)

        def placed(offset: int) -> int:
            return offset - 1 + int(shifts[np.searchsorted(begins, offset - 1, "right") - 1])

        offsets = found.offsets - 1
        offsets = offsets + shifts[np.searchsorted(begins, offsets, "right") - 1]
        rejects = tuple(replace(one, offset=placed(one.offset)) for one in found.rejects)
        end, size = pieces[-1].end, sum(one.end - one.offset for one in pieces)
        return Chunk(source, end - size, end, found.lines, offsets, rejects, not self._groups)

    # -- what is known ---------------------------------------------------------------------------------------

    def positions(self) -> tuple[Position, ...]:
        """Where the spool was read to, and the origins that are sources now."""
        size = self._end - self._at if self._done else 0
        place = Position(self._place, str(self.spool.folder), self._at, 0, 0, self._done, size, 0)
        if len(self._origins) != len(self._heard):
            self._origins = tuple(Position(self._id(one), one, 0, 0, 0, 0, 0, 0) for one in self._heard)
        return (place, *self._origins)

    def kept(self, positions: tuple[Position, ...]) -> None:
        """See ``Input``."""
        self.spool.covered(next(one.offset for one in positions if one.source == self._place))

    def gaps(self) -> tuple[Missed, ...]:
        found, self._gaps = tuple(self._gaps), []
        return found

    def _forget_silent(self, now_ms: int) -> None:
        for origin, heard_ms in tuple(self._heard.items()):
            if heard_ms is None:
                self._heard[origin] = now_ms
            elif now_ms - heard_ms >= SILENT_MS:
                del self._heard[origin]
                self._origins = ()
                self._finished.append(self._id(origin))

    def finished(self) -> tuple[str, ...]:
        done, self._finished = tuple(self._finished), []
        return done

    def close(self) -> None:
        """The spool too."""
        self._shut()
        self.spool.close()

    def _shut(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None


def begins_at(stream: str, positions: tuple[Position, ...]) -> int:
    """Where a spool has to begin, or to go on, for the positions of the last checkpoint."""
    found = next((one for one in positions if one.source == f"spool:{stream}"), None)
    return 0 if found is None else found.offset + found.head_bytes
