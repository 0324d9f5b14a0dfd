"""How a text is read as a timestamp: one grammar, whether a column, a CAST or a constant reads it.

Between blanks (spaces, tabs, ends of lines) stands one of

- a date, ``2025-10-10``: its midnight in UTC;
- a date and a clock (RFC 3339, and its common variants): ``T``, ``t`` or a blank between them; seconds, and a
  fraction of any length behind a point or a comma, may be missing; then ``Z``, ``UTC``, ``GMT`` or an offset
  (``+02:00``, ``+0200``, ``+02``, up to 23:59), with or without a blank before it, or nothing, which is UTC;
- a date of the common log format, ``10/Oct/2025:13:55:36 +0200``, also in brackets;
- a number since 1970: seconds where that is from the year 1 to below 10^11, else milliseconds (to below
  10^14), else microseconds (to below 10^17).

Anything finer than a microsecond is truncated (numbers are rounded). ``24:00:00`` is the end of its day (not
in a log). A leap second, ``23:59:60`` in UTC, is the first second of the next day, as computers' clocks count
it; no other minute has a second 60. A moment outside of the years 1 to 9999 is no timestamp.

``read_timestamp`` (Python, of constants) and ``timestamp_us`` (SQL, of values, in either engine) use the same
patterns, which mean the same in RE2, Java and Python; ``tests/spark/test_timestamps.py`` compares both to a
reader without patterns.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from elf.ql.templates import Engine, escaped

FIRST_US: Final = -62_135_596_800_000_000
LAST_US: Final = 253_402_300_799_999_999
"""The years 1 to 9999 in µs since the epoch."""

NUMBER: Final = "[+-]?(?:[0-9]+(?:[.][0-9]*)?|[.][0-9]+)(?:[eE][+-]?[0-9]+)?"

_DAY: Final = "(?:0[1-9]|[12][0-9]|3[01])"
_MONTH: Final = "(?:0[1-9]|1[0-2])"
_MONTH_NAME: Final = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_YEAR: Final = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_HOUR: Final = "(?:[01][0-9]|2[0-3])"
_SIXTY: Final = "[0-5][0-9]"

_USUAL_YEAR: Final = "[12][0-9]{3}"
_USUAL_CLOCK: Final = f"{_HOUR}:{_SIXTY}:{_SIXTY}"
_USUAL_HOURS: Final = "[+-](?:0[0-9]|1[0-4])"
_USUAL: Final = f"{_USUAL_YEAR}-{_MONTH}-{_DAY}[T ]{_USUAL_CLOCK}(?:[.][0-9]+)?(?:Z|{_USUAL_HOURS}:{_SIXTY})?"
"""What both engines read as it is, and alike."""
_COMMON: Final = (
    f"{_USUAL_YEAR}-{_MONTH}-{_DAY}(?:[Tt ]{_USUAL_CLOCK}(?:[.,][0-9]+)?"
    f"(?:[Zz]| (?:Z|UTC|GMT)| ?{_USUAL_HOURS}(?::?{_SIXTY})?)?)?"
)
"""What they read after a few replacements."""
USUAL_LOG_DATE: Final = f"{_DAY}/{_MONTH_NAME}/{_USUAL_YEAR}:{_USUAL_CLOCK} {_USUAL_HOURS}{_SIXTY}"
"""A date of the common log format that ``usual_log_date_us`` reads; of 26 characters, as all are."""

_CLOCK: Final = f"({_HOUR}|24):({_SIXTY})(?::({_SIXTY}|60)(?:[.,]([0-9]+))?)?"
_ZONE: Final = f" ?(?:[Zz]|UTC|GMT|([+-])({_HOUR})(?::?({_SIXTY}))?)"
_DATED: Final = f"({_YEAR}-{_MONTH}-{_DAY})(?:[Tt ]{_CLOCK}(?:{_ZONE})?)?"
_LOGGED: Final = (
    f"({_DAY})/({_MONTH_NAME})/({_YEAR}):({_HOUR}):({_SIXTY}):({_SIXTY}|60) ([+-])({_HOUR})({_SIXTY})"
)
LOG_DATE: Final = _LOGGED.replace("(?:", "(").replace("(", "(?:")
"""Any date of the common log format, as a pattern without groups."""

_BLANKS: Final = " \t\r\n"
_BLANK: Final = "[ \\t\\r\\n]*"
_UNZONED: Final = (
    f"{_BLANK}[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}"
    f"(?:[Tt ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:[.,][0-9]+)?)?)?{_BLANK}"
)
"""What says no zone, of all that is a timestamp."""
_WHOLE: Final = "[+-]?[0-9]{1,18}"
_BOUNDS: Final = (10**11, 10**14, 10**17)
_UNITS: Final = (1_000_000, 1_000, 1)
"""Numbers below which bound are of which unit, in µs."""
_MOST: Final = [str(bound - 1) for bound in _BOUNDS]
_MOST_DOUBLES: Final = [f"{math.nextafter(bound, 0):.5f}e0" for bound in _BOUNDS]
_ROUNDED: Final = "CAST(floor({0} * {1}e0 + 0.5e0) AS BIGINT)"
_SECOND_US: Final = 1_000_000
_MINUTE_US: Final = 60_000_000
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = dt.datetime(1970, 1, 1)
_DATED_PARTS: Final = "1|2|3|4|5|6|7|8"
_LOGGED_PARTS: Final = "3-2-1|4|5|6||7|8|9"
"""Date, hour, minute, second, fraction; sign, hours and minutes of the offset: of which groups they are."""


# -- constants -----------------------------------------------------------------------------------------------


def read_timestamp(text: str) -> int | None:
    """Microseconds since the epoch; None where the text is no timestamp."""
    text = text.strip(_BLANKS)
    us = _number(text) if re.fullmatch(NUMBER, text) else _moment(text)
    return us if us is not None and FIRST_US <= us <= LAST_US else None


def _number(text: str) -> int | None:
    number = int(text) if re.fullmatch(_WHOLE, text) else float(text)
    for bound, unit in zip(_BOUNDS, _UNITS, strict=True):
        if FIRST_US // unit <= number < bound:
            return number * unit if isinstance(number, int) else math.floor(number * unit + 0.5)
    return None


def _moment(text: str) -> int | None:
    if found := re.fullmatch(_DATED, text):
        date, form, parts = found[1], "%Y-%m-%d", found.groups(default="")[1:]
    elif found := re.fullmatch(rf"{_LOGGED}|\[{_LOGGED}\]", text):
        groups = [group for group in found.groups() if group is not None]
        date, form = "-".join(reversed(groups[:3])), "%Y-%b-%d"
        parts = (*groups[3:6], "", *groups[6:])
    else:
        return None
    try:
        day = dt.datetime.strptime(date, form) - _EPOCH
    except ValueError:
        return None
    hour, minute, second, fraction, sign, hours, minutes = parts
    if hour == "24" and minute + second + fraction.rstrip("0") not in ("00", "0000"):
        return None
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * (-1 if sign == "-" else 1)
    at = int(hour or 0) * 60 + int(minute or 0) - offset
    if second == "60" and at % 1440 != 1439:
        return None
    within = int(second or 0) * 1_000_000 + int((fraction + "000000")[:6])
    return day // dt.timedelta(microseconds=1) + at * _MINUTE_US + within


# -- SQL -----------------------------------------------------------------------------------------------------


def timestamp_us(text: str, engine: Engine) -> str:
    """SQL of the µs since the epoch that a text says; NULL where it is no timestamp. DuckDB plans it anew for
    each chunk of lines, so that it must be short as well as quick."""
    sql = _Sql(engine)
    whole, number = f"TRY_CAST({text} AS BIGINT)", f"TRY_CAST({text} AS DOUBLE)"
    whole_us, us = _scaled(whole, "{0} * {1}", _MOST), _scaled(number, _ROUNDED, _MOST_DOUBLES)
    logged, dated = f"{_BLANK}(?:{_bracketed(LOG_DATE)}){_BLANK}", f"{_BLANK}{_DATED}{_BLANK}"
    return (
        f"CASE WHEN {sql.matches(text, _USUAL)} THEN {sql.instant(text)}"
        f" WHEN {sql.matches(text, f'{_BLANK}{_WHOLE}{_BLANK}')} THEN {whole_us}"
        f" WHEN {sql.matches(text, f'{_BLANK}{NUMBER}{_BLANK}')} THEN {us}"
        f" WHEN {sql.matches(text, _bracketed(USUAL_LOG_DATE))} THEN {_logged_us(_bare(text), sql)}"
        f" WHEN {sql.matches(text, _COMMON)} THEN {sql.instant(_as_usual(text))}"
        f" ELSE {_rest_us(text, logged, dated, sql)} END"
    )


def clock_us(text: str, us: str, offsets: Sequence[tuple[int, int]], engine: Engine) -> str:
    """SQL of the µs of a text of which ``us`` is ``timestamp_us``, where those without a zone are times that
    clocks show: they are ahead of UTC by so many µs (the second) from so many on (the first), in their
    order."""
    unzoned = _Sql(engine).matches(text, _UNZONED)
    far = f"u BETWEEN {FIRST_US + _DAY_US} AND {LAST_US - _DAY_US}"
    utc = f"CASE WHEN {unzoned} AND {far} THEN u - {_ahead(offsets)} ELSE u END"
    if engine == "duckdb":
        return f"list_transform([{us}], lambda u: {utc})[1]"
    return f"get(transform(array({us}), u -> {utc}), 0)"


def _ahead(offsets: Sequence[tuple[int, int]]) -> str:
    """By halves, so that a time takes few comparisons."""
    if len(offsets) == 1:
        return f"({offsets[0][1]})"
    middle = len(offsets) // 2
    earlier, later = offsets[:middle], offsets[middle:]
    return f"CASE WHEN u < {later[0][0]} THEN {_ahead(earlier)} ELSE {_ahead(later)} END"


def usual_log_date_us(text: str, engine: Engine) -> str:
    """SQL of the µs of a text that matches ``USUAL_LOG_DATE``; NULL where there is no such day."""
    return _logged_us(text, _Sql(engine))


def log_date_us(text: str, engine: Engine) -> str:
    """SQL of the µs of a text that matches ``LOG_DATE``; NULL where there is no such moment."""
    return _rest_us(text, LOG_DATE, "", _Sql(engine))


class _Sql(Struct, frozen=True):
    """The words of an engine."""

    engine: Engine

    def either(self, duckdb: str, spark: str) -> str:
        return duckdb if self.engine == "duckdb" else spark

    def matches(self, text: str, pattern: str) -> str:
        """SQL of whether the whole of a text matches."""
        whole = escaped(rf"^(?:{pattern})\z")
        return self.either(f"regexp_full_match({text}, '{pattern}')", f"({text} RLIKE '{whole}')")

    def instant(self, text: str) -> str:
        return self.either(
            f"epoch_us(TRY_CAST({text} AS TIMESTAMPTZ))", f"unix_micros(TRY_CAST({text} AS TIMESTAMP))"
        )


def _logged_us(text: str, sql: _Sql) -> str:
    return sql.either(
        f"epoch_us(try_strptime({text}, '%d/%b/%Y:%H:%M:%S %z'))",
        f"unix_micros(try_to_timestamp({text}, 'dd/MMM/yyyy:HH:mm:ss Z'))",
    )


def _as_usual(text: str) -> str:
    text = f"replace(upper({text}), ',', '.')"
    for zone in "+-Z":
        text = f"replace({text}, ' {zone}', '{zone}')"
    return text


def _bare(text: str) -> str:
    return f"translate({text}, '[]', '')"


def _rest_us(text: str, logged: str, dated: str, sql: _Sql) -> str:
    """Of a text that matches ``logged`` or ``dated``: ``LOG_DATE`` and ``_DATED`` with what may be around
    them."""
    if sql.engine == "spark":
        return _sum_of_parts(text, logged, dated, sql)
    # DuckDB reads all of it except a second 60.
    read = rf"replace(trim({_bare(text)}, E' \t\r\n'), ':60', ':59')"
    cases = f"WHEN {sql.matches(text, logged)} THEN {_logged_us(read, sql)}"
    if dated:
        usual = _as_usual(f"replace(replace({read}, 'UTC', 'Z'), 'GMT', 'Z')")
        cases += f" WHEN {sql.matches(text, dated)} THEN {sql.instant(usual)}"
    leap = (
        f"CASE WHEN (u - {FIRST_US - _DAY_US}) % {_DAY_US} >= {_DAY_US - _SECOND_US} "
        f"AND u BETWEEN {FIRST_US - _SECOND_US} AND {LAST_US - _SECOND_US} THEN u + {_SECOND_US} END"
    )
    us = f"CASE WHEN contains({text}, ':60') THEN {leap} WHEN u BETWEEN {FIRST_US} AND {LAST_US} THEN u END"
    return f"list_transform([CASE {cases} END], lambda u: {us})[1]"


def _sum_of_parts(text: str, logged: str, dated: str, sql: _Sql) -> str:
    """``_rest_us`` for Spark: offsets beyond 18 hours and a second 60 it does not read (see ``_moment``)."""

    def parts(pattern: str, template: str) -> str:
        groups = re.sub("[0-9]", r"$\g<0>", template)
        trimmed = rf"trim(BOTH ' \t\r\n' FROM {_bare(text)})"
        return f"split(regexp_replace({trimmed}, '^{pattern}$', '{groups}'), '[|]', -1)"

    def integer(digits: str) -> str:
        return f"TRY_CAST(concat('0', {digits}) AS BIGINT)"

    cases = f"WHEN {sql.matches(text, logged)} THEN {parts(_LOGGED, _LOGGED_PARTS)}"
    if dated:
        cases += f" WHEN {sql.matches(text, dated)} THEN {parts(_DATED, _DATED_PARTS)}"
    date, hour, minute, second, fraction, sign, hours, minutes = (f"get(p, {n})" for n in range(8))
    offset = f"({integer(hours)} * 60 + {integer(minutes)}) * (CASE WHEN {sign} = '-' THEN -1 ELSE 1 END)"
    at = f"({integer(hour)} * 60 + {integer(minute)} - {offset})"
    micros = integer(f"substr(concat({fraction}, '000000'), 1, 6)")
    named = f"try_to_timestamp({date}, 'yyyy-MMM-dd')"
    day = f"unix_micros(CASE WHEN length({date}) > 10 THEN {named} ELSE TRY_CAST({date} AS TIMESTAMP) END)"
    rest = f"concat({minute}, {second}, trim(TRAILING '0' FROM {fraction}))"
    us = (
        f"CASE WHEN {hour} = '24' AND {rest} NOT IN ('00', '0000') THEN NULL"
        f" WHEN {second} = '60' AND pmod({at}, 1440) <> 1439 THEN NULL"
        f" ELSE {day} + {at} * {_MINUTE_US} + {integer(second)} * {_SECOND_US} + {micros} END"
    )
    found = f"transform(array(CASE {cases} END), p -> {us})"
    return f"get(filter({found}, u -> u BETWEEN {FIRST_US} AND {LAST_US}), 0)"


def _bracketed(pattern: str) -> str:
    """With brackets around it, or without."""
    return rf"{pattern}|\[{pattern}\]"


def _scaled(number: str, us: str, most: Sequence[str]) -> str:
    """A number in the first unit that it may be in (of each ``most`` so much), as ``us`` says it of a number
    and a unit."""
    cases = (
        f"WHEN {number} BETWEEN {FIRST_US // unit} AND {last} THEN {us.format(number, unit)}"
        for last, unit in zip(most, _UNITS, strict=True)
    )
    return f"CASE {' '.join(cases)} END"
