"""Layouts: lines that are fields with fixed texts between them, as a regular expression of as many groups as
fields are wanted, in what RE2 and Java read alike.

What a field looks like follows from what encloses it: in quotes all but a quote, in brackets all but the
closing one; else what its kind says, and of a word all but what follows it. Escaped quotes (``\\"``) are
taken out of the way first, and put back into what is extracted, so that escapes stay as written. Two fields
that may have blanks and are not enclosed are as short as the rest of the line lets them be.

What follows the last field of a layout are fields too, ``extra_1`` and so on; they are separated as the
fields of the layout are.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from agents.formats.dialect import Dialect, Step
from agents.formats.fields import ADDRESS, KINDS, LIST, Cut, Field, Fielded, numbered
from elf.errors import ConfigError

BLANKS: Final = "␣"
"""In a text of a layout: one or more blanks."""
GAP: Final = "⇥"
"""In a text of a layout: a blank or a tab."""
_END: Final = ""
_SEPARATORS: Final = " \t|;,"
_FREE_MAX: Final = 3
"""Fields of any text that nothing encloses: with each more, a line that does not fit takes Java longer."""
_FIRMS: Final = frozenset("\t|;^~\x01\x1f")
"""What hardly is within a field that it separates."""


@dataclass(frozen=True)
class Optional:
    """What a line may have or not."""

    pieces: tuple[Piece, ...]


Piece: TypeAlias = "str | Field | Optional"


def fields_of(pieces: Sequence[Piece]) -> Iterator[Field]:
    """All fields, in their order."""
    for piece in pieces:
        if isinstance(piece, Field):
            yield piece
        elif isinstance(piece, Optional):
            yield from fields_of(piece.pieces)


class Patterned(Fielded):
    """A format whose lines match a pattern. ``escapes``: whether a backslash may escape a quote.
    ``separator``: of what may be behind the last field; None: the pattern takes the whole line."""

    def __init__(
        self, name: str, fields: Sequence[Field], *, escapes: bool = False, separator: str | None = None
    ) -> None:
        super().__init__(name, fields)
        self.escapes, self.separator = escapes, separator
        self.never_empty: frozenset[int] = frozenset()
        """Numbers of fields that no line of the format leaves empty."""

    @abstractmethod
    def pattern(self, wanted: Sequence[int], *, quick: bool = False) -> tuple[str, dict[int, int], int]:
        """Of a whole line but for what is behind the last field; the group of each field that is wanted, and
        how many groups there are. ``quick``: perhaps only of lines that are plain, of which it finds the
        same."""

    def whole(self, wanted: Sequence[int], *, quick: bool = False) -> tuple[str, dict[int, int], int]:
        """With what is behind, in the last group, if anything may be."""
        pattern, groups, count = self.pattern(wanted, quick=quick)
        if self.separator is None:
            return pattern, groups, count
        return f"(?:{pattern})(?:{quoted(self.separator)}(.*))?", groups, count + 1

    def cut(self, dialect: Dialect, wanted: Sequence[int], *, extras: bool) -> Cut:
        """See ``Fielded``."""
        pattern, groups, count = self.whole(wanted)
        steps: list[Step] = []
        line = "line"
        if self.escapes:
            escaped = dialect.contains("line", dialect.literal("\\"))
            steps += [
                (("_odd", escaped),),
                (("_s", f"CASE WHEN _odd THEN {dialect.masked('line')} ELSE line END"),),
            ]
            line = "_s"
        plain, _, _ = self.whole(wanted, quick=True)
        sure = min((groups[number] for number in self.never_empty & groups.keys()), default=0)
        grouped = dialect.groups(line, pattern, count, sure)
        if plain != pattern and dialect.engine == "duckdb":  # RE2 is three times as quick with such
            steps.append((("_f", dialect.groups(line, plain, count, sure)),))
            grouped = f"CASE WHEN {dialect.is_grouped('_f', count, sure)} THEN _f ELSE {grouped} END"
        steps.append((("_g", grouped),))
        texts = {number: dialect.group("_g", group) for number, group in groups.items()}
        if self.escapes:
            texts = {
                n: f"CASE WHEN _odd THEN {dialect.unmarked(text)} ELSE {text} END"
                for n, text in texts.items()
            }
        valid = dialect.is_grouped("_g", count, sure)
        if not count:
            valid = dialect.matches(line, pattern)
        if self.separator is None:
            return Cut(steps, f"coalesce({valid}, FALSE)", texts)
        steps.append((("_behind", dialect.group("_g", count)),))
        if extras:
            steps.append((("_w", dialect.words("_behind", self.separator)),))
        blank = f"({dialect.trimmed('_behind')} <> '')"
        return Cut(steps, f"coalesce({valid}, FALSE)", texts, "_w", blank, self.separator)

    def matching(self, lines: pa.StringArray) -> int | None:
        """See ``Format``."""
        if (headings := self.headings(lines)) is not None:
            lines = lines.filter(pa.array(~headings))
        pattern, _, _ = self.whole([])
        found = pc.match_substring_regex(self._masked(lines), rf"(?s)^(?:{pattern})\z")
        return int(pc.sum(found).as_py() or 0)

    def _masked(self, lines: pa.StringArray) -> pa.StringArray:
        return masked(lines) if self.escapes else lines

    def samples_of(self, samples: pa.StringArray) -> tuple[dict[int, pa.StringArray], list[list[str]]]:
        """See ``Fielded``."""
        untold = [number for number, field in enumerate(self.fields) if KINDS[field.kind].type is None]
        if not untold and self.separator is None:
            return {}, []
        pattern, groups, count = self.whole(untold)
        named = with_names(pattern)
        if not count:
            return {}, []
        lines = self._masked(samples.filter(pc.is_valid(samples)))
        found = pc.extract_regex(lines, rf"(?s)^(?:{named})\z")
        found = found.filter(pc.is_valid(found))
        told = {number: found.field(group - 1) for number, group in groups.items()}
        if self.separator is None:
            return told, []
        behind = found.field(count - 1)
        behind = behind.filter(pc.not_equal(pc.utf8_trim(behind, " "), ""))
        return told, [words(text, self.separator) for text in behind.to_pylist()]


class Layout(Patterned):
    """Fields with fixed texts between them; a text may have ``BLANKS``."""

    def __init__(self, name: str, pieces: Sequence[Piece], *, escapes: bool = False) -> None:
        fields = numbered(list(fields_of(pieces)))
        left = iter(fields)
        self._pieces = _renamed(pieces, left)
        if not fields:
            raise ConfigError("a format needs at least one field")
        open_end = _takes_all(self._pieces)
        super().__init__(name, fields, escapes=escapes, separator=None if open_end else _separator(pieces))
        self.never_empty = frozenset(_times(self._pieces))

    def pattern(self, wanted: Sequence[int], *, quick: bool = False) -> tuple[str, dict[int, int], int]:
        """See ``Patterned``. Plain are lines in whose fields that nothing encloses no blank is: what such a
        field is then, it is also where it may have some."""
        quick = quick and self._lazy and self._is_plain
        writing = _Writing(self.fields, frozenset(wanted), self.separator, self._lazy, quick)
        text = writing.pieces(self._pieces, "", frozenset({_END}))
        return text, writing.groups, len(writing.groups)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether where a field ends can depend on nothing but fields of any text."""
        whole = all(not isinstance(piece, Optional) for piece in self._pieces)
        return whole and all(KINDS[field.kind].pattern not in (LIST, ADDRESS) for field in self.fields)

    @cached_property
    def _lazy(self) -> bool:
        """Whether all fields of any text may have blanks."""
        return sum(KINDS[field.kind].free for field in _bare(self._pieces)) <= _FREE_MAX


class _Writing:
    """A layout's pattern, as it is written from left to right."""

    def __init__(
        self,
        fields: Sequence[Field],
        wanted: frozenset[int],
        separator: str | None,
        lazy: bool,
        quick: bool,
    ) -> None:
        self._quick = quick
        self._numbers = iter(range(len(fields)))
        self._wanted, self._separator, self._lazy = wanted, separator, lazy
        self.groups: dict[int, int] = {}

    def pieces(self, pieces: Sequence[Piece], before: str, behind: frozenset[str]) -> str:
        """``before``: the last character before them, ``behind``: which may follow."""
        made = ""
        for place, piece in enumerate(pieces):
            after = _firsts(pieces[place + 1 :], behind)
            if isinstance(piece, str):
                made += literal(piece)
                before = piece[-1:]
            elif isinstance(piece, Optional):
                made += f"(?:{self.pieces(piece.pieces, before, after)})?"
            else:
                number = next(self._numbers)
                shape = self._shape(piece, before, after)
                if number in self._wanted:
                    self.groups[number] = len(self.groups) + 1
                    made += f"({shape})"
                else:
                    made += f"(?:{shape})"
                before = ""
        return made

    def _shape(self, field: Field, before: str, after: frozenset[str]) -> str:
        kind = KINDS[field.kind]
        if before == '"' and '"' in after:
            return '[^"]*'
        if kind.pattern is not None:
            return kind.pattern
        if before == "[" and "]" in after:
            return r"[^\]]*"
        end = self._separator or "" if _END in after else ""
        stops = "".join(sorted({one for one in after if one != _END} | set(end)))
        if kind.free and after == {_END}:
            return ".*"
        firm = bool(stops) and set(stops) <= _FIRMS
        if kind.free and self._lazy and not firm and not (self._quick and stops == " "):
            return ".*?"
        stops = stops.replace(":", "")
        return f"[^{quoted(stops, within=True)}]*" if firm else f"[^{quoted(stops + ' ', within=True)}]*"


def with_names(pattern: str) -> str:
    """Each group with its number as a name."""
    starts = [0, *group_starts(pattern)]
    pieces = [pattern[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return pieces[0] + "".join(f"(?P<g{number}>{piece[1:]}" for number, piece in enumerate(pieces[1:], 1))


def group_starts(pattern: str) -> list[int]:
    """Where groups without a name begin."""
    found = []
    within = False
    for token in re.finditer(r"\\.|\[\^?\]?|\]|\((?!\?)", pattern, re.DOTALL):
        text = token[0]
        if text == "(" and not within:
            found.append(token.start())
        elif text.startswith("[") and not within:
            within = True
        elif text == "]":
            within = False
    return found


def quoted(text: str, *, within: bool = False) -> str:
    """As a regular expression; ``within`` a class of characters."""
    text = "".join(dict.fromkeys(text)) if within else text
    return re.sub(r"[\\^\]\[()-]" if within else r"[\\.^$|?*+()\[\]{}]", r"\\\g<0>", text)


def literal(text: str) -> str:
    """A fixed text as a regular expression."""
    return quoted(text).replace(BLANKS, " +").replace(GAP, "[ \t]")


def _firsts(pieces: Sequence[Piece], behind: frozenset[str]) -> frozenset[str]:
    """The characters that may come first."""
    found: set[str] = set()
    for piece in pieces:
        if isinstance(piece, str):
            return frozenset(found | set(piece[0].replace(BLANKS, " ").replace(GAP, " \t")))
        if isinstance(piece, Field):
            return frozenset(found)
        found |= _firsts(piece.pieces, frozenset())
    return frozenset(found | behind)


def _renamed(pieces: Sequence[Piece], fields: Iterator[Field]) -> tuple[Piece, ...]:
    return tuple(
        Optional(_renamed(piece.pieces, fields))
        if isinstance(piece, Optional)
        else next(fields)
        if isinstance(piece, Field)
        else piece
        for piece in pieces
    )


def _times(pieces: Sequence[Piece]) -> Iterator[int]:
    """Numbers of the times that are there in every line, and that no quotes enclose."""
    number, before = 0, ""
    for piece in pieces:
        if isinstance(piece, Optional):
            number += len(list(fields_of(piece.pieces)))
        elif isinstance(piece, Field):
            kind = KINDS[piece.kind]
            if kind.type == "timestamp" and kind.pattern is not None and before != '"':
                yield number
            number += 1
        before = piece[-1:] if isinstance(piece, str) else ""


def _bare(pieces: Sequence[Piece]) -> Iterator[Field]:
    """The fields that no quotes enclose."""
    before = ""
    for piece in pieces:
        if isinstance(piece, Optional):
            yield from _bare(piece.pieces)
        elif isinstance(piece, Field) and before != '"':
            yield piece
        before = piece[-1:] if isinstance(piece, str) else ""


def _takes_all(pieces: Sequence[Piece]) -> bool:
    """Whether the last field may be any text, to the end."""
    last = pieces[-1]
    if isinstance(last, Optional):
        return _takes_all(last.pieces) or (len(pieces) > 1 and _takes_all(pieces[:-1]))
    return isinstance(last, Field) and KINDS[last.kind].free


def _separator(pieces: Sequence[Piece]) -> str:
    """What most fields have behind them."""
    texts = [piece.strip('"[]') for piece in pieces if isinstance(piece, str)]
    counts = {
        one: sum(text.replace(BLANKS, " ").replace(GAP, " ") == one for text in texts) for one in _SEPARATORS
    }
    best = max(counts, key=lambda one: counts[one])
    return best if counts[best] and not any(" " in text for text in texts) else " "


def masked(lines: pa.StringArray) -> pa.StringArray:
    """What ``Dialect.masked`` finds."""
    return pc.replace_substring(pc.replace_substring(lines, "\\\\", "\0b"), '\\"', "\0q")


def words(text: str, separator: str) -> list[str]:
    """What ``Dialect.words`` finds, unmarked: what is behind the last field, one by one."""
    pieces = text.split('"')
    joined = "".join(
        "\0v" + piece.replace(separator, "\0s") if place % 2 else piece for place, piece in enumerate(pieces)
    )
    found = [one for one in joined.split(separator) if one or separator != " "]
    return [
        one.replace("\0v", "").replace("\0s", separator).replace("\0q", '\\"').replace("\0b", "\\\\")
        for one in found
    ]
