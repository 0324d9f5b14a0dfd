"""Rows of a table, some at a time, for the parts of the table that takes its place (``elf.job.tables``).

All of its parts ask for the same rows one after the other, each for those that are to be its own. So what
others have asked for lately is remembered, opened and divided: a table is a function of its number
(protocol 7.12), and the rows behind a group are the same until that is another one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from agents.disk.tablerows import Table
from agents.disk.tablevalues import Row, keys_and_columns, packed, with_key
from elf.aggregates import range_places
from elf.job.tables import Columns, CopyShard, ShardPart

PAGES_MAX: Final = 16
PAGE_BYTES_MAX: Final = 1 << 20
"""One of larger rows is not remembered."""
_Name = tuple[str, int, tuple[int, int, int, int], Columns, bytes, int]


@dataclass(frozen=True)
class _Page:
    """``by_place``: its rows by the next key; ``next``: the group of the last one; ``more``: there are some
    behind that."""

    by_place: list[list[Row]]
    next: bytes
    more: bool
    size: int


class Pages:
    """Those of one store. Any thread may ask; they are divided one after the other."""

    def __init__(self) -> None:
        self._pages: OrderedDict[_Name, _Page] = OrderedDict()
        self._dividing = threading.Lock()
        self.divided = 0
        """How many were, so far."""

    def part(self, table: Table, asked: CopyShard, most: int) -> ShardPart:
        """The next rows for a part of the next table: some of ``most`` rows."""
        state = (table.count, table.size, table.evicted, table.unfit)
        name = table.kept.table, table.number, state, asked.key, asked.after, most
        with self._dividing:
            page = self._pages.pop(name, None)
            if page is None:
                page = self._divided(table, asked, most)
            if page.size <= PAGE_BYTES_MAX:
                self._pages[name] = page
            if len(self._pages) > PAGES_MAX:
                self._pages.popitem(last=False)
        own = packed(page.by_place[asked.place] if asked.place < len(page.by_place) else [])
        return ShardPart(table.number, table.newest, table.serialized(), own, page.next, page.more)

    def _divided(self, table: Table, asked: CopyShard, most: int) -> _Page:
        self.divided += 1
        rows: list[Row] = table.rows(asked.after, most).fetchall()
        by_place: list[list[Row]] = [[] for _ in range(table.kept.shards)]
        if rows:
            keys, columns = keys_and_columns(rows, table.kept.columns, asked.key, table.schemas()[-1])
            places = range_places(columns, asked.key, table.kept.shards)
            for row, key, place in zip(rows, keys, places, strict=True):
                by_place[int(place)].append(with_key(row, key))
        size = sum(len(row[-1]) for row in rows)
        return _Page(by_place, rows[-1][0] if rows else asked.after, len(rows) == most, size)
