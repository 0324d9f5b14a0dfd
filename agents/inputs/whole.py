"""Finite inputs, read once from beginning to end: what ``elf run`` feeds its agents with.

The same lines come out whatever the chunk sizes and however the files were cut into ranges. The last line
counts without its newline too. gzip is read transparently; a damaged one gives the lines before the damage
and is named.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from agents.inputs.ranges import Range, check_path, is_gzip
from agents.inputs.split import split
from agents.inputs.values import REJECT_KEPT_BYTES, Chunk, Counters, Position, Reject, Source, too_long

_BLOCK_BYTES: Final = 1 << 20


class _Reader:
    """One range being read. ``_carry`` are bytes that were read and not handed out: they begin at
    ``_offset``."""

    def __init__(self, item: Range, number: int, max_line_bytes: int) -> None:
        self.problem: str | None = None
        self._file: BinaryIO = _open(item.path)
        status = os.fstat(self._file.fileno())
        # The number is part of the name: a file that is given twice is read twice, as two sources.
        self.source = Source(f"{status.st_dev:x}:{status.st_ino:x}:0:{number}", item.path)
        self._end = item.end
        self._max_line_bytes = max_line_bytes
        self._offset = 0
        self._carry = b""
        self._at_end = False
        if item.start:
            self._seek_line(item.start)

    def _seek_line(self, start: int) -> None:
        """To the first line that begins at ``start`` or behind it."""
        self._file.seek(start - 1)
        self._offset = start - 1
        while True:
            self._carry = b""
            self._fill(_BLOCK_BYTES)
            newline = self._carry.find(b"\n")
            if newline >= 0 or self._at_end:
                break
            self._offset += len(self._carry)
        self._offset += newline + 1
        self._carry = self._carry[newline + 1 :]

    def read(self, bytes_max: int) -> Chunk | None:
        """The next whole lines; None at the end."""
        while not self._done():
            end = (
                self._carry.rfind(b"\n") + 1
                if len(self._carry) <= bytes_max
                else self._last_newline(bytes_max)
            )
            if not end and not self._at_end and len(self._carry) <= self._max_line_bytes + 2:
                self._fill(max(bytes_max, 1))
                continue
            if not end and len(self._carry) > self._max_line_bytes + 2:
                return self._overlong()
            if not self._at_end and len(self._carry) < bytes_max:
                self._fill(bytes_max - len(self._carry))
                continue
            return self._take(end or len(self._carry))
        return None

    def _done(self) -> bool:
        if self._end is not None and self._offset >= self._end:
            return True
        if not self._carry and not self._at_end:
            self._fill(_BLOCK_BYTES)
        return not self._carry

    def _last_newline(self, bytes_max: int) -> int:
        """End of the last line within ``bytes_max``, else of the first line, else 0."""
        end = self._carry.rfind(b"\n", 0, max(bytes_max, 1)) + 1
        return end or self._carry.find(b"\n") + 1

    def _fill(self, count: int) -> None:
        try:
            block = self._file.read(count)
        except (OSError, EOFError, zlib.error) as error:
            self.problem = str(error)
            block = b""
        self._at_end = not block
        self._carry += block

    def _take(self, end: int) -> Chunk:
        """Hand out the first ``end`` bytes, or up to the first line that begins behind the range."""
        if self._end is not None and self._offset + end > self._end:
            last = self._carry.find(b"\n", self._end - self._offset - 1)
            end = last + 1 if 0 <= last < end else end
        start = self._offset
        found = split(self.source, self._carry[:end], start, self._max_line_bytes)
        self._carry = self._carry[end:]
        self._offset += end
        return Chunk(
            self.source, start, self._offset, found.lines, found.offsets, found.rejects, at_end=self._done()
        )

    def _overlong(self) -> Chunk:
        """Read over a line that is too long, keeping only its beginning."""
        start = self._offset
        kept, length, last = self._carry[:REJECT_KEPT_BYTES], 0, b""
        while True:
            newline = self._carry.find(b"\n")
            piece = self._carry if newline < 0 else self._carry[:newline]
            length, last = length + len(piece), piece[-1:] or last
            if newline >= 0:
                break
            self._carry = b""
            self._fill(_BLOCK_BYTES)
            if self._at_end:
                break
        self._carry = self._carry[newline + 1 :] if newline >= 0 else b""
        self._offset = start + length + (newline >= 0)
        length -= newline >= 0 and last == b"\r"
        reject = Reject(self.source.id, self.source.path, start, too_long(self._max_line_bytes), kept, length)
        nothing = split(self.source, b"", start, self._max_line_bytes)
        return Chunk(
            self.source, start, self._offset, nothing.lines, nothing.offsets, (reject,), self._done()
        )

    def close(self) -> None:
        self._file.close()


class Whole:
    """Reads ``ranges`` one after the other. Raises ``InputError`` at once for a path that cannot be read."""

    def __init__(self, ranges: Sequence[Range | str], *, max_line_bytes: int = 1 << 20) -> None:
        self.counters = Counters()
        self.bytes_in = 0
        """Bytes handed out so far (of the contents, for gzip)."""
        self._waiting = deque(Range(item) if isinstance(item, str) else item for item in ranges)
        for item in self._waiting:
            check_path(item.path)
        self._max_line_bytes = max_line_bytes
        self._reader: _Reader | None = None
        self._number = 0
        self._finished: list[str] = []

    @property
    def exhausted(self) -> bool:
        """Whether everything was handed out."""
        return self._reader is None and not self._waiting

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next whole lines; None when everything was read (``now_ms`` does not matter)."""
        while not self.exhausted:
            try:
                if self._reader is None:
                    self._reader = _Reader(self._waiting[0], self._number, self._max_line_bytes)
            except OSError as error:
                self._fail(str(error), vanished=isinstance(error, FileNotFoundError))
                self._next()
                continue
            chunk = self._reader.read(bytes_max)
            if chunk is not None:
                self.bytes_in += chunk.end - chunk.start
                return chunk
            self._next()
        return None

    def _fail(self, problem: str, *, vanished: bool) -> None:
        self.counters.failed += 1
        self.counters.vanished += vanished
        self.counters.problems[self._waiting[0].path] = problem

    def _next(self) -> None:
        if self._reader is not None:
            if self._reader.problem is not None:
                self._fail(self._reader.problem, vanished=False)
            self._finished.append(self._reader.source.id)
            self._reader.close()
            self._reader = None
        self._waiting.popleft()
        self._number += 1

    def positions(self) -> tuple[Position, ...]:
        """Nothing: a finite input is never resumed."""
        return ()

    def finished(self) -> tuple[str, ...]:
        """Ids of the sources that ended since this was last asked."""
        done, self._finished = tuple(self._finished), []
        return done

    def close(self) -> None:
        self._waiting.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _open(path: str) -> BinaryIO:
    if Path(path).is_file() and is_gzip(path):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return Path(path).open("rb")
