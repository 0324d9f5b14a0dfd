"""Statements about aggregates of one's own: CREATE AGGREGATE and DROP AGGREGATE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from sqlglot import exp

from elf.errors import QueryError

if TYPE_CHECKING:  # they are read by its parser
    from elf.ql.statements import Words

NAME_MAX: Final = 64


class CreateAggregate(Struct, frozen=True):
    """``CREATE [OR REPLACE] AGGREGATE name FROM 'file.py'``. The name is in lower case."""

    sql: str
    name: str
    file: str
    replace: bool = False


class DropAggregate(Struct, frozen=True):
    """``DROP AGGREGATE name``. The name is in lower case."""

    sql: str
    name: str


def read_create_aggregate(words: Words, *, replacing: bool) -> CreateAggregate:
    """The rest of a statement, after CREATE [OR REPLACE] AGGREGATE."""
    name = words.name("the aggregate's name")
    if why := taken_name(name):
        words.index -= 1
        raise words.source.error(why, words.tokens[words.index].start)
    words.expect("FROM")
    file = words.string("a file in quotes ('mean.py')")
    words.end()
    return CreateAggregate(words.text, name.lower(), file, replacing)


def read_drop_aggregate(words: Words) -> DropAggregate:
    """The rest of a statement, after DROP AGGREGATE."""
    name = words.name("the aggregate's name").lower()
    words.end()
    return DropAggregate(words.text, name)


def taken_name(name: str) -> str:
    """Why no aggregate of one's own can have this name; empty: one can."""
    from elf.ql.bind_aggregates import AGGREGATES
    from elf.ql.bind_lags import LAGS
    from elf.ql.bind_over import RANKS, VALUES
    from elf.ql.functions import ALIASES, CHANGING, ELSEWHERE, FUNCTIONS
    from elf.ql.statements import parse_query

    lower = name.lower()
    if len(name) > NAME_MAX:
        return f"an aggregate's name of {len(name)} characters is too long: {NAME_MAX} at most"
    known = (AGGREGATES, LAGS, RANKS, VALUES, FUNCTIONS, ALIASES, CHANGING, ELSEWHERE, ("grouping",))
    taken = f"{name.upper()} is a word or a function of ELF-QL: choose another name"
    if any(lower in names for names in known):
        return taken
    try:
        query = parse_query(f"SELECT {lower}(x) FROM y")
    except QueryError:
        return taken
    item = None if query is None else query.tree.expressions[0]
    return "" if isinstance(item, exp.Anonymous) and item.name == lower else taken
