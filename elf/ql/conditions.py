"""A condition by itself, as after WHERE: of ``elf tap``, of rows for a job in Python, and of alerts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from elf.errors import QueryError, UserError
from elf.ql import planner, statements
from elf.ql.definition import Definition, Read
from elf.ql.plan import Fragment
from elf.schema import Schema

_CLAUSES: Final = frozenset({"expressions", "from_", "where"})
"""What there is in the query that is made of a condition; any other clause came in the place of one."""


def condition(where: str, schema: Schema, *, stream: str) -> Fragment:
    """What a query with this condition reads: ``columns``, and ``where_sql`` over ``rows AS r``. Raises
    ``UserError``."""
    with placed(where):
        return planner.plan(query(where, "COUNT(*) AS n FROM tapped"), schema, stream=stream).fragment


def check_over(where: str, by: Sequence[str], job: Definition, read: Read) -> None:
    """Raises ``UserError`` unless this is a condition over the rows of a job, which is ``read``, and ``by``
    are columns of them."""
    with placed(where):
        _plan(query(where, f"COUNT(*) AS n FROM JOB {read.name}").sql, job, read)
    if by:
        _plan(f"SELECT COUNT(*) AS n FROM JOB {read.name} GROUP BY {', '.join(by)}", job, read)


def _plan(sql: str, job: Definition, read: Read) -> None:
    made = Definition(sql, job.streams, job.tables, (read, *job.jobs)).made
    if made.error is not None:
        raise made.error


def query(where: str, select: str) -> statements.Query:
    """``SELECT select`` with this condition. Raises ``UserError``, whose place ``placed`` moves to it."""
    # On a line of its own, which an error shows; a comment in it ends there.
    parsed = statements.parse(f"SELECT {select} WHERE\n{where}\n")
    found = parsed[0] if len(parsed) == 1 else None
    if not isinstance(found, statements.Select):
        raise _none(where)
    if {clause for clause, part in found.query.tree.args.items() if part} != _CLAUSES:
        raise _none(where)
    return found.query


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Errors in the ``query`` of a condition have their places in the condition."""
    try:
        yield
    except QueryError as error:
        line, lines = None if error.line is None else error.line - 1, where.splitlines()
        if line is not None and (not 1 <= line <= len(lines) or (error.column or 0) > len(lines[line - 1])):
            raise _none(where) from None  # what is around it made no sense with it
        raise QueryError(error.text, sql=where, line=line, column=error.column) from None


def _none(where: str) -> UserError:
    return UserError(f"one condition is wanted, as after WHERE; not: {where}")
