"""How each operator and function is spelled in DuckDB and in Spark, so that both mean the same.

A form is a template for each engine: ``{0}``, ``{1}`` … are the operands, rendered (every compound operand
comes in parentheses or as a call, so templates need none of their own around them); ``{args}`` is all of
them with commas.

Rules (the known differences between the engines, and what ELF-QL says instead):

- no expression fails on data: integer overflow, division by zero, a cast that does not fit give NULL;
- ``/`` is always a double; ``%`` takes the sign of the dividend;
- text is counted in code points; ``substring`` counts from 1 and, as in SQL, position 0 is the place before
  it;
- double to bigint rounds half to even, text to bigint rounds half away from zero (both as DuckDB does),
  ``round`` rounds half away from zero;
- lower and upper agree but for letters whose case mapping changes their number (``ß``, ``İ``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Engine = Literal["duckdb", "spark"]


@dataclass(frozen=True)
class Form:
    """The templates of one operation."""

    duckdb: str
    spark: str

    def template(self, engine: Engine) -> str:
        return self.duckdb if engine == "duckdb" else self.spark


def _same(template: str) -> Form:
    return Form(template, template)


_INTEGER = r"^\s*([+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?)\s*\z"
_TIMESTAMP = r"^\s*([0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6})?)?Z?)?)\s*\z"


def _spark_text(text: str) -> str:
    return text.replace("\\", "\\\\")


def _matched(pattern: str) -> Form:
    """The operand where it has the form of ``pattern`` (its first group), else the empty text, which casts to
    nothing.
    """
    braced = pattern.replace("{", "{{").replace("}", "}}")
    return Form(
        f"regexp_extract({{0}}, '{braced}', 1)",
        f"regexp_extract({{0}}, '{_spark_text(braced)}', 1)",
    )


_NUMBER_TEXT = _matched(_INTEGER)
_TIMESTAMP_TEXT = _matched(_TIMESTAMP)
_FINITE = "CASE WHEN abs({0}) < 4503599627370496e0 THEN {1} ELSE {0} END"
_BOOLEAN_TEXT = (
    "CASE WHEN lower({0}) IN ('true', 't', 'yes', 'y', '1') THEN TRUE "
    "WHEN lower({0}) IN ('false', 'f', 'no', 'n', '0') THEN FALSE END"
)

_OPERATORS: dict[str, Form] = {
    "=": _same("{0} = {1}"),
    "<>": _same("{0} <> {1}"),
    "<": _same("{0} < {1}"),
    "<=": _same("{0} <= {1}"),
    ">": _same("{0} > {1}"),
    ">=": _same("{0} >= {1}"),
    "is_distinct": Form("{0} IS DISTINCT FROM {1}", "NOT ({0} <=> {1})"),
    "is_not_distinct": Form("{0} IS NOT DISTINCT FROM {1}", "{0} <=> {1}"),
    "is_null": _same("{0} IS NULL"),
    "is_true": _same("{0} IS TRUE"),
    "is_false": _same("{0} IS FALSE"),
    "not": _same("NOT {0}"),
    "like": _same("{0} LIKE {1}"),
    "ilike": _same("{0} ILIKE {1}"),
    "||": _same("{0} || {1}"),
    "+": Form("TRY({0} + {1})", "try_add({0}, {1})"),
    "-": Form("TRY({0} - {1})", "try_subtract({0}, {1})"),
    "*": Form("TRY({0} * {1})", "try_multiply({0}, {1})"),
    "+ double": _same("{0} + {1}"),
    "- double": _same("{0} - {1}"),
    "* double": _same("{0} * {1}"),
    "/": _same("{0} / NULLIF({1}, 0e0)"),
    "%": _same("{0} % NULLIF({1}, 0)"),
    "% double": _same("{0} % NULLIF({1}, 0e0)"),
    "negate double": _same("-{0}"),
}

_CASTS: dict[str, Form] = {
    "to double": Form("CAST({0} AS DOUBLE)", "CAST({0} AS DOUBLE)"),
    "to hugeint": Form("CAST({0} AS HUGEINT)", "CAST({0} AS DECIMAL(38, 0))"),
    "to text": Form("CAST({0} AS VARCHAR)", "CAST({0} AS STRING)"),
    "boolean to bigint": Form("CAST({0} AS BIGINT)", "CAST({0} AS BIGINT)"),
    "hugeint to bigint": Form("TRY_CAST({0} AS BIGINT)", "TRY_CAST({0} AS BIGINT)"),
    "double to bigint": Form("TRY_CAST({0} AS BIGINT)", "TRY_CAST(rint({0}) AS BIGINT)"),
    "number to boolean": _same("{0} <> 0"),
    "text to boolean": _same(_BOOLEAN_TEXT),
    "text to bigint": Form(
        f"TRY_CAST({_NUMBER_TEXT.duckdb} AS BIGINT)",
        f"TRY_CAST(round(TRY_CAST({_NUMBER_TEXT.spark} AS DECIMAL(38, 18)), 0) AS BIGINT)",
    ),
    "text to double": Form(
        f"TRY_CAST({_NUMBER_TEXT.duckdb} AS DOUBLE)", f"TRY_CAST({_NUMBER_TEXT.spark} AS DOUBLE)"
    ),
    "text to timestamp": Form(
        f"TRY_CAST({_TIMESTAMP_TEXT.duckdb} AS TIMESTAMP)", f"TRY_CAST({_TIMESTAMP_TEXT.spark} AS TIMESTAMP)"
    ),
}

# Positions and lengths within 31 bits: DuckDB fails on larger ones, Spark takes no others. NULL stays NULL.
_POSITION = "CASE WHEN {0} > 2147483647 THEN 2147483647 WHEN {0} < -2147483647 THEN -2147483647 ELSE {0} END"
_EXTENT = "CASE WHEN {0} < 0 THEN 0 WHEN {0} > 2147483647 THEN 2147483647 ELSE {0} END"
_SPARK_POSITION = _POSITION.replace("CASE", "CASE WHEN {0} = 0 THEN 1")
_SPARK_EXTENT = _EXTENT.replace("ELSE", "WHEN {1} = 0 THEN greatest({0} - 1, 0) ELSE")

_TEXT: dict[str, Form] = {
    "lower": _same("lower({0})"),
    "upper": _same("upper({0})"),
    "length": Form("length({0})", "CAST(char_length({0}) AS BIGINT)"),
    "trim": _same("trim({0})"),
    "ltrim": _same("ltrim({0})"),
    "rtrim": _same("rtrim({0})"),
    "trim of": Form("trim({0}, {1})", "trim(BOTH {1} FROM {0})"),
    "ltrim of": Form("ltrim({0}, {1})", "trim(LEADING {1} FROM {0})"),
    "rtrim of": Form("rtrim({0}, {1})", "trim(TRAILING {1} FROM {0})"),
    "substring": _same("substring({0}, {1})"),
    "substring of": _same("substring({0}, {1}, {2})"),
    "position": Form(_POSITION, f"CAST({_SPARK_POSITION} AS INT)"),
    "extent": Form(_EXTENT, f"CAST({_SPARK_EXTENT} AS INT)"),
    "concat": Form("concat({args})", "concat({args})"),
    "text or empty": _same("COALESCE({0}, '')"),
    "replace": _same("replace({0}, {1}, {2})"),
    "contains": _same("contains({0}, {1})"),
    "starts_with": Form("starts_with({0}, {1})", "startswith({0}, {1})"),
    "ends_with": Form("ends_with({0}, {1})", "endswith({0}, {1})"),
    "strpos": Form("strpos({0}, {1})", "CAST(instr({0}, {1}) AS BIGINT)"),
    "split_part": _same("split_part({0}, {1}, {2})"),
    "regexp_matches": Form("regexp_matches({0}, {1})", "regexp_like({0}, {1})"),
    "regexp_extract": _same("regexp_extract({0}, {1}, {2})"),
}

_NUMBERS: dict[str, Form] = {
    "abs": _same("abs({0})"),
    "abs bigint": _same("abs(NULLIF({0}, -9223372036854775807 - 1))"),
    "round": Form("round({0}) + 0e0", f"{_FINITE.replace('{1}', 'round({0})')} + 0e0"),
    "round to": _same(
        "CASE WHEN abs({0} * {1}) < 4503599627370496e0 THEN round({0} * {1}) / {1} ELSE {0} END + 0e0"
    ),
    "floor": Form("floor({0}) + 0e0", f"{_FINITE.replace('{1}', 'CAST(floor({0}) AS DOUBLE)')} + 0e0"),
    "ceil": Form("ceil({0}) + 0e0", f"{_FINITE.replace('{1}', 'CAST(ceil({0}) AS DOUBLE)')} + 0e0"),
    "coalesce": _same("COALESCE({args})"),
    "nullif": _same("NULLIF({0}, {1})"),
    "least": _same("least({args})"),
    "greatest": _same("greatest({args})"),
}

_TIME_PARTS = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "hour": "hour",
    "minute": "minute",
    "second": "second",
    "dayofyear": "dayofyear",
}

_TIMES: dict[str, Form] = {
    **{
        name: Form(f"{name}({{0}})", f"CAST({spark}({{0}}) AS BIGINT)") for name, spark in _TIME_PARTS.items()
    },
    "isodow": Form("isodow({0})", "CAST(weekday({0}) + 1 AS BIGINT)"),
    "epoch_ms": Form("epoch_ms(date_trunc('millisecond', {0}))", "unix_millis({0})"),
    "date_trunc": _same("date_trunc({0}, {1})"),
}

# 64 bits of md5 as 16 digits: three say which register, the rest give the rank, trailing zeros and one more.
_WORD = "(CAST('0x' || substring(md5({0}), 4, 13) AS BIGINT) | 2251799813685248)"
_SPARK_DIGITS = "CAST(conv(substring(md5(CAST({0} AS BINARY)), FROM), 16, 10) AS BIGINT)"
_SPARK_WORD = f"({_SPARK_DIGITS.replace('FROM', '4, 13')} | 2251799813685248L)"
_RANK = "CAST(bit_count((WORD & -WORD) - 1) + 1 AS BIGINT)"
_MANTISSA = "power(2e0, floor(log2(abs({0}))) - 6)"
_BITS = "CAST(CAST(CASE WHEN isnan({0}) THEN 'nan'::DOUBLE ELSE {0} + 0e0 END AS BIT) AS BIGINT)"
_FLIP = "xor({x}, ({x} >> 63) & 9223372036854775807)"

_CELLS: dict[str, Form] = {
    "register": Form(
        "CAST('0x' || substring(md5({0}), 1, 3) AS BIGINT)", _SPARK_DIGITS.replace("FROM", "1, 3")
    ),
    "register rank": Form(_RANK.replace("WORD", _WORD), _RANK.replace("WORD", _SPARK_WORD)),
    "7 bits": _same(
        "CASE WHEN abs({0}) BETWEEN 1e-290 AND 1e290 "
        f"THEN floor({{0}} / {_MANTISSA} + 5e-1) * {_MANTISSA} ELSE {{0}} END"
    ),
}

# Values as 64-bit integers in the same order, and back. Spark has no need of them.
_PACKED: dict[str, Form] = {
    "pack double": Form(_FLIP.replace("{x}", _BITS), "{0}"),
    "unpack double": Form(f"CAST(CAST({_FLIP.replace('{x}', '{0}')} AS BIT) AS DOUBLE)", "{0}"),
    "pack timestamp": Form("epoch_us({0})", "{0}"),
    "unpack timestamp": Form("make_timestamp({0})", "{0}"),
    "pack boolean": Form("CAST({0} AS BIGINT)", "{0}"),
    "unpack boolean": Form("CAST({0} AS BOOLEAN)", "{0}"),
}

FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {**_OPERATORS, **_CASTS, **_TEXT, **_NUMBERS, **_TIMES, **_CELLS, **_PACKED}
)
"""By operation."""

_CALLS = frozenset({"+", "-", "*"})
_OTHERS = frozenset({"round", "round to", "floor", "ceil", "text to boolean", "number to boolean"})

INFIX: Final = (frozenset(_OPERATORS) - _CALLS) | _OTHERS | {"case", "and", "or", "in", "final avg"}
"""Operations whose text must stand in parentheses inside another one."""
