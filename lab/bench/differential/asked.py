"""What queries may be about: the two streams of a log, files to join, jobs. And a query's plan over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import pyarrow as pa

from elf.batch import encode
from elf.errors import QueryError, UserError
from elf.ql.definition import Contents, Definition, Read, least
from elf.ql.files import tables_of
from elf.ql.jobs import Expanded, expand
from elf.ql.plan import Plan, Table
from elf.ql.planner import plan_streams, streams_of
from elf.ql.statements import CreateJob, Query, Select, parse
from elf.schema import Schema
from lab.bench.differential.logs import HOSTS, PAGES, SCHEMAS

PLACES: Final = pa.table(
    {
        "place": pa.array([*HOSTS[:4], HOSTS[0], HOSTS[6], None, "nowhere"], pa.string()),
        "city": pa.array(["Oslo", "Bonn", None, "日本", "oslo", "", "Rome", "Rome"], pa.string()),
        "weight": pa.array([1, 2, 2, None, 7, -3, 3, 0], pa.int64()),
        "share": pa.array([0.5, None, 0.125, -2.0, 0.0, 8.25, 1.0, 2.0], pa.float64()),
        "since": pa.array([datetime(2023, 1, 1), None, *[datetime(1970, 1, 1)] * 6], pa.timestamp("us")),
        "open": pa.array([True, False, None, True, False, True, True, None], pa.bool_()),
    }
)
"""To join by texts, numbers and moments: some of a row's twice, some without a row, some without a value."""
SECTIONS: Final = pa.table(
    {
        "page": pa.array([*PAGES[:6], PAGES[0], None], pa.string()),
        "section": pa.array(["home", "home", "docs", "docs", None, "x", "root", "none"], pa.string()),
        "rank": pa.array([1, 2, 3, None, 5, 6, 7, 8], pa.int64()),
    }
)
FILES: Final[Mapping[str, bytes]] = {"places.csv": encode(PLACES), "sections.csv": encode(SECTIONS)}
"""Their contents as they come with a statement."""


@dataclass(frozen=True)
class Asked:
    """A query with the queries of the jobs that it reads in it, and what both are over."""

    expanded: Expanded
    schemas: Mapping[str, Schema]
    tables: Mapping[str, Table]
    """Of the query; those of jobs come with the jobs."""

    @property
    def query(self) -> Query:
        return self.expanded.query

    def plan(self) -> Plan:
        """Raises ``QueryError``."""
        return self.expanded.finish(plan_streams(self.query, self.schemas, self.tables))

    def definition(self) -> Definition:
        """What stands for the plan where it travels."""
        tables = tuple(map(Contents.of, self.tables.values()))
        whole = Definition(self.query.sql, tuple(self.schemas.items()), tables, self.expanded.jobs)
        return least(whole, self.plan())


def asked(text: str) -> Asked:
    """A SELECT, or one after CREATE JOB for each job that it reads. Raises ``UserError``."""
    made: dict[str, Plan] = {}

    def find(name: str) -> Read:
        if name not in made:
            raise UserError(f"there is no job {name}")
        return Read.of(name, name, made[name])

    def of(query: Query) -> Asked:
        found = expand(query, find)
        named = found.streams or streams_of(found.query)
        streams = tuple(SCHEMAS) if named == "*" else named
        unknown = [name for name in streams if name not in SCHEMAS]
        if unknown:
            raise UserError(f"there is no stream {unknown[0]}; streams: {', '.join(SCHEMAS)}")
        schemas = {name: SCHEMAS[name] for name in streams}
        return Asked(found, schemas, tables_of(found.query, FILES))

    statements = parse(text)
    for statement in statements[:-1]:
        if not isinstance(statement, CreateJob):
            raise QueryError("expected CREATE JOB before the SELECT")
        made[statement.name] = of(statement.query).plan()
    last = statements[-1] if statements else None
    if not isinstance(last, Select):
        raise QueryError("expected one SELECT")
    return of(last.query)


def plan_of(text: str) -> Plan:
    """Raises ``UserError``."""
    return asked(text).plan()
