"""What a lane counts of the snapshots that are leapt over (``elf.job.stragglers``), or answered by another
agent (``elf.job.again``), out of the store: there they are until the cut that has counted them deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from agents.disk.store import SnapshotName, Store
from elf.job.commands import Answered, Leap, Outcome
from elf.job.snapshots import Name, Span
from elf.job.stragglers import left_over_of


def counted(command: Leap | Answered, store: Store) -> Leap | Answered:
    """The command with what becomes of the tallies of its snapshots. One that is not there any more has been
    counted."""
    found: Counter[str] = Counter()
    for name, spans in _names(command):
        for row in store.overlapping(command.uid, name[0], name[1]):
            if (row.start, row.end, row.part) == name:
                found += left_over_of(row.tally, spans)
    return replace(command, counted=found)


def _names(command: Leap | Answered) -> Iterable[tuple[Name, list[Span]]]:
    for name, spans in command.names:
        yield name, [(span[0], span[1]) for span in spans]


def forgotten(outcome: Outcome) -> list[SnapshotName]:
    """The snapshots that the cut of this outcome is to delete."""
    return [SnapshotName(flow, *name) for flow, name in outcome.forgotten]
