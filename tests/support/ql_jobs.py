"""Queries over jobs, planned without a fleet."""

from __future__ import annotations

from collections.abc import Mapping

from elf.errors import UserError
from elf.ql.definition import Read
from elf.ql.files import files_of
from elf.ql.jobs import Expanded, expand
from elf.ql.plan import Plan
from elf.ql.planner import plan
from elf.ql.statements import Query, Select, parse
from tests.support.ql_table import SCHEMA


def query(text: str) -> Query:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement.query


def expanded(text: str, jobs: Mapping[str, Plan], within: tuple[str, ...] = ()) -> Expanded:
    def find(name: str) -> Read:
        if name not in jobs:
            raise UserError(f"there is no job {name}")
        return Read.of(f"uid of {name}", name, jobs[name])

    return expand(query(text), find, within)


def planned(text: str, jobs: Mapping[str, Plan]) -> Plan:
    made = expanded(text, jobs)
    assert not files_of(made.query)
    return made.finish(plan(made.query, SCHEMA, stream="x"))
