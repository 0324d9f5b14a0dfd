"""Functions of time. A timestamp is a moment, in microseconds, shown in UTC. There are no dates and no zones
with rules (the engines have different tables of them), only fixed offsets: ``ts AT TIME ZONE '+02:00'``."""

from __future__ import annotations

import re
from typing import Final

from elf.ql.expressions import Call, Constant, Expr, Spelled
from elf.ql.kinds import become
from elf.ql.signatures import (
    Arguments,
    Build,
    Function,
    Misuse,
    constant_text,
    count,
    fixed,
    number,
    spelled,
    want,
)
from elf.ql.templates import text_literal

DATE_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")
INTERVAL_US: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
"""Units of INTERVAL that have a length, in µs; MONTH, QUARTER and YEAR have none."""
INTERVAL_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}

_STRFTIME: Final = {
    "%Y": "yyyy", "%y": "yy", "%m": "MM", "%d": "dd", "%H": "HH", "%I": "hh", "%p": "a", "%M": "mm",
    "%S": "ss", "%f": "SSSSSS", "%j": "DDD", "%a": "EEE", "%A": "EEEE", "%b": "MMM", "%B": "MMMM", "%%": "%",
}  # fmt: skip
"""What strftime knows, and Spark's pattern letters for it."""


def shift_us(moment: Expr, us: Expr) -> Expr:
    """A moment that many microseconds later; NULL beyond the years 1 to 9999."""
    return Call("from us", (Call("+", (Call("epoch_us", (moment,), "bigint"), us), "bigint"),), "timestamp")


def _date_trunc(args: Arguments) -> Expr:
    count(args, 2, 2)
    unit = constant_text(args, 0).lower()
    if unit not in DATE_UNITS:
        raise Misuse(f"wants one of {', '.join(DATE_UNITS)} here", 0)
    return Call("date_trunc", (spelled(unit), want(args, 1, "timestamp")), "timestamp")


def _strftime(args: Arguments) -> Expr:
    count(args, 2, 2)
    form = constant_text(args, 1)
    spark: list[str] = []
    for part in re.findall(r"%.?|[^%]", form, re.DOTALL):
        if part.startswith("%") and part not in _STRFTIME:
            raise Misuse(f"{part} is not supported in a format; there are {' '.join(_STRFTIME)}", 1)
        plain = {"%%": "%"}.get(part, "" if part.startswith("%") else part).replace("'", "''")
        if plain and spark and spark[-1].endswith("'"):
            spark[-1] = f"{spark[-1][:-1]}{plain}'"
        else:
            spark.append(f"'{plain}'" if plain else _STRFTIME[part])
    both = Spelled(text_literal(form, "duckdb"), text_literal("".join(spark), "spark"))
    if not form:
        return Constant("", "text")
    return Call("strftime", (want(args, 0, "timestamp"), both), "text")


def _to_timestamp(args: Arguments) -> Expr:
    """From seconds: of an integer exactly, of a double to the microsecond."""
    count(args, 1, 1)
    seconds = number(args, 0)
    if seconds.kind == "hugeint":
        raise Misuse("wants a bigint or a double here", 0)
    million: Constant = Constant(1_000_000, "bigint")
    us = Call("*", (seconds, million), "bigint")
    if seconds.kind == "double":
        scaled = Call("* double", (seconds, become(million, "double")), "double")
        us = Call("double to bigint", (scaled,), "bigint")
    return Call("from us", (us,), "timestamp")


def _scaled(name: str, us: int) -> Build:
    """From whole milliseconds or microseconds."""

    def build(args: Arguments) -> Expr:
        count(args, 1, 1)
        value = want(args, 0, "bigint")
        return Call(
            "from us",
            (Call("*", (value, Constant(us, "bigint")), "bigint") if us > 1 else value,),
            "timestamp",
        )

    return build


def _date_diff(args: Arguments) -> Expr:
    """How many starts of a unit lie in (a, b]: the difference of the numbers of their units."""
    count(args, 3, 3)
    unit = constant_text(args, 0).lower().removesuffix("s")
    length = INTERVAL_US.get(unit.upper())
    sides = tuple(want(args, index, "timestamp") for index in (1, 2))
    if unit in ("year", "quarter", "month"):
        op = f"number of {unit}"
        first, last = (Call(op, (side,), "bigint") for side in sides)
    elif length is not None and unit != "week":
        first, last = (
            Call("floor div", (Call("epoch_us", (side,), "bigint"), Constant(length, "bigint")), "bigint")
            for side in sides
        )
    else:
        known = "year, quarter, month, day, hour, minute, second, millisecond, microsecond"
        raise Misuse(f"wants one of {known} here", 0)
    return Call("-", (last, first), "bigint")


def _date_part(args: Arguments) -> Expr:
    count(args, 2, 2)
    part = constant_text(args, 0).lower()
    if part not in PARTS:
        raise Misuse(f"wants one of {', '.join(PARTS)} here", 0)
    return Call(PARTS[part], (want(args, 1, "timestamp"),), "double" if part == "epoch" else "bigint")


_TIMESTAMP_PARTS = {
    "year": ("the year", "2024", ()),
    "quarter": ("1 to 4", "2", ()),
    "month": ("1 to 12", "5", ()),
    "week": ("the ISO week of the year, 1 to 53", "18", ("weekofyear",)),
    "day": ("the day of the month", "3", ("dayofmonth",)),
    "hour": ("0 to 23", "4", ()),
    "minute": ("0 to 59", "5", ()),
    "second": ("0 to 59, without the fraction", "6", ()),
    "dayofyear": ("1 to 366", "124", ()),
    "dayofweek": ("the day of the week, Sunday 0 to Saturday 6", "5", ()),
    "isodow": ("the day of the week, Monday 1 to Sunday 7", "5", ()),
    "epoch_ms": ("milliseconds since 1970-01-01, rounded down", "1714709106700", ()),
    "epoch_us": ("microseconds since 1970-01-01", "1714709106700000", ()),
}

PARTS: Final = {
    **{part: part for part in _TIMESTAMP_PARTS if not part.startswith("epoch")},
    "doy": "dayofyear",
    "dow": "dayofweek",
    "epoch": "epoch",
}
"""What EXTRACT(part FROM …) takes, and the function that it is."""

_AT = "TIMESTAMP '2024-05-03 04:05:06.7'"

TIMES: Final[tuple[Function, ...]] = (
    Function("date_trunc", "date_trunc(unit, timestamp)", f"the start of its unit: {', '.join(DATE_UNITS)}",
             f"date_trunc('hour', {_AT})", "TIMESTAMP '2024-05-03 04:00:00'", _date_trunc),
    Function("date_diff", "date_diff(unit, from, to)",
             "how many units begin after from and up to to: year, quarter, month, day, hour … microsecond",
             "date_diff('hour', TIMESTAMP '2024-05-03 04:59:00', TIMESTAMP '2024-05-03 05:01:00')", "1",
             _date_diff, ("datediff",)),
    Function("date_part", "date_part(part, timestamp)",
             f"as EXTRACT(part FROM timestamp): {', '.join(PARTS)}", f"date_part('year', {_AT})", "2024",
             _date_part),
    *(Function(name, f"{name}(timestamp)", about, f"{name}({_AT})", gives,
               fixed(("timestamp",), "bigint", name), aliases)
      for name, (about, gives, aliases) in _TIMESTAMP_PARTS.items()),
    Function("epoch", "epoch(timestamp)", "seconds since 1970-01-01, a double",
             "epoch(TIMESTAMP '1970-01-01 00:01:00.5')", "60.5", fixed(("timestamp",), "double", "epoch")),
    Function("dayname", "dayname(timestamp)", "the day of the week, in English", f"dayname({_AT})",
             "'Friday'", fixed(("timestamp",), "text", "dayname")),
    Function("monthname", "monthname(timestamp)", "the month, in English", f"monthname({_AT})", "'May'",
             fixed(("timestamp",), "text", "monthname")),
    Function("last_day", "last_day(timestamp)", "the start of the last day of its month", f"last_day({_AT})",
             "TIMESTAMP '2024-05-31'", fixed(("timestamp",), "timestamp", "last_day")),
    Function("strftime", "strftime(timestamp, format)",
             f"as text, in the years 1 to 9999; the format knows {' '.join(_STRFTIME)}",
             f"strftime({_AT}, '%d/%b/%Y %H:%M')", "'03/May/2024 04:05'", _strftime),
    Function("to_timestamp", "to_timestamp(seconds)", "the moment that many seconds after 1970-01-01",
             "to_timestamp(1714709106)", "TIMESTAMP '2024-05-03 04:05:06'", _to_timestamp),
    Function("make_timestamp_ms", "make_timestamp_ms(milliseconds)",
             "the moment that many milliseconds after 1970-01-01", "make_timestamp_ms(1500)",
             "TIMESTAMP '1970-01-01 00:00:01.5'", _scaled("ms", 1000), ("timestamp_millis",)),
    Function("make_timestamp", "make_timestamp(microseconds)",
             "the moment that many microseconds after 1970-01-01", "make_timestamp(1500000)",
             "TIMESTAMP '1970-01-01 00:00:01.5'", _scaled("us", 1), ("timestamp_micros",)),
)  # fmt: skip
"""In the order of the reference."""
