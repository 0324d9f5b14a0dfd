"""A pipe, read as it comes: what ``elf run --input -`` reads while somebody writes to it.

Nothing here waits for the writer but ``begin``: for the first line, and then ``HEAD_S`` more, or until
``HEAD_BYTES`` have come. That is what columns are told from; and what ends within it is no live stream, but
may be read like a file. ``end`` makes what has come so far all there is (Ctrl-C), from any thread or a signal
handler.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from typing import BinaryIO, Final

from agents.inputs.ranges import is_compressed, may_be_compressed
from agents.inputs.split import split
from agents.inputs.values import REJECT_KEPT_BYTES, Chunk, Counters, ReadOnce, Reject, Source, too_long

HEAD_BYTES: Final = 16 << 20
HEAD_S: Final = 2.0
NAME: Final = "standard input"

_BLOCK_BYTES: Final = 1 << 16
_LOOK_S: Final = 0.1


class Piped(ReadOnce):
    """An ``Input`` over an open descriptor, which stays the caller's."""

    def __init__(self, descriptor: int, *, max_line_bytes: int = 1 << 20) -> None:
        self.counters = Counters()
        self._descriptor = descriptor
        self._max_line_bytes = max_line_bytes
        self._source = Source("pipe", NAME)
        self._data = bytearray()
        self._offset = 0
        self._skipped, self._kept, self._returned = 0, bytearray(), False
        """Of a line that is too long: bytes passed over, the first of them, whether the last is a return."""
        self._ended = False
        self._told = False

    # -- what has come ---------------------------------------------------------------------------------------

    def end(self) -> None:
        """Read no more."""
        self._ended = True

    def _take(self, wait_s: float) -> bool:
        """Whether something came within that time."""
        if self._ended or not select.select([self._descriptor], [], [], wait_s)[0]:
            return False
        try:
            block = os.read(self._descriptor, _BLOCK_BYTES)
        except OSError as error:
            self.counters.failed += 1
            self.counters.problems[NAME] = error.strerror or str(error)
            block = b""
        self._ended = self._ended or not block
        self._data += block
        return bool(block)

    def begin(self, clock: Callable[[], float] = time.monotonic) -> bool:
        """Wait for the first lines; whether more may come."""
        until: float | None = None
        while not self._ended and len(self._data) < HEAD_BYTES:
            if until is None and b"\n" in self._data:
                until = clock() + HEAD_S
            if until is not None and clock() >= until:
                break
            self._take(_LOOK_S)
        return not self._ended

    def head(self) -> bytes:
        """The whole lines that have come and were not read yet."""
        return bytes(self._data[: self._data.rfind(b"\n") + 1])

    @property
    def is_compressed(self) -> bool:
        """Whether it begins like a compressed file, which is no lines."""
        while may_be_compressed(bytes(self._data)) and not self._ended and len(self._data) < 2:
            self._take(_LOOK_S)
        return is_compressed(bytes(self._data))

    def copy(self, out: BinaryIO) -> None:
        """All of it, to its end."""
        while True:
            out.write(self._data)
            self._data.clear()
            if self._ended:
                return
            self._take(_LOOK_S)

    # -- lines -----------------------------------------------------------------------------------------------

    @property
    def exhausted(self) -> bool:
        """Whether it has ended, and all was handed out."""
        return self._ended and not self._data and not self._skipped

    @property
    def unread(self) -> int:
        """What has come and was not handed out."""
        return len(self._data)

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next whole lines; None when nothing more has come (``now_ms`` does not matter)."""
        while True:
            took = self._take(0) if len(self._data) < bytes_max or b"\n" not in self._data else False
            if took and len(self._data) < bytes_max:
                continue
            chunk = self._next(bytes_max)
            if chunk is not None or not took:
                return chunk

    def _next(self, bytes_max: int) -> Chunk | None:
        if self._skipped:
            return self._skip()
        end = self._data.rfind(b"\n", 0, max(bytes_max, 1)) + 1 or self._data.find(b"\n") + 1
        if not end and self._ended:
            end = len(self._data)
        if end:
            return self._chunk(end)
        if len(self._data) > self._max_line_bytes + 2:
            return self._skip()
        return None

    def _chunk(self, end: int) -> Chunk:
        data, start = bytes(self._data[:end]), self._offset
        del self._data[:end]
        self._offset += end
        found = split(self._source, data, start, self._max_line_bytes)
        return Chunk(
            self._source, start, self._offset, found.lines, found.offsets, found.rejects, not self._data
        )

    def _skip(self) -> Chunk | None:
        """Over a line that is too long, of which only the beginning is kept, as it comes."""
        newline = self._data.find(b"\n")
        piece = newline if newline >= 0 else len(self._data)
        self._kept += self._data[: min(piece, REJECT_KEPT_BYTES - len(self._kept))]
        self._returned = self._data[piece - 1] == 13 if piece else self._returned
        self._skipped += piece
        del self._data[: piece + 1]
        if newline < 0 and not self._ended:
            return None
        start, length = self._offset, self._skipped - (self._returned and newline >= 0)
        self._offset += self._skipped + (newline >= 0)
        kept = bytes(self._kept[:length])
        reject = Reject("pipe", NAME, start, too_long(self._max_line_bytes), kept, length)
        self._skipped, self._kept = 0, bytearray()
        nothing = split(self._source, b"", start, self._max_line_bytes)
        return Chunk(
            self._source, start, self._offset, nothing.lines, nothing.offsets, (reject,), not self._data
        )

    def finished(self) -> tuple[str, ...]:
        """Its id, once."""
        if not self.exhausted or self._told:
            return ()
        self._told = True
        return (self._source.id,)

    def close(self) -> None:
        """Hands out nothing more."""
        self._ended = True
        self._data.clear()
        self._skipped = 0
