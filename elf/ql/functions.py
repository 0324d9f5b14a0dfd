"""The scalar functions of ELF-QL: those that DuckDB and Spark share with one meaning. This table is the whole
list.

Each entry says how it is called, what it gives, and how its arguments become an expression. A function that
is not here is "not supported yet": never handed through to an engine in the hope that both mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from elf.ql.expressions import Call, Constant, Expr, Kind, Spelled
from elf.ql.kinds import INT64_MIN, become, cast, common
from elf.ql.patterns import BadPattern, regex
from elf.ql.render import text_literal

Arguments = Sequence[Expr]
Build = Callable[[Arguments], Expr]


class Misuse(Exception):
    """A wrong argument: ``index`` says which (None: their number)."""

    def __init__(self, text: str, index: int | None = None) -> None:
        super().__init__(text)
        self.index = index


@dataclass(frozen=True)
class Function:
    """``usage`` and ``about`` are for people; ``build`` checks the arguments and raises ``Misuse``."""

    name: str
    usage: str
    about: str
    build: Build


def _count(args: Arguments, least: int, most: int | None) -> None:
    if len(args) < least or (most is not None and len(args) > most):
        wanted = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        noun = "argument" if wanted == "1" else "arguments"
        raise Misuse(f"takes {wanted} {noun}, not {len(args)}")


def _want(args: Arguments, index: int, kind: Kind) -> Expr:
    """The argument as ``kind``, where that needs no CAST."""
    arg = args[index]
    if common((arg.kind, kind)) != kind:
        raise Misuse(f"wants {kind} here, not {arg.kind}", index)
    return become(arg, kind)


def _number(args: Arguments, index: int) -> Expr:
    arg = args[index]
    if common((arg.kind, "double")) != "double":
        raise Misuse(f"wants a number here, not {arg.kind}", index)
    return become(arg, "double") if arg.kind == "null" else arg


def _constant_text(args: Arguments, index: int) -> str:
    arg = args[index]
    if isinstance(arg, Constant) and isinstance(arg.value, str):
        return arg.value
    raise Misuse("wants a text constant here", index)


def _constant_integer(args: Arguments, index: int, least: int, most: int) -> int:
    arg = args[index]
    if (
        isinstance(arg, Constant)
        and isinstance(arg.value, int)
        and arg.kind == "bigint"
        and least <= arg.value <= most
    ):
        return arg.value
    raise Misuse(f"wants an integer constant from {least} to {most} here", index)


def _spelled(text: str) -> Spelled:
    return Spelled(text_literal(text, "duckdb"), text_literal(text, "spark"))


def fixed(params: tuple[Kind, ...], result: Kind, *ops: str) -> Build:
    """A function of typed parameters; ``ops`` by number of arguments, the longest list last."""
    least = len(params) - len(ops) + 1

    def build(args: Arguments) -> Expr:
        _count(args, least, len(params))
        typed = tuple(_want(args, index, params[index]) for index in range(len(args)))
        return Call(ops[len(args) - least], typed, result)

    return build


def as_text(expr: Expr) -> Expr | None:
    """What ``||`` and concat make of an operand; None for a double, which the engines write differently."""
    return cast(expr, "text")


def _concat(args: Arguments) -> Expr:
    _count(args, 1, None)
    parts: list[Expr] = []
    for index, arg in enumerate(args):
        text = as_text(arg)
        if text is None:
            raise Misuse(f"cannot take {arg.kind} yet", index)
        parts.append(Call("text or empty", (text,), "text"))
    return Call("concat", tuple(parts), "text")


def _abs(args: Arguments) -> Expr:
    _count(args, 1, 1)
    arg = _number(args, 0)
    if arg.kind == "bigint":
        if isinstance(arg, Constant) and isinstance(arg.value, int) and arg.value > INT64_MIN:
            return Constant(abs(arg.value), "bigint")
        return Call("abs bigint", (arg,), "bigint")
    return Call("abs", (arg,), arg.kind)


def _whole(op: str) -> Build:
    """floor and ceil: an integer stays what it is."""

    def build(args: Arguments) -> Expr:
        _count(args, 1, 1)
        arg = _number(args, 0)
        return Call(op, (arg,), "double") if arg.kind == "double" else arg

    return build


def _round(args: Arguments) -> Expr:
    _count(args, 1, 2)
    arg = _number(args, 0)
    digits = _constant_integer(args, 1, 0, 15) if len(args) == 2 else 0
    if arg.kind != "double":
        return arg
    if digits == 0:
        return Call("round", (arg,), "double")
    return Call("round to", (arg, Constant(float(10**digits), "double")), "double")


def _alike(op: str, least: int, most: int | None) -> Build:
    """A function whose arguments and result have one type."""

    def build(args: Arguments) -> Expr:
        _count(args, least, most)
        kind = args[0].kind
        for index, arg in enumerate(args):
            together = common((kind, arg.kind))
            if together is None:
                raise Misuse(f"cannot mix {kind} and {arg.kind}", index)
            kind = together
        if kind == "null":
            return Constant(None, "null")
        typed = tuple(become(arg, kind) for arg in args)
        return typed[0] if len(typed) == 1 else Call(op, typed, kind)

    return build


def _regexp_matches(args: Arguments) -> Expr:
    _count(args, 2, 2)
    pattern = _pattern(args, 1)
    return Call("regexp_matches", (_want(args, 0, "text"), pattern[0]), "boolean")


def _regexp_extract(args: Arguments) -> Expr:
    _count(args, 2, 3)
    spelled, groups = _pattern(args, 1)
    group = _constant_integer(args, 2, 0, 99) if len(args) == 3 else 0
    if group > groups:
        raise Misuse(f"the pattern has {groups} groups", 2)
    return Call("regexp_extract", (_want(args, 0, "text"), spelled, Spelled(str(group), str(group))), "text")


def _pattern(args: Arguments, index: int) -> tuple[Spelled, int]:
    try:
        found = regex(_constant_text(args, index))
    except BadPattern as error:
        raise Misuse(str(error), index) from error
    return Spelled(text_literal(found.re2, "duckdb"), text_literal(found.java, "spark")), found.groups


def _whole_constant(expr: Expr, least: int) -> int | None:
    """The value of an integer constant, within 31 bits."""
    if isinstance(expr, Constant) and isinstance(expr.value, int):
        return max(least, min(expr.value, 2**31 - 1))
    return None


def _substring(args: Arguments) -> Expr:
    """Position 0 is the place before the first: Spark, which takes it for 1, needs one less of the length."""
    _count(args, 2, 3)
    text, start = _want(args, 0, "text"), _want(args, 1, "bigint")
    first = _whole_constant(start, 1 - 2**31)
    position: Expr = Call("position", (start,), "bigint")
    if first is not None:
        position = Spelled(str(first), str(first or 1))
    if len(args) == 2:
        return Call("substring", (text, position), "text")
    length = _want(args, 2, "bigint")
    count = _whole_constant(length, 0)
    extent: Expr = Call("extent", (length, start), "bigint")
    if first is not None and count is not None:
        extent = Spelled(str(count), str(max(0, count - 1) if first == 0 else count))
    return Call("substring of", (text, position, extent), "text")


def _split_part(args: Arguments) -> Expr:
    _count(args, 3, 3)
    separator = _constant_text(args, 1)
    if not separator:
        raise Misuse("wants a separator that is not empty", 1)
    part = _constant_integer(args, 2, -(2**31), 2**31 - 1)
    if part == 0:
        raise Misuse("counts parts from 1 (or, from the end, from -1)", 2)
    return Call(
        "split_part", (_want(args, 0, "text"), _spelled(separator), Spelled(str(part), str(part))), "text"
    )


DATE_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond")


def _date_trunc(args: Arguments) -> Expr:
    _count(args, 2, 2)
    unit = _constant_text(args, 0).lower()
    if unit not in DATE_UNITS:
        raise Misuse(f"wants one of {', '.join(DATE_UNITS)} here", 0)
    return Call("date_trunc", (_spelled(unit), _want(args, 1, "timestamp")), "timestamp")


def _if(args: Arguments) -> Expr:
    """``if`` is CASE WHEN a THEN b ELSE c END."""
    _count(args, 3, 3)
    condition = _want(args, 0, "boolean")
    kind = common((args[1].kind, args[2].kind))
    if kind is None:
        raise Misuse(f"cannot mix {args[1].kind} and {args[2].kind}", 2)
    return Call("case", (condition, become(args[1], kind), become(args[2], kind)), kind)


_TIMESTAMP_PARTS = {
    "year": "the year",
    "quarter": "1 to 4",
    "month": "1 to 12",
    "week": "the ISO week of the year, 1 to 53",
    "day": "the day of the month",
    "hour": "0 to 23",
    "minute": "0 to 59",
    "second": "0 to 59, without the fraction",
    "dayofyear": "1 to 366",
    "isodow": "the day of the week, Monday 1 to Sunday 7",
    "epoch_ms": "milliseconds since 1970-01-01",
}

_T: Kind = "text"
_I: Kind = "bigint"

_LIST: tuple[Function, ...] = (
    Function("lower", "lower(text)", "lower case", fixed((_T,), _T, "lower")),
    Function("upper", "upper(text)", "upper case", fixed((_T,), _T, "upper")),
    Function("length", "length(text)", "number of code points", fixed((_T,), _I, "length")),
    Function("trim", "trim(text[, characters])", "without spaces (or characters) at both ends",
             fixed((_T, _T), _T, "trim", "trim of")),
    Function("ltrim", "ltrim(text[, characters])", "without spaces (or characters) at the start",
             fixed((_T, _T), _T, "ltrim", "ltrim of")),
    Function("rtrim", "rtrim(text[, characters])", "without spaces (or characters) at the end",
             fixed((_T, _T), _T, "rtrim", "rtrim of")),
    Function("substring", "substring(text, start[, length])",
             "from position start, counted from 1, or from the end if negative; a length below 0 is 0",
             _substring),
    Function("concat", "concat(value, …)", "all values in a row, as text; NULL is empty", _concat),
    Function("replace", "replace(text, old, new)", "with every old replaced by new",
             fixed((_T, _T, _T), _T, "replace")),
    Function("contains", "contains(text, part)", "whether part is in text",
             fixed((_T, _T), "boolean", "contains")),
    Function("starts_with", "starts_with(text, part)", "whether text begins with part",
             fixed((_T, _T), "boolean", "starts_with")),
    Function("ends_with", "ends_with(text, part)", "whether text ends with part",
             fixed((_T, _T), "boolean", "ends_with")),
    Function("strpos", "strpos(text, part)", "position of the first part in text, from 1; 0 if there is none",
             fixed((_T, _T), _I, "strpos")),
    Function("split_part", "split_part(text, separator, n)",
             "the nth part, from 1, or from the end if negative; empty if there is none", _split_part),
    Function("regexp_matches", "regexp_matches(text, pattern)", "whether the pattern matches anywhere",
             _regexp_matches),
    Function("regexp_extract", "regexp_extract(text, pattern[, group])",
             "the first match, or its group; empty if there is none", _regexp_extract),
    Function("coalesce", "coalesce(value, …)", "the first that is not NULL", _alike("coalesce", 1, None)),
    Function("nullif", "nullif(a, b)", "NULL where a = b, else a", _alike("nullif", 2, 2)),
    Function("least", "least(value, …)", "the least, NULLs aside", _alike("least", 1, None)),
    Function("greatest", "greatest(value, …)", "the greatest, NULLs aside", _alike("greatest", 1, None)),
    Function("if", "if(condition, then, else)", "then where the condition is true, else the last", _if),
    Function("abs", "abs(number)", "without the sign", _abs),
    Function("round", "round(number[, digits])", "rounded half away from zero", _round),
    Function("floor", "floor(number)", "the whole number at or below; a double stays one", _whole("floor")),
    Function("ceil", "ceil(number)", "the whole number at or above; a double stays one", _whole("ceil")),
    Function("date_trunc", "date_trunc(unit, timestamp)", f"the start of its unit: {', '.join(DATE_UNITS)}",
             _date_trunc),
    *(Function(name, f"{name}(timestamp)", about, fixed(("timestamp",), _I, name))
      for name, about in _TIMESTAMP_PARTS.items()),
)  # fmt: skip

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType({function.name: function for function in _LIST})
"""By name, in lower case."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "lcase": "lower",
        "ucase": "upper",
        "char_length": "length",
        "character_length": "length",
        "substr": "substring",
        "startswith": "starts_with",
        "endswith": "ends_with",
        "instr": "strpos",
        "ifnull": "coalesce",
        "ceiling": "ceil",
        "dayofmonth": "day",
        "weekofyear": "week",
    }
)
"""Other names of the same functions."""

PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {**{part: part for part in _TIMESTAMP_PARTS if part != "epoch_ms"}, "doy": "dayofyear"}
)
"""What EXTRACT(part FROM …) takes, and the function that it is."""
