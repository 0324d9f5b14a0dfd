"""Whether a shorter LATENESS would do: windows are there so much sooner, and few rows come too late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

FEW: Final = 1e-4
"""Of the rows, that may come too late."""
ROWS_MIN: Final = 10_000
"""Of fewer nothing is said."""


class Shorter(msgspec.Struct, frozen=True):
    """``share``: of the rows, that would have come too late; ``sooner_ms``: how much earlier each window
    would be there."""

    lateness_ms: int
    share: float
    sooner_ms: float

    @property
    def text(self) -> str:
        return (
            f"LATENESS {self.lateness_ms:g} MILLISECONDS would do: {self.share:.3%} of the rows came later "
            f"than that in their file, and each window would be there {self.sooner_ms / 1000:g} s sooner"
        )


def shares(rows: int, behind: Mapping[int, int]) -> dict[int, float]:
    """Of the rows, those that would be late for each LATENESS (ms). ``behind``: how many."""
    return {ms: count / rows for ms, count in sorted(behind.items())} if rows else {}


def shorter(lateness_ms: float, rows: int, behind: Mapping[int, int]) -> Shorter | None:
    """The shortest that leaves few rows out; None: the present one is as short, or too little is known."""
    if rows < ROWS_MIN:
        return None
    able = (ms for ms, share in shares(rows, behind).items() if ms < lateness_ms and share <= FEW)
    found = next(able, None)
    if found is None:
        return None
    return Shorter(found, behind[found] / rows, lateness_ms - found)
