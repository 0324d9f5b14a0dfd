"""Finite inputs, read once from beginning to end: what ``elf run`` feeds its agents with.

The same lines come out whatever the chunk sizes and however the files were cut into ranges. The last line
counts without its newline too. What is compressed is unpacked; a damaged file gives the lines before the
damage and is named.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from agents.inputs.packed import DAMAGE, is_packed, unpacked
from agents.inputs.ranges import Range, check_path
from agents.inputs.split import split
from agents.inputs.values import REJECT_KEPT_BYTES, Chunk, Counters, ReadOnce, Reject, Source, too_long

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BLOCK_BYTES: Final = 1 << 20


class _Readable(Protocol):
    """A binary file."""

    def readinto(self, buffer: bytearray | memoryview, /) -> int | None: ...


class _ReadBuffer:
    """Holds the next ``size`` bytes of a file, from the start of ``data``: one piece of memory that is used
    again and again, since reading into fresh memory each time costs more than looking for the newlines in it.

    ``at_end``: there are no more behind them; ``problem``: the file ended by an error.
    """

    def __init__(self, file: _Readable) -> None:
        self.data = bytearray()
        self.size = 0
        self.at_end = False
        self.problem: str | None = None
        self._file = file

    def fill(self, count: int) -> None:
        """Reads up to ``count`` more bytes (at least one, unless at the end)."""
        needed = self.size + count
        if len(self.data) < needed:
            grown = bytearray(needed)
            grown[: self.size] = self.data[: self.size]
            self.data = grown
        try:
            with memoryview(self.data) as whole, whole[self.size : needed] as free:
                read = self._file.readinto(free) or 0
        except DAMAGE as error:
            self.problem = str(error)
            read = 0
        self.at_end = not read
        self.size += read

    def newline(self, start: int = 0) -> int:
        """Place of the first newline at ``start`` or behind it; -1 when there is none."""
        return self.data.find(b"\n", start, self.size)

    def last_newline(self, end: int) -> int:
        """Place of the last newline before ``end``; -1 when there is none."""
        return self.data.rfind(b"\n", 0, min(end, self.size))

    def drop(self, count: int) -> None:
        """Forgets the first bytes."""
        self.data[: self.size - count] = self.data[count : self.size]
        self.size -= count


class _Reader:
    """One range being read; the buffer begins at ``_offset``."""

    def __init__(self, item: Range, number: int, max_line_bytes: int) -> None:
        self._file = _open(item.path)
        status = os.fstat(self._file.fileno())
        # The number is part of the name: a file that is given twice is read twice, as two sources.
        self.source = Source(f"{status.st_dev:x}:{status.st_ino:x}:0:{number}", item.path)
        self._buffer = _ReadBuffer(self._file)
        self._end = item.end
        self._longest = max_line_bytes + 2
        self._max_line_bytes = max_line_bytes
        self._offset = self._handed = 0
        if item.start:
            self._seek_line(item.start)
            self._handed = self._offset

    @property
    def problem(self) -> str | None:
        """Why it ended before its time."""
        return self._buffer.problem

    def _seek_line(self, start: int) -> None:
        """To the first line that begins at ``start`` or behind it."""
        self._file.seek(start - 1)
        self._offset = start - 1
        self._skip_line()

    def _skip_line(self) -> int:
        """To behind the next newline, in bounded memory: the length of what was skipped, without the line
        end."""
        buffer, length, last = self._buffer, 0, b""
        while True:
            newline = buffer.newline()
            piece = newline if newline >= 0 else buffer.size
            last = bytes(buffer.data[piece - 1 : piece]) if piece else last
            length += piece
            if newline >= 0:
                buffer.drop(newline + 1)
                self._offset += length + 1
                return length - (last == b"\r")
            buffer.drop(buffer.size)
            buffer.fill(_BLOCK_BYTES)
            if buffer.at_end:
                self._offset += length
                return length

    def read(self, bytes_max: int) -> Chunk | None:
        """The next whole lines, at most ``bytes_max`` unless the first alone is longer; None at the end."""
        buffer, wanted = self._buffer, max(bytes_max, 1)
        if self._end is not None:
            wanted = min(wanted, self._end - self._offset)
            if wanted <= 0:
                return None
        while buffer.size < wanted and not buffer.at_end:
            buffer.fill(wanted - buffer.size)
        end = buffer.last_newline(wanted) + 1
        while not end and buffer.size < self._longest and not buffer.at_end:
            buffer.fill(self._longest - buffer.size)
        end = end or buffer.newline() + 1
        if not end and buffer.size >= self._longest:
            if not buffer.data[0]:
                self._skip_hole()
                return self.read(bytes_max)
            return self._overlong()
        if not end and buffer.problem is not None:
            return None  # a piece of a line, before the damage
        return self._take(end or buffer.size) if buffer.size else None

    def _skip_hole(self) -> None:
        """To behind the NULs that stand here: a hole may be larger than any line."""
        buffer = self._buffer
        while buffer.size:
            hole = buffer.size - len(buffer.data[: buffer.size].lstrip(b"\0"))
            whole = hole == buffer.size
            buffer.drop(hole)
            self._offset += hole
            if not whole:
                return
            buffer.fill(_BLOCK_BYTES)

    def _take(self, end: int) -> Chunk:
        """Hand out the first ``end`` bytes, or up to the first line that begins behind the range."""
        buffer, start = self._buffer, self._offset
        if self._end is not None and start + end > self._end:
            last = buffer.newline(self._end - start - 1)
            end = last + 1 if 0 <= last < end else end
        found = split(self.source, buffer.data, start, self._max_line_bytes, end)
        buffer.drop(end)
        self._offset += end
        begin, self._handed = self._handed, self._offset
        return Chunk(
            self.source, begin, self._offset, found.lines, found.offsets, found.rejects, self._is_at_end()
        )

    def _is_at_end(self) -> bool:
        if self._end is not None and self._offset >= self._end:
            return True
        return self._buffer.at_end and not self._buffer.size

    def _overlong(self) -> Chunk:
        """Read over a line that is too long, keeping only its beginning."""
        start, buffer = self._offset, self._buffer
        while buffer.size < REJECT_KEPT_BYTES and not buffer.at_end:
            buffer.fill(REJECT_KEPT_BYTES - buffer.size)
        kept = bytes(buffer.data[: min(buffer.size, REJECT_KEPT_BYTES)])
        length = self._skip_line()
        reason = too_long(self._max_line_bytes)
        reject = Reject(self.source.id, self.source.path, start, reason, kept[:length], length)
        nothing = split(self.source, b"", start, self._max_line_bytes)
        begin, self._handed = self._handed, self._offset
        return Chunk(
            self.source, begin, self._offset, nothing.lines, nothing.offsets, (reject,), self._is_at_end()
        )

    def close(self) -> None:
        self._file.close()


class Whole(ReadOnce):
    """Reads ``ranges`` one after the other. Raises ``InputError`` at once for a path that cannot be read."""

    def __init__(self, ranges: Sequence[Range | str], *, max_line_bytes: int = 1 << 20) -> None:
        self.counters = Counters()
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

    @property
    def unread(self) -> int:
        """Nothing: what is finite is read in one go, and nobody asks how far it is."""
        return 0

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

    def finished(self) -> tuple[str, ...]:
        """Ids of the sources that ended since this was last asked."""
        done, self._finished = tuple(self._finished), []
        return done

    def close(self) -> None:
        self._waiting.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _Unpacked:
    """Read a piece at a time, so that damage takes nothing along that stands before it."""

    def __init__(self, path: str) -> None:
        self._raw = Path(path).open("rb")  # noqa: SIM115 (``close`` does)
        self._file = unpacked(self._raw)

    def fileno(self) -> int:
        return self._raw.fileno()

    def seek(self, offset: int) -> int:
        return self._file.seek(offset)

    def readinto(self, buffer: WriteableBuffer) -> int:
        return self._file.readinto1(buffer)

    def close(self) -> None:
        self._file.close()
        self._raw.close()


def _open(path: str) -> _Unpacked | FileIO:
    if Path(path).is_file() and is_packed(path):
        return _Unpacked(path)
    return FileIO(path, "rb")
