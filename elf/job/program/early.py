"""Rows of jobs in Python that have not begun here yet: after a start an agent reads its logs before it is on
the ring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from elf.job.program.spec import Tapped

EARLY_MAX: Final = 2_000
EARLY_BYTES_MAX: Final = 24 << 20
"""Of a job."""


class Early:
    """By the uid of the job: (stream, what it gives), in order."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[str, Tapped]]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._waiting)

    def keep(self, stream: str, tap: Tapped) -> bool:
        """Whether there was room for it."""
        early = self._waiting.setdefault(tap.uid, [])
        if not tap.name:  # the last word counts
            early[:] = [one for one in early if one[1].name or one[0] != stream]
        elif not tap.payload:  # the checkpoint of the stream knows these ends
            return True
        if len(early) >= EARLY_MAX or sum(len(one.payload) for _, one in early) > EARLY_BYTES_MAX:
            return False
        early.append((stream, tap))
        return True

    def take(self, uid: str) -> list[tuple[str, Tapped]]:
        """It begins, or is over."""
        return self._waiting.pop(uid, [])
