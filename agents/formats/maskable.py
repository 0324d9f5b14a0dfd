"""Which columns of a format can be masked, and how (``streams.NAME.mask``): those whose text in a line can
be replaced so that the line stays one of the format, with the same values elsewhere
(``agents.tasks.rewriting``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from agents.formats.access import AccessLog
from agents.formats.csv import Csv
from agents.formats.dialect import Format
from agents.formats.fields import EVENT_TIME, Fielded, parts
from agents.formats.json import JsonLines
from agents.formats.layout import Patterned, group_starts
from agents.formats.logfmt import Logfmt
from agents.formats.nested import Nested
from agents.formats.patterns import Regex
from agents.masks import ACCESS, ANY, HOWS

EXTRA: Final = "extra"
"""All that is behind the last field."""
LEAVES_TEXT: Final = ("hash", "drop")
_TEXTS: Final = frozenset({"word", "free", "list", "query", "address", "path", "braced", "tag", "untold"})
"""Kinds of fields that take a network, a hash and ``-``."""
_DASH: Final = frozenset({"whole", "real", "ms", "us", "ns", "last_whole", "last_real", "structured", "yes"})
"""Those that take ``-`` alone."""
_EXAMPLES: Final = {
    "truncate": ("203.0.113.0", "2001:db8::", "-"),
    "hash": ("0123456789abcdef",),
    "drop": ("-",),
}
"""What is left of a value."""


def maskable(fmt: Format) -> Mapping[str, tuple[str, ...]] | None:
    """The columns, each with how, ``ANY`` for all others; none: any key of its lines; None: its lines cannot
    be masked."""
    if isinstance(fmt, AccessLog):
        return ACCESS
    if isinstance(fmt, Logfmt | JsonLines):
        return {}
    if isinstance(fmt, Nested):
        return _of_nested(fmt)
    if not isinstance(fmt, Fielded):
        return None
    found: dict[str, tuple[str, ...]] = {}
    for field in fmt.fields:
        if field.kind == "request":
            found |= dict.fromkeys(("cs_request", "cs_uri_query"), LEAVES_TEXT)
        elif field.kind == "uri":
            found["cs_uri_query"] = LEAVES_TEXT
        elif field.kind in _TEXTS or field.kind in _DASH:
            hows = HOWS if field.kind in _TEXTS else ("drop",)
            found |= {part.column.name: hows for part in parts(field)}
    if isinstance(fmt, Regex):
        if not _is_pythons(fmt):
            return None
        found = {name: tuple(how for how in hows if _takes(fmt, name, how)) for name, hows in found.items()}
    if isinstance(fmt, Csv) or (isinstance(fmt, Patterned) and fmt.separator is not None):
        found[EXTRA] = LEAVES_TEXT
    return found


def _of_nested(fmt: Nested) -> dict[str, tuple[str, ...]]:
    """Its columns, and all other keys."""
    found: dict[str, tuple[str, ...]] = {ANY: HOWS}
    for named in fmt.names.values():
        hows = HOWS if named.type == "text" else ("drop",)
        found[named.column] = {"query": LEAVES_TEXT, "stem": ()}.get(named.part, hows)
    event = fmt.names[EVENT_TIME]
    return found | dict.fromkeys((event.column, event.path.lower()), ())


def _is_pythons(fmt: Regex) -> bool:
    """Whether Python reads the expression as RE2 does, as far as it can be told."""
    pattern, _, _ = fmt.pattern([])
    try:
        return "[[:" not in pattern and bool(re.compile(pattern))
    except re.error:
        return False


def _takes(fmt: Regex, name: str, how: str) -> bool:
    """Whether the group of that name matches what is left of a value."""
    number = next(number for number, field in enumerate(fmt.fields) if field.name == name)
    pattern, groups, _ = fmt.pattern([number])
    text = pattern[group_starts(pattern)[groups[number] - 1] :]
    group = re.compile(_closed(text), re.ASCII | re.DOTALL)
    return all(group.fullmatch(example) for example in _EXAMPLES[how])


def _closed(text: str) -> str:
    """The group with which a pattern begins."""
    depth, within = 0, False
    for token in re.finditer(r"\\.|\[\^?\]?|\]|[()]", text, re.DOTALL):
        piece = token[0]
        within = (within or piece.startswith("[")) and piece != "]"
        if not within and piece in "()":
            depth += 1 if piece == "(" else -1
            if not depth:
                return text[: token.end()]
    return text
