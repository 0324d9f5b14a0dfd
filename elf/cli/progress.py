"""How far work is that takes longer than two seconds: a line on standard error that is written anew in place.

Nothing is written where nobody looks at it, before two seconds have passed, or once it is over: the line is
wiped out then.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

PATIENCE_SECS: Final = 2.0
EVERY_SECS: Final = 0.2
"""Between two times that it is written."""
BAR_COLUMNS: Final = 24
WIPE: Final = "\r\x1b[K"


class Progress:
    """How much is done of what. ``total``: how much there is, None or 0 if nobody knows; ``shown``: such a
    number for people."""

    def __init__(
        self, what: str, total: int | None, shown: Callable[[int], str], out: TextIO | None = None
    ) -> None:
        self._what, self._total, self._shown = what, total or 0, shown
        self._out = out or sys.stderr
        self._looked_at = self._out.isatty()
        self._began = self._last = time.monotonic()
        self._is_there = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wipe()

    def tell(self, done: int) -> None:
        """So much is done; called as often as one likes."""
        now = time.monotonic()
        if not self._looked_at or now - self._began < PATIENCE_SECS:
            return
        if not self._is_there or now - self._last >= EVERY_SECS:
            self._last, self._is_there = now, True
            self._out.write(f"{WIPE}{self.text(done, now - self._began)}")
            self._out.flush()

    def text(self, done: int, secs: float) -> str:
        """``reading  ██████░░░░  62 %  1.2 GiB of 1.9 GiB, 4 s left``"""
        if not self._total:
            return f"{self._what}  {self._shown(done)}, {secs:.0f} s"
        part = min(1.0, done / self._total)
        full = round(part * BAR_COLUMNS)
        left = f", {secs * (1 - part) / part:.0f} s left" if part else ""
        bar = "█" * full + "░" * (BAR_COLUMNS - full)
        return f"{self._what}  {bar} {part:4.0%}  {self._shown(done)} of {self._shown(self._total)}{left}"

    def wipe(self) -> None:
        """Something else is written now."""
        if self._is_there:
            self._is_there = False
            self._out.write(WIPE)
            self._out.flush()
