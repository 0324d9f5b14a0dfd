"""The scalar functions of ELF-QL: those that DuckDB and Spark share with one meaning. These tables are the
whole list.

Each entry says how a function is called, what it gives, and how its arguments become an expression
(``elf.ql.signatures``). A function that is not here is "not supported yet": it is never passed through to an
engine in the hope that both mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from elf.ql.functions_lookup import GEOIP, USER_AGENT_TABLES
from elf.ql.functions_number import CONDITIONAL, NUMBERS
from elf.ql.functions_text import TEXT
from elf.ql.functions_time import TIMES
from elf.ql.functions_web import ADDRESSES, JSON, URLS, USER_AGENTS
from elf.ql.signatures import Function

GROUPS: Final[Mapping[str, tuple[Function, ...]]] = MappingProxyType(
    {
        "choosing": CONDITIONAL,
        "text": TEXT,
        "numbers": NUMBERS,
        "time": TIMES,
        "JSON": JSON,
        "addresses": ADDRESSES,
        "URLs": URLS,
        "user agents": USER_AGENTS,
        "places of addresses": GEOIP,
        "tables of user agents": USER_AGENT_TABLES,
    }
)
"""By what they are about, in the order of the reference."""

FUNCTIONS: Final[Mapping[str, Function]] = MappingProxyType(
    {function.name: function for group in GROUPS.values() for function in group}
)
"""By name, in lower case."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {alias: function.name for function in FUNCTIONS.values() for alias in function.aliases}
)
"""Other names of the same functions."""

ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "date_format": "strftime(timestamp, '%Y-%m-%d')",
        "to_char": "strftime(timestamp, '%Y-%m-%d')",
        "to_date": "date_trunc('day', timestamp)",
        "date": "date_trunc('day', timestamp)",
        "unix_timestamp": "epoch(timestamp)",
        "from_unixtime": "to_timestamp(seconds)",
        "timestampdiff": "date_diff(unit, from, to)",
        "date_add": "timestamp + INTERVAL 5 MINUTES",
        "dateadd": "timestamp + INTERVAL 5 MINUTES",
        "date_sub": "timestamp - INTERVAL 5 MINUTES",
        "charindex": "strpos(text, part)",
        "locate": "strpos(text, part)",
        "log": "ln(x), log2(x) or log10(x): engines differ in what log means",
        "parse_url": "url_host(url), url_path(url), url_parameter(url, name)",
        "json_extract": "json_extract_string(json, path)",
        "json_value": "json_extract_string(json, path)",
        "array_length": "json_array_length(json)",
        "array_contains": "json_array_contains(json, constant)",
        "list_contains": "json_array_contains(json, constant)",
        "cardinality": "json_array_length(json)",
        "rlike": "regexp_matches(text, pattern)",
        "count_distinct": "COUNT(DISTINCT x)",
        "uniq": "COUNT(DISTINCT x)",
        "approx_quantile": "APPROX_PERCENTILE(x, p)",
        "quantile": "PERCENTILE(x, p)",
        "quantile_cont": "PERCENTILE(x, p)",
        "percentile_cont": "PERCENTILE(x, p)",
        "any_value": "FIRST(x)",
        "list": "ARRAY_AGG(x)",
        "collect_list": "ARRAY_AGG(x)",
        "collect_set": "ARRAY_AGG(DISTINCT x)",
        "countif": "COUNT(*) FILTER (WHERE …)",
        "count_if": "COUNT(*) FILTER (WHERE …)",
        "sumif": "SUM(x) FILTER (WHERE …)",
        "mean": "AVG(x)",
        "std": "STDDEV(x)",
        "topk": "APPROX_TOP_K(x, k)",
    }
)
"""The names in other dialects, and what replaces them here."""

CHANGING: Final = frozenset(
    {"now", "current_timestamp", "current_date", "today", "random", "rand", "uuid", "getdate", "sysdate"}
)
"""Functions that give a different value each time: then the live answer could not be checked."""
