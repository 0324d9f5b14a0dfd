"""Fields: what a format whose lines have known fields makes of them.

A ``Field`` is a name and a ``Kind``; the kind says what columns the field has, of which types, and how their
texts come from the field's own. How a field's text comes out of a line is the matter of each format
(``Fielded.cut``); all the rest is here, once. A field that is ``-`` or empty is NULL.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from agents.formats.dialect import Dialect, Format, Selection, Step, uncast_count
from agents.formats.requests import PARTS, parts_of, request_steps
from agents.formats.telling import event_time_of, type_of
from elf.errors import InputError
from elf.ql.timestamps import USUAL_LOG_DATE, log_date_us, usual_log_date_us
from elf.schema import LINE, Column, ColumnType, Schema

Sql = Callable[[Dialect, str], str]
"""From SQL of a text to SQL of another."""
EXTRA: Final = re.compile(r"extra_([1-9][0-9]{0,2})")
EXTRAS_MAX: Final = 100
EVENT_TIME: Final = "ts"
"""Of formats that name it themselves."""


def extra_name(number: int) -> str:
    """Of a field behind the last one of the format, counted from 1."""
    return f"extra_{number}"


@dataclass(frozen=True)
class Kind:
    """What a field's text means. ``pattern``: what it looks like where nothing encloses it; None: a word, up
    to what follows it in the layout. ``free``: it may have blanks. ``text``: what the cast to the type reads;
    ``unit``: so many are one second. ``type`` None: it is told from samples."""

    type: ColumnType | None
    pattern: str | None = None
    free: bool = False
    text: Sql | None = None
    unit: int = 1


@dataclass(frozen=True)
class Field:
    """A field of a line. ``kind``: of ``KINDS``."""

    name: str
    kind: str = "word"


# -- kinds ---------------------------------------------------------------------------------------------------

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH: Final = "[A-Z][a-z]{2}"
_CLOCK: Final = "[0-9]{2}:[0-9]{2}:[0-9]{2}"
_FRACTION: Final = "(?:[.][0-9]+)?"
LIST: Final = "[^ ,]*(?:(?:, | : )[^ ,]+)*"
ADDRESS: Final = "(?:[0-9]+[.][0-9.]+|[^ ]+?)"


def _month(name: str) -> str:
    """SQL of a month's two digits."""
    cases = " ".join(f"WHEN '{month}' THEN '{number:02}'" for number, month in enumerate(_MONTHS, 1))
    return f"CASE {name} {cases} END"


def _cut(text: str, start: int, size: int) -> str:
    return f"substr({text}, {start}, {size})"


def _dashed(dialect: Dialect, text: str) -> str:
    """``2026/11/26 10:00:00``."""
    return dialect.replace(text, "'/'", "'-'")


def _tabless(dialect: Dialect, text: str) -> str:
    """Date and clock with a tab between them."""
    return dialect.replace(text, dialect.literal("\t"), "' '")


def _dotted(dialect: Dialect, text: str) -> str:
    """``26/Nov/2026:10:00:00.123``, with or without a zone."""
    date = f"{_cut(text, 8, 4)} || '-' || {_month(_cut(text, 4, 3))} || '-' || {_cut(text, 1, 2)}"
    return f"({date} || ' ' || substr({text}, 13))"


def _yearly(dialect: Dialect, text: str) -> str:
    """``Thu Nov 26 10:00:00.123 2026``."""
    day = dialect.replace(_cut(text, 9, 2), "' '", "'0'")
    year = f"substr({text}, length({text}) - 3)"
    clock = f"substr({text}, 12, length({text}) - 16)"
    return f"({year} || '-' || {_month(_cut(text, 5, 3))} || '-' || {day} || ' ' || {clock})"


def _yearless(dialect: Dialect, text: str) -> str:
    """``Nov 26 10:00:00``: of the last year in which it is not later than a day from now; or RFC 3339, as it
    is."""
    day = dialect.replace(_cut(text, 5, 2), "' '", "'0'")
    tomorrow = dialect.tomorrow()
    date = f"'-' || {_month(_cut(text, 1, 3))} || '-' || {day} || ' ' || substr({text}, 8)"
    late = f"(substr({tomorrow}, 1, 4) || {date}) > {tomorrow}"
    year = f"CASE WHEN {late} THEN {dialect.year_before(tomorrow)} ELSE substr({tomorrow}, 1, 4) END"
    return f"(CASE WHEN {text} < 'A' THEN {text} ELSE {year} || {date} END)"


def _last(dialect: Dialect, text: str) -> str:
    """The last item of a list as nginx writes them, ``a, b : c``."""
    return dialect.extract(text, "([^ ,]+)$")


def _query(dialect: Dialect, text: str) -> str:
    """With a question mark in front, or nothing."""
    return dialect.without(text, "^[?]")


_LOG_DATE: Final = f"[0-9]{{2}}/{_MONTH}/[0-9]{{4}}:{_CLOCK} [+-][0-9]{{4}}"
KINDS: Final[Mapping[str, Kind]] = {
    "word": Kind("text"),
    "free": Kind("text", free=True),
    "untold": Kind(None),
    "list": Kind("text", LIST),
    "whole": Kind("bigint", "[0-9+-]*"),
    "real": Kind("double", "[0-9.+-]*"),
    "ms": Kind("double", "[0-9.+-]*", unit=1_000),
    "us": Kind("double", "[0-9.+-]*", unit=1_000_000),
    "ns": Kind("double", "[0-9.+-]*", unit=1_000_000_000),
    "last_whole": Kind("bigint", LIST, text=_last),
    "last_real": Kind("double", LIST, text=_last),
    "request": Kind("text", free=True),
    "uri": Kind("text"),
    "query": Kind("text", text=_query),
    "address": Kind("text", ADDRESS),
    "path": Kind("text", "[^ /]*"),
    "braced": Kind("text", "[^{}]*"),
    "code": Kind("text", "[A-Z]{2}[0-9]{5}"),
    "yes": Kind("text", "Yes|-"),
    "scheme": Kind("text", "http|https|h2|grpcs|ws|wss"),
    "trace": Kind("text", "TID_[^ ]*"),
    "tag": Kind("text", r"[^ :\[]+(?:[:/][^ :\[]+)?"),
    "structured": Kind("text", r"-|\[.*?\]"),
    "epoch": Kind("timestamp", "[0-9.]+"),
    "time": Kind("timestamp", rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[Tt ]{_CLOCK}[^\] \"]*"),
    "log_date": Kind("timestamp", _LOG_DATE),
    "slash_date": Kind("timestamp", f"[0-9]{{4}}/[0-9]{{2}}/[0-9]{{2}} {_CLOCK}", text=_dashed),
    "dotted_date": Kind("timestamp", f"[0-9]{{2}}/{_MONTH}/[0-9]{{4}}:{_CLOCK}{_FRACTION}", text=_dotted),
    "yearly_date": Kind(
        "timestamp", f"{_MONTH} {_MONTH} [ 0-9][0-9] {_CLOCK}{_FRACTION} [0-9]{{4}}", text=_yearly
    ),
    "yearless_date": Kind(
        "timestamp", f"(?:{_MONTH} [ 0-9][0-9] {_CLOCK}|[0-9]{{4}}-[0-9]{{2}}-[^ ]+)", text=_yearless
    ),
    "split_date": Kind(
        "timestamp", f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ \t]{_CLOCK}{_FRACTION}", text=_tabless
    ),
}
"""By name: what a text of that kind looks like, and the type of its column."""


# -- columns -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A column of a field: ``text`` from the field's own text, which may be a step's name instead."""

    column: Column
    text: Sql
    unit: int = 1
    of_request: bool = False


def nothing_null(text: str) -> str:
    """``-`` and nothing as NULL."""
    return f"CASE WHEN {text} NOT IN ('-', '') THEN {text} END"


def parts(field: Field) -> Iterator[Part]:
    """The columns of a field, in their order."""
    kind = KINDS[field.kind]
    if field.kind == "request":
        for name in PARTS:
            yield Part(Column(name, "text"), lambda d, _, name=name: parts_of(d)[name], of_request=True)  # type: ignore[misc]
        return
    if field.kind == "uri":
        yield Part(Column("cs_uri_stem", "text"), lambda d, t: nothing_null(d.part(t, "?", 1)))
        yield Part(Column("cs_uri_query", "text"), lambda d, t: d.behind(t, "?"))
        return

    def text(dialect: Dialect, own: str) -> str:
        there = nothing_null(own)
        return (
            there
            if kind.text is None
            else f"CASE WHEN {own} NOT IN ('-', '') THEN {kind.text(dialect, own)} END"
        )

    yield Part(Column(field.name, kind.type or "text"), text, kind.unit)
    if field.kind.startswith("last_"):
        yield Part(Column(f"{field.name}_list", "text"), lambda _, t: nothing_null(t))


@dataclass(frozen=True)
class Cut:
    """How the fields come out of a line: ``steps``, then ``valid``, and of each field that is wanted its
    text, by number; ``extras``: a list of the texts behind the last field, if such may be;
    ``beyond``: whether there are any; ``separator``: what is between them."""

    steps: Sequence[Step]
    valid: str
    texts: Mapping[int, str]
    extras: str | None = None
    beyond: str | None = None
    separator: str = " "


class Fielded(Format):
    """A format with fields."""

    def __init__(self, name: str, fields: Sequence[Field]) -> None:
        self.name = name
        self.fields = tuple(fields)
        self._parts = {
            part.column.name: (number, part)
            for number, field in enumerate(self.fields)
            for part in parts(field)
        }

    @abstractmethod
    def cut(self, dialect: Dialect, wanted: Sequence[int], *, extras: bool) -> Cut:
        """How to get the texts of the fields with these numbers, and if they are wanted those behind."""

    def samples_of(self, samples: pa.StringArray) -> tuple[dict[int, pa.StringArray], list[list[str]]]:
        """Of the fields whose types are told from samples, their texts there; and what is behind the last
        field, of lines that have more."""
        return {}, []

    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """See ``Format``: the columns of the fields, and those of what samples have behind them."""
        told, behind = self.samples_of(samples)
        columns: list[Column] = []
        unsure: list[str] = []
        times: dict[str, pa.StringArray] = {}
        for number, field in enumerate(self.fields):
            for part in parts(field):
                column = part.column
                if KINDS[field.kind].type is None:
                    seen = type_of(told[number]) if number in told else None
                    column = Column(column.name, seen or "text")
                    if seen is None:
                        unsure.append(column.name)
                    times[column.name] = told.get(number, pa.array([], pa.string()))
                columns.append(column)
        columns += extra_columns(behind)
        event_time = timestamp or next((c.name for c in columns if c.type == "timestamp"), None)
        event_time = event_time or event_time_of(times)
        columns = [Column(c.name, "timestamp") if c.name == event_time else c for c in columns]
        return Schema(tuple(columns), event_time, tuple(name for name in unsure if name != event_time))

    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """See ``Format``. Raises ``InputError`` for a column that the format does not have."""
        asked = [column for column in columns if column.name != LINE]
        names = list(dict.fromkeys([*(c.name for c in asked), *([event_time] if event_time else [])]))
        known = {name: self._known(name) for name in names}
        wanted = sorted({number for number, _ in known.values() if number >= 0})
        cut = self.cut(dialect, wanted, extras=any(number < 0 for number, _ in known.values()))
        raw = [(f"_r{number}", cut.texts[number]) for number in wanted]
        for number in sorted({-number for number, _ in known.values() if number < 0}):
            item = dialect.item(cut.extras, number) if cut.extras else "''"
            raw.append((f"_x{number}", dialect.unmarked(item, cut.separator)))
        steps: list[Step] = [*cut.steps, tuple(raw)]
        for number in wanted:
            if self.fields[number].kind == "request":
                steps += [(("_request", f"_r{number}"),), *request_steps(dialect)]
        texts: list[tuple[str, str]] = []
        for place, (number, part) in enumerate(known.values()):
            texts.append((f"_t{place}", part.text(dialect, f"_r{number}" if number >= 0 else f"_x{-number}")))
        text = {name: f"_t{place}" for place, name in enumerate(names)}
        cast = {c.name: c.type for c in asked if c.type != "text"}
        values = [
            (f"_c{text[name]}", self._cast(dialect, name, text[name], kind, known))
            for name, kind in cast.items()
        ]
        time = "CAST(NULL AS BIGINT)"
        quick = event_time is not None and self._kind(event_time) == "log_date"
        if event_time is not None:
            time = "_time"
            values.append((time, self._time_us(dialect, event_time, text[event_time])))
        pairs = [(text[name], f"_c{text[name]}") for name in cast]

        def output(column: Column) -> str:
            if column.name == LINE:
                return "line"
            return f"_c{text[column.name]}" if column.name in cast else text[column.name]

        return Selection(
            dialect=dialect,
            steps=tuple(step for step in (*steps, tuple(texts), tuple(values)) if step),
            valid=cut.valid,
            event_us=time,
            uncast=uncast_count(dialect, pairs),
            columns=tuple((column.name, output(column)) for column in columns),
            event_text=text[event_time]
            if event_time is not None and event_time not in cast and not quick
            else None,
            beyond=cut.beyond,
        )

    def _known(self, name: str) -> tuple[int, Part]:
        found = self._parts.get(name)
        if found is not None:
            return found
        extra = EXTRA.fullmatch(name)
        if extra is None:
            raise InputError(f'format {self.name} has no column "{name}"')
        return -int(extra[1]), Part(Column(name, "text"), lambda _, t: nothing_null(t))

    def _kind(self, name: str) -> str:
        number, _ = self._known(name)
        return self.fields[number].kind if number >= 0 else "untold"

    def _cast(
        self, dialect: Dialect, name: str, text: str, to: ColumnType, known: Mapping[str, tuple[int, Part]]
    ) -> str:
        if to == "timestamp":
            return dialect.timestamp(f"({self._time_us(dialect, name, text)})")
        value = dialect.cast(text, to)
        unit = known[name][1].unit
        return value if unit == 1 or to != "double" else f"({value}) / {unit}e0"

    def _time_us(self, dialect: Dialect, name: str, text: str) -> str:
        if self._kind(name) != "log_date":
            return dialect.time_us(text)
        usual, us = dialect.matches(text, USUAL_LOG_DATE), usual_log_date_us(text, dialect.engine)
        return f"CASE WHEN {usual} THEN {us} ELSE {log_date_us(text, dialect.engine)} END"


def extra_columns(behind: Sequence[Sequence[str]]) -> list[Column]:
    """Of what lines have behind their last field."""
    most = min(max(map(len, behind), default=0), EXTRAS_MAX)
    found = []
    for place in range(most):
        texts = pa.array([one[place] for one in behind if len(one) > place], pa.string())
        found.append(Column(extra_name(place + 1), type_of(texts) or "text"))
    return found


def numbered(fields: Sequence[Field]) -> tuple[Field, ...]:
    """With names that no two columns share: the second of a name is ``NAME_2``."""
    seen: dict[str, int] = {}
    found = []
    for field in fields:
        if field.kind in ("request", "uri"):
            found.append(field)
            continue
        count = seen[field.name] = seen.get(field.name, 0) + 1
        found.append(field if count == 1 else replace(field, name=f"{field.name}_{count}"))
    return tuple(found)
