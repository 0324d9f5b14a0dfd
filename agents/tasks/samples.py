"""What a finite input is, told from samples of its lines before anything is read for good: its format and the
types of its columns; and what a person says of it that does not fit them.

Samples are from all over each file, since columns come and go in a long log, and a column may be whole
numbers for long before it shows a fraction. Bounded: a few MiB a file, whatever its size. What cannot be read
again (a pipe) gives no samples.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from agents.formats import FORMATS, TEXTS, Format, get_format, written_out
from agents.formats.csv import looks_like_header, separator_of, values
from agents.formats.nested import Nested
from agents.formats.w3c import W3C, fields_in, of_fields
from agents.formats.zones import Zoned
from agents.inputs.packed import DAMAGE, is_packed, unpacked
from agents.inputs.ranges import check_path
from agents.inputs.split import BYTE_ORDER_MARK, split
from agents.inputs.values import Source
from elf.errors import InputError, UserError
from elf.job.ports import Wanted
from elf.schema import ZONED, Column, ColumnType, Schema, declare, is_open

if TYPE_CHECKING:  # DuckDB is imported at the first line
    from agents.tasks.extracted import Extracted

LINES_MAX: Final = 30_000
"""Lines of all files together; looking at one takes some 10 µs."""
FILE_LINES_MIN: Final = 100
_PLACES: Final = 32
_PLACE_BYTES: Final = 128 << 10
_LINE_BYTES_MAX: Final = 1 << 20

LOOKED_AT: Final = 1_000
"""Lines that are parsed to tell a format."""
HEADER_LINES: Final = 50
"""Among so many first lines a header of W3C's is looked for."""
CSV_EXAMPLE: Final = "csv:time,path,status"
TRIED_SHOWN: Final = 3
HARDLY: Final = 20
"""A format that takes one line in so many, or less, is not the input's."""
_ARRAY_OR_OBJECT: Final = re.compile(r'\[\s*(\{|$)|\{\s*("|$).*(?<!\})\s*$')
"""How JSON begins that is no object a line; an array of anything but objects has no rows."""


def sample_lines(paths: Sequence[str], lines_max: int = LINES_MAX) -> list[str]:
    """At most ``lines_max`` valid, non-empty lines of all paths together (or some of each, of very many), in
    order.

    Raises ``InputError`` for a path that cannot be read.
    """
    found: list[str] = []
    for path in paths:
        check_path(path)
        if Path(path).is_file():
            lines = [line for place in _all_places(path) for line in _lines(place)]
            found += spread(lines, max(lines_max // len(paths), FILE_LINES_MIN))
    return found


def sample_head(data: bytes) -> list[str]:
    """Of the beginning of what can be read only once. Raises ``InputError`` where no line of it is text."""
    lines = _lines(data)
    if not lines and data.strip():
        raise InputError("cannot read the input: no line at its beginning is text (UTF-8)")
    return spread(lines, LINES_MAX)


def is_blank(path: str) -> bool:
    """Whether there is nothing where samples are taken from, but perhaps blank lines."""
    return not any(place.removeprefix(BYTE_ORDER_MARK).strip() for place in _all_places(path))


def spread(lines: Sequence[str], lines_max: int) -> list[str]:
    """Of too many lines so many, from the first to the last."""
    if len(lines) <= lines_max:
        return list(lines)
    return [lines[number * (len(lines) - 1) // (lines_max - 1)] for number in range(lines_max)]


def _all_places(path: str) -> list[bytes]:
    return _packed_places(path) if is_packed(path) else _places(path)


def _places(path: str) -> list[bytes]:
    """Whole lines from the beginning to the end; all of a small file."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        if size <= _PLACES * _PLACE_BYTES:
            return [file.read(size)]
        places = [_cut_end(file.read(_PLACE_BYTES))]
        for number in range(1, _PLACES):
            at = number * (size - _PLACE_BYTES) // (_PLACES - 1)
            file.seek(at)
            # What stands before the first newline is the rest of another line.
            _, _, rest = file.read(_PLACE_BYTES).partition(b"\n")
            places.append(rest if number == _PLACES - 1 else _cut_end(rest))
        return places


def _packed_places(path: str) -> list[bytes]:
    """The beginning only: it cannot be entered elsewhere. Damage ends it early."""
    with Path(path).open("rb") as raw:
        file = unpacked(raw)
        data, whole = bytearray(), _PLACES * _PLACE_BYTES
        with contextlib.suppress(*DAMAGE):
            while len(data) < whole and (piece := file.read1(whole - len(data))):
                data += piece
            return [_cut_end(bytes(data)) if len(data) == whole else bytes(data)]
        return [_cut_end(bytes(data))]


def _cut_end(data: bytes) -> bytes:
    """Without an unfinished last line (unless it is all there is)."""
    return data[: data.rfind(b"\n") + 1]


def _lines(data: bytes) -> list[str]:
    found = split(Source("", ""), data, 0, _LINE_BYTES_MAX).lines.to_pylist()
    return [line for line in found if line.strip()]


def guess_format(samples: Sequence[str]) -> Format:
    """The format that takes most of these lines: what a header says, else the first of the known ones that
    takes all, else the one that takes most. Raises ``InputError`` when none takes half of them."""
    if (headed := _headed(samples)) is not None:
        return headed
    lines = pa.array(spread(samples, LOOKED_AT), pa.string())
    if not len(lines):
        return FORMATS["combined"]
    taken: dict[Format, int] = {}
    for format_ in _candidates(samples):
        taken[format_] = _taken(format_, lines)
        if taken[format_] == len(lines):
            return format_  # no other takes more
    best = max(taken, key=lambda format_: taken[format_])
    if 2 * taken[best] < len(lines):
        check_one_a_line(samples)
        tried = sorted((one for one in taken if taken[one]), key=lambda one: -taken[one])[:TRIED_SHOWN]
        most = ", ".join(f"{one.name} takes {taken[one]}" for one in tried) or "no known format takes any"
        raise InputError(
            f"cannot tell the format of the input: of {len(lines)} sample lines {most}; "
            f"say --format NAME ({', '.join(FORMATS)}), or its text: {TEXTS}"
        )
    return best


def named_format(text: str, samples: Sequence[str]) -> Format:
    """The format of that name or text; ``csv`` and ``w3c`` alone take their columns from the header of the
    input. Raises ``ConfigError``, ``InputError``."""
    if text.startswith(ZONED):
        zone, _, of = text.removeprefix(ZONED).partition(" ")
        return Zoned(zone, named_format(of, samples))
    if text == "w3c":
        if (fields := fields_in(samples[:HEADER_LINES])) is None:
            raise InputError("w3c: no line #Fields: is there; name the fields: --format 'w3c:date time …'")
        return of_fields(f"w3c:{fields}")
    if text == "csv":
        if not samples or not looks_like_header(samples[0]):
            raise InputError(f"csv: the first line is no header; name the columns: --format {CSV_EXAMPLE}")
        return get_format(f"csv:{samples[0]}")
    return get_format(written_out(text))


def _headed(samples: Sequence[str]) -> Format | None:
    """The format that the first lines say: W3C's line ``#Fields:``, or a header of CSV above rows of as many
    values."""
    if not samples:
        return None
    if samples[0].startswith("#") and (fields := fields_in(samples[:HEADER_LINES])) is not None:
        found = of_fields(f"w3c:{fields}")
        return next(
            (one for one in FORMATS.values() if isinstance(one, W3C) and one.fields == found.fields), found
        )
    first, *others = samples[:LOOKED_AT]
    if others and looks_like_header(first):
        separator = separator_of(first)
        count = len(values(first, separator))
        if all(len(values(line, separator)) == count for line in others):
            return get_format(f"csv:{first}")
    return None


def _candidates(samples: Sequence[str]) -> Iterator[Format]:
    """The formats to try, the most particular first. JSON lines are only tried as JSON, others never."""
    some = samples[:LOOKED_AT]
    if some[0].lstrip("\ufeff ").startswith("{"):
        yield from (one for one in FORMATS.values() if isinstance(one, Nested) and one.knows(some))
        yield FORMATS["json"]
        return
    yield from (one for name, one in FORMATS.items() if name != "json" and not isinstance(one, Nested))
    yield FORMATS["json"]


def check_one_a_line(samples: Sequence[str]) -> None:
    """Raises ``InputError`` for lines, most of them no JSON objects, that are JSON all the same: an array, or
    objects over several lines."""
    lines = pa.array(spread(samples, LOOKED_AT), pa.string())
    first = samples[0].lstrip("\ufeff \t") if samples else ""
    if 2 * _taken(FORMATS["json"], lines) >= len(lines) or not _ARRAY_OR_OBJECT.match(first):
        return
    what, way = ("an array", "'.[]'") if first.startswith("[") else ("objects over several lines", ".")
    raise InputError(
        f"the input is JSON, but {what}; elf reads an object a line: jq -c {way} FILE | elf run --input - …"
    )


def better_format(format_: Format, samples: Sequence[str]) -> Format | None:
    """The format of lines that hardly fit the one that they are said to have; None: they fit it, or no other
    one."""
    lines = pa.array(spread(samples, LOOKED_AT), pa.string())
    if not len(lines) or HARDLY * _taken(format_, lines) > len(lines):
        return None
    others = {one: _taken(one, lines) for one in _candidates(samples) if one is not format_}
    best = max(others, key=lambda one: others[one])
    return best if 2 * others[best] >= len(lines) else None


def richer_format(format_: Format, samples: Sequence[str]) -> Format | None:
    """The format that takes most of the lines too and has more fields, which this one leaves out."""
    lines = pa.array(spread(samples, LOOKED_AT), pa.string())
    richer = FORMATS["combined"]
    if format_ is not FORMATS["common"] or not len(lines) or 2 * _taken(richer, lines) < len(lines):
        return None
    return richer


def fitting(format_: Format, samples: Sequence[str], timestamp: str | None = None) -> tuple[int, int]:
    """How many of these lines are accepted, where a column of their time is named with a time in it; and how
    many have more fields than the format."""
    found, untimed = _extracted(format_, pa.array(samples, pa.string()), timestamp)
    return len(found.accepted) - untimed, found.beyond


def _taken(format_: Format, lines: pa.StringArray) -> int:
    if (matching := format_.matching(lines)) is not None:
        return matching
    found, _ = _extracted(format_, lines, None)
    return len(found.accepted)


def _extracted(format_: Format, lines: pa.StringArray, timestamp: str | None) -> tuple[Extracted, int]:
    """What comes of the lines, and how many of them have no time where a column of it is named."""
    from agents.tasks.extracting import Extractor

    extractor = Extractor(format_, format_.schema(lines, timestamp).event_time, Wanted())
    try:
        extracted = extractor.extract(lines)
        return extracted, extracted.table["_ts"].null_count if timestamp is not None else 0
    finally:
        extractor.close()


def says_its_zone(format_: Format, samples: Sequence[str], timestamp: str | None = None) -> bool:
    """Whether the times of these lines say in which zone they are, if there are any."""
    lines = pa.array(spread(samples, LOOKED_AT), pa.string())
    here, there = (_extracted(Zoned(zone, format_), lines, timestamp)[0] for zone in ("UTC", "Etc/GMT-9"))
    return bool(here.table["_ts"].equals(there.table["_ts"]))


def declared_columns(
    streams: Mapping[str, tuple[Format, Schema]], declared: Mapping[str, ColumnType]
) -> dict[str, dict[str, ColumnType]]:
    """The types of the columns of each stream: those declared, else those seen. JSON lines may have a column
    that no sample has; access logs have theirs. Raises ``UserError`` for a column that no stream can have, or
    not as that type.
    """
    for name, kind in declared.items():
        able = [schema for format_, schema in streams.values() if _may_have(format_, schema, name)]
        if not able:
            raise UserError(f"--column {name}={kind}: {_unknown(name, streams)}")
        if kind != "timestamp" and any(schema.event_time == name for schema in able):
            raise UserError(
                f"--column {name}={kind}: it is the time of the lines, a timestamp; "
                "--timestamp COLUMN names another column for that"
            )
    return {stream: dict(_types(format_, schema, declared)) for stream, (format_, schema) in streams.items()}


def check_timestamp(streams: Mapping[str, tuple[Format, Schema]], named: str) -> None:
    """Raises ``UserError`` where no stream has, in any sample, the column that its times are said to be in.
    ``streams``: as they are without it."""
    has = {name: named in schema.names() or not schema.columns for name, (_, schema) in streams.items()}
    fixed = [name for name, (format_, _) in streams.items() if not _is_open(format_)]
    if any(has.values()) and all(has[name] for name in fixed):
        return
    raise UserError(f"--timestamp {named}: {_unknown(named, streams)}")


def _types(
    format_: Format, schema: Schema, declared: Mapping[str, ColumnType]
) -> Iterator[tuple[str, ColumnType]]:
    mine = {name: kind for name, kind in declared.items() if _may_have(format_, schema, name)}
    known: tuple[Column, ...] = declare(schema, mine).columns
    return ((c.name, c.type) for c in known if c.name in mine or c.name not in schema.unsure)


def _may_have(format_: Format, schema: Schema, name: str) -> bool:
    return _is_open(format_) or name in schema.names()


def _unknown(name: str, streams: Mapping[str, tuple[Format, Schema]]) -> str:
    known = list(dict.fromkeys(name for _, schema in streams.values() for name in schema.names()))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; columns: {', '.join(known)}"
    return f"the input has no column {name}{hint}"


def _is_open(format_: Format) -> bool:
    """Whether its lines may have columns that no sample has."""
    return is_open(format_.name)
