"""Random logs: JSON lines with everything that is unpleasant, and the rows that they mean.

``rows`` is written down here as the lines are made: no parser has read them. The words are those of the
manual (a value that does not fit its column's type is NULL; of text columns the contents of a string; lines
that are no JSON object are rejected), in plain Python.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa

from elf.schema import Column, ColumnType, Schema

COLUMNS: Final[Mapping[str, ColumnType]] = {
    "ts": "timestamp",
    "host": "text",
    "page": "text",
    "raw": "text",
    "n": "bigint",
    "big": "bigint",
    "x": "double",
    "wild": "double",
    "ok": "boolean",
    "user.agent": "text",
    "user.age": "bigint",
}
MORE: Final[Mapping[str, ColumnType]] = {
    "ts": "timestamp",
    "host": "text",
    "page": "text",
    "n": "bigint",
    "x": "bigint",
    "ok": "boolean",
}
"""The columns of the second stream: fewer, and one of them of another type."""
STREAMS: Final = {"log": COLUMNS, "more": MORE}
SCHEMAS: Final = {
    stream: Schema(tuple(Column(name, kind) for name, kind in columns.items()), event_time="ts")
    for stream, columns in STREAMS.items()
}
SCHEMA: Final = SCHEMAS["log"]
"""Also of both streams together."""
STEADY: Final = frozenset({"n", "x", "user.age"})
"""Columns whose sums are the same in any order."""

HOSTS: Final = ("a.example", "b.example", "A.example", "web-1", "日本", "", " pad ", "élan", "🦆")
PAGES: Final = (
    "/",
    "/index.html",
    "/a/b?c=1&d=%20",
    "/A/B",
    "/img/x.png",
    "//",
    "/日本/語",
    "/it's",
    'q"q',
    "a\\b",
    "tab\there",
)
RAWS: Final = (
    "1", "-2", "+3", " 4 ", "3.7", "2.5", "-2.5", "1e3", "0x10", "1_000", "", "abc", "true", "No", "1d", ".5",
    "5.", "9223372036854775807", "9223372036854775808", "1e400", "nan", "inf", "2024-01-02", "2024-02-30",
    "2024-01-02T03:04:05.5Z", "2024-01-02 03:04", "GET /x HTTP/1.1", "100%", "under_score", "line\nbreak",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/120.0", "Mozilla/5.0 (X11; Linux) Firefox/121.0",
    "curl/8.5",
    "https://example.org:8080/a/b?q=1#top", "10.1.2.3", "192.168.0.255", "2001:db8::1", "[1, 2]", '{"a": 1}',
)  # fmt: skip
BIGS: Final = (2**63 - 1, -(2**63), 2**62, -(2**62), 2**53 + 1, 0, 1, -1, 7, -7)
WILDS: Final = (
    0.0, -0.0, 0.1, -0.1, 2.5, 1e15, -1e15, 1.5e300, -1.5e300, 1e308, 5e-324, 1e-300, 1.005, 2.675, 0.3,
    1 / 3,
    4503599627370497.5, 9007199254740993.0, 1e22, 123456.789,
)  # fmt: skip
MISFITS: Final[tuple[object, ...]] = ("abc", "12", "-3", 1.5, True, [1], "", "1e2", 2**63, "NaN", "true", {})
BAD_LINES: Final = ("", "not json", '{"n": 1', "[1, 2]", '{"n": NaN}', '{"n": 1,}', "3", "null")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?")
_TYPES: Final[Mapping[ColumnType, pa.DataType]] = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
}


@dataclass(frozen=True)
class Line:
    """A line as written, and what it means: a value a column, or None where it is rejected."""

    text: str
    row: Mapping[str, object] | None
    clean: bool
    """Whether each of its values has its column's type."""


@dataclass(frozen=True)
class Log:
    """Files of lines. ``whole``: an agent reads whole files (LATENESS goes by the file); else the files may
    be cut. ``streams``: which each file is of.
    """

    files: tuple[tuple[Line, ...], ...]
    whole: bool
    streams: tuple[str, ...]

    def size(self) -> int:
        return sum(len(file) for file in self.files)

    def samples(self, stream: str) -> list[str]:
        """The lines that the columns of a stream are inferred from."""
        lines = (
            line for file, of in zip(self.files, self.streams, strict=True) if of == stream for line in file
        )
        return [SAMPLES[stream], *(line.text for line in lines if line.clean)]

    def without(self, file: int, start: int, end: int) -> Log:
        """Without lines ``[start, end)`` of a file."""
        kept = self.files[file][:start] + self.files[file][end:]
        return replace(self, files=(*self.files[:file], kept, *self.files[file + 1 :]))

    def rows(self, stream: str) -> pa.Table:
        """Every accepted line of a stream as typed values; also ``_source`` and ``_place`` (file and line),
        ``_before``, the highest event time (µs) that stood before it there, and ``_ts``, its own.
        """
        own = STREAMS[stream]
        columns: dict[str, list[object]] = {
            name: [] for name in (*own, "_source", "_place", "_before", "_ts")
        }
        for number, file in enumerate(self.files):
            if self.streams[number] != stream:
                continue
            highest: int | None = None
            for place, line in enumerate(file):
                if line.row is None:
                    continue
                for name in own:
                    columns[name].append(line.row.get(name))
                time = line.row.get("ts")
                us = (
                    None
                    if not isinstance(time, datetime)
                    else (time.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
                )
                columns["_source"].append(number)
                columns["_place"].append(place)
                columns["_before"].append(highest)
                columns["_ts"].append(us)
                if us is not None:
                    highest = us if highest is None else max(highest, us)
        types = {name: _TYPES[kind] for name, kind in own.items()}
        return pa.table(
            {name: pa.array(values, types.get(name, pa.int64())) for name, values in columns.items()}
        )

    def accepted(self, stream: str) -> list[str]:
        """The lines of a stream that are not rejected, as an archive has them."""
        files = (file for file, of in zip(self.files, self.streams, strict=True) if of == stream)
        return [line.text for file in files for line in file if line.row is not None]


def make_log(rng: random.Random) -> Log:
    """A log of one to four files, some of them empty, and one of the other stream."""
    base = rng.choice([1_700_000_000_000_000, 1_451_606_395_000_000, -30_000_000, 951_782_390_000_000])
    span = rng.choice([5_000_000, 60_000_000, 600_000_000])
    disorder = rng.choice([0, 0, span // 20, span])
    files = []
    counts = [rng.choice([0, 1, 5, 30, 60, 120]) for _ in range(rng.choice([0, 0, 1, 2, 3]))]
    counts = [rng.choice([8, 40, 90, 200]), *counts, rng.choice([0, 5, 30, 60])]
    streams = ("log",) * (len(counts) - 1) + ("more",)
    for stream, count in zip(streams, counts, strict=True):
        lines = []
        for place in range(count):
            us = base + place * span // count + rng.randrange(-disorder - 1, 1) + rng.randrange(0, 3_000)
            lines.append(_bad(rng) if rng.random() < 0.02 else _line(rng, us, STREAMS[stream]))
        files.append(tuple(lines))
    return Log(tuple(files), rng.random() < 0.5, streams)


def _bad(rng: random.Random) -> Line:
    return Line(rng.choice(BAD_LINES), None, False)


def _line(rng: random.Random, us: int, columns: Mapping[str, ColumnType]) -> Line:
    text, moment = _time(rng, us)
    values: dict[str, tuple[object, object]] = {
        "ts": (text, moment),
        "host": _same(rng.choice(HOSTS[:4]) if rng.random() < 0.7 else rng.choice(HOSTS)),
        "page": _same(rng.choice(PAGES)),
        "raw": _same(rng.choice(RAWS)),
        "n": _same(rng.randrange(-5, 20)),
        "big": _same(rng.choice(BIGS) if rng.random() < 0.6 else rng.randrange(-(10**9), 10**9)),
        "x": _same(rng.randrange(-800, 80_000) / 8),
        "wild": _same(rng.choice(WILDS) if rng.random() < 0.7 else rng.uniform(-1000, 1000)),
        "ok": _same(rng.random() < 0.5),
        "user.agent": _same(rng.choice(RAWS[-9:])),
        "user.age": _same(rng.randrange(18, 90)),
    }
    values = {name: values[name] for name in columns}
    if columns["x"] == "bigint":
        values["x"] = _same(rng.randrange(-100, 10_000))
    clean = True
    for name in values:
        chance = rng.random()
        if chance < 0.04:
            values[name] = (None, None)
        elif chance < 0.06 and columns[name] in ("bigint", "double", "boolean"):
            misfit = rng.choice(MISFITS)
            values[name], clean = (misfit, _fit(misfit, columns[name])), False
    missing = {name for name in values if rng.random() < 0.03}
    record: dict[str, object] = {}
    flat = rng.random() < 0.2
    for name, (written, _) in values.items():
        outer, dot, inner = name.partition(".")
        if name in missing:
            continue
        if dot and not flat:
            inside = record.setdefault(outer, {})
            assert isinstance(inside, dict)
            inside[inner] = written
        else:
            record[name] = written
    row = {name: None if name in missing else value for name, (_, value) in values.items()}
    spaces = (", ", ": ") if rng.random() < 0.5 else (",", ":")
    return Line(json.dumps(record, ensure_ascii=rng.random() < 0.5, separators=spaces), row, clean)


def _same(value: object) -> tuple[object, object]:
    return value, value


def _time(rng: random.Random, us: int) -> tuple[object, object]:
    """An event time as it may be written, and what it is."""
    if rng.random() < 0.02:
        return rng.choice([None, "yesterday", True]), None
    moment = (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + rng.choice(["Z", "+00:00", ""]), moment


def _fit(value: object, kind: ColumnType) -> object:
    """A JSON value in a column of another type: the value that its text is, or NULL."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if kind == "bigint":
        found = int(text) if _INTEGER.fullmatch(text) else None
        return found if found is not None and -(2**63) <= found < 2**63 else None
    if kind == "double":
        return float(text) if _NUMBER.fullmatch(text) else None
    return {"true": True, "false": False}.get(text)


SAMPLES: Final = {
    "log": '{"ts":"2024-01-01T00:00:00Z","host":"h","page":"/","raw":"r","n":1,"big":1,"x":0.5,"wild":0.5,'
    '"ok":true,"user":{"agent":"a","age":1}}',
    "more": '{"ts":"2024-01-01T00:00:00Z","host":"h","page":"/","n":1,"x":1,"ok":true}',
}
"""A line of each stream that is in no file: all columns with their types, so that they are the same for every
log."""
