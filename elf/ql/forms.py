"""How each operator and function is spelled in DuckDB and in Spark, so that both mean the same.

Rules (the known differences between the engines, and what ELF-QL says instead):

- no expression fails on data: integer overflow, division by zero, a cast that does not fit give NULL;
- ``/`` is always a double; ``%`` takes the sign of the dividend;
- text is counted in code points; ``substring`` counts from 1 and, as in SQL, position 0 is the place before
  it;
- double to bigint rounds half to even, text to bigint rounds half away from zero (both as DuckDB does),
  ``round`` rounds half away from zero;
- ``//`` is for integers and truncates (-7 // 2 is -3);
- roots and logarithms outside of their domain are NULL, other functions of doubles follow IEEE; their last
  bits are those of the engine's library, so results agree relatively;
- lower and upper agree except for letters whose case mapping changes their number (``ß``, ``İ``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from elf.ql.forms_web import WEB
from elf.ql.lookups import FORMS as LOOKUPS
from elf.ql.templates import Form, braced, matched, same
from elf.ql.timestamps import FIRST_US, LAST_US, timestamp_us

_INTEGER = r"^\s*([+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?)\s*\z"

_NUMBER_TEXT = matched(_INTEGER)
_TIMESTAMP_US = Form(
    *(braced(timestamp_us("TEXT", engine)).replace("TEXT", "{0}") for engine in ("duckdb", "spark"))
)
_FINITE = "CASE WHEN abs({0}) < 4503599627370496e0 THEN {1} ELSE {0} END"
_BOOLEAN_TEXT = (
    "CASE WHEN lower({0}) IN ('true', 't', 'yes', 'y', '1') THEN TRUE "
    "WHEN lower({0}) IN ('false', 'f', 'no', 'n', '0') THEN FALSE END"
)

_OPERATORS: dict[str, Form] = {
    "=": same("{0} = {1}"),
    "<>": same("{0} <> {1}"),
    "<": same("{0} < {1}"),
    "<=": same("{0} <= {1}"),
    ">": same("{0} > {1}"),
    ">=": same("{0} >= {1}"),
    "is_distinct": Form("{0} IS DISTINCT FROM {1}", "NOT ({0} <=> {1})"),
    "is_not_distinct": Form("{0} IS NOT DISTINCT FROM {1}", "{0} <=> {1}"),
    "is_null": same("{0} IS NULL"),
    "is_true": same("{0} IS TRUE"),
    "is_false": same("{0} IS FALSE"),
    "not": same("NOT {0}"),
    "like": same("{0} LIKE {1}"),
    "ilike": same("{0} ILIKE {1}"),
    "like escape": same("{0} LIKE {1} ESCAPE {2}"),
    "ilike escape": same("{0} ILIKE {1} ESCAPE {2}"),
    "||": same("{0} || {1}"),
    "+": Form("TRY({0} + {1})", "try_add({0}, {1})"),
    "-": Form("TRY({0} - {1})", "try_subtract({0}, {1})"),
    "*": Form("TRY({0} * {1})", "try_multiply({0}, {1})"),
    "+ double": same("{0} + {1}"),
    "- double": same("{0} - {1}"),
    "* double": same("{0} * {1}"),
    "/": same("{0} / NULLIF({1}, 0e0)"),
    # The least integer % -1 overflows in DuckDB.
    "%": Form("{0} % (CASE WHEN {1} = -1 THEN 1 ELSE NULLIF({1}, 0) END)", "{0} % NULLIF({1}, 0)"),
    "% double": same("{0} % NULLIF({1}, 0e0)"),
    "//": Form(
        "CASE WHEN {1} = -1 THEN TRY(0 - {0}) ELSE {0} // NULLIF({1}, 0) END",
        "CASE WHEN {1} = -1 THEN try_subtract(0L, {0}) WHEN {1} <> 0 THEN {0} div {1} END",
    ),
    "negate double": same("-{0}"),
}

_CASTS: dict[str, Form] = {
    "to double": Form("CAST({0} AS DOUBLE)", "CAST({0} AS DOUBLE)"),
    "to hugeint": Form("CAST({0} AS HUGEINT)", "CAST({0} AS DECIMAL(38, 0))"),
    "to text": Form("CAST({0} AS VARCHAR)", "CAST({0} AS STRING)"),
    "boolean to bigint": Form("CAST({0} AS BIGINT)", "CAST({0} AS BIGINT)"),
    "hugeint to bigint": Form("TRY_CAST({0} AS BIGINT)", "TRY_CAST({0} AS BIGINT)"),
    # Spark takes 2**63 for the greatest integer.
    "double to bigint": Form(
        "TRY_CAST({0} AS BIGINT)",
        "CASE WHEN {0} < 9223372036854775808e0 THEN TRY_CAST(rint({0}) AS BIGINT) END",
    ),
    "number to boolean": same("{0} <> 0"),
    "text to boolean": same(_BOOLEAN_TEXT),
    "text to bigint": Form(
        f"TRY_CAST({_NUMBER_TEXT.duckdb} AS BIGINT)",
        f"TRY_CAST(round(TRY_CAST({_NUMBER_TEXT.spark} AS DECIMAL(38, 18)), 0) AS BIGINT)",
    ),
    "text to double": Form(
        f"TRY_CAST({_NUMBER_TEXT.duckdb} AS DOUBLE)", f"TRY_CAST({_NUMBER_TEXT.spark} AS DOUBLE)"
    ),
    "text to timestamp": Form(
        f"make_timestamp({_TIMESTAMP_US.duckdb})", f"timestamp_micros({_TIMESTAMP_US.spark})"
    ),
}

# Positions and lengths within 31 bits: DuckDB fails on larger ones, Spark takes no others. NULL stays NULL.
_POSITION = "CASE WHEN {0} > 2147483647 THEN 2147483647 WHEN {0} < -2147483647 THEN -2147483647 ELSE {0} END"
_EXTENT = "CASE WHEN {0} < 0 THEN 0 WHEN {0} > 2147483647 THEN 2147483647 ELSE {0} END"
_SPARK_POSITION = _POSITION.replace("CASE", "CASE WHEN {0} = 0 THEN 1")
_SPARK_EXTENT = _EXTENT.replace("ELSE", "WHEN {1} = 0 AND {0} > 0 THEN {0} - 1 ELSE")

_TEXT: dict[str, Form] = {
    "lower": same("lower({0})"),
    "upper": same("upper({0})"),
    "length": Form("length({0})", "CAST(char_length({0}) AS BIGINT)"),
    "trim": same("trim({0})"),
    "ltrim": same("ltrim({0})"),
    "rtrim": same("rtrim({0})"),
    "trim of": Form("trim({0}, {1})", "trim(BOTH {1} FROM {0})"),
    "ltrim of": Form("ltrim({0}, {1})", "trim(LEADING {1} FROM {0})"),
    "rtrim of": Form("rtrim({0}, {1})", "trim(TRAILING {1} FROM {0})"),
    "substring": same("substring({0}, {1})"),
    "substring of": same("substring({0}, {1}, {2})"),
    "position": Form(_POSITION, f"CAST({_SPARK_POSITION} AS INT)"),
    "extent": Form(_EXTENT, f"CAST({_SPARK_EXTENT} AS INT)"),
    "concat": Form("concat({args})", "concat({args})"),
    "text or empty": same("COALESCE({0}, '')"),
    "replace": same("replace({0}, {1}, {2})"),
    "contains": same("contains({0}, {1})"),
    "octet_length": Form("strlen({0})", "CAST(octet_length({0}) AS BIGINT)"),
    "left": Form("left({0}, {1})", "left({0}, CAST({1} AS INT))"),
    "right": Form("right({0}, {1})", "right({0}, CAST({1} AS INT))"),
    "width": same("CASE WHEN {0} < 0 THEN 0 WHEN {0} > 2147483647 THEN 2147483647 ELSE {0} END"),
    "lpad": same("lpad({0}, {1}, {2})"),
    "rpad": same("rpad({0}, {1}, {2})"),
    "repeat": same("repeat({0}, {1})"),
    "reverse": Form(
        "array_to_string(list_transform(range(length({0}), 0, -1), lambda i: substring({0}, i, 1)), '')",
        "reverse({0})",
    ),
    "concat_ws": same("concat_ws({args})"),
    "translate": same("translate({0}, {1}, {2})"),
    "md5": same("md5({0})"),
    "sha256": Form("sha256({0})", "sha2({0}, 256)"),
    "like for spark": Form("{0}", "replace({0}, '\\\\', '\\\\\\\\')"),
    "starts_with": Form("starts_with({0}, {1})", "startswith({0}, {1})"),
    "ends_with": Form("ends_with({0}, {1})", "endswith({0}, {1})"),
    "strpos": Form("strpos({0}, {1})", "CAST(instr({0}, {1}) AS BIGINT)"),
    "split_part": same("split_part({0}, {1}, {2})"),
    "regexp_matches": Form("regexp_matches({0}, {1})", "regexp_like({0}, {1})"),
    "regexp_extract": same("regexp_extract({0}, {1}, {2})"),
    "regexp_replace": Form("regexp_replace({0}, {1}, {2}, 'g')", "regexp_replace({0}, {1}, {2})"),
}

_NUMBERS: dict[str, Form] = {
    "abs": same("abs({0})"),
    "abs bigint": same("abs(NULLIF({0}, -9223372036854775807 - 1))"),
    "round": Form("round({0}) + 0e0", f"{_FINITE.replace('{1}', 'round({0})')} + 0e0"),
    "round to": same(
        "CASE WHEN abs({0} * {1}) < 4503599627370496e0 THEN round({0} * {1}) / {1} ELSE {0} END + 0e0"
    ),
    "floor": Form("floor({0}) + 0e0", f"{_FINITE.replace('{1}', 'CAST(floor({0}) AS DOUBLE)')} + 0e0"),
    "ceil": Form("ceil({0}) + 0e0", f"{_FINITE.replace('{1}', 'CAST(ceil({0}) AS DOUBLE)')} + 0e0"),
    "trunc": Form(
        "trunc({0}) + 0e0",
        _FINITE.replace("{1}", "CAST(CASE WHEN {0} < 0e0 THEN ceil({0}) ELSE floor({0}) END AS DOUBLE)")
        + " + 0e0",
    ),
    "sign": same("CAST(CASE WHEN {0} > 0 THEN 1 WHEN {0} < 0 THEN -1 WHEN {0} = 0 THEN 0 END AS BIGINT)"),
    "sqrt": same("CASE WHEN {0} >= 0e0 THEN sqrt({0}) END"),
    **{name: same(f"CASE WHEN {{0}} > 0e0 THEN {name}({{0}}) END") for name in ("ln", "log10", "log2")},
    **{name: same(f"{name}({{0}})") for name in ("cbrt", "exp", "sin", "cos", "tan", "atan")},
    **{name: same(f"{name}({{0}})") for name in ("radians", "degrees")},
    "power": same("power({0}, {1})"),
    "atan2": same("atan2({0} + 0e0, {1} + 0e0)"),  # of -0.0 Spark makes 0.0 before, DuckDB does not
    "coalesce": same("COALESCE({args})"),
    "nullif": same("NULLIF({0}, {1})"),
    "least": same("least({args})"),
    "greatest": same("greatest({args})"),
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

_YEARS: Final = f"{FIRST_US} AND {LAST_US}"
"""The years 1 to 9999 in µs."""

_TIMES: dict[str, Form] = {
    **{
        name: Form(f"{name}({{0}})", f"CAST({spark}({{0}}) AS BIGINT)") for name, spark in _TIME_PARTS.items()
    },
    "dayofweek": Form("dayofweek({0})", "CAST(dayofweek({0}) - 1 AS BIGINT)"),
    "isodow": Form("isodow({0})", "CAST(weekday({0}) + 1 AS BIGINT)"),
    "epoch_ms": Form("epoch_ms(date_trunc('millisecond', {0}))", "unix_millis({0})"),
    "epoch_us": Form("epoch_us({0})", "unix_micros({0})"),
    "epoch": Form("CAST(epoch_us({0}) AS DOUBLE) / 1e6", "CAST(unix_micros({0}) AS DOUBLE) / 1e6"),
    "from us": Form(
        f"CASE WHEN {{0}} BETWEEN {_YEARS} THEN make_timestamp({{0}}) END",
        f"CASE WHEN {{0}} BETWEEN {_YEARS} THEN timestamp_micros({{0}}) END",
    ),
    "add months": Form(
        f"CASE WHEN epoch_us({{0}}) BETWEEN {_YEARS} THEN {{0}} + to_months({{1}}) END",
        f"CASE WHEN unix_micros({{0}}) BETWEEN {_YEARS} THEN {{0}} + make_ym_interval(0, {{1}}) END",
    ),
    "floor div": Form("({0} - (({0} % {1}) + {1}) % {1}) // {1}", "({0} - pmod({0}, {1})) div {1}"),
    "number of year": Form("year({0})", "CAST(year({0}) AS BIGINT)"),
    "number of quarter": Form("year({0}) * 4 + quarter({0})", "CAST(year({0}) * 4 + quarter({0}) AS BIGINT)"),
    "number of month": Form("year({0}) * 12 + month({0})", "CAST(year({0}) * 12 + month({0}) AS BIGINT)"),
    "dayname": Form("dayname({0})", "date_format({0}, 'EEEE')"),
    "monthname": Form("monthname({0})", "date_format({0}, 'MMMM')"),
    "last_day": Form("CAST(last_day({0}) AS TIMESTAMP)", "CAST(last_day({0}) AS TIMESTAMP)"),
    "strftime": Form(
        f"CASE WHEN epoch_us({{0}}) BETWEEN {_YEARS} THEN strftime({{0}}, {{1}}) END",
        f"CASE WHEN unix_micros({{0}}) BETWEEN {_YEARS} THEN date_format({{0}}, {{1}}) END",
    ),
    "date_trunc": same("date_trunc({0}, {1})"),
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
    "7 bits": same(
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

_BIASED: Final = (1 << 63) + 10**20
"""What added to an integer of 64 bits has 21 digits."""
_SPARK_PAIR = "CASE WHEN {1} IS NOT NULL THEN named_struct('n', {0} IS LAST, 't', {0}, 'x', {1}) END"
_NINES = 10**38 - 1

# Two values as one (``elf.ql.pairs``). Spark has structs.
_PAIRS: dict[str, Form] = {
    "digits of text": Form("'x' || hex({0})", "{0}"),
    "digits of bigint": Form(f"CAST(CAST({{0}} AS HUGEINT) + {_BIASED} AS VARCHAR)", "{0}"),
    "digits of hugeint": Form(
        f"CASE WHEN {{0}} < 0 THEN '-' || lpad(CAST({{0}} + {_NINES} AS VARCHAR), 38, '0') "
        "ELSE '0' || lpad(CAST({0} AS VARCHAR), 38, '0') END",
        "{0}",
    ),
    "number of digits": Form(f"CAST(CAST({{0}} AS HUGEINT) - {_BIASED} AS BIGINT)", "{0}"),
    "pair": Form("COALESCE({0}, '~') || ' ' || {1}", _SPARK_PAIR.replace("IS LAST", "IS NULL")),
    "low pair": Form("COALESCE({0}, '!') || ' ' || {1}", _SPARK_PAIR.replace("IS LAST", "IS NOT NULL")),
    "of pair": Form("substring({0}, strpos({0}, ' ') + 1)", "{0}.x"),
    # Spark's to_json takes no text alone.
    "json of text": Form(
        "CAST(to_json(CAST({0} AS VARCHAR)) AS VARCHAR)",
        "regexp_extract(to_json(array(CAST({0} AS STRING))), '(?s)^.(.*).$', 1)",
    ),
}

FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {**_OPERATORS, **_CASTS, **_TEXT, **_NUMBERS, **_TIMES, **_CELLS, **_PACKED, **_PAIRS, **WEB, **LOOKUPS}
)
"""By operation."""

_CALLS = frozenset({"+", "-", "*"})
_OTHERS = frozenset(
    {
        "round",
        "round to",
        "floor",
        "ceil",
        "trunc",
        "epoch",
        "floor div",
        "number of quarter",
        "number of month",
    }
    | {"text to boolean", "number to boolean", "json valid", "pair", "low pair", "digits of hugeint"}
)

INFIX: Final = (frozenset(_OPERATORS) - _CALLS) | _OTHERS | {"case", "and", "or", "in", "final avg"}
"""Operations whose text must stand in parentheses inside another one."""
