"""Where one statement ends and the next begins, in a text that may still be being typed.

Only quotes and comments are understood; whether a statement means anything is for the agent to say. A
statement keeps its place: the text before it becomes blank lines, so that an error in it names the line and
column of the whole text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_PIECE: Final = re.compile(
    r"""--[^\n]*            # a comment to the end of the line
    | /\*.*?(?:\*/|\Z)      # a comment, perhaps not closed yet
    | '(?:[^']|'')*(?:'|\Z) # text
    | "(?:[^"]|"")*(?:"|\Z) # a name
    | `[^`']*(?:[`']|\Z)    # a name, or text quoted as papers print it: `video_games'
    | ;
    | [^-/'"`;]+ | .""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Split:
    """Statements that end in a semicolon, each at its place, and what follows the last one."""

    complete: tuple[str, ...]
    rest: str


def split(text: str) -> Split:
    """The statements of a text. ``rest`` is empty when nothing but space and comments follows."""
    complete: list[str] = []
    start, blank = 0, True
    for piece in _PIECE.finditer(text):
        found = piece.group()
        if found == ";":
            if not blank:
                complete.append(_at_its_place(text, start, piece.end()))
            start, blank = piece.end(), True
        elif not found.isspace() and not found.startswith(("--", "/*")):
            blank = False
        elif found.startswith("/*") and not (found.endswith("*/") and len(found) >= 4):
            blank = False  # a comment that goes on
    return Split(tuple(complete), "" if blank else _at_its_place(text, start, len(text)))


def statements(text: str) -> tuple[str, ...]:
    """All statements of a finished text; the last one needs no semicolon."""
    parts = split(text)
    return parts.complete + ((parts.rest,) if parts.rest else ())


def _at_its_place(text: str, start: int, end: int) -> str:
    """The statement with as many lines and columns before it as it has in the whole text."""
    start += len(text[start:end]) - len(text[start:end].lstrip())
    before = text[:start]
    return "\n" * before.count("\n") + " " * (start - (before.rfind("\n") + 1)) + text[start:end].rstrip()
