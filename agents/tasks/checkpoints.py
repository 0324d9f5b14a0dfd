"""The checkpoints of a stream task: what its store has of a stream, and what a checkpoint changes there.

One SQLite transaction writes the checkpoint, the snapshots of the panes that were sealed, and the tables that
flows join; and it deletes the snapshots that the checkpoint has counted. Until then those are in the store:
what becomes of them when they are dropped (``elf.job.stragglers``), or answered by another agent
(``elf.job.reexecution``), is counted out of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from agents.disk.store import Store
from agents.inputs.values import Position
from elf.batch import decode
from elf.fields import replace
from elf.job.checkpoint import PostponedRows, StreamCheckpoint
from elf.job.commands import Answered, DropStragglers, Outcome
from elf.job.gaps import Gap, gaps_of
from elf.job.openparts import names_of
from elf.job.snapshots import Name, SnapshotName, Span
from elf.job.stragglers import left_over
from elf.ql.plan import Table


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint as it is stored: the worker's, and where its neighbours were at that moment."""

    worker: StreamCheckpoint
    positions: tuple[Position, ...]
    archive: int
    rejects: int
    event_time: str | None = None


class Checkpoints:
    """Those of one stream."""

    def __init__(self, store: Store, stream: str) -> None:
        self._store = store
        self._stream = stream
        self._joined = frozenset(store.joined(stream))
        self._postponed = frozenset(store.postponed(stream))

    def last(self) -> StoredCheckpoint | None:
        """The one that a start goes on from, if there is one. It has all open panes, and is not kept here."""
        return load_checkpoint(self._store, self._stream)

    def save(self, checkpoint: StoredCheckpoint, outcome: Outcome) -> None:
        """Make a checkpoint, and what was sealed with it, durable. The contents of joined tables are most of
        a checkpoint, so that they are written when there are others; so are rows that wait for a turn."""
        joined, worker = _without_tables(checkpoint.worker)
        postponed, worker = _without_rows(worker)
        self._store.save_checkpoint(
            self._stream,
            msgspec.msgpack.encode(replace(checkpoint, worker=worker)),
            outcome.sealed,
            forget=forgotten(outcome),
            joined=None if joined.keys() == self._joined else joined,
            traced=outcome.traced,
            postponed=(
                {number: rows for number, rows in postponed.items() if number not in self._postponed},
                self._postponed - postponed.keys(),
            ),
        )
        self._joined, self._postponed = frozenset(joined), frozenset(postponed)

    def counted(self, command: DropStragglers | Answered) -> DropStragglers | Answered:
        """See ``counted``."""
        return counted(command, self._store)


def load_checkpoint(store: Store, stream: str) -> StoredCheckpoint | None:
    """The last cut of a stream, if there is one."""
    data = store.load_checkpoint(stream)
    if data is None:
        return None
    stored, joined = msgspec.msgpack.decode(data, type=StoredCheckpoint), store.joined(stream)
    checkpoint = _with_tables(stored.worker, lambda table: replace(table, data=joined[table.digest]))
    waits = store.postponed(stream)
    checkpoint = _with_rows(checkpoint, lambda one: replace(one, rows=waits[one.number]))
    return replace(stored, worker=with_parts(checkpoint, store))


def with_parts(checkpoint: StreamCheckpoint, store: Store) -> StreamCheckpoint:
    """With the open parts of its flows where these stand for their trees (protocol 9.9). Those of open panes
    are all there; one that was empty has no contents."""
    flows = []
    for flow in checkpoint.flows:
        if flow.parted and flow.opened is not None:
            names = [SnapshotName(flow.flow.uid, *name) for name in names_of(flow.opened)]
            found = store.named_snapshots(names)
            flow = replace(flow, parts=tuple(one.payload for one in found if one.payload))
        flows.append(flow)
    return replace(checkpoint, flows=tuple(flows))


def _without_tables(checkpoint: StreamCheckpoint) -> tuple[dict[str, bytes], StreamCheckpoint]:
    """The contents of joined tables, by digest, and the checkpoint without them."""
    found: dict[str, bytes] = {}

    def take(table: Table) -> Table:
        found[table.digest] = table.data
        return replace(table, data=b"")

    return found, _with_tables(checkpoint, take)


def _without_rows(checkpoint: StreamCheckpoint) -> tuple[dict[int, bytes], StreamCheckpoint]:
    """Rows that wait for a turn, by number, and the checkpoint without them."""
    found: dict[int, bytes] = {}

    def take(one: PostponedRows) -> PostponedRows:
        found[one.number] = one.rows
        return replace(one, rows=b"")

    return found, _with_rows(checkpoint, take)


def _with_rows(
    checkpoint: StreamCheckpoint, change: Callable[[PostponedRows], PostponedRows]
) -> StreamCheckpoint:
    if not any(flow.postponed for flow in checkpoint.flows):
        return checkpoint
    flows = (replace(flow, postponed=tuple(map(change, flow.postponed))) for flow in checkpoint.flows)
    return replace(checkpoint, flows=tuple(flows))


def _with_tables(checkpoint: StreamCheckpoint, change: Callable[[Table], Table]) -> StreamCheckpoint:
    if not any(one.flow.fragment.tables for one in checkpoint.flows):
        return checkpoint
    flows = []
    for one in checkpoint.flows:
        fragment = replace(one.flow.fragment, tables=tuple(change(t) for t in one.flow.fragment.tables))
        flows.append(replace(one, flow=replace(one.flow, fragment=fragment)))
    return replace(checkpoint, flows=tuple(flows))


def counted(command: DropStragglers | Answered, store: Store) -> DropStragglers | Answered:
    """The command with what becomes of the counters of its snapshots. One that is not there any more has been
    counted."""
    found, gaps = Counter[str](), set[Gap]()
    for name, spans in _names(command):
        for row in store.overlapping(command.uid, name[0], name[1]):
            if (row.start, row.end, row.part) == name and row.counters:
                counters = decode(row.counters)
                found += left_over(counters, spans)
                gaps |= _gaps_of(counters, spans)
    if isinstance(command, Answered):
        return replace(command, counted=found, gaps=tuple(sorted(gaps)))
    return replace(command, counted=found)


def _gaps_of(counters: pa.Table, spans: Iterable[Span]) -> set[Gap]:
    """What the panes of a table of counters in these spans lack."""
    by_pane = gaps_of([counters]).items()
    inside = (here for pane, here in by_pane if any(a <= pane < b for a, b in spans))
    return {gap for here in inside for gap in here if not gap.weight}


def _names(command: DropStragglers | Answered) -> Iterable[tuple[Name, list[Span]]]:
    for name, spans in command.names:
        yield name, [(span[0], span[1]) for span in spans]


def forgotten(outcome: Outcome) -> list[SnapshotName]:
    """The snapshots that the cut of this outcome is to delete."""
    return [SnapshotName(flow, *name) for flow, name in outcome.forgotten]
