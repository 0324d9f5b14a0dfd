"""A store to spill to, in memory."""

from __future__ import annotations


class Drawer:
    """What was written and not freed, by ticket."""

    def __init__(self) -> None:
        self.kept: dict[int, bytes] = {}
        self._last = 0
        self.fails = False

    def write(self, data: bytes) -> int:
        if self.fails:
            raise OSError("no space left")
        self._last += 1
        self.kept[self._last] = data
        return self._last

    def read(self, ticket: int) -> bytes:
        if self.fails:
            raise OSError("gone")
        return self.kept[ticket]

    def free(self, ticket: int) -> None:
        del self.kept[ticket]
