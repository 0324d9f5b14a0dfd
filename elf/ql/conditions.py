"""A condition by itself, as after WHERE: of ``elf tap``, and of rows for a job in Python."""

from __future__ import annotations

from typing import Final

from elf.errors import QueryError, UserError
from elf.ql import planner, statements
from elf.ql.plan import Fragment
from elf.schema import Schema

_CLAUSES: Final = frozenset({"expressions", "from_", "where"})
"""What there is in the query that is made of a condition; any other clause came in the place of one."""


def condition(where: str, schema: Schema, *, stream: str) -> Fragment:
    """What a query with this condition reads: ``columns``, and ``where_sql`` over ``rows AS r``. Raises
    ``UserError``."""
    # On a line of its own, which an error shows; a comment in it ends there.
    sql = f"SELECT COUNT(*) AS n FROM tapped WHERE\n{where}\n"
    no_condition = UserError(f"one condition is wanted, as after WHERE; not: {where}")
    try:
        parsed = statements.parse(sql)
        select = parsed[0] if len(parsed) == 1 else None
        if not isinstance(select, statements.Select):
            raise no_condition
        if {clause for clause, part in select.query.tree.args.items() if part} != _CLAUSES:
            raise no_condition
        return planner.plan(select.query, schema, stream=stream).fragment
    except QueryError as error:
        line, lines = None if error.line is None else error.line - 1, where.splitlines()
        if line is not None and (not 1 <= line <= len(lines) or (error.column or 0) > len(lines[line - 1])):
            raise no_condition from None  # what is around it made no sense with it
        raise QueryError(error.text, sql=where, line=line, column=error.column) from None
