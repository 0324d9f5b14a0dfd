"""The query of a benchmark, planned over the columns of its file."""

from __future__ import annotations

from typing import Final

from elf.errors import UserError
from elf.ql import planner, statements
from elf.ql.plan import Plan
from elf.schema import Schema

STREAM: Final = "input"


def plan_of(sql: str, schema: Schema) -> Plan:
    """The plan of one SELECT. Raises ``QueryError``, ``UserError``."""
    parsed = statements.parse(sql)
    if len(parsed) != 1 or not isinstance(parsed[0], statements.Select):
        raise UserError("the benchmark takes one SELECT")
    return planner.plan(parsed[0].query, schema, stream=STREAM)
