"""What signed statements make of a job: its query and its functions, from CREATE to the last ALTER."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from elf.errors import UserError
from elf.ql.changes import AlterJob, ScaleJob
from elf.ql.files import with_file
from elf.ql.memo import Made as Known
from elf.ql.memo import once
from elf.ql.statements import CreateJob, Query, Statement, parse, parse_query
from elf.security.authored import Authorship


class Made(Struct, frozen=True):
    """``functions``: the digests of their texts, by kind, as they were signed. ``scale``: the bounds within
    which it scales by itself; ``free``: how many trees it has is for agents to say, since SCALE counts from
    what there is."""

    sql: str
    functions: dict[str, bytes]
    scale: tuple[int, int] | None = None
    free: bool = False

    def says(self, sql: str) -> bool:
        """Whether a query is this one."""
        return self.sql == sql or (self.free and _with_one_tree(self.sql) == _with_one_tree(sql))


class Signed(msgspec.Struct, frozen=True, array_like=True):
    """The statements behind a job of that name."""

    name: str
    authors: tuple[Authorship, ...]

    @property
    def made(self) -> Known[Made]:
        """What the job is after them, or why it is nothing."""
        return once(self, lambda it: outcome(it.name, it.authors))


def outcome(
    name: str, authors: Sequence[Authorship], read: Callable[[str], Sequence[Statement]] = parse
) -> Made:
    """What the job of that name is after these statements. Raises ``UserError``."""
    query: Query | None = None
    functions: dict[str, bytes] = {}
    scale, free = None, False
    for one in authors:
        parsed = read(one.text)
        statement = parsed[one.place] if one.place < len(parsed) else None
        if not isinstance(statement, CreateJob | AlterJob | ScaleJob) or statement.name != name:
            raise UserError(f"a statement is about another job than {name}")
        if isinstance(statement, CreateJob):
            query, functions, scale, free = statement.query, {}, None, False
        elif query is None:
            raise UserError("the first statement is no CREATE JOB")
        elif isinstance(statement, ScaleJob):
            scale, free = statement.bounds, True
        else:
            query = _altered(query, statement)
            scale = None if statement.trees is not None else scale
            free = scale is not None or (free and statement.trees is None and statement.query is None)
            if statement.function is not None:
                kind, file = statement.function
                functions.pop(kind, None)
                if file:
                    functions[kind] = _signed(one, file)
    if query is None:
        raise UserError("there is no statement")
    return Made(query.sql, functions, scale, free)


def _with_one_tree(sql: str) -> str:
    query = parse_query(sql)
    return sql if query is None else query.with_trees(1).sql


def _altered(query: Query, statement: AlterJob) -> Query:
    if statement.query is not None:
        return statement.query
    changed = query.with_values(statement.settings)
    changed = changed if statement.trees is None else changed.with_trees(statement.trees)
    return changed if statement.table is None else with_file(changed, *statement.table)


def _signed(one: Authorship, file: str) -> bytes:
    found = dict(one.digests).get(file)
    if found is None:
        raise UserError(f"{file} was not signed")
    return found


def said_by(one: Authorship) -> Statement | None:
    """The statement that was signed; None: it is none."""
    try:
        parsed = parse(one.text)
    except UserError:
        return None
    return parsed[one.place] if one.place < len(parsed) else None


def place_of(text: str, statement: Statement) -> int:
    """Which of the statements in a text it is."""
    return parse(text).index(statement)


def least(name: str, authors: Sequence[Authorship]) -> tuple[Authorship, ...]:
    """Those of the statements that make the same of the job: each that changes nothing is left out, the
    oldest first."""
    read = cache(parse)
    made, kept = outcome(name, authors, read), list(authors)
    for one in authors[:-1]:
        fewer = [other for other in kept if other is not one]
        try:
            if outcome(name, fewer, read) == made:
                kept = fewer
        except UserError:
            continue
    return tuple(kept)
