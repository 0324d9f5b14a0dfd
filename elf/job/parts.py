"""Parts: what late rows add to panes that were sealed already (protocol 8.5), at both ends of their way.

A job with ``EMIT FINAL REVISE b`` keeps rows that come after their pane was sealed, as long as they are not
more than ``b`` later than that. A worker (``LateRows``) aggregates them like others, in a tree of their own,
and takes them out every second or so as snapshots of one pane each, named (flow, pane, member, part), with
the same durability, quotas and offers as the main ones, which are part 0. They go directly to the root. There
(``HeldParts``) they wait until their pane is committed, and make a revision of it.

A part is of one pane, so that it is in one commit as a whole. A revision of a pane is recorded with its
parts; a part that is recorded, or about to be, is refused, whoever sends it again. Parts have no order among
themselves and need no part 0: a revision may add them to a pane without their member's main snapshot, which
may come later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from elf.batch import decode, encode
from elf.cbt import BufferTree
from elf.job.contributions import PartName, Piece
from elf.job.counters import PaneCounters
from elf.job.ports import Int64s

EVERY_MS_MIN: Final = 1_000
EVERY_MS_MAX: Final = 10_000
"""Late rows wait as long as their pane is, within these bounds, so that others join the same part."""


def to_bytes(parts: Iterable[PartName]) -> bytes:
    """As stored with a commit; empty for none."""
    named = sorted(parts)
    return msgspec.msgpack.encode(named) if named else b""


def from_bytes(data: bytes) -> frozenset[PartName]:
    return frozenset(msgspec.msgpack.decode(data, type=list[PartName])) if data else frozenset()


class LateRows:
    """The late rows of one flow on one agent that are in no part yet. ``number``: that of the last part."""

    def __init__(self, tree: BufferTree, pane_us: int, number: int, image: bytes, counted: bytes) -> None:
        self._tree = tree
        self._every_ms = max(EVERY_MS_MIN, min(pane_us // 1000, EVERY_MS_MAX))
        self._counter_tables = PaneCounters(decode(counted) if counted else None)
        self._since_ms: int | None = None
        self.number = number
        if image:
            self._tree.load(image)

    def add(self, groups: pa.Table | None, panes: Int64s, rows: Int64s) -> None:
        """The partial aggregates of late rows; ``rows``: how many each pane got, wanted or not."""
        if groups is not None and groups.num_rows:
            self._tree.insert_partials(groups)
        self._counter_tables.add(panes, rows_in=rows)

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return self._tree.nbytes

    def take(self, now_ms: int | None) -> list[tuple[int, int, bytes, bytes]]:
        """(pane, part, counters, payload) of what has waited long enough; with None of everything."""
        whole = self._counter_tables.table()
        if whole is None:
            return []
        if now_ms is not None:
            self._since_ms = now_ms if self._since_ms is None else self._since_ms
            if now_ms - self._since_ms < self._every_ms:
                return []
        self._counter_tables, self._since_ms = PaneCounters(), None
        found = []
        for place, pane in enumerate(whole["_pane"].to_pylist()):
            groups = self._tree.split_off("_pane", pane + 1)
            self.number += 1
            payload = encode(groups) if groups.num_rows else b""
            found.append((pane, self.number, encode(whole.slice(place, 1)), payload))
        return found

    @property
    def waiting(self) -> int:
        """How many rows are in no part yet."""
        return self._counter_tables.total("rows_in")

    def drop(self) -> int:
        """Drop them; returns how many rows that were."""
        rows = self.waiting
        self._counter_tables = PaneCounters()
        self._tree.empty()
        return rows

    def image(self) -> tuple[bytes, bytes]:
        """(tree, counters) for the checkpoint."""
        counted = self._counter_tables.table()
        return (
            self._tree.dump() if self._tree.rows else b"",
            encode(counted) if counted is not None else b"",
        )


class HeldParts:
    """Parts at the root of their flow that are in no commit yet, by pane and name: of late rows, and of panes
    that were open (``elf.job.openparts``)."""

    def __init__(self) -> None:
        self._pieces: dict[int, dict[PartName, Piece]] = {}

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __iter__(self) -> Iterator[tuple[int, PartName]]:
        return ((pane, name) for pane, pieces in self._pieces.items() for name in pieces)

    def add(self, name: PartName, piece: Piece) -> None:
        self._pieces.setdefault(piece.start, {}).setdefault(name, piece)

    def has(self, pane: int, name: PartName) -> bool:
        return name in self._pieces.get(pane, {})

    def take(self, below: int) -> list[tuple[int, dict[PartName, Piece]]]:
        """Those of panes below ``below``, pane by pane."""
        panes = sorted(pane for pane in self._pieces if pane < below)
        return [(pane, self._pieces.pop(pane)) for pane in panes]
