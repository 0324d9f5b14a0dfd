"""Count windows (protocol 7.6): N rows of one source each, in the order of that source.

A source is a path on an agent: what is written there after a rotation continues the open window. Only its own
agent reads it, so a window is whole before it leaves. Its groups wait here until N rows that the query's
WHERE accepts were seen; then all of them go into the flow's tree, in the pane in which the last of these rows
came. To trees, roots, masters and calendars they are groups with two more keys, source and number, in
tumbling windows as long as a pane.

The number of rows seen and the waiting groups are part of the checkpoint, as source offsets are. After a
crash the rows behind the checkpoint are counted as if for the first time: no window that has left is made
twice, or differently.

No row is late: order decides, not time. Rows without event time, or beyond the future bound, are left out and
counted, as everywhere. A window that can no longer be filled (the source is gone, the input has ended, the
agent leaves) goes as it is. What a flow drops when it is suspended is counted as shed; the next window has
the next number. Each source has one open window, of at most N rows; the language bounds N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import merge_tables
from elf.batch import decode, encode
from elf.errors import ElfBug
from elf.job.ports import Int64s, MapFailed, MapperPort
from elf.ql.plan import Fragment

NUMBER: Final = "window_number"
_UNMERGED: Final = 1 << 12
"""Unmerged groups of an open window, or as many as are merged."""


class _Image(msgspec.Struct, array_like=True):
    """A source in the checkpoint: name, rows seen, ids of its files, groups of the open window."""

    name: str
    seen: int
    ids: list[str]
    groups: bytes


@dataclass
class _Source:
    """``seen``: rows that were counted. ``open``: groups of the window that is not full; ``merged`` of them
    are merged. ``waiting``: rows for the map, in order."""

    seen: int = 0
    ids: list[str] = field(default_factory=list)
    open: list[pa.Table] = field(default_factory=list)
    merged: int = 0
    waiting: list[pa.Table] = field(default_factory=list)


class CountWindows:
    """The windows of one flow on one agent, until they are full. ``image``: from its checkpoint."""

    def __init__(self, fragment: Fragment, mapper: MapperPort, agent: str, image: bytes = b"") -> None:
        if fragment.count is None:
            raise ElfBug("windows of rows without their number")
        self._rows, self._state = fragment.count.rows, fragment.count.state
        self._keys = ["_pane", *fragment.keys[1:]]
        self._states = fragment.states
        self._mapper = mapper
        self._before = fragment.count.before + agent
        self._sources: dict[str, _Source] = {}
        self.waiting = 0
        """Rows that wait for the map."""
        for one in msgspec.msgpack.decode(image, type=list[_Image]) if image else ():
            groups = [decode(one.groups)] if one.groups else []
            self._sources[one.name] = _Source(one.seen, one.ids, groups, sum(g.num_rows for g in groups))

    def add(self, source: str, path: str, rows: pa.Table) -> None:
        """Add rows of a file, in order, with their panes. ``source``: the id of the file."""
        known = next((one for one in self._sources.values() if source in one.ids), None)
        if known is None:  # whatever the file is called later, its rows belong together
            known = self._sources.setdefault(path, _Source())
            known.ids.append(source)
        known.waiting.append(rows)
        self.waiting += rows.num_rows

    def digest(self, sealed: int) -> tuple[pa.Table | None, list[MapFailed]]:
        """Map what waits; returns the groups of the windows that are full now, none in a pane below
        ``sealed``, and how the map has failed on the rows of a source, which are lost."""
        found, failures = [], []
        for name, source in self._sources.items():
            try:
                full = self._count(name, source, sealed) if source.waiting else None
            except MapFailed as failed:
                failures.append(failed)
            else:
                found += [] if full is None else [full]
        self.waiting = 0
        return pa.concat_tables(found) if found else None, failures

    def close(self, gone: Sequence[str] | None, sealed: int) -> pa.Table | None:
        """The groups of windows that will not be filled: of sources all of whose files are gone, or of
        all."""
        found = []
        for name, source in list(self._sources.items()):
            source.ids = [] if gone is None else [one for one in source.ids if one not in gone]
            if not source.ids:
                del self._sources[name]
                if source.open:
                    found.append(self._named(name, self._merged(source.open, sealed)))
        return pa.concat_tables(found) if found else None

    def drop(self) -> int:
        """Drop windows that are not full; returns how many rows that were. The numbers continue."""
        lost, self.waiting = self.waiting, 0
        for source in self._sources.values():
            lost += source.seen % self._rows
            source.seen = -(-source.seen // self._rows) * self._rows
            source.open, source.merged, source.waiting = [], 0, []
        return lost

    def image(self) -> bytes:
        """The image for the checkpoint; nothing waits for the map then."""
        if self.waiting:
            raise ElfBug("a cut with rows that were not counted")
        found = []
        for name, source in self._sources.items():
            self._tidy(source, 0)
            groups = encode(source.open[0]) if source.open else b""
            found.append(_Image(name, source.seen, source.ids, groups))
        return msgspec.msgpack.encode(found)

    def _count(self, name: str, source: _Source, sealed: int) -> pa.Table | None:
        rows = pa.concat_tables(source.waiting)
        source.waiting = []
        rows = rows.append_column("_place", pa.array(np.arange(rows.num_rows)))
        rows = rows.append_column("_seen", pa.array(np.full(rows.num_rows, source.seen)))
        try:
            groups = self._mapper.run(rows)
        except MapFailed as failed:
            failed.panes = rows["_pane"].to_numpy()
            raise
        source.seen += int(pc.sum(groups[self._state]).as_py() or 0)
        numbers = groups[NUMBER].to_numpy()
        full = numbers <= source.seen // self._rows
        if not full.any():
            self._keep(source, groups)
            return None
        done = self._merged([*source.open, groups.filter(pa.array(full))], sealed)
        source.open, source.merged = [], 0
        if not full.all():
            self._keep(source, groups.filter(pa.array(~full)))
        return self._named(name, done)

    def _keep(self, source: _Source, groups: pa.Table) -> None:
        source.open.append(groups)
        self._tidy(source, max(_UNMERGED, source.merged))

    def _tidy(self, source: _Source, most: int) -> None:
        """Merge the groups of an open window if more than ``most`` of them are unmerged."""
        if len(source.open) > 1 and sum(table.num_rows for table in source.open) - source.merged > most:
            source.open = [self._merged(source.open)]
            source.merged = source.open[0].num_rows

    def _merged(self, tables: Sequence[pa.Table], sealed: int | None = None) -> pa.Table:
        """One row for each window and group, in the pane in which the window's last row came."""
        names = [*self._keys, *(state.name for state in self._states)]
        whole = pa.concat_tables([table.select(names) for table in tables], promote_options="permissive")
        panes: Int64s = whole["_pane"].to_numpy().copy()
        _, window = np.unique(whole[NUMBER].to_numpy(), return_inverse=True)
        last = np.full(int(window.max(initial=0)) + 1, panes.min(initial=0) if sealed is None else sealed)
        np.maximum.at(last, window, panes)
        return merge_tables([whole.set_column(0, "_pane", pa.array(last[window]))], self._keys, self._states)

    def _named(self, path: str, groups: pa.Table) -> pa.Table:
        """The same with the name of their source, after the pane."""
        name = pa.array([self._before + path] * groups.num_rows, pa.string())
        return groups.add_column(1, "window_source", name)
