"""A plan with a user's function between its WHERE and its grouping."""

from __future__ import annotations

from dataclasses import replace

from elf.errors import UserError
from elf.ql.plan import Fragment, Function, Plan


def with_function(plan: Plan, function: Function) -> Plan:
    """The same plan with this map function over its rows. Raises ``UserError``."""
    first, *more = (_with(fragment, function) for fragment in plan.fragments)
    return replace(plan, fragment=first, more=tuple(more))


def _with(fragment: Fragment, function: Function) -> Fragment:
    """WHERE is applied before the function, so not again by the map."""
    map_sql = fragment.map_sql
    if fragment.tables:
        raise UserError("a map function over rows that are joined with a table is not supported yet")
    if fragment.where_sql:
        clause = f"WHERE {fragment.where_sql}"
        lines = map_sql.split("\n")
        map_sql = "\n".join("WHERE TRUE" if line.strip() == clause else line for line in lines)
        if fragment.where_sql in map_sql:
            raise UserError(
                "a map function over a query with a WHERE and aggregates of distinct values is not supported "
                "yet; leave the WHERE to the function"
            )
    return replace(fragment, map_sql=map_sql, function=function)
