"""What a flow's open panes have got since they were last copied (``elf.job.openparts``).

A part has the groups that were inserted since the part before it, and by how much the pane's counters have
grown. The numbers of the parts, and what the counters were, are in the checkpoint. It is the same transaction
that makes the parts durable.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from elf.batch import decode, encode
from elf.job.approximate import keep_best, with_cut
from elf.job.checkpoint import FlowCheckpoint
from elf.job.counters import COUNTER_COLUMNS, counters
from elf.job.gaps import Gap, gaps_of, with_gaps
from elf.job.openparts import OpenedParts, PaneParts, open_part
from elf.job.snapshots import Sealed
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow

PANES_MAX: Final = 64
"""Panes of a flow that are copied at one checkpoint; of more that have got something the first ones, the
others at the next."""
BYTES_MAX: Final = 64 << 20
"""What the parts of a flow's open panes come to at most. Beyond it nothing more is copied before a seal."""


class OpenParts:
    """Those of one flow. ``opened``: from the checkpoint that it begins with."""

    def __init__(self, flow: Flow, opened: OpenedParts) -> None:
        self._flow = flow
        self._since = opened.since
        self._panes = {one.pane: one for one in opened.panes}
        self._sizes: dict[int, int] = {}
        """Bytes of the parts of each open pane that were made in this life."""

    @classmethod
    def of(cls, checkpoint: FlowCheckpoint, *, copies: bool) -> OpenParts | None:
        """Those of the flow of a checkpoint; None: nothing is copied, and no open pane has parts of an
        earlier life."""
        opened = checkpoint.opened
        if opened is None and copies:
            counted = decode(checkpoint.counters) if checkpoint.counters else None
            known = counted["_pane"].to_pylist() if counted is not None else []
            opened = OpenedParts(max([checkpoint.sealed, *(pane + 1 for pane in known)]))
        if opened is None or not (copies or opened.panes):
            return None
        return cls(checkpoint.flow, opened)

    def image(self) -> OpenedParts:
        """For the checkpoint."""
        return OpenedParts(self._since, tuple(self._panes[pane] for pane in sorted(self._panes)))

    def has_all_from(self, pane: int) -> bool:
        """Whether its parts have all groups that were asked for of open panes, the first of which is this
        one."""
        return pane >= self._since and self._flow.fragment.keep is None

    def copied_below(self, counted: pa.Table | None) -> int:
        """The panes below this one are to be copied now; ``counted``: the counters of open panes, by pane."""
        if sum(self._sizes.values()) >= BYTES_MAX:
            return START_OF_TIME
        if counted is None:  # they are in the first of several key ranges
            return END_OF_TIME
        known = {pane: one.counted for pane, one in self._panes.items()}
        grown = [pane for pane, counts in _totals(counted).items() if counts != known.get(pane, _NOTHING)]
        grown = [pane for pane in grown if pane >= self._since]
        return END_OF_TIME if len(grown) <= PANES_MAX else grown[PANES_MAX]

    def take(self, below: int, groups: pa.Table | None, counted: pa.Table | None) -> list[Sealed]:
        """The next part of each open pane below that has got something: these ``groups``; ``counted`` as for
        ``copied_below``."""
        gaps = _gaps(counted)
        found = []
        for pane, counts, rows in self._grown(below, groups, counted):
            known = self._panes.get(pane, PaneParts(pane, 0, _NOTHING))
            here = gaps.get(pane, set())
            if rows is not None or counts != known.counted or len(here) != known.gaps:
                part = self._part(known, counts, here, rows, last=False)
                self._sizes[pane] = self._sizes.get(pane, 0) + len(part.counters) + len(part.payload)
                found.append(part)
                self._panes[pane] = PaneParts(pane, known.place + 1, counts, len(here))
        return found

    def seal(self, below: int, groups: pa.Table | None, counted: pa.Table | None) -> list[Sealed]:
        """The last parts of the panes below, which are sealed; panes without a part get none."""
        gaps = _gaps(counted)
        grown = {pane: (counts, rows) for pane, counts, rows in self._grown(below, groups, counted)}
        found = []
        for pane in sorted(pane for pane in self._panes if pane < below):
            known = self._panes.pop(pane)
            self._sizes.pop(pane, None)
            counts, rows = grown.get(pane, (known.counted, None))
            found.append(self._part(known, counts, gaps.get(pane, set()), rows, last=True))
        return found

    def begin(self, pane: int) -> None:
        """No pane below this one is open any more."""
        self._since = max(self._since, pane)

    def drop(self) -> dict[str, int]:
        """The open panes are dropped; what was counted in parts, which stay."""
        totals = np.array([one.counted for one in self._panes.values()] or [_NOTHING]).sum(axis=0)
        self._since = max([self._since, *(pane + 1 for pane in self._panes)])
        self._panes.clear()
        self._sizes.clear()
        return dict(zip(COUNTER_COLUMNS, totals.tolist(), strict=True))

    def _grown(
        self, below: int, groups: pa.Table | None, counted: pa.Table | None
    ) -> list[tuple[int, tuple[int, ...], pa.Table | None]]:
        """(pane, all that was counted of it, new groups) of panes below."""
        totals = {} if counted is None else _totals(counted)
        by_pane: dict[int, pa.Table] = {}
        if groups is not None and groups.num_rows:
            of = groups["_pane"].to_numpy()
            panes = np.unique(of).tolist()
            if len(panes) == 1:
                by_pane = {panes[0]: groups}
            else:
                by_pane = {pane: groups.filter(pa.array(of == pane)) for pane in panes}
        first = max(self._since, START_OF_TIME + 1)
        there = sorted(pane for pane in {*totals, *by_pane} if first <= pane < below)
        return [(pane, totals.get(pane, _NOTHING), by_pane.get(pane)) for pane in there]

    def _part(
        self,
        known: PaneParts,
        counts: tuple[int, ...],
        gaps: set[Gap],
        rows: pa.Table | None,
        *,
        last: bool,
    ) -> Sealed:
        pane, fragment = known.pane, self._flow.fragment
        more = {
            name: now - before
            for name, now, before in zip(COUNTER_COLUMNS, counts, known.counted, strict=True)
        }
        table: pa.Table | None = counters(np.array([pane], np.int64), **more)
        if gaps:
            table = with_gaps(table, {pane: gaps})
        if fragment.keep is not None:
            table = with_cut(table)
            if rows is not None:
                rows, table = keep_best(rows, table, fragment.keep)
        counted = encode(table) if table is not None else b""
        payload = encode(rows) if rows is not None else b""
        part = open_part(known.place + 1, last=last)
        return Sealed(self._flow.uid, pane, pane + 1, counted, payload, part)


_NOTHING: Final = (0,) * len(COUNTER_COLUMNS)


def _totals(counted: pa.Table) -> dict[int, tuple[int, ...]]:
    """What was counted of each pane, in their order."""
    columns = [counted[name].to_pylist() for name in ("_pane", *COUNTER_COLUMNS)]
    return {pane: tuple(rest) for pane, *rest in zip(*columns, strict=True)}


def _gaps(counted: pa.Table | None) -> dict[int, set[Gap]]:
    return {} if counted is None else gaps_of([counted])
