"""Text patterns in the common subset of the engines: regular expressions (RE2 and Java) and LIKE.

A regular expression has its RE2 meaning, with ASCII classes. Java differs in places, which are translated:
the line terminators (``(?d)``: only a newline is one), ``$`` (``\\z``: the very end), case folding
(``(?iu)``), space, word boundaries. Features of only one of them (look-around, back-references, possessive
quantifiers, class intersections …) are refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

REPEAT_MAX: Final = 1000
"""The most repetitions in RE2."""


class BadPattern(Exception):
    """The text says what is wrong with the pattern."""


class Regex(Struct, frozen=True):
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
    tree = _parsed(pattern)
    _check_repeats(tree)
    return Regex(pattern, "".join(java), tree.state.groups - 1)


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


def _parsed(pattern: str) -> Any:
    """Python's tree of a pattern: its grammar holds all of the subset, so it finds what is malformed."""
    try:
        return re._parser.parse(pattern.replace("\\z", "\\Z"))  # type: ignore[attr-defined]
    except (re.error, OverflowError) as error:
        raise BadPattern(f"not a regular expression: {error}") from error


def nullable(pattern: str) -> bool:
    """Whether it can match the empty text."""
    least: int = _parsed(pattern).getwidth()[0]
    return least == 0


def _check_repeats(tree: Any, most: int = REPEAT_MAX) -> None:
    """RE2 repeats at most a thousand times, all levels together. The engines differ in what a group that may
    be empty holds after it has been repeated."""
    for what, value in tree:
        name = str(what)
        if name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = value
            times = max(low, 1 if int(high) == int(re._constants.MAXREPEAT) else high)  # type: ignore[attr-defined]
            if times > most:
                raise BadPattern(f"more than {REPEAT_MAX} repetitions are not supported in patterns")
            if high > 1 and inner.getwidth()[0] == 0 and inner.state.groups > 1 and _holds_group(inner):
                raise BadPattern("repeating a group that can match nothing is not supported in patterns")
            _check_repeats(inner, most // max(times, 1))
        elif name == "SUBPATTERN":
            _check_repeats(value[3], most)
        elif name == "BRANCH":
            for branch in value[1]:
                _check_repeats(branch, most)


def _holds_group(tree: Any) -> bool:
    for what, value in tree:
        name = str(what)
        if name == "SUBPATTERN" and (value[0] is not None or _holds_group(value[3])):
            return True
        if name in ("MAX_REPEAT", "MIN_REPEAT") and _holds_group(value[2]):
            return True
        if name == "BRANCH" and any(_holds_group(branch) for branch in value[1]):
            return True
    return False


def like_for_spark(pattern: str) -> str:
    """A LIKE pattern for Spark, where a backslash escapes; in ELF-QL, as in DuckDB, it means itself."""
    return pattern.replace("\\", "\\\\")
