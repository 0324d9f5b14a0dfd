"""How much memory the DuckDB of this process may take. It is said before that is opened, which an agent
without lines and jobs never does, or after it: a process may be forked that has opened it already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BYTES_MIN: Final = 64 << 20


class MemoryLimit:
    """Bytes, and who is to know."""

    def __init__(self) -> None:
        self._bytes: int | None = None
        self._apply: Callable[[int], object] | None = None

    def set(self, bytes_max: int) -> None:
        """From now on so much."""
        self._bytes = max(bytes_max, BYTES_MIN)
        if self._apply is not None:
            self._apply(self._bytes)

    def opened(self, apply: Callable[[int], object]) -> None:
        """It is open: ``apply`` is called with the limit, now and each time that it changes."""
        self._apply = apply
        if self._bytes is not None:
            apply(self._bytes)


LIMIT: Final = MemoryLimit()
"""Of this process."""
