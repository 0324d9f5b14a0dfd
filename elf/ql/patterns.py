"""Text patterns in the common subset of the engines: regular expressions (RE2 and Java) and LIKE.

A regular expression means what it means to RE2, whose classes are ASCII. Java's differs in places, which
are translated: the line terminators (``(?d)``: only a newline is one), ``$`` (``\\z``: the very end), case
folding (``(?iu)``), space, word boundaries. What only one of them knows (look-around, back-references,
possessive quantifiers, class intersections …) is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


class BadPattern(Exception):
    """The text says what is wrong with the pattern."""


@dataclass(frozen=True)
class Regex:
    """A pattern as each engine wants it, and the number of its groups."""

    re2: str
    java: str
    groups: int


_TOKEN = re.compile(
    r"(?P<escape>\\(?:x\{[0-9A-Fa-f]+\}|[pP]\{\^?\w+\}|x[0-9A-Fa-f]{2}|.))"
    r"|(?P<group>\(\?(?P<kind>[imsUudx^-]*[:)]|<?[=!]|>|P?<\w+>|P=|.))"
    r"|(?P<class>\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])"
    r"|(?P<possessive>(?:[*+?]|\{\d+(?:,\d*)?\})\+)"
    r"|(?P<plain>.)",
    re.DOTALL,
)
_ESCAPES = frozenset("dDsSwWbBnrtfaAz\\.^$|?*+()[]{}-/\"'#&~ :;,<>=!@%_`")
_CLASS_ESCAPES = frozenset("dDswWnrtfa\\.^$|?*+()[]{}-/\"'#&~ :;,<>=!@%_`")
_JAVA_ESCAPES = {
    r"\s": r"[\t\n\f\r ]",
    r"\S": r"[^\t\n\f\r ]",
    r"\b": r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))",
    r"\B": r"(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))",
}


def regex(pattern: str) -> Regex:
    """Both spellings of a pattern. Raises ``BadPattern``."""
    java = ["(?d)"]
    for match in _TOKEN.finditer(pattern):
        text = match[0]
        if match["escape"]:
            _check_escape(text, _ESCAPES)
            text = _JAVA_ESCAPES.get(text, text)
        elif match["group"]:
            text = _group(text)
        elif match["class"]:
            _check_class(text)
            text = text.replace("\\s", "\\t\\n\\f\\r ")
        elif match["possessive"]:
            raise BadPattern(f"possessive quantifiers ({text}) are not supported in patterns")
        elif text == "$":
            text = "\\z"
        java.append(text)
    return Regex(pattern, "".join(java), _count_groups(pattern))


def _check_escape(text: str, known: frozenset[str]) -> None:
    if text[1] in "123456789k":
        raise BadPattern(f"back-references ({text}) are not supported in patterns")
    if text[1] not in known and text[1] != "x":
        raise BadPattern(f"{text} is not supported in patterns")


def _group(text: str) -> str:
    if text in ("(?:", "(?i)", "(?s)", "(?i:", "(?s:"):
        return text.replace("i", "iu")
    if re.match(r"\(\?<?[=!]", text):
        raise BadPattern(f"look-around ({text}) is not supported in patterns")
    raise BadPattern(f"{text} is not supported in patterns")


def _check_class(text: str) -> None:
    for escape in re.findall(r"\\.", text):
        _check_escape(escape, _CLASS_ESCAPES)
    if "&&" in text or re.search(r"(?<!\\)\[", text[1:]):
        raise BadPattern("class intersections, nested and named classes are not supported in patterns")


def _count_groups(pattern: str) -> int:
    """Python's grammar holds all of the subset, so it finds what is malformed."""
    try:
        return re.compile(pattern.replace("\\z", "\\Z")).groups
    except re.error as error:
        raise BadPattern(f"not a regular expression: {error}") from error


def like_for_spark(pattern: str) -> str:
    """A LIKE pattern for Spark, where a backslash escapes; in ELF-QL, as in DuckDB, it means itself."""
    return pattern.replace("\\", "\\\\")
