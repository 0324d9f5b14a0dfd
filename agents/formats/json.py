"""JSON lines: one object a line, columns by dotted path.

A path is looked for nested (``{"a": {"b": 1}}``), flat (``{"a.b": 1}``) and in between, in this order; the
first that is not null counts. Where a sample has several of them in one line, those that do not count are
columns too, named by their keys as written: ``"a.b"`` in double quotes (``"`` itself doubled) is that key
alone. Of a key that is twice in an object the first counts, null or not, for its type and for its value: that
is what DuckDB's JSON reader finds, so the samples and Spark go by it. A text column holds the contents of a
string, true or false, a number, or the JSON text of an array or object, without blanks. Numbers that are no
integers and are below 0.001 or above 10⁷ are written differently by DuckDB (1e-7) and Spark (1.0E-7), which
only a text column can show.

What is not strict JSON (``NaN``, a comma before a closing bracket) is refused, since not every reader takes
it.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.formats.dialect import Dialect, Format, Int64s, Selection, is_reserved, uncast_count
from elf.native import Field, JsonReader, Reader
from elf.ql.timestamps import read_timestamp
from elf.schema import (
    EVENT_TIMES,
    LINE,
    Column,
    ColumnType,
    Schema,
    as_written,
    keys_as_written,
    unify,
)

_COLUMNS_MAX: Final = 1000
_DEPTH_MAX: Final = 8
_SPLIT_PATHS_MAX: Final = 4
_BLOCK_BYTES: Final = 1 << 17
_BEHIND_KEY: Final = re.compile(r'"[ \t\r\n]*:')
"""There is one behind each key, and few elsewhere."""
_BEFORE_VALUE: Final[npt.NDArray[np.bool_]] = np.isin(
    np.arange(256), np.frombuffer(b":,[- \t\r", dtype=np.uint8)
)
"""By byte: whether a JSON value may follow at once."""

_INT64_MAX: Final = 2**63 - 1


class JsonLines(Format):
    """See the module's docstring."""

    name = "json"

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """The paths of the samples in order of first sight, and the first of ``EVENT_TIMES`` that holds a
        time.

        Only nulls make text. A named ``timestamp`` is believed, seen or not.
        """
        seen = _Seen()
        timely: set[str] = set()
        for text in samples.to_pylist():
            record = _first_keys(text)
            if record is None:
                continue
            for path, value in seen.record(record):
                if path in EVENT_TIMES and path not in timely and _is_time(value):
                    timely.add(path)
        types = seen.types()
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

    def reader(
        self, columns: Sequence[Column], event_time: str | None, library: ctypes.CDLL
    ) -> Reader | None:
        """See ``Format``. Not with keys that DuckDB looks for by a pointer, which finds an array's items."""
        read = [column for column in columns if column.name != LINE]
        fields = [Field(column.type) for column in read]
        ways = [_paths(column.name) for column in read]
        if event_time is not None:
            if any(column.name == event_time and column.type != "timestamp" for column in read):
                return None
            fields.append(Field("timestamp", counted=False))
            ways.append(_paths(event_time))
        pointed = any(key in ("", "*") for every in ways for path in every for key in path)
        return None if pointed or not JsonReader.takes(ways) else JsonReader(fields, ways, library)

    def refused(self, lines: pa.StringArray) -> Int64s:
        """Lines that DuckDB's JSON reader takes and strict JSON forbids."""
        found = [row for row in _suspects(lines).tolist() if _parse(lines[row].as_py()) is None]
        return np.array(found, dtype=np.int64)


JSON = JsonLines()


# -- extraction ----------------------------------------------------------------------------------------------


def _texts(
    dialect: Dialect, paths: dict[str, list[tuple[str, ...]]], texts: dict[str, str]
) -> list[tuple[tuple[str, str], ...]]:
    """Every path as text. DuckDB parses the line once for all of them, Spark once for each object."""
    if dialect.engine == "spark":
        return _spark_texts(dialect, paths, texts)
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
    """The ways to read a name as keys: as written, where it has keys in quotes; else nested first, flat last
    (of long ones these two only)."""
    written = keys_as_written(name)
    if written is not None:
        return [written]
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


def _spark_texts(
    dialect: Dialect, paths: dict[str, list[tuple[str, ...]]], texts: dict[str, str]
) -> list[tuple[tuple[str, str], ...]]:
    """Objects as maps, level by level: a map of Spark's finds the first of two equal keys, its functions of
    paths find any. The contents of a string may look like an object, so its type is asked for."""
    if not paths:
        return []
    inner = {path[:size] for found in paths.values() for path in found for size in range(1, len(path))}
    prefixes = sorted(inner, key=lambda prefix: (len(prefix), prefix))
    maps = {(): "_m", **{prefix: f"_m{number}" for number, prefix in enumerate(prefixes)}}

    def text(path: tuple[str, ...]) -> str:
        return f"{maps[path[:-1]]}[{dialect.literal(path[-1])}]" if path else "line"

    def within(path: tuple[str, ...]) -> str:
        variants = f"from_json({text(path[:-1])}, 'MAP<STRING, VARIANT>')"
        kind = f"schema_of_variant({variants}[{dialect.literal(path[-1])}])"
        is_object = f"startswith({text(path)}, '{{') AND {kind} LIKE 'OBJECT%'"
        return f"CASE WHEN {is_object} THEN from_json({text(path)}, 'MAP<STRING, STRING>') END"

    steps: list[tuple[tuple[str, str], ...]] = [(("_m", "from_json(line, 'MAP<STRING, STRING>')"),)]
    steps += [
        tuple((maps[prefix], within(prefix)) for prefix in level)
        for _, level in itertools.groupby(prefixes, key=len)
    ]
    return [*steps, tuple((texts[name], _first([text(path) for path in paths[name]])) for name in paths)]


# -- strictness ----------------------------------------------------------------------------------------------


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


# -- samples -------------------------------------------------------------------------------------------------


def _parse(text: str) -> dict[str, object] | None:
    """The object on a line, strictly read; None when there is none."""
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _first_keys(text: str) -> dict[str, object] | None:
    """``_parse``, in which of two equal keys the first counts; the quick reader keeps the last."""
    record = _parse(text)
    if record is None or len(_BEHIND_KEY.findall(text)) == _keys_in(record):
        return record
    try:
        found: dict[str, object] = json.loads(text, object_pairs_hook=_first_of)
    except (ValueError, RecursionError):  # numbers of thousands of digits
        return record
    return found


def _first_of(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _keys_in(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_keys_in, value.values()))
    return sum(map(_keys_in, value)) if isinstance(value, list) else 0


Leaf = tuple[tuple[str, ...], object]


def _leaves(record: dict[str, object], above: tuple[str, ...]) -> Iterator[Leaf]:
    """What is in a record, by its keys; of an object what is in it, and then itself."""
    for key, value in record.items():
        keys = (*above, key)
        if isinstance(value, dict) and value and len(above) < _DEPTH_MAX:
            yield from _leaves(value, keys)
        yield keys, value


class _Seen:
    """The columns of sample lines, in order of first sight."""

    def __init__(self) -> None:
        self._types: dict[str, ColumnType | None] = {}
        self._objects: set[str] = set()
        self._objects_at: set[tuple[str, ...]] = set()
        self._dotted: dict[str, dict[tuple[str, ...], ColumnType | None]] = {}
        self._hidden: set[tuple[str, ...]] = set()

    def record(self, record: dict[str, object]) -> Iterator[tuple[str, object]]:
        """The columns of a line, and their values."""
        ways, objects = dict[str, list[Leaf]](), dict[str, list[Leaf]]()
        for keys, value in _leaves(record, ()):
            path = ".".join(keys)
            if isinstance(value, dict) and value and len(keys) <= _DEPTH_MAX:
                self._objects.add(path)
                self._objects_at.add(keys)
                objects.setdefault(path, []).append((keys, value))
            elif path and not is_reserved(path) and "\0" not in path:
                ways.setdefault(path, []).append((keys, value))
        for path, found in ways.items():
            if path not in self._types and len(self._types) >= _COLUMNS_MAX:
                continue
            every = [*found, *objects.get(path, ())]
            value = found[0][1] if len(every) == 1 else self._first(path, every)
            self._types[path] = _seen(self._types.get(path), _type(value))
            for keys, own in found:
                if keys != tuple(path.split(".")):
                    types = self._dotted.setdefault(path, {})
                    types[keys] = _seen(types.get(keys), _type(own))
            yield path, value

    def _first(self, path: str, found: list[Leaf]) -> object:
        """The value of a path that is there in several ways; the others are hidden by it."""
        order = _paths(path)
        there = [leaf for leaf in found if leaf[1] is not None]
        there.sort(key=lambda leaf: order.index(leaf[0]) if leaf[0] in order else len(order))
        self._hidden.update(keys for keys, _ in there[1:])
        return there[0][1] if there else None

    def types(self) -> dict[str, ColumnType | None]:
        """By name. What is also an object in some lines is text: its JSON there."""
        found: dict[str, ColumnType | None] = {}
        for path, kind in self._types.items():
            dotted = self._dotted.get(path, {})
            name = (
                path
                if keys_as_written(path) is None
                else as_written(next(iter(dotted), tuple(path.split("."))))
            )
            found[name] = "text" if kind is not None and path in self._objects else kind
            for keys, own in dotted.items():
                if keys in self._hidden:
                    found[as_written(keys)] = "text" if own and keys in self._objects_at else own
        return found


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
    return read_timestamp(json.dumps(value) if not isinstance(value, str) else value) is not None
