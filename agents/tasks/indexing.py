"""The values of chosen columns in the lines of an archived file (``archive.index``), so that readers can pass
over files (``agents.archive.summaries``)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from agents.archive.summaries import Summary
from agents.formats import Format
from elf.job.ports import Wanted
from elf.schema import Column, ColumnType, declare

SAMPLE_LINES = 1_000
"""Of a file, to tell the types of its columns by where nobody has declared them."""


class LineIndex:
    """Of one stream. A column that its lines do not have is passed over."""

    def __init__(
        self,
        fmt: Format,
        event_time: str | None,
        names: Sequence[str],
        declared: Mapping[str, ColumnType],
    ) -> None:
        self._format = fmt
        self._event_time = event_time
        self._names = tuple(names)
        self._declared = declared

    def summary(self, lines: Iterable[pa.StringArray]) -> Summary:
        """Of the lines of a file."""
        from agents.tasks.extracting import Extractor  # DuckDB, as in agents.tasks.streams

        parts = iter(lines)
        first = next(parts, pa.array([], pa.string()))
        schema = self._format.schema(first[:SAMPLE_LINES], self._event_time)
        if self._declared:
            schema = declare(schema, self._declared)
        types = {column.name: column.type for column in schema.columns}
        columns = tuple(Column(name, types[name]) for name in self._names if name in types)
        summary = Summary(columns)
        if not columns:
            return summary
        extractor = Extractor(self._format, schema.event_time, Wanted(columns))
        try:
            for part in itertools.chain([first], parts):
                summary.add(extractor.extract(part).table)
        finally:
            extractor.close()
        return summary
