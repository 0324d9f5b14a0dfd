"""What an agent knows of one flow for those who may run it again (``elf.job.again``): where each open pane
began, and which sources its rows came from. Nothing is kept of a flow that nobody may run."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from elf.job.again import MARKS_MAX, MET_MAX, Mark, Where
from elf.job.ports import Int64s


class OpenMarks:
    """Of the flow ``uid``. ``tally`` and ``met``: of the cut that it begins with; from where its open panes
    were read is not known any more."""

    def __init__(self, uid: str, tally: pa.Table | None, met: Iterable[tuple[int, int, int]]) -> None:
        self._uid = uid
        panes = [] if tally is None else tally["_pane"].to_pylist()
        self._marks: dict[int, Mark | None] = dict.fromkeys(panes)
        self._met: dict[tuple[int, int], int] = {(pane, number): rows for pane, number, rows in met}

    def saw(self, panes: Int64s, rows: Int64s, mark: Mark | None, number: int) -> None:
        """A chunk had rows on time in these panes, of the source with this number; ``mark``: before it."""
        for pane, count in zip(panes.tolist(), rows.tolist(), strict=True):
            self._marks.setdefault(pane, mark)
            self._met[pane, number] = self._met.get((pane, number), 0) + count
        while len(self._met) > MET_MAX:
            del self._met[next(iter(self._met))]

    def sealed(self, below: int) -> None:
        """Panes below this one are not run again."""
        if self._marks:
            self._marks = {pane: mark for pane, mark in self._marks.items() if pane >= below}

    def drop(self) -> None:
        """What is open is no more."""
        self._marks.clear()

    def read_by(self, start: int, end: int, number: int) -> int:
        """How many rows of these panes who began at the mark with this number has read too."""
        inside = [key for key in self._met if start <= key[0] < end]
        return sum(self._met.pop(key) for key in inside if key[1] <= number)

    def where(self, sealed: int, now: Mark | None) -> Where:
        """What is told of it."""
        told = sorted(self._marks.items())
        return Where(self._uid, sealed, tuple(told[:MARKS_MAX]), now if len(told) <= MARKS_MAX else None)

    def image(self) -> tuple[tuple[int, int, int], ...]:
        """For the cut."""
        return tuple((pane, number, rows) for (pane, number), rows in self._met.items())
