"""What a finite input is, told from samples of its lines: its format and the types of its columns; and what a
person says of it that does not fit them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa

from agents.formats import FORMATS, Format
from agents.tasks.samples import spread
from elf.errors import InputError, UserError
from elf.job.ports import Wanted
from elf.schema import Column, ColumnType, Schema, declare

LOOKED_AT: Final = 1_000
"""Lines that are parsed to tell a format."""
HARDLY: Final = 20
"""A format that takes one line in so many, or less, is not the input's."""
_ARRAY_OR_OBJECT: Final = re.compile(r'\[\s*(\{|$)|\{\s*("|$).*(?<!\})\s*$')
"""How JSON begins that is no object a line; an array of anything but objects has no rows."""


def guess_format(samples: Sequence[str]) -> Format:
    """The format that takes most of these lines. Raises ``InputError`` when none takes half of them."""
    lines = pa.array(spread(samples, LOOKED_AT), pa.string())
    taken = {name: _taken(format_, lines) for name, format_ in FORMATS.items()}
    best = max(taken, key=lambda name: taken[name])
    if len(lines) and 2 * taken[best] < len(lines):
        check_one_a_line(samples)
        raise InputError(
            f"cannot tell the format of the input ({best} takes {taken[best]} of {len(lines)} sample lines); "
            f"say --format {', '.join(FORMATS)}"
        )
    return FORMATS[best]


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
    others = {name: _taken(other, lines) for name, other in FORMATS.items() if other is not format_}
    best = max(others, key=lambda name: others[name])
    return FORMATS[best] if 2 * others[best] >= len(lines) else None


def richer_format(format_: Format, samples: Sequence[str]) -> Format | None:
    """The format that takes most of the lines too and has more fields, which this one leaves out."""
    lines = pa.array(spread(samples, LOOKED_AT), pa.string())
    richer = FORMATS["combined"]
    if format_ is not FORMATS["common"] or not len(lines) or 2 * _taken(richer, lines) < len(lines):
        return None
    return richer


def taken(format_: Format, samples: Sequence[str], timestamp: str | None = None) -> int:
    """How many of these lines are accepted; where a column of their time is named, with a time in it."""
    return _taken(format_, pa.array(samples, pa.string()), timestamp)


def _taken(format_: Format, lines: pa.StringArray, timestamp: str | None = None) -> int:
    from agents.tasks.engine import Extractor

    extractor = Extractor(format_, format_.schema(lines, timestamp).event_time, Wanted())
    try:
        extracted = extractor.extract(lines)
        untimed = extracted.table["_ts"].null_count if timestamp is not None else 0
        return len(extracted.accepted) - untimed
    finally:
        extractor.close()


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
    fixed = [name for name, (format_, _) in streams.items() if format_ is not FORMATS["json"]]
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
    return format_ is FORMATS["json"] or name in schema.names()


def _unknown(name: str, streams: Mapping[str, tuple[Format, Schema]]) -> str:
    known = list(dict.fromkeys(name for _, schema in streams.values() for name in schema.names()))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; columns: {', '.join(known)}"
    return f"the input has no column {name}{hint}"
