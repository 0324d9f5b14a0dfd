"""What a flow has yet to map of the chunks that it has taken, until its turn (protocol 3.12).

Only the map waits. Which panes the rows are in, which of them are late, and all that is counted of them is
settled when their chunk is read, as for any flow. So the inputs, the archive and all flows stand at one
place, and a flow that waits makes the panes that it would have made at once; their rows are in its
checkpoint, and no pane is sealed before they are mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa

from elf.batch import decode, encode
from elf.job.checkpoint import FlowCheckpoint, PostponedRows
from elf.job.ports import Int64s
from elf.job.spec import END_OF_TIME, Flow
from elf.job.worker.assigning import Stretch
from elf.job.worker.fitting import arrow_schema, fitted
from elf.planning.budgets import WEIGHT_MAX
from elf.planning.turns import UNCUT, Bound, Postponed, Turns

LeftOut = tuple[tuple[int, int], ...]
APART: Final = 1 << 56
"""So far apart are panes of rows of two weights, while one statement maps both: no time has such a pane."""


class When(NamedTuple):
    """When rows are to be mapped that are read now. ``is_live``: see ``Feed``; what was there before the
    agent was is late in any case, and mapped whole."""

    bound: Bound
    now_ms: int
    is_live: bool


@dataclass(eq=False, kw_only=True)
class Part(Postponed):
    """Rows of a chunk, the first of them in pane ``first``. ``left_out``: (pane, rows) for which they stand;
    ``lines``: which they are of a source, where they may be cut short; ``image``: of it, once it was in a
    checkpoint."""

    table: pa.Table
    nbytes: int
    first: int
    path: str
    left_out: LeftOut = ()
    source: str = ""
    lines: Stretch | None = None
    image: PostponedRows | None = None


class PostponedOf:
    """Of a flow, whose rows wait among those of others in ``turns``; ``map_of``: the same of flows with one
    map."""

    def __init__(
        self, flow: Flow, lateness_us: int | None, turns: Turns[Part], map_of: object, saved: FlowCheckpoint
    ) -> None:
        self._uid, self._fragment = flow.uid, flow.fragment
        self._lateness_us = lateness_us or 0
        self._turns = turns
        self.map_of = map_of
        for one in saved.postponed:
            self._restore(one)

    def __len__(self) -> int:
        return len(self._turns.of(self._uid))

    def _restore(self, one: PostponedRows) -> None:
        """It is due at once."""
        table, _ = fitted(decode(one.rows), arrow_schema(self._fragment.columns))
        part = self._part(table, one.weight, 0.0, one.path, one.left_out)
        part.number, part.image = one.number, one
        self._turns.offer(part)

    def _part(self, table: pa.Table, weight: int, due_ms: float, path: str, left_out: LeftOut) -> Part:
        """One that is mapped whole."""
        return Part(
            self._uid,
            self.map_of,
            table.num_rows,
            weight,
            due_ms,
            UNCUT,
            table=table,
            nbytes=int(table.nbytes),
            first=int(table["_pane"].to_numpy().min()),
            path=path,
            left_out=left_out,
        )

    def put(self, some: Sequence[Stretch], source: str, weight: int, path: str, when: When) -> None:
        """What a chunk comes to."""
        for one in some:
            part = self._part(one.rows, weight, 0.0, path, _pairs(one.left_out))
            ends_us = (part.first + 1) * self._fragment.pane_us + self._lateness_us
            part.due_ms = when.bound.due_ms(when.now_ms, ends_us / 1000)
            part.source, part.lines = source, one
            if when.is_live and one.stay is not None:
                part.rank = when.bound.rank
            self._turns.offer(part)

    def cut_short(self, part: Part) -> None:
        """Leave rows out of one."""
        lines = part.lines
        assert lines is not None
        self._turns.remove(part)
        table = part.table.filter(pa.array(lines.stay))
        if table.num_rows:  # by chance, all may be left out
            left_out = (*part.left_out, *_pairs(lines.more))
            self._turns.offer(self._part(table, WEIGHT_MAX, part.due_ms, part.path, left_out))

    @property
    def first(self) -> int:
        """The first pane with rows that wait."""
        return min((one.first for one in self._turns.of(self._uid)), default=END_OF_TIME)

    def below(self, pane: int) -> list[Part]:
        """Those with rows of panes below."""
        return [one for one in self._turns.of(self._uid) if one.first < pane]

    def together(self, pane: int) -> list[list[Part]]:
        """These, as they are mapped together: each alone with a function, which is told on which line it
        fails."""
        below = self.below(pane)
        return [[one] for one in below] if self._fragment.function is not None else [below] * bool(below)

    def take(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._turns.remove(part)

    def drop_below(self, pane: int) -> None:
        """Forget the rows of the panes below."""
        for part in self.below(pane):
            self._turns.remove(part)
            table = part.table.filter(pa.array(part.table["_pane"].to_numpy() >= pane))
            if table.num_rows:
                left_out = tuple(one for one in part.left_out if one[0] >= pane)
                self._turns.offer(self._part(table, part.weight, part.due_ms, part.path, left_out))

    def empty(self) -> None:
        self._turns.forget(self._uid)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self._turns.of(self._uid))

    def images(self) -> tuple[PostponedRows, ...]:
        found = []
        for one in self._turns.of(self._uid):
            if one.image is None:
                rows = encode(one.table.combine_chunks())
                one.image = PostponedRows(one.number, one.weight, one.path, one.left_out, rows)
            found.append(one.image)
        return tuple(found)


def gathered(parts: Sequence[Part], weights: Sequence[int]) -> pa.Table:
    """The rows of parts for one statement: those of the second weight are in other panes, and so on."""
    return pa.concat_tables([_moved(part.table, weights.index(part.weight)) for part in parts])


def scattered(groups: pa.Table, weights: Sequence[int]) -> Iterator[tuple[pa.Table, int]]:
    """What a statement has made of these, by weight."""
    if len(weights) == 1:
        yield groups, weights[0]
        return
    places = (groups["_pane"].to_numpy() + APART // 2) // APART
    for place, weight in enumerate(weights):
        some = groups.filter(pa.array(places == place))
        if some.num_rows:
            yield _moved(some, -place), weight


def _moved(table: pa.Table, places: int) -> pa.Table:
    if not places:
        return table
    panes = pa.array(table["_pane"].to_numpy() + places * APART)
    return table.set_column(table.schema.get_field_index("_pane"), table.schema.field("_pane"), panes)


def _pairs(counted: tuple[Int64s, Int64s]) -> LeftOut:
    panes, rows = counted
    return tuple(zip(panes.tolist(), rows.tolist(), strict=True))
