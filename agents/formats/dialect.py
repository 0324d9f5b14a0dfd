"""What a format is (``Format``), and the few SQL operations that parsing a line takes, in DuckDB's words and
in Spark's, one beside the other.

A format writes its expressions once, with these; so the live answer and the offline one come from the same
text. Both sessions run in UTC. Regular expressions are kept to what RE2 and Java read alike, always match
the whole text, and have no repeated groups over long texts (Java's stack is short).
"""

from __future__ import annotations

import ctypes
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.fields import replace
from elf.native import Reader
from elf.ql.templates import name as quoted
from elf.ql.templates import text_literal
from elf.ql.timestamps import NUMBER, clock_us, timestamp_us
from elf.schema import LINE, ORIGINS, Column, ColumnType, Schema, is_origin

_INTEGER: Final = "[+-]?[0-9]+"

Step: TypeAlias = tuple[tuple[str, str], ...]
"""Names, and the expression of each."""

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


RESERVED: Final = frozenset(
    {LINE, *ORIGINS, "_ts", "_pane", "_ok", "_uncast", "_beyond", "_wanted", "_place", "_seen", "_number"}
)
"""Names that elf uses itself beside the columns of a record; a key of that name, and ``_labels``, is not
seen."""


def is_reserved(name: str) -> bool:
    """Whether what lines have under this name is not seen."""
    return name in RESERVED or is_origin(name)


@dataclass(frozen=True)
class Dialect:
    """Makes SQL text for one engine. Arguments named ``text`` are SQL expressions of type text."""

    engine: Literal["duckdb", "spark"]
    quick: bool = False
    """A line that does not parse may fail the whole statement."""
    offsets: tuple[tuple[int, int], ...] = ()
    """Of the clocks that show times without a zone (``agents.formats.zones``); none: UTC."""

    def either(self, duckdb: str, spark: str) -> str:
        """Where the engines differ."""
        return duckdb if self.engine == "duckdb" else spark

    def attempt(self, expression: str) -> str:
        """DuckDB's value of an expression that may fail: then NULL."""
        return expression if self.quick else f"TRY({expression})"

    # -- words -----------------------------------------------------------------------------------------------

    def literal(self, value: str) -> str:
        """A text constant."""
        return text_literal(value, self.engine)

    def name(self, value: str) -> str:
        """An identifier."""
        return quoted(value, self.engine)

    # -- text ------------------------------------------------------------------------------------------------

    def matches(self, text: str, pattern: str) -> str:
        """Whether the whole of a text matches."""
        duckdb = f"regexp_full_match({text}, {self.literal(f'(?s:{pattern})')})"
        return self.either(duckdb, f"({text} RLIKE {self.literal(f'(?s)^(?:{pattern})' + chr(92) + 'z')})")

    def contains(self, text: str, part: str) -> str:
        return f"contains({text}, {part})"

    def starts_with(self, text: str, part: str) -> str:
        return self.either(f"starts_with({text}, {part})", f"startswith({text}, {part})")

    def replace(self, text: str, old: str, new: str) -> str:
        return f"replace({text}, {old}, {new})"

    def mark(self, letter: str) -> str:
        """NUL and a letter: a text that is in no line, to stand for another for a while."""
        return self.either(f"(chr(0) || '{letter}')", f"concat(char(0), '{letter}')")

    def split(self, text: str, separator: str) -> str:
        """The list of the parts between single characters that mean nothing in a regular expression."""
        return self.either(f"string_split({text}, '{separator}')", f"split({text}, '{separator}', -1)")

    def item(self, array: str, number: int) -> str:
        """The item of a list, counted from 1; NULL beyond its end."""
        return self.either(f"{array}[{number}]", f"get({array}, {number - 1})")

    def named_items(self, array: str, names: Sequence[str]) -> Step:
        """Its first items, by name."""
        return tuple((name, self.item(array, number)) for number, name in enumerate(names, 1))

    def items(self, array: str) -> str:
        """The length of a list."""
        return self.either(f"len({array})", f"size({array})")

    def part(self, text: str, separator: str, number: int) -> str:
        """The part of a text between separators, counted from 1; empty beyond its end."""
        return f"split_part({text}, '{separator}', {number})"

    def trimmed(self, text: str) -> str:
        """Without blanks (U+0020, and no other white space) at both ends."""
        return self.either(f"trim({text}, ' ')", f"trim({text})")

    def without(self, text: str, pattern: str) -> str:
        """Without what matches; in one place at most, since the pattern is anchored."""
        return f"regexp_replace({text}, {self.literal(pattern)}, '')"

    def extract(self, text: str, pattern: str) -> str:
        """The first group of a pattern; NULL where it does not match."""
        return f"nullif(regexp_extract({text}, {self.literal(pattern)}, 1), '')"

    def separate(self, line: str, pattern: str, parts: Sequence[Sequence[int]]) -> str:
        """Groups of a pattern, anchored at both ends, for ``separated``: each part is the one of its groups
        that is there. One expression, since each pattern takes DuckDB 0.2 ms to prepare."""
        sign = self.either("\\", "$")
        new = "\n".join("".join(f"{sign}{group}" for group in groups) for groups in parts)
        return f"regexp_replace({line}, {self.literal(f'(?s){pattern}')}, {self.literal(new)})"

    def is_separated(self, text: str) -> str:
        """Whether the pattern has matched."""
        return self.contains(text, self.literal("\n"))

    def separated(self, text: str, number: int) -> str:
        """A part, counted from 1; empty where it is not there."""
        return f"split_part({text}, {self.literal(chr(10))}, {number})"

    def groups(self, line: str, pattern: str, count: int, sure: int = 0) -> str:
        """All groups of a pattern that is to match the whole, for ``is_grouped`` and ``group``. ``sure``: the
        number of one that is never empty; 0: there is none that is known for it. Up to four groups are
        quick."""
        if self.engine == "duckdb":
            names = ", ".join(f"'g{number}'" for number in range(1 if sure else 0, count + 1))
            whole = f"(?s)^({'?:' if sure else ''}{pattern})" + chr(92) + "z"
            return f"regexp_extract({line}, {self.literal(whole)}, [{names}])"
        new = "".join(f"${number}\n" for number in range(1, count + 1))
        whole = self.literal(f"(?s)^(?:{pattern})" + chr(92) + "z")
        return f"split(regexp_replace({line}, {whole}, {self.literal(new)}), '\\n', -1)"

    def is_grouped(self, groups: str, count: int, sure: int = 0) -> str:
        """Whether the pattern has matched (of a line that is not empty)."""
        return self.either(f"({groups}.g{sure} <> '')", f"(size({groups}) = {count + 1})")

    def group(self, groups: str, number: int) -> str:
        """A group, counted from 1; empty where it has no part in the match."""
        return self.either(f"{groups}.g{number}", f"get({groups}, {number - 1})")

    def words(self, text: str, separator: str) -> str:
        """The list of the texts between separators, of which those in double quotes may have some, for
        ``unmarked``; without empty ones that are not quoted where the separator is a blank."""
        begins, within, sign = self.mark("v"), self.mark("s"), self.literal(separator)
        masked = f"{begins} || replace(x, {sign}, {within})"
        if self.engine == "duckdb":
            each = f"lambda x, i: CASE WHEN i % 2 = 0 THEN {masked} ELSE x END"
            joined = f"array_to_string(list_transform(string_split({text}, '\"'), {each}), '')"
            quoted, plain = f"string_split({joined}, {sign})", f"string_split({text}, {sign})"
        else:
            each = f"(x, i) -> CASE WHEN i % 2 = 1 THEN {masked} ELSE x END"
            joined = f"array_join(transform(split({text}, '\"', -1), {each}), '')"
            quoted, plain = (f"split({one}, {self.literal(f'[{separator}]')}, -1)" for one in (joined, text))
        if separator == " ":
            keep = (
                "filter({0}, w -> w <> '')"
                if self.engine == "spark"
                else "list_filter({0}, lambda w: w <> '')"
            )
            quoted, plain = keep.format(quoted), keep.format(plain)
        return f"CASE WHEN {self.contains(text, repr(chr(34)))} THEN {quoted} ELSE {plain} END"

    def values(self, pieces: str, text: str, separator: str) -> str:
        """The list of the values of a line of CSV, ``text``, that ``pieces`` are, cut at its quotes; for
        ``unmarked``. A piece outside of quotes that has nothing is a doubled quote."""
        within, sign = self.mark("s"), self.literal(separator)
        masked, count = f"replace(x, {sign}, {within})", self.items(pieces)
        if self.engine == "duckdb":
            outside = f"CASE WHEN x = '' AND i > 1 AND i < {count} THEN '\"' ELSE x END"
            each = (
                f"list_transform({pieces}, lambda x, i: CASE WHEN i % 2 = 0 THEN {masked} ELSE {outside} END)"
            )
            quoted, plain = (
                f"string_split(array_to_string({each}, ''), {sign})",
                f"string_split({text}, {sign})",
            )
        else:
            outside = f"CASE WHEN x = '' AND i > 0 AND i < {count} - 1 THEN '\"' ELSE x END"
            each = f"transform({pieces}, (x, i) -> CASE WHEN i % 2 = 1 THEN {masked} ELSE {outside} END)"
            at = self.literal(f"[{separator}]")
            quoted, plain = f"split(array_join({each}, ''), {at}, -1)", f"split({text}, {at}, -1)"
        return f"CASE WHEN {count} > 1 THEN {quoted} ELSE {plain} END"

    def rest(self, array: str, count: int) -> str:
        """Of a list the items behind so many."""
        return self.either(
            f"{array}[{count + 1}:]", f"slice({array}, {count + 1}, greatest(size({array}), 1))"
        )

    def begins(self, text: str, pattern: str) -> str:
        """Whether a text begins with what an anchored pattern matches."""
        return self.either(
            f"regexp_matches({text}, {self.literal(pattern)})", f"({text} RLIKE {self.literal(pattern)})"
        )

    def unmarked(self, text: str, separator: str = " ") -> str:
        """With what stands for something else (``words``, ``masked``) turned back into what was written."""
        back = text
        for letter, written in (("v", ""), ("e", ""), ("s", separator), ("q", '\\"'), ("b", "\\\\")):
            back = self.replace(back, self.mark(letter), self.literal(written))
        return (
            f"CASE WHEN {self.contains(text, self.either('chr(0)', 'char(0)'))} THEN {back} ELSE {text} END"
        )

    def masked(self, text: str) -> str:
        """With marks in place of escaped backslashes and quotes, so that each quote that is left encloses."""
        slashes, quotes = self.literal("\\\\"), self.literal('\\"')
        return self.replace(self.replace(text, slashes, self.mark("b")), quotes, self.mark("q"))

    def behind(self, text: str, character: str) -> str:
        """What follows the first such character; NULL when there is none."""
        at = self.either("strpos", "instr") + f"({text}, '{character}')"
        return f"CASE WHEN {at} > 0 THEN substr({text}, {at} + 1) END"

    def tomorrow(self) -> str:
        """A day from now, in UTC, as ``2026-11-26 10:00:00``."""
        return self.either(
            "strftime(now() + INTERVAL 1 DAY, '%Y-%m-%d %H:%M:%S')",
            "date_format(current_timestamp() + INTERVAL 1 DAY, 'yyyy-MM-dd HH:mm:ss')",
        )

    def year_before(self, date: str) -> str:
        """Of a text that begins with a year of four digits, the year before, as text."""
        kind = self.either("VARCHAR", "STRING")
        return f"CAST(CAST(substr({date}, 1, 4) AS INTEGER) - 1 AS {kind})"

    # -- types -----------------------------------------------------------------------------------------------

    def cast(self, text: str, to: ColumnType) -> str:
        """A text as a column type; NULL when it is not written as one."""
        match to:
            case "text":
                return text
            case "bigint":
                return f"CASE WHEN {self.matches(text, _INTEGER)} THEN TRY_CAST({text} AS BIGINT) END"
            case "double":
                return self._double(text)
            case "boolean":
                return f"CASE {text} WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END"
            case "timestamp":
                return self.timestamp(self.time_us(text))

    def _double(self, text: str) -> str:
        infinite = "CAST('Infinity' AS DOUBLE)"
        number = f"TRY_CAST({text} AS DOUBLE)"
        return f"CASE WHEN {self.matches(text, NUMBER)} AND abs({number}) < {infinite} THEN {number} END"

    def timestamp(self, micros: str) -> str:
        """µs since the epoch as a timestamp in UTC."""
        return self.either(f"make_timestamp({micros})", f"timestamp_micros({micros})")

    def time_us(self, text: str) -> str:
        """A time in any of the accepted forms (``elf.ql.timestamps``), in µs since the epoch; NULL when it is
        none of them."""
        us = timestamp_us(text, self.engine)
        return clock_us(text, us, self.offsets, self.engine) if self.offsets else us


DUCKDB: Final = Dialect("duckdb")
DUCKDB_QUICK: Final = Dialect("duckdb", quick=True)
SPARK: Final = Dialect("spark")
ARCHIVED_US: Final = "unix_micros(ts)"
"""The event time of an archived line, in Spark's SQL."""


@dataclass(frozen=True)
class Selection:
    """How to get columns out of lines, as SQL over a relation with a text column ``line`` (not NULL).

    ``steps``: layers of named intermediate expressions, each over ``line`` and the layers before; then,
    over all of them: ``valid`` (boolean, never NULL: whether the line parses), ``event_us`` (bigint),
    ``uncast`` (how many of the values are there but do not fit their types), and an expression for each of
    ``columns``, by name. ``event_text``: where ``event_us`` is ``Dialect.time_us`` of a text that nothing
    else needs as a time, that text, so that an agent may read it itself. ``beyond`` (boolean; None: never):
    whether a line that parses has more fields than the format.
    """

    dialect: Dialect
    steps: tuple[Step, ...]
    valid: str
    event_us: str
    uncast: str
    columns: tuple[tuple[str, str], ...]
    event_text: str | None = None
    beyond: str | None = None

    def sql(
        self, relation: str, *, keep: Sequence[str] = (), checked: bool = True, as_text: bool = False
    ) -> str:
        """A SELECT over ``relation``: ``keep`` (columns of the relation), then ``_ok``, ``_uncast`` and
        ``_beyond`` (if there is one) if ``checked``, then ``_ts`` (``as_text``: the ``event_text``) and the
        columns. Lines that do not parse are in it, with values that mean nothing."""
        name = self.dialect.name
        checks = [f"{self.valid} AS _ok", f"{self.uncast} AS _uncast"]
        if self.beyond is not None:
            checks.append(f"{self.beyond} AS _beyond")
        columns = [f"{expression} AS {name(column)}" for column, expression in self.columns]
        time = self.event_text if as_text and self.event_text is not None else self.event_us
        items = ", ".join([*map(name, keep), *(checks if checked else []), f"{time} AS _ts", *columns])
        inner = relation
        for step in self._steps_for(items):
            more = ", ".join(["*", *(f"{expression} AS {name(alias)}" for alias, expression in step)])
            inner = f"(SELECT {more} FROM {inner})"
        return f"SELECT {items} FROM {inner}"

    def _steps_for(self, wanted: str) -> list[list[tuple[str, str]]]:
        """What these expressions are made of. An engine would not compute the rest either, but to prepare it
        takes longer than to run the statement over a thousand lines."""
        kept = []
        for step in reversed(self.steps):
            words = set(re.findall(r"\w+", wanted))
            chosen = [(alias, expression) for alias, expression in step if alias in words]
            wanted = " ".join([wanted, *(expression for _, expression in chosen)])
            if chosen:
                kept.append(chosen)
        return kept[::-1]


def uncast_count(dialect: Dialect, pairs: Sequence[tuple[str, str]]) -> str:
    """How many of the (text, typed value) pairs hold a text that became NULL."""
    terms = [f"CASE WHEN {text} IS NOT NULL AND {value} IS NULL THEN 1 ELSE 0 END" for text, value in pairs]
    return f"CAST({' + '.join(terms) or '0'} AS INTEGER)"


class Format(ABC):
    """How lines become columns. Values, so one instance serves everybody."""

    name: str

    @abstractmethod
    def schema(self, samples: pa.StringArray, timestamp: str | None) -> Schema:
        """The columns, known or inferred from sample lines; ``timestamp`` is the event time column that the
        config names."""

    @abstractmethod
    def select(self, dialect: Dialect, columns: Sequence[Column], event_time: str | None) -> Selection:
        """How to extract ``columns``, and ``event_time`` (None: no event time), in an engine's SQL."""

    def spark_select(self, columns: Sequence[Column], event_time: str | None) -> Selection:
        """``select`` for the offline engine: the same values for every line that an agent accepts."""
        return self.select(SPARK, columns, event_time)

    def archived_select(self, columns: Sequence[Column]) -> Selection:
        """``spark_select`` over archived lines alone: agents have accepted them, and their event time is in a
        column ``ts`` beside them."""
        return replace(self.spark_select(columns, None), valid="TRUE", event_us=ARCHIVED_US, beyond=None)

    def reader(
        self, columns: Sequence[Column], event_time: str | None, library: ctypes.CDLL
    ) -> Reader | None:
        """What reads the same from most lines, natively: all columns but ``LINE``, then the event time, if
        there is one, as a timestamp. None where that is not known to do it."""
        return None

    def why_not(self, line: str) -> str:
        """What is wrong with a line that was rejected, in a few words; empty where nothing is to be said."""
        return ""

    def matching(self, lines: pa.StringArray) -> int | None:
        """How many of these lines are of this format; None: the SQL has to say it."""
        return None

    def headings(self, lines: pa.StringArray) -> Mask | None:
        """Which lines are no records but say how others are to be read, or nothing; None: none ever is."""
        return None

    def refused(self, lines: pa.StringArray) -> Int64s:
        """Numbers of lines that the SQL would take although they are not of this format."""
        return np.zeros(0, dtype=np.int64)
