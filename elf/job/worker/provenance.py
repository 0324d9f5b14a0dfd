"""What a flow writes down of the rows that its open panes count (``elf.job.provenance``).

Every chunk comes as *runs*: rows of one pane, in the order of their source, that are all counted or all not.
A run that is counted goes on with the range before it unless a run that is not lies between them. So ranges
hold no row of their pane that is not counted, whatever the reason: it was late, from the future, shed, leapt
over, or read again by a flow that had it already. Rows that a flow is never given, as the archive has lost
them, come as no run: there all ranges end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from elf.job.ports import Int64s, Mask
from elf.job.provenance import PaneRows, Range


class Run(NamedTuple):
    """Rows of a pane, one behind the other in their source: where the first begins, and the byte after the
    beginning of the last."""

    pane: int
    counted: bool
    first: int
    end: int
    rows: int


def runs_of(panes: Int64s, offsets: Int64s, counted: Mask) -> tuple[Run, ...]:
    """The runs of a chunk of one source, by pane, then offset. ``offsets`` ascend."""
    if not len(panes):
        return ()
    order: npt.NDArray[np.int64] | None = None
    if len(panes) > 1 and (np.diff(panes) < 0).any():  # seldom: rows mostly come in the order of time
        order = np.argsort(_small(panes), kind="stable")
        panes, offsets, counted = panes[order], offsets[order], counted[order]
    turns = np.flatnonzero((np.diff(panes) != 0) | (np.diff(counted) != 0)) + 1
    firsts = np.concatenate([[0], turns])
    ends = np.concatenate([turns, [len(panes)]])
    found = zip(
        panes[firsts].tolist(),
        counted[firsts].tolist(),
        offsets[firsts].tolist(),
        (offsets[ends - 1] + 1).tolist(),
        (ends - firsts).tolist(),
        strict=True,
    )
    return tuple(Run(*one) for one in found)


def _small(panes: Int64s) -> npt.NDArray[np.integer]:
    """The same order in 16 bits, where these do: numpy sorts such by their digits, in a tenth of the time."""
    least = panes.min()
    return (panes - least).astype(np.int16) if panes.max() - least < 1 << 15 else panes


class _Source(msgspec.Struct, array_like=True):
    """Ranges of a source; the last one may go on while it is ``open``."""

    ranges: list[Range]
    open: bool = True


class _Pane(msgspec.Struct, array_like=True):
    rows: int
    sources: dict[str, _Source]


class OpenProvenance:
    """Of the open panes of one flow. ``image``: from the checkpoint that it begins with."""

    def __init__(self, image: bytes = b"") -> None:
        self._panes: dict[int, _Pane] = {}
        if image:
            self._panes = msgspec.msgpack.decode(image, type=dict[int, _Pane])

    def saw(self, source: str, runs: Iterable[Run]) -> None:
        """A chunk of a source."""
        for run in runs:
            pane = self._panes.get(run.pane)
            if not run.counted:
                if pane is not None and (known := pane.sources.get(source)) is not None:
                    known.open = False
                continue
            if pane is None:
                pane = self._panes[run.pane] = _Pane(0, {})
            pane.rows += run.rows
            ranges = pane.sources.setdefault(source, _Source([]))
            if ranges.open and ranges.ranges:
                ranges.ranges[-1] = (ranges.ranges[-1][0], run.end)
            else:
                ranges.ranges.append((run.first, run.end))
                ranges.open = True

    def cut(self) -> None:
        """There may be rows behind those that were seen which never come: no range goes on over them."""
        for pane in self._panes.values():
            for source in pane.sources.values():
                source.open = False

    def include(self, image: bytes) -> None:
        """What another agent has seen for it, as an image: rows behind those of each source that it has."""
        for number, pane in OpenProvenance(image)._panes.items():
            here = self._panes.setdefault(number, _Pane(0, {}))
            here.rows += pane.rows
            for name, source in pane.sources.items():
                known = here.sources.setdefault(name, _Source([]))
                known.ranges.extend(source.ranges)
                known.open = source.open

    def take_below(self, below: int) -> tuple[PaneRows, ...]:
        """Those of the panes below, by pane; they are not open any more."""
        return tuple(self._taken(pane) for pane in sorted(pane for pane in self._panes if pane < below))

    def take(self, pane: int) -> tuple[PaneRows, ...]:
        """Those of one pane; none if it has no rows."""
        return (self._taken(pane),) if pane in self._panes else ()

    def _taken(self, pane: int) -> PaneRows:
        found = self._panes.pop(pane)
        sources = ((name, tuple(one.ranges)) for name, one in found.sources.items())
        return PaneRows(pane, found.rows, tuple(sources))

    def drop(self) -> None:
        """The open panes are dropped."""
        self._panes.clear()

    def image(self) -> bytes:
        """For the checkpoint."""
        return msgspec.msgpack.encode(self._panes) if self._panes else b""
