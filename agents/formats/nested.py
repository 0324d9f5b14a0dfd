"""JSON lines of servers whose keys are known: the columns that access logs have, under the same names, and
all other keys under their own, as ``json`` has them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from agents.formats.dialect import Dialect, Format, Int64s, Selection
from agents.formats.fields import EVENT_TIME
from agents.formats.json import JSON
from elf.schema import Column, ColumnType, Schema


@dataclass(frozen=True)
class Named:
    """A column, and the path of its value. ``unit``: so many are one second. ``part``: of the value: a URI's
    path, or its query, or the first item of a list. ``also``: other paths where the server has it, in other
    words, which a mask covers too (``agents.tasks.jsonmasks``)."""

    column: str
    path: str
    type: ColumnType = "text"
    unit: int = 1
    part: Literal["", "stem", "query", "first"] = ""
    also: tuple[str, ...] = ()


class Nested(Format):
    """See the module's docstring. The event time is ``ts`` unless another column is named."""

    def __init__(self, name: str, names: Sequence[Named], marks: frozenset[str]) -> None:
        self.name = name
        self._marks = marks
        self.names = {named.column: named for named in names}

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """See ``Format``."""
        paths = {named.path for named in self.names.values()}
        own = JSON.schema(samples, timestamp if timestamp not in self.names else None)
        others = tuple(c for c in own.columns if c.name not in paths and c.name not in self.names)
        columns = (*(Column(named.column, named.type) for named in self.names.values()), *others)
        unsure = tuple(name for name in own.unsure if any(c.name == name for c in others))
        return Schema(columns, timestamp or EVENT_TIME, unsure)

    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """See ``Format``."""
        asked: dict[str, Column] = {}
        for column in columns:
            named = self.names.get(column.name)
            path = column.name if named is None else named.path
            asked.setdefault(path, Column(path, "text" if named is not None and named.part else column.type))
        time = self.names[event_time].path if event_time in self.names else event_time
        found = JSON.select(dialect, list(asked.values()), time)
        values = dict(found.columns)

        def value(column: Column) -> str:
            named = self.names.get(column.name)
            if named is None:
                return values[column.name]
            got = values[named.path]
            if named.unit > 1 and column.type == "double":
                return f"({got}) / {named.unit}e0"
            return _part(dialect, named, got)

        return replace(found, columns=tuple((column.name, value(column)) for column in columns))

    def knows(self, samples: Sequence[str]) -> bool:
        """Whether most of these lines have what marks them as of this server."""
        return 2 * sum(self._marks <= set(re.findall(r'"(\w+)":', line)) for line in samples) > len(samples)

    def refused(self, lines: pa.StringArray) -> Int64s:
        """See ``Format``."""
        return JSON.refused(lines)


def _part(dialect: Dialect, named: Named, text: str) -> str:
    match named.part:
        case "stem":
            return f"nullif({dialect.part(text, '?', 1)}, '')"
        case "query":
            return dialect.behind(text, "?")
        case "first":
            return dialect.extract(text, r'^\["(.*?)"[\],]')
        case _:
            return text if named.type != "text" else f"nullif({text}, '')"
