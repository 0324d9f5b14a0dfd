"""The tables of a process, and columns of values out of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from agents.lookups.geoip import GeoIp
from agents.lookups.useragents import UserAgents, expressions
from elf.ql.lookups import LOOKUPS as KNOWN
from elf.ql.lookups import NEEDS, Table
from elf.schema import ColumnType

_TYPES: Final[dict[ColumnType, pa.DataType]] = {
    "text": pa.string(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}


Value = str | float | int | bool | None
_Mark = tuple[int, int, int]


class Lookups:
    """``databases``: the files of ``geoip.databases``, as they were opened."""

    def __init__(self) -> None:
        self.databases: tuple[str, ...] = ()
        self._marks: tuple[_Mark, ...] = ()
        """Of the files that were opened last."""
        self._seen: tuple[_Mark, ...] = ()
        """Of those that ``renewed`` saw last."""
        self._geoip: GeoIp | None = None
        self._agents: UserAgents | None = None

    def open(self, databases: Sequence[str]) -> None:
        """With these files. Raises ``UserError``."""
        if tuple(databases) != self.databases:
            self._marks = _marks(databases)
            self._geoip = GeoIp.open(databases) if databases else None
            self.databases = tuple(databases)

    def renewed(self) -> bool:
        """Whether files were other ones at the last look, and still are the same: then they are opened, and
        the next batch is looked up in them. Raises ``UserError``, once for each change, when one of them is
        no database: those from before stay."""
        marks = _marks(self.databases)
        before, self._seen = self._seen, marks
        if marks in (self._marks, ()) or marks != before:
            return False
        self._marks = marks
        self._geoip = GeoIp.open(self.databases)
        return True

    def lacking(self, names: Iterable[str]) -> str:
        """Why these functions cannot be answered here, and what is to be done; empty: they can."""
        for name in names:
            table = self._table(name)
            if table is None or (isinstance(table, GeoIp) and not table.knows(name)):
                return f"{name.upper()}: this host {NEEDS[KNOWN[name].table]}"
        return ""

    def _table(self, name: str) -> GeoIp | UserAgents | None:
        if KNOWN[name].table == "geoip":
            return self._geoip
        if self._agents is None and expressions():
            self._agents = UserAgents()
        return self._agents

    def able(self) -> tuple[str, ...]:
        """The functions that can be answered here."""
        found = [name for name in KNOWN if KNOWN[name].table == "useragents"] if expressions() else []
        if self._geoip is not None:
            geo = (name for name in KNOWN if KNOWN[name].table == "geoip")
            found += [name for name in geo if self._geoip.knows(name)]
        return tuple(found)

    def told(self) -> dict[Table, tuple[str, ...]]:
        """The editions of the tables that are here."""
        found: dict[Table, tuple[str, ...]] = {}
        if self._geoip is not None:
            found["geoip"] = self._geoip.editions
        if edition := expressions():
            found["useragents"] = (edition,)
        return found

    def value(self, name: str, text: str | None) -> Value:
        """What a function gives for a text; NULL where its table is not here."""
        table = self._table(name)
        return None if table is None else table.value(name, text)

    def values(self, name: str, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
        """The same for each of many."""
        whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        each, table = whole.cast(pa.string()).dictionary_encode(), self._table(name)
        found = [None if table is None else table.value(name, text) for text in each.dictionary.to_pylist()]
        return pa.array(found, _TYPES[KNOWN[name].kind]).take(each.indices)


def _marks(paths: Sequence[str]) -> tuple[_Mark, ...]:
    """What tells each file from another one in its place; nothing while one is not there."""
    with suppress(OSError):
        stats = [Path(path).stat() for path in paths]
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in stats)
    return ()


LOOKUPS: Final = Lookups()
"""Those of this process."""
