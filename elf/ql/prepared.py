"""Questions for rows of tables that are asked again and again, with other values: read once.

What is kept of a text is its *form*: the text without its whole numbers and strings, and where these go in
the statement. A form is kept of a SELECT that names nothing but columns, and values that these have; each of
its constants is such a value. Whether that is so is seen by reading the text once more, with marks in the
place of its constants.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import Final

from msgspec import Struct

from elf.errors import QueryError
from elf.ql.keyed import TableSelect, Value

FORMS_MAX: Final = 512
CHARS_MAX: Final = 1_024
"""Of a text whose form is looked for."""
_WORD: Final = re.compile(
    r'"[^"]*"|`[^`]*`|--|/\*|(?P<string>\w*\'(?:[^\']|\'\')*\')|(?P<whole>(?<![\w.])\d{1,18}(?![\w.]))|\w+'
)
_PLACE: Final = "'"
"""What stands in a form for a string, and for nothing else; for a number a 0 does."""
_MARK: Final = re.compile(r"'elf:(\d+):mark'|\b10{14}(\d{3})\b")
Read = Callable[[str], Sequence[object]]
"""Reads the statements of a text. Raises ``QueryError``."""


class _Form(Struct, frozen=True):
    """``sql``, ``select``: what stands between the constants; ``equals``: the constants of each column, by
    their places in the text."""

    name: str
    sql: tuple[str, ...]
    select: tuple[str, ...]
    equals: tuple[tuple[str, tuple[int, ...]], ...]
    columns: tuple[tuple[str, str], ...]
    anywhere: bool

    def filled(self, constants: Sequence[str]) -> TableSelect:
        """The statement with these, as they are written."""
        equals = tuple((name, tuple(_value(constants[at]) for at in places)) for name, places in self.equals)
        sql, select = (_between(parts, constants) for parts in (self.sql, self.select))
        return TableSelect(sql, self.name, select, equals, self.columns, self.anywhere)


class Prepared:
    """The last ``FORMS_MAX`` forms."""

    def __init__(self) -> None:
        self._forms: OrderedDict[str, _Form | None] = OrderedDict()

    def known(self, text: str, tables: Container[str]) -> TableSelect | None:
        """What a text of a known form says; ``tables``: names that are of tables."""
        if len(text) > CHARS_MAX or (found := _split(text)) is None:
            return None
        key, constants = found
        form = self._forms.get(key)
        if form is None or form.name not in tables:
            return None
        self._forms.move_to_end(key)
        return form.filled(constants)

    def learn(self, text: str, said: Sequence[object], read: Read) -> None:
        """That text says this: keep its form, if it has one."""
        match said:
            case [TableSelect(columns=columns)] if columns is not None and len(text) <= CHARS_MAX:
                found = _split(text)
            case _:
                return
        if found is None or found[0] in self._forms:
            return
        self._forms[found[0]] = _form(text, found[1], read)
        if len(self._forms) > FORMS_MAX:
            self._forms.popitem(last=False)


def _split(text: str) -> tuple[str, list[str]] | None:
    """A form and its constants; None: of a text with comments, or with strings
    that are not closed, or of another kind."""
    constants: list[str] = []
    is_plain = True

    def lift(match: re.Match[str]) -> str:
        nonlocal is_plain
        word, kind = match[0], match.lastgroup
        if kind is None:
            is_plain &= word not in ("--", "/*")
            return word
        is_plain &= kind == "whole" or word[0] == "'"
        constants.append(word)
        return "0" if kind == "whole" else _PLACE

    form = _WORD.sub(lift, text)
    strings = sum(one[0] == _PLACE for one in constants)
    return (form, constants) if is_plain and form.count(_PLACE) == strings else None


def _form(text: str, constants: Sequence[str], read: Read) -> _Form | None:
    """That of a text, if all of its constants are values that columns have."""
    if len(constants) > 999 or _MARK.search(text):
        return None
    marks = [
        f"'elf:{at}:mark'" if one[0] == "'" else f"1{'0' * 14}{at:03}" for at, one in enumerate(constants)
    ]
    left = iter(marks)
    marked = _WORD.sub(lambda match: match[0] if match.lastgroup is None else next(left), text)
    try:
        (said,) = read(marked)
    except (QueryError, ValueError):
        return None
    places = {_value(mark): at for at, mark in enumerate(marks)}
    if not isinstance(said, TableSelect) or said.columns is None:
        return None
    equals = tuple((name, tuple(places.get(one, -1) for one in values)) for name, values in said.equals)
    if sorted(at for _, some in equals for at in some) != list(range(len(marks))):
        return None
    sql, select = (_parts(one, marks) for one in (said.sql, said.select))
    if sql is None or select is None:
        return None
    return _Form(said.name, sql, select, equals, said.columns, said.anywhere)


def _parts(text: str, marks: Sequence[str]) -> tuple[str, ...] | None:
    """What stands between these, if all do, in their order."""
    if [match[0] for match in _MARK.finditer(text)] != list(marks):
        return None
    return tuple(_MARK.sub("\0", text).split("\0")) if "\0" not in text else None


def _between(parts: Sequence[str], constants: Sequence[str]) -> str:
    return parts[0] + "".join(one + part for one, part in zip(constants, parts[1:], strict=True))


def _value(constant: str) -> Value:
    """That of a constant as it is written."""
    return constant[1:-1].replace("''", "'") if constant[0] == "'" else int(constant)
