"""Typed columns of a stream: what the language, the extraction and the offline engine all agree on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from elf.fields import Label

ColumnType = Literal["bigint", "double", "text", "boolean", "timestamp"]

COLUMN_TYPES: Final[tuple[ColumnType, ...]] = ("bigint", "double", "text", "boolean", "timestamp")


OPEN_FORMATS: Final = ("json", "logfmt", "caddy", "traefik")
"""Formats whose lines may have columns that no sample has."""
ZONED: Final = "zone:"
"""Before the name of a time zone, a blank and the text of a format."""
EVENT_TIMES: Final = ("ts", "timestamp", "@timestamp", "time", "created_at")
"""Where an event time is looked for when nobody names its column."""
LINE: Final = "_line"
"""The column that every stream has: the raw text of the record."""
ORIGINS: Final = ("_agent", "_source")
"""Columns that every stream has of where a record comes from: the name of its agent, and the log that it is
in (without a rotation's number)."""
LABELS: Final = "_labels."
"""What the names of columns begin with that have the labels of a record's agent."""
_KEY: Final = r'(?:"((?:[^"]|"")+)"|([^".]*))'
_WRITTEN: Final = re.compile(rf"{_KEY}(?:\.{_KEY})*")


def is_open(format: str) -> bool:
    """Whether lines of a format may have columns that no sample has."""
    return (format.partition(" ")[2] if format.startswith(ZONED) else format) in OPEN_FORMATS


@dataclass(frozen=True)
class Column:
    """A column by its name and its type. For JSON that is a dotted path such as ``user.location``, or keys as
    they are written, those with dots in double quotes: ``"user.location"``.

    ``timestamp`` is in UTC with microseconds.
    """

    name: Label
    type: ColumnType


@dataclass(frozen=True)
class Schema:
    """The columns of a stream; ``event_time`` names the timestamp column that windows go by, if any."""

    columns: tuple[Column, ...]
    event_time: Label | None = None
    unsure: tuple[Label, ...] = ()
    """Columns seen only as NULL: text, until somebody has seen more of them."""
    labels: tuple[Label, ...] = ()
    """Names of labels that agents have."""

    def names(self) -> tuple[str, ...]:
        """Of the columns that are read from lines."""
        return tuple(column.name for column in self.columns)

    def everything(self) -> tuple[Column, ...]:
        """The columns that are read from lines, and those that every stream has."""
        beside = (LINE, *ORIGINS, *(f"{LABELS}{label}" for label in self.labels))
        return (*self.columns, *(Column(name, "text") for name in beside))

    def find(self, name: str) -> Column | None:
        """The column of that name: exact, else the only one that matches without regard to case."""
        for column in self.everything():
            if column.name == name:
                return column
        folded = [column for column in self.everything() if column.name.lower() == name.lower()]
        return folded[0] if len(folded) == 1 else None

    def chosen(self, names: Collection[str]) -> tuple[Column, ...]:
        """The columns with these names, in the schema's order."""
        return tuple(column for column in self.everything() if column.name in names)


def is_origin(name: str) -> bool:
    """Whether a column has where a record comes from, which its line does not say."""
    return name in ORIGINS or name.startswith(LABELS)


def as_written(keys: Sequence[str]) -> str:
    """The name of the column that is at these keys of a JSON object, and nowhere else."""
    return ".".join('"' + key.replace('"', '""') + '"' if "." in key or '"' in key else key for key in keys)


def keys_as_written(name: str) -> tuple[str, ...] | None:
    """The keys that a name with keys in double quotes stands for; None: it has none, and is a path."""
    if '"' not in name or not _WRITTEN.fullmatch(name):
        return None
    found = re.finditer(rf"(?:^|\.){_KEY}", name)
    return tuple(key[2] if key[1] is None else key[1].replace('""', '"') for key in found)


def declare(schema: Schema, declared: Mapping[str, ColumnType]) -> Schema:
    """The schema with declared types in place of inferred ones, and declared columns that nobody has seen.
    Until a line has shown an event time, it is the first of ``EVENT_TIMES`` that is declared as a timestamp.
    """
    seen = tuple(Column(column.name, declared.get(column.name, column.type)) for column in schema.columns)
    unseen = tuple(Column(name, kind) for name, kind in declared.items() if schema.find(name) is None)
    unsure = tuple(name for name in schema.unsure if name not in declared)
    timely = (name for name in EVENT_TIMES if declared.get(name) == "timestamp")
    event_time = schema.event_time or next(timely, None)
    return replace(schema, columns=seen + unseen, event_time=event_time, unsure=unsure)


def alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Two of the names that differ by case only: DuckDB and Spark would read one column for the other."""
    folded: dict[str, str] = {}
    for name in names:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            return other, name
    return None


def unify(left: ColumnType, right: ColumnType) -> ColumnType:
    """The type of a column seen with two types: integers and floats make a double, conflicts make text."""
    if left == right:
        return left
    if {left, right} == {"bigint", "double"}:
        return "double"
    return "text"


def merge_schemas(schemas: list[Schema]) -> Schema:
    """The union of what several agents have seen of one stream, in order of first sight."""
    types: dict[str, ColumnType] = {}
    sure: set[str] = set()
    for schema in schemas:
        for column in schema.columns:
            if column.name in schema.unsure:
                types.setdefault(column.name, column.type)
                continue
            types[column.name] = (
                unify(types[column.name], column.type) if column.name in sure else column.type
            )
            sure.add(column.name)
    event_time = next((schema.event_time for schema in schemas if schema.event_time), None)
    if event_time is not None:
        types[event_time] = "timestamp"
    columns = tuple(Column(name, kind) for name, kind in types.items())
    unsure = tuple(name for name in types if name not in sure)
    labels = tuple(dict.fromkeys(label for schema in schemas for label in schema.labels))
    return Schema(columns, event_time, unsure, labels)
