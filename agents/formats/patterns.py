"""``regex:PATTERN``: a regular expression with named groups, ``(?<name>…)`` or ``(?P<name>…)``, that is to
match the whole of a line, so that nothing in it is passed over. It has what RE2 and Java read alike: no
lookaround, no reference back, no possessive or atomic group. Types are told from samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats.dialect import is_reserved
from agents.formats.fields import Field
from agents.formats.layout import Patterned
from agents.formats.saying import cannot

_NAMED: Final = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")
_TOKEN: Final = re.compile(
    r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*\]|\(\?P?<(?![=!])(\w*)>|\(\?[:imsU-]+:?|\((\?.{0,2})?|.", re.DOTALL
)
_CANNOT: Final = re.compile(r"\\[1-9kgKGZzAhHRXNQE]|[*+?}]\+")


class Regex(Patterned):
    """``pattern``: with a group without a name for each of ``names`` (None: for nothing)."""

    def __init__(self, name: str, pattern: str, names: Sequence[str | None]) -> None:
        self._pattern = pattern
        self._places = [place for place, each in enumerate(names, 1) if each is not None]
        self._count = len(names)
        super().__init__(name, [Field(each, "untold") for each in names if each is not None])

    def pattern(self, wanted: Sequence[int], *, quick: bool = False) -> tuple[str, dict[int, int], int]:
        """See ``Patterned``."""
        return self._pattern, {number: self._places[number] for number in wanted}, self._count


def regex(text: str) -> Regex:
    """The format of such a text. Raises ``ConfigError`` with the place of what is wrong."""
    start = len("regex:") if text.startswith("regex:") else 0
    plain, names = "", list[str | None]()
    for token in _TOKEN.finditer(text, start):
        piece, name = token[0], token[1]
        if (found := _CANNOT.match(text, token.start())) is not None:
            raise cannot(text, token.start(), f"{found[0]} is not read alike by RE2 and Java")
        if piece.startswith("(?") and name is None and not re.fullmatch(r"\(\?[imsU-]*:", piece):
            raise cannot(text, token.start(), "only (?:…), (?i:…) and groups with names may begin with (?")
        if name is not None or piece == "(":
            if name in names or (name is not None and is_reserved(name)):
                raise cannot(text, token.start(), f"a group cannot be called {name} here")
            names.append(name)
            piece = "("
        plain += piece
    if not any(names):
        raise cannot(text, start, "a regular expression has named groups, such as (?<status>[0-9]+)")
    try:
        pc.match_substring_regex(pa.array([""]), plain)
    except pa.ArrowInvalid as error:
        raise cannot(text, start, str(error).rpartition("Invalid regular expression: ")[2]) from None
    return Regex(f"regex:{text[start:]}", plain, names)


def is_regex(text: str) -> bool:
    """Whether it is one, with or without its name in front."""
    return text.startswith("regex:") or _NAMED.search(text) is not None
