"""What a lane counts of the snapshots that are leapt over (``elf.job.stragglers``), or answered by another
agent (``elf.job.again``), out of the store: there they are until the cut that has counted them deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from agents.disk.store import Store
from elf.batch import decode
from elf.job.commands import Answered, Leap, Outcome
from elf.job.gaps import Gap, gaps_of
from elf.job.snapshots import Name, SnapshotName, Span
from elf.job.stragglers import left_over


def counted(command: Leap | Answered, store: Store) -> Leap | Answered:
    """The command with what becomes of the tallies of its snapshots. One that is not there any more has been
    counted."""
    found, gaps = Counter[str](), set[Gap]()
    for name, spans in _names(command):
        for row in store.overlapping(command.uid, name[0], name[1]):
            if (row.start, row.end, row.part) == name and row.tally:
                tally = decode(row.tally)
                found += left_over(tally, spans)
                gaps |= _gaps_of(tally, spans)
    if isinstance(command, Answered):
        return replace(command, counted=found, gaps=tuple(sorted(gaps)))
    return replace(command, counted=found)


def _gaps_of(tally: pa.Table, spans: Iterable[Span]) -> set[Gap]:
    """What the panes of a tally in these spans lack."""
    by_pane = gaps_of([tally]).items()
    return {gap for pane, here in by_pane if any(a <= pane < b for a, b in spans) for gap in here}


def _names(command: Leap | Answered) -> Iterable[tuple[Name, list[Span]]]:
    for name, spans in command.names:
        yield name, [(span[0], span[1]) for span in spans]


def forgotten(outcome: Outcome) -> list[SnapshotName]:
    """The snapshots that the cut of this outcome is to delete."""
    return [SnapshotName(flow, *name) for flow, name in outcome.forgotten]
