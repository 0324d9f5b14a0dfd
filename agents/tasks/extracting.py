"""Lines to typed columns: natively where a line's meaning is plain, else by DuckDB (``agents.tasks.engine``),
whose SQL says what every line means. The answer is the same either way, row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from agents.formats import Format
from agents.formats.dialect import DUCKDB
from agents.tasks.conditions import rows_wanted
from agents.tasks.extracted import Extracted
from elf import native
from elf.job.ports import Wanted
from elf.job.worker.fitting import arrow_schema
from elf.schema import LINE

if TYPE_CHECKING:
    from agents.tasks.engine import SqlExtractor

_SQL_CHUNKS: Final = 16
"""When most lines of a chunk were left to DuckDB, so many chunks are given to it at once."""


class Extractor:
    """Lines of one format to typed columns, event time first. Raises ``InputError`` for a column that the
    format does not have."""

    def __init__(self, fmt: Format, event_time: str | None, wanted: Wanted) -> None:
        fmt.select(DUCKDB, wanted.columns, event_time)
        self._format, self._event_time, self._wanted = fmt, event_time, wanted
        library = native.library()
        self._reader = None if library is None else fmt.reader(wanted.columns, event_time, library)
        self._schema = pa.schema([pa.field("_ts", pa.int64()), *arrow_schema(wanted.columns)])
        self._whole: SqlExtractor | None = None
        self._rest: SqlExtractor | None = None
        self._sql_left = 0

    def extract(self, lines: pa.StringArray) -> Extracted:
        """Never fails on a line, whatever is in it (valid UTF-8 without NUL)."""
        if self._reader is None or self._sql_left:
            self._sql_left -= self._reader is not None
            return self._by_sql(lines)
        read = self._reader.read(lines)
        if 2 * int(read.decided.sum()) < len(lines):
            self._sql_left = _SQL_CHUNKS - 1
            return self._by_sql(lines)
        return self.complete(lines, read)

    def complete(self, lines: pa.StringArray, read: native.Read) -> Extracted:
        """What was read, and what DuckDB makes of the lines that were left."""
        table = self._table(lines, read.columns)
        left = np.flatnonzero(~read.decided)
        if not len(left):
            chosen = rows_wanted(table, self._wanted.conditions)
            return Extracted(table, np.arange(len(lines)), left, read.uncast, chosen, read.beyond)
        rest = self._left().extract(lines.take(pa.array(left)))
        decided = np.flatnonzero(read.decided)
        rows = np.concatenate([decided, left[rest.accepted]])
        order = np.argsort(rows, kind="stable")
        both = pa.concat_tables([table.filter(pa.array(read.decided)), rest.table]).combine_chunks()
        rows_in_order = both.take(pa.array(order))
        return Extracted(
            table=rows_in_order,
            accepted=rows[order],
            rejected=left[rest.rejected],
            uncast=read.uncast + rest.uncast,
            wanted=rows_wanted(rows_in_order, self._wanted.conditions),
            beyond=read.beyond + rest.beyond,
        )

    def _table(self, lines: pa.StringArray, columns: list[pa.Array]) -> pa.Table:
        """What was read, as ``Extracted.table`` has it."""
        read = iter(columns)
        wanted = [lines if column.name == LINE else next(read) for column in self._wanted.columns]
        times = pa.nulls(len(lines), pa.int64()) if self._event_time is None else next(read).view(pa.int64())
        return pa.table([times, *wanted], schema=self._schema)

    def _by_sql(self, lines: pa.StringArray) -> Extracted:
        if self._whole is None:
            self._whole = self._sql(self._wanted)
        return self._whole.extract(lines)

    def _left(self) -> SqlExtractor:
        """For the rows that are left, of which all are wanted."""
        if self._rest is None:
            self._rest = self._sql(Wanted(self._wanted.columns))
        return self._rest

    def _sql(self, wanted: Wanted) -> SqlExtractor:
        from agents.tasks.engine import SqlExtractor  # DuckDB, as in agents.tasks.streams

        return SqlExtractor(self._format, self._event_time, wanted)

    def close(self) -> None:
        for one in (self._whole, self._rest):
            if one is not None:
                one.close()
