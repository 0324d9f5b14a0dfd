"""Windows out of committed panes: which panes are needed, kept and released.

An ``Assembly`` is what a master keeps in memory of one job. After the windows that end by ``next_us`` it
holds what every later window needs of the panes below; given again, those panes make the same windows, bit by
bit. It can be thrown away at any time, and never does any I/O.

Panes become *units* by the job's plan of merges (``elf.windows.merging``): each row of a pane is merged once
into each longer unit that uses it. Tumbling windows are units; the others are made of units by two stacks
(``elf.job.assembly.twostacks``). ``elf.job.assembly.sessions`` stitches sessions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from elf.aggregates import merge_tables, normalise
from elf.job.assembly.prefixes import Growing
from elf.job.assembly.rows import Int64s
from elf.job.assembly.sessions import Sessions
from elf.job.assembly.sliding import Overlapping
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.job.tops import first_rows
from elf.ql.plan import Plan
from elf.windows import Calendar, Kind, Session, Sliding, Spans
from elf.windows.kinds import in_order
from elf.windows.merging import Tiles, plan_merges

SLICE_ROWS = 1 << 18
"""Groups of tumbling windows that are handed out at a time, or a little more."""


class Maker(Protocol):
    """Makes windows of one kind out of units. ``unit``: the length of a unit, in panes."""

    unit: int

    def take(self, units: pa.Table) -> None:
        """Later units, ascending."""

    def windows(self, first_us: int, last_us: int) -> Iterator[pa.Table]:
        """The windows that end in ``(first_us, last_us]``: bounds, keys, states; some windows a table."""


@dataclass
class _Units:
    """The units of one length that are built, ascending in ``_pane`` (their number), and those just built."""

    length: int
    tiles: Tiles | None
    held: list[pa.Table] = field(default_factory=list)
    fresh: pa.Table | None = None
    built_to: int = START_OF_TIME
    """In units."""


class Assembly:
    """The windows of one job, from its committed panes."""

    def __init__(self, plan: Plan, calendar: Calendar) -> None:
        self._plan = plan
        self.calendar = calendar
        self.next_us: int | None = None
        """Windows that end by here were made."""
        self.held_from_us = START_OF_TIME
        fragment, made = plan.fragment, plan.made
        self._names = ["_pane", *made.keys, *(state.name for state in made.states)]
        kinds = [kind for kind in calendar.kinds if not isinstance(kind, Session)]
        lengths = [kind.unit_us // fragment.pane_us for kind in kinds]
        tiled = plan_merges(lengths)
        self._units = {1: _Units(1, None), **{t.length: _Units(t.length, t) for t in tiled}}
        self._makers: list[tuple[Kind, Maker]] = []

    def windows(self, first_us: int, last_us: int, panes: pa.Table | None) -> Iterator[pa.Table]:
        """The merged groups of the windows that end in ``(first_us, last_us]``: ``window_start``,
        ``window_end``, keys, states; some windows a table. Windows without rows are left out; rows that the
        LIMIT leaves out may be.

        ``panes`` are those from ``needs_from(first_us)`` on, or from ``next_us`` when that is ``first_us``;
        each (pane, keys) once. The result must be read to its end.
        """
        if first_us != self.next_us:
            if self.next_us is not None:
                self.__init__(self._plan, self.calendar)  # type: ignore[misc]
            self.held_from_us = self.calendar.needs_from(first_us)
        start = self.held_from_us if self.next_us is None else first_us
        fresh = self._cut(panes, start, last_us)
        if not self._makers and fresh is not None:
            self._begin(fresh)
        self._build(fresh, last_us)
        for _, maker in self._makers:
            units = self._units[maker.unit].fresh
            if units is not None and units.num_rows:
                maker.take(units)
        for at, (_, maker) in enumerate(self._makers):
            earlier = [kind for kind, _ in self._makers[:at]]
            for table in maker.windows(first_us, last_us):
                yield self._only(table, earlier)
        self.next_us, self.held_from_us = last_us, self.calendar.needs_from(last_us)
        self._release()

    def _cut(self, panes: pa.Table | None, start_us: int, end_us: int) -> pa.Table | None:
        """The rows of ``[start_us, end_us)``, ascending, in the types that merging works with."""
        if panes is None or not panes.num_rows:
            return None
        made, pane_us = self._plan.made, self._plan.fragment.pane_us
        panes = normalise(panes.select(self._names), made.keys, made.states)
        numbers = panes["_pane"].to_numpy()
        order = np.argsort(numbers, kind="stable")
        first = START_OF_TIME if start_us <= START_OF_TIME else start_us // pane_us
        end = END_OF_TIME if end_us >= END_OF_TIME else end_us // pane_us
        begin, stop = np.searchsorted(numbers[order], (first, end))
        return panes.take(pa.array(order[begin:stop])).combine_chunks() if stop > begin else None

    def _begin(self, fresh: pa.Table) -> None:
        """Create makers, once there is a row: only then the landmark of a finite input is known."""
        first = int(fresh["_pane"][0].as_py())
        self.calendar = self.calendar.beginning_at(first * self._plan.fragment.pane_us)
        for kind in in_order(self.calendar.kinds):
            if isinstance(kind, Session):
                made: Maker = Sessions(self._plan, kind, self.calendar)
            elif isinstance(kind, Sliding) and not kind.is_tumbling:
                made = Overlapping(self._plan, kind, self.calendar)
            elif isinstance(kind, Sliding):
                made = Tumbling(self._plan, kind, self.calendar)
            else:
                made = Growing(self._plan, kind, self.calendar)
            self._makers.append((kind, made))

    # -- units -----------------------------------------------------------------------------------------------

    def _build(self, fresh: pa.Table | None, last_us: int) -> None:
        """All units that are complete by ``last_us`` and were not built before."""
        to = END_OF_TIME if last_us >= END_OF_TIME else last_us // self._plan.fragment.pane_us
        panes = self._units[1]
        panes.fresh = fresh
        panes.held += [fresh] if fresh is not None and len(self._units) > 1 else []
        for units in self._units.values():
            if units.tiles is not None:
                self._merge(units, units.tiles, to)

    def _merge(self, units: _Units, tiles: Tiles, to: int) -> None:
        keys, states = self._plan.made.keys, self._plan.made.states
        end = END_OF_TIME if to >= END_OF_TIME else to // tiles.length
        parts = []
        for length, used in tiles.used.items():
            for table in self._units[length].held:
                numbers = table["_pane"].to_numpy()
                whole = numbers * length // tiles.length
                tile = used[numbers % len(used)] & (whole >= units.built_to) & (whole < end)
                if tile.any():
                    rows = table.filter(pa.array(tile))
                    parts.append(rows.set_column(0, "_pane", pa.array(whole[tile])))
        units.fresh = None
        if parts:
            merged = merge_tables(parts, ["_pane", *keys], states)
            order = np.argsort(merged["_pane"].to_numpy(), kind="stable")
            units.fresh = merged.take(pa.array(order)).combine_chunks()
            units.held.append(units.fresh)
        units.built_to = max(units.built_to, end)

    def _release(self) -> None:
        """Forget units that lie before what later windows need and that all longer units which use them have
        passed."""
        for units in self._units.values():
            users = [u for u in self._units.values() if u.tiles is not None and units.length in u.tiles.used]
            below = min((u.built_to * u.length for u in users), default=END_OF_TIME)
            below = max(START_OF_TIME, min(END_OF_TIME, below))
            kept = []
            for table in units.held:
                numbers = table["_pane"].to_numpy()
                rest = int(np.searchsorted(numbers, -(-below // units.length)))
                if rest < len(numbers):
                    kept.append(table.slice(rest))
            units.held, units.fresh = kept, None

    def _only(self, table: pa.Table, earlier: Sequence[Kind]) -> pa.Table:
        """Leave out windows that an earlier kind has too, and those that start before the job answers."""
        if not table.num_rows:
            return table
        starts, ends = (table[name].cast(pa.int64()).to_numpy() for name in ("window_start", "window_end"))
        wanted = (starts >= self.calendar.from_us) & (starts < self.calendar.until_us)
        if earlier:
            wanted &= ~self.calendar.are_of(earlier, Spans(starts, ends))
        return table if wanted.all() else table.filter(pa.array(wanted))


class Tumbling:
    """Windows that are units."""

    def __init__(self, plan: Plan, kind: Sliding, calendar: Calendar) -> None:
        self.unit = kind.size_us // calendar.pane_us
        self._plan = plan
        self._size_us = kind.size_us
        self._held: list[pa.Table] = []

    def take(self, units: pa.Table) -> None:
        self._held.append(units)

    def windows(self, first_us: int, last_us: int) -> Iterator[pa.Table]:
        held, self._held = self._held, []
        for table in held:
            numbers = table["_pane"].to_numpy()
            if first_us > START_OF_TIME:
                begin = int(np.searchsorted(numbers, first_us // self._size_us))
                table, numbers = table.slice(begin), numbers[begin:]
            yield from self._bounded(table, numbers)

    def _bounded(self, table: pa.Table, numbers: Int64s) -> Iterator[pa.Table]:
        at = 0
        while at < len(numbers):
            last = numbers[min(at + SLICE_ROWS, len(numbers)) - 1]
            end = int(np.searchsorted(numbers, last, side="right"))
            part = table.slice(at, end - at)
            starts = numbers[at:end] * self._size_us
            bounds = [pa.array(us, pa.timestamp("us")) for us in (starts, starts + self._size_us)]
            columns = [*bounds, *part.columns[1:]]
            whole = pa.table(columns, names=["window_start", "window_end", *part.column_names[1:]])
            yield first_rows(whole, numbers[at:end], self._plan.top, self._plan.made.states)
            at = end
