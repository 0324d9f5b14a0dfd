"""JSON lines: one object a line, columns by dotted path.

A path is looked for nested (``{"a": {"b": 1}}``), flat (``{"a.b": 1}``) and in between, in this order; the
first that is not null counts. Of a key that is there twice the first counts (unless that is null: then
nobody promises which). A text column holds the contents of a string, true or false, a number, or the JSON
text of an array or object, without blanks. Numbers that are no integers and are below 0.001 or above 10⁷
are written differently by DuckDB (1e-7) and Spark (1.0E-7), which only a text column can show.

What is not strict JSON (``NaN``, a comma before a closing bracket) is refused, since not every reader takes
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.formats.base import LINE, Format, Int64s
from agents.formats.dialect import TIME_PATTERNS, Dialect, Selection, uncast_count
from elf.schema import EVENT_TIMES, Column, ColumnType, Schema, unify

RESERVED: Final = frozenset(
    {"_agent", "_source", LINE, "_ts", "_pane", "_ok", "_uncast", "_wanted", "_place", "_seen", "_number"}
)
"""Names that elf uses itself beside the columns of a record; a key of that name is not seen."""

_COLUMNS_MAX: Final = 1000
_DEPTH_MAX: Final = 8
_SPLIT_PATHS_MAX: Final = 4
_BLOCK_BYTES: Final = 1 << 17
_BEFORE_VALUE: Final[npt.NDArray[np.bool_]] = np.isin(
    np.arange(256), np.frombuffer(b":,[- \t\r", dtype=np.uint8)
)
"""By byte: whether a JSON value may follow at once."""

_INT64_MAX: Final = 2**63 - 1
_TIME: Final = re.compile("|".join(f"(?:{pattern})" for pattern in TIME_PATTERNS))


class JsonLines(Format):
    """See the module's docstring."""

    name = "json"

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """The paths of the samples in order of first sight, and the first of ``EVENT_TIMES`` that holds a
        time.

        Only nulls make text. A named ``timestamp`` is believed, seen or not.
        """
        types: dict[str, ColumnType | None] = {}
        timely: set[str] = set()
        for text in samples.to_pylist():
            record = _parse(text)
            if record is None:
                continue
            for path, value in _leaves(record, "", 0):
                if path in types or len(types) < _COLUMNS_MAX:
                    types[path] = _seen(types.get(path), _type(value))
                if path in EVENT_TIMES and path not in timely and _is_time(value):
                    timely.add(path)
        event_time = timestamp or next((name for name in EVENT_TIMES if name in timely), None)
        columns = [Column(name, kind or "text") for name, kind in types.items() if name != event_time]
        if event_time is not None:
            at = list(types).index(event_time) if event_time in types else len(columns)
            columns.insert(at, Column(event_time, "timestamp"))
        unsure = tuple(name for name, kind in types.items() if kind is None and name != event_time)
        return Schema(tuple(columns), event_time, unsure)

    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """See ``Format``."""
        wanted = {column.name: column.type for column in columns}
        names = [
            name for name in dict.fromkeys([*wanted, *([event_time] if event_time else [])]) if name != LINE
        ]
        paths = {name: _paths(name) for name in names}
        texts = {name: f"_t{number}" for number, name in enumerate(names)}
        cast = {
            name: f"_c{number}"
            for number, name in enumerate(names)
            if wanted.get(name, "text") != "text" and name != event_time
        }
        values = [(cast[name], dialect.cast(texts[name], wanted[name])) for name in cast]
        time = "CAST(NULL AS BIGINT)"
        if event_time is not None:
            time = "_time"
            values.append((time, dialect.time_us(texts[event_time])))
        steps = _texts(dialect, paths, texts)
        pairs = [(texts[name], value) for name, value in cast.items()]
        if event_time in wanted:
            pairs.append((texts[event_time], time))

        def output(column: Column) -> str:
            if column.name == LINE:
                return "line"
            if column.name == event_time and column.type == "timestamp":
                return dialect.timestamp(time)
            return cast.get(column.name, texts[column.name])

        return Selection(
            dialect=dialect,
            steps=tuple(step for step in (*steps, tuple(values)) if step),
            valid=_valid(dialect, extracted=bool(names)),
            event_us=time,
            uncast=uncast_count(dialect, pairs),
            columns=tuple((column.name, output(column)) for column in columns),
            event_text=texts[event_time] if event_time is not None and event_time not in wanted else None,
        )

    def refused(self, lines: pa.StringArray) -> Int64s:
        """Lines that DuckDB's JSON reader takes and strict JSON forbids."""
        found = [row for row in _suspects(lines).tolist() if _parse(lines[row].as_py()) is None]
        return np.array(found, dtype=np.int64)


JSON = JsonLines()


# -- extraction ------------------------------------------------------------------------------------


def _texts(
    dialect: Dialect, paths: dict[str, list[tuple[str, ...]]], texts: dict[str, str]
) -> list[tuple[tuple[str, str], ...]]:
    """Every path as text. DuckDB parses the line once for all of them, Spark once for each."""
    if dialect.engine == "spark":
        return [
            tuple(
                (texts[name], _first([_spark_text(dialect, path) for path in paths[name]])) for name in paths
            )
        ]
    if not paths:
        return []
    every = [path for name in paths for path in paths[name]]
    numbers = {path: number for number, path in enumerate(dict.fromkeys(every), start=1)}
    wanted = ", ".join(dialect.literal(_duckdb_path(path)) for path in numbers)
    items = {name: [dialect.item("_v", numbers[path]) for path in paths[name]] for name in paths}
    return [
        (("_v", dialect.attempt(f"line ->> [{wanted}]")),),
        tuple((texts[name], _first(items[name])) for name in paths),
    ]


def _first(expressions: list[str]) -> str:
    return expressions[0] if len(expressions) == 1 else f"coalesce({', '.join(expressions)})"


def _valid(dialect: Dialect, *, extracted: bool) -> str:
    starts, indented = dialect.starts_with("line", "'{'"), dialect.matches("line", "[ \t\r]*[{].*")
    is_object = f"CASE WHEN {starts} THEN TRUE ELSE {indented} END"
    if dialect.engine == "spark":
        return f"({is_object} AND get_json_object(line, '$') IS NOT NULL)"
    return f"({is_object} AND {'_v IS NOT NULL' if extracted else 'json_valid(line)'})"


def _paths(name: str) -> list[tuple[str, ...]]:
    """The ways to read a dotted name as keys: nested first, flat last. Long ones: these two only."""
    keys = name.split(".")
    if len(keys) == 1:
        return [(name,)]
    if len(keys) > _SPLIT_PATHS_MAX:
        return [tuple(keys), (name,)]
    return [
        (".".join(keys[:size]), *rest)
        for size in range(1, len(keys))
        for rest in _paths(".".join(keys[size:]))
    ] + [(name,)]


def _duckdb_path(keys: tuple[str, ...]) -> str:
    """As a path; as a pointer where a path would have wildcards or no name."""
    if any(key in ("", "*") for key in keys):
        return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
    return "$" + "".join('."' + key.replace("\\", "\\\\").replace('"', '\\"') + '"' for key in keys)


def _spark_text(dialect: Dialect, keys: tuple[str, ...]) -> str:
    """By path; from a parsed structure where Spark's paths cannot name a key."""
    if all(re.fullmatch(r"[^'?*]+", key) for key in keys):
        path = "$" + "".join(f"['{key}']" for key in keys)
        return f"get_json_object(line, {dialect.literal(path)})"
    kind = "STRING"
    for key in reversed(keys):
        kind = f"STRUCT<{dialect.name(key)}: {kind}>"
    inside = ".".join(dialect.name(key) for key in keys)
    return f"from_json(line, {dialect.literal(kind)}).{inside}"


# -- strictness ------------------------------------------------------------------------------------


def _suspects(lines: pa.StringArray) -> Int64s:
    """Numbers of lines that might hold a comma before a closing bracket, or NaN or Infinity as a value.

    Looks at all bytes of the chunk; a few comparisons a byte are much cheaper than reading JSON twice.
    """
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    if not len(lines) or lines.buffers()[2] is None:
        return np.zeros(0, dtype=np.int64)
    data = np.frombuffer(lines.buffers()[2], dtype=np.uint8)[offsets[0] : offsets[-1]]
    found = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(data), _BLOCK_BYTES):
        low = max(start - 2, 0)
        found.append(_candidates(data[low : start + _BLOCK_BYTES]) + low)
    places = np.concatenate(found)
    places = np.concatenate([_after_comma(data, places), _as_value(data, places)])
    rows = np.unique(np.searchsorted(offsets[1:] - offsets[0], places, side="right"))
    return rows.astype(np.int64, copy=False)


def _candidates(block: npt.NDArray[np.uint8]) -> Int64s:
    """Places of commas and blanks before a closing bracket, and of ``nan`` and ``inf`` in any case (and of a
    little else). Such bytes are rare, so the mask is packed before it is searched."""
    lower = block | 0x20
    first, last = lower[:-2], lower[2:]
    mask = np.zeros(-(-len(block) // 64) * 64, dtype=np.bool_)
    near = mask[: len(first)]
    np.equal(first, ord("n"), out=near)
    near &= last == ord("n")
    near |= (first == ord("i")) & (last == ord("f"))
    before = block[:-1] <= ord(" ")
    before |= block[:-1] == ord(",")
    before &= lower[1:] == ord("}")
    mask[: len(before)] |= before
    words = np.flatnonzero(np.packbits(mask).view(np.uint64))
    places = (words[:, None] * 64 + np.arange(64)).ravel()
    found: Int64s = places[mask[places]]
    return found


def _after_comma(data: npt.NDArray[np.uint8], at: Int64s) -> Int64s:
    """Those of the places that are a comma or blanks behind a comma, in front of a closing bracket."""
    found = []
    at = at[(data[np.minimum(at + 1, len(data) - 1)] | 0x20) == ord("}")]
    while len(at):
        before = data[at]
        found.append(at[before == ord(",")])
        at = at[(before <= ord(" ")) & (at > 0)] - 1
    return np.concatenate(found) if found else at


def _as_value(data: npt.NDArray[np.uint8], at: Int64s) -> Int64s:
    """Those of the places of letters where a value may begin."""
    at = at[at > 0]
    at = at[_BEFORE_VALUE[data[at - 1]]]
    middle = data[np.minimum(at + 1, len(data) - 1)] | 0x20
    begins: Int64s = at[(middle == ord("a")) | (middle == ord("n"))]
    return begins


# -- samples ---------------------------------------------------------------------------------------


def _parse(text: str) -> dict[str, object] | None:
    """The object on a line, strictly read; None when there is none."""
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _leaves(record: dict[str, object], prefix: str, depth: int) -> Iterator[tuple[str, object]]:
    for key, value in record.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < _DEPTH_MAX:
            yield from _leaves(value, f"{path}.", depth + 1)
        elif path and path not in RESERVED and "\0" not in path:
            yield path, value


def _type(value: object) -> ColumnType | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_INT64_MAX - 1 <= value <= _INT64_MAX else "text"
    return "double" if isinstance(value, float) else "text"


def _seen(before: ColumnType | None, now: ColumnType | None) -> ColumnType | None:
    if before is None or now is None:
        return before or now
    return unify(before, now)


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    return _TIME.fullmatch(json.dumps(value) if not isinstance(value, str) else value) is not None
