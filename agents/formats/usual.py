"""Columns of usual access lines, by one regular expression from the start of the line: for Spark, to which
cutting a line at its quotes costs several times as much.

Usual is a line that has, up to the last of the columns, no backslash, no quotes within quotes, a word for the
user and a request of three words. That it is of the format is known: an agent has accepted it. So the text in
front of its first quote is the head, and what the pattern finds is what the grammar finds
(``agents.formats.access``).

It must never match another text than the grammar's. It may match nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from agents.formats.dialect import SPARK
from elf.schema import Column

_TEXT: Final = r'[^"\\]*'
_WORD: Final = r'[^ "\\]+'
_HEAD: Final = {"c_ip": r'[^ ,"\\\ufeff]+', "cs_username": _WORD}
_DATE: Final = r'\[[^\] "\\]{20} [+-][0-9]{4}\]'
_REQUEST: Final = {
    "cs_method": "[A-Z]+",
    "cs_uri_stem": r'[^ ?"\\]+',
    "cs_uri_query": r'[?][^ "\\]* | ',
    "cs_version": "HTTP/[0-9](?:[.][0-9])?",
}
_NUMBERS: Final = {"sc_status": "[0-9]{3}", "sc_bytes": "[0-9]+|-"}
_QUOTED: Final = {"cs_referer": r'[^"\\]+', "cs_user_agent": r'[^"\\]+'}
"""Of what ``combined`` has behind the bytes."""
_WHOLE: Final = "cs_request"
COLUMNS: Final = (*_HEAD, _WHOLE, *_REQUEST, *_NUMBERS, *_QUOTED)
"""In the order of their groups."""


def is_read(column: Column, *, combined: bool) -> bool:
    """Whether a pattern finds it."""
    if column.name not in COLUMNS or (column.name in _QUOTED and not combined):
        return False
    return column.type == ("bigint" if column.name in _NUMBERS else "text")


def pattern(columns: Collection[str]) -> str:
    """Of the beginning of a usual line; a group for each column, in the order of ``COLUMNS``."""

    def pieces(kinds: dict[str, str]) -> list[str]:
        return [f"({kind})" if name in columns else f"(?:{kind})" for name, kind in kinds.items()]

    def wanted(*kinds: Collection[str]) -> bool:
        return any(name in columns for kind in kinds for name in kind)

    client, user = pieces(_HEAD)
    made = f'{client} - {user} {_DATE} "' if wanted(_HEAD) else f'{_TEXT}"'
    if wanted([_WHOLE], _REQUEST, _NUMBERS, _QUOTED):
        method, stem, query, version = pieces(_REQUEST)
        request = f"{method} {stem}{query}{version}" if wanted([_WHOLE], _REQUEST) else _TEXT
        made += (f"({request})" if _WHOLE in columns else request) + '"'
    if wanted(_NUMBERS, _QUOTED):
        status, size = pieces(_NUMBERS)
        made += rf" {status} {size}(?: |\z)"
    if wanted(_QUOTED):
        referer, agent = pieces(_QUOTED)
        made += f'"{referer}" "{agent}"'
    return made


def find(line: str, columns: Sequence[str]) -> str:
    """SQL of what the pattern finds, for ``is_found`` and ``found``: Spark has one function that gives one
    group, and none that gives several."""
    if len(columns) == 1:
        return f"regexp_extract({line}, {SPARK.literal(f'^{pattern(columns)}')}, 1)"
    return SPARK.groups(line, f"{pattern(columns)}.*", len(columns))


def is_found(name: str, columns: Sequence[str]) -> str:
    return f"({name} <> '')" if len(columns) == 1 else SPARK.is_grouped(name, len(columns))


def found(name: str, columns: Sequence[str]) -> dict[str, str]:
    """The text of each column."""
    ordered = [one for one in COLUMNS if one in columns]
    groups = {one: SPARK.group(name, place) for place, one in enumerate(ordered, 1)}
    if len(columns) == 1:
        groups = dict.fromkeys(columns, name)
    return {one: _text(one, group) for one, group in groups.items()}


def _text(column: str, group: str) -> str:
    if column == "cs_uri_query":
        return f"CASE WHEN {group} <> ' ' THEN substr({group}, 2, length({group}) - 2) END"
    return group if column == "cs_version" else f"nullif({group}, '-')"
