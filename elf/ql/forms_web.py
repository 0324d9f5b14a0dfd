r"""Forms of JSON and of addresses.

JSON is as in RFC 8259: DuckDB also accepts a comma before a bracket, NaN and Infinity, Spark a rest after the
value; both are refused here, and an invalid document is NULL. Spark's session must have
``spark.sql.variant.allowDuplicateKeys``: of two equal keys the first counts. Texts, booleans, integers of 64
bits and other numbers from 0.001 to below 10,000,000 have a text, the same in both engines; beyond that the
engines write numbers differently.

``ip6 expanded``: an IPv6 address with all of its eight groups (``::`` stands for as many as are missing).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from elf.ql.templates import Form, braced

_STRING = r'"(?:\\.|[^"\\])*"'
_LENIENT = r",\s*[\]}]|[nN][aA]|[iI][nN][fF]"
_STRICT = (
    f"json_valid({{0}}) AND NOT regexp_matches("
    f"regexp_replace({{0}}, '{braced(_STRING)}', '0', 'g'), '{braced(_LENIENT)}')"
)
_SPARK_STRICT = (  # two lengths: a bracket too many would end one of the arrays early
    "try_parse_json({0}) IS NOT NULL AND json_array_length('[' || {0} || ']') = 1 "
    "AND json_array_length('[' || {0} || ',0]') = 2"
)
_VALID = "CASE WHEN json_valid({0}) THEN {0} END"
"""DuckDB folds constants behind a CASE too, and fails there for one that is no JSON."""
_TYPE = f"json_type({_VALID}, {{1}})"
_SPARK_TYPE = "schema_of_variant(try_variant_get(try_parse_json({0}), {1}, 'variant'))"
_INTEGER = "^-?[0-9]+$"


def _scalar(strict: str, kind: str, plain: str, containers: str, text: str, like: str) -> str:
    return (
        f"CASE WHEN {strict} THEN CASE WHEN {kind} IN ({plain}) THEN {text} WHEN {containers} THEN NULL "
        f"WHEN {like}({text}, '{_INTEGER}') THEN CASE WHEN TRY_CAST({text} AS BIGINT) IS NOT NULL "
        f"THEN {text} END WHEN abs(TRY_CAST({text} AS DOUBLE)) >= 1e-3 "
        f"AND abs(TRY_CAST({text} AS DOUBLE)) < 1e7 THEN {text} END END"
    )


_TEXT = f"json_extract_string({_VALID}, {{1}})"
_SPARK_TEXT = "get_json_object({0}, {1})"
_CONTAINERS = f"{_TYPE} IN ('OBJECT', 'ARRAY', 'NULL')"
_SPARK_CONTAINERS = f"({_SPARK_TYPE} = 'VOID' OR {_SPARK_TYPE} LIKE 'OBJECT%' OR {_SPARK_TYPE} LIKE 'ARRAY%')"
_NUMBER = f"CASE WHEN {_STRICT} THEN CASE WHEN {_TYPE} IN ('UBIGINT', 'BIGINT', 'HUGEINT', 'DOUBLE') THEN "
_SPARK_NUMBER = (
    f"CASE WHEN {_SPARK_STRICT} THEN CASE WHEN {_SPARK_TYPE} IN ('BIGINT', 'DOUBLE', 'FLOAT') "
    f"OR {_SPARK_TYPE} LIKE 'DECIMAL%' THEN "
)
_ARRAY = f"CASE WHEN {_STRICT} THEN CASE WHEN {_TYPE} = 'ARRAY' THEN "
_SPARK_ARRAY = f"CASE WHEN {_SPARK_STRICT} THEN CASE WHEN {_SPARK_TYPE} LIKE 'ARRAY%' THEN "

_JSON: dict[str, Form] = {
    "json valid": Form(
        f"CASE WHEN {{0}} IS NOT NULL THEN {_STRICT} END",
        f"CASE WHEN {{0}} IS NOT NULL THEN COALESCE({_SPARK_STRICT}, FALSE) END",
    ),
    "json text": Form(
        _scalar(_STRICT, _TYPE, "'VARCHAR', 'BOOLEAN'", _CONTAINERS, _TEXT, "regexp_matches"),
        _scalar(
            _SPARK_STRICT, _SPARK_TYPE, "'STRING', 'BOOLEAN'", _SPARK_CONTAINERS, _SPARK_TEXT, "regexp_like"
        ),
    ),
    "json number": Form(
        f"{_NUMBER}TRY_CAST({_TEXT} AS DOUBLE) END END",
        f"{_SPARK_NUMBER}TRY_CAST({_SPARK_TEXT} AS DOUBLE) END END",
    ),
    "json length": Form(
        f"{_ARRAY}CAST(json_array_length({_VALID}, {{1}}) AS BIGINT) END END",
        f"{_SPARK_ARRAY}CAST(json_array_length({_SPARK_TEXT}) AS BIGINT) END END",
    ),
    "json contains": Form(
        f"{_ARRAY}COALESCE(list_contains(json_extract_string({_VALID}, {{2}}), {{3}}), FALSE) END END",
        f"{_SPARK_ARRAY}COALESCE(array_contains("
        f"filter(from_json({_SPARK_TEXT}, 'ARRAY<STRING>'), x -> x IS NOT NULL), {{3}}), FALSE) END END",
    ),
}


def _zeros(text: str) -> str:
    """How many groups ``::`` stands for."""
    colons = f"(length({text}) - length(replace({text}, ':', '')))"
    starts, ends = (f"CASE WHEN {text} LIKE '{like}' THEN 1 ELSE 0 END" for like in ("::%", "%::"))
    return f"CAST(8 - {colons} + {starts} + {ends} AS INT)"


_EXPANDED = f"replace(lower({{0}}), '::', ':' || repeat('0:', {_zeros('{0}')}))"

_ADDRESSES: dict[str, Form] = {
    "ip6 expanded": Form(f"trim({_EXPANDED}, ':')", f"trim(BOTH ':' FROM {_EXPANDED})"),
}

WEB: Final[Mapping[str, Form]] = MappingProxyType({**_JSON, **_ADDRESSES})
"""By operation."""
