"""Bytes that were read and not handed out yet, in one piece of memory that is used again and again.

Reading a file into fresh memory each time costs more than looking for the newlines in it.
"""

from __future__ import annotations

import zlib
from typing import Protocol


class Readable(Protocol):
    """A binary file."""

    def readinto(self, buffer: bytearray | memoryview, /) -> int | None: ...


class ReadBuffer:
    """Holds the next ``size`` bytes of a file, from the start of ``data``. ``at_end``: there are no more
    behind them; ``problem``: the file ended by an error."""

    def __init__(self, file: Readable) -> None:
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
        except (OSError, EOFError, zlib.error) as error:
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
