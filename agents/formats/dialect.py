"""The few SQL operations that parsing a line takes, in DuckDB's words and in Spark's, one beside the other.

A format writes its expressions once, with these; so the live answer and the offline one come from the same
text. Both sessions run in UTC. Regular expressions are kept to what RE2 and Java read alike, always match
the whole text, and have no repeated groups over long texts (Java's stack is short).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from elf.ql.timestamps import NUMBER, timestamp_us
from elf.schema import ColumnType

_INTEGER: Final = "[+-]?[0-9]+"


@dataclass(frozen=True)
class Dialect:
    """Makes SQL text for one engine. Arguments named ``text`` are SQL expressions of type text."""

    engine: Literal["duckdb", "spark"]
    quick: bool = False
    """A line that does not parse may fail the whole statement."""

    def either(self, duckdb: str, spark: str) -> str:
        """Where the engines differ."""
        return duckdb if self.engine == "duckdb" else spark

    def attempt(self, expression: str) -> str:
        """DuckDB's value of an expression that may fail: then NULL."""
        return expression if self.quick else f"TRY({expression})"

    # -- words -------------------------------------------------------------------------------------

    def literal(self, value: str) -> str:
        """A text constant."""
        if self.engine == "duckdb":
            return "'" + value.replace("'", "''") + "'"
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def name(self, value: str) -> str:
        """An identifier."""
        return self.either('"' + value.replace('"', '""') + '"', "`" + value.replace("`", "``") + "`")

    # -- text --------------------------------------------------------------------------------------

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

    def items(self, array: str) -> str:
        """The length of a list."""
        return self.either(f"len({array})", f"size({array})")

    def part(self, text: str, separator: str, number: int) -> str:
        """The part of a text between separators, counted from 1; empty beyond its end."""
        return f"split_part({text}, '{separator}', {number})"

    def behind(self, text: str, character: str) -> str:
        """What follows the first such character; NULL when there is none."""
        at = self.either("strpos", "instr") + f"({text}, '{character}')"
        return f"CASE WHEN {at} > 0 THEN substr({text}, {at} + 1) END"

    # -- types -------------------------------------------------------------------------------------

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
        return timestamp_us(text, self.engine)


DUCKDB: Final = Dialect("duckdb")
DUCKDB_QUICK: Final = Dialect("duckdb", quick=True)
SPARK: Final = Dialect("spark")


@dataclass(frozen=True)
class Selection:
    """How to get columns out of lines, as SQL over a relation with a text column ``line`` (not NULL).

    ``steps``: layers of named intermediate expressions, each over ``line`` and the layers before; then,
    over all of them: ``valid`` (boolean, never NULL: whether the line parses), ``event_us`` (bigint),
    ``uncast`` (how many of the values are there but do not fit their types), and an expression for each of
    ``columns``, by name. ``event_text``: where ``event_us`` is ``Dialect.time_us`` of a text that nothing
    else needs as a time, that text, so that an agent may read it itself.
    """

    dialect: Dialect
    steps: tuple[tuple[tuple[str, str], ...], ...]
    valid: str
    event_us: str
    uncast: str
    columns: tuple[tuple[str, str], ...]
    event_text: str | None = None
    names: tuple[str, str, str] = field(default=("_ok", "_uncast", "_ts"))

    def sql(
        self, relation: str, *, keep: Sequence[str] = (), checked: bool = True, as_text: bool = False
    ) -> str:
        """A SELECT over ``relation``: ``keep`` (columns of the relation), then ``_ok`` and ``_uncast`` if
        ``checked``, then ``_ts`` (``as_text``: the ``event_text``) and the columns. Lines that do not parse
        are in it, with values that mean nothing."""
        name = self.dialect.name
        inner = relation
        as_text = as_text and self.event_text is not None
        for step in self.steps:  # reading a time is most of the text, and takes the longest to prepare
            chosen = [pair for pair in step if not (as_text and pair[0] == self.event_us)]
            items = ", ".join(["*", *(f"{expression} AS {name(alias)}" for alias, expression in chosen)])
            inner = f"(SELECT {items} FROM {inner})" if chosen else inner
        ok, uncast, ts = self.names
        checks = [f"{self.valid} AS {name(ok)}", f"{self.uncast} AS {name(uncast)}"] if checked else []
        columns = [f"{expression} AS {name(column)}" for column, expression in self.columns]
        time = self.event_text if as_text else self.event_us
        items = ", ".join([*map(name, keep), *checks, f"{time} AS {name(ts)}", *columns])
        return f"SELECT {items} FROM {inner}"


def uncast_count(dialect: Dialect, pairs: Sequence[tuple[str, str]]) -> str:
    """How many of the (text, typed value) pairs hold a text that became NULL."""
    terms = [f"CASE WHEN {text} IS NOT NULL AND {value} IS NULL THEN 1 ELSE 0 END" for text, value in pairs]
    return f"CAST({' + '.join(terms) or '0'} AS INTEGER)"
