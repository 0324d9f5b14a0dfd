"""What the reference says of each function, operator and clause is so."""

from __future__ import annotations

import duckdb
import pytest

from elf.client.files import tables_of as read_tables
from elf.errors import QueryError
from elf.ql.catalogue import Entry, catalogue
from elf.ql.files import tables_of
from elf.ql.looks import is_look, look_of
from elf.ql.lookups import LOOKUPS
from elf.ql.planner import plan_text
from elf.ql.statements import Select, parse
from elf.schema import Column, Schema

ACCESS = Schema(
    (
        Column("ts", "timestamp"),
        *(
            Column(name, "text")
            for name in ("c_ip", "cs_username", "cs_method", "cs_uri_stem", "cs_uri_query")
        ),
        *(Column(name, "text") for name in ("cs_version", "cs_referer", "cs_user_agent", "cs_request")),
        Column("sc_status", "bigint"),
        Column("sc_bytes", "bigint"),
    ),
    event_time="ts",
)
ENTRIES = tuple(catalogue())


def test_the_values_of_examples() -> None:
    """Of those that look something up ``tests/agents/test_lookups.py`` says them."""
    called = [entry for entry in ENTRIES if entry.what in ("function", "operator")]
    entries = [entry for entry in called if entry.name not in LOOKUPS]
    con = duckdb.connect()
    con.execute("CREATE TEMP TABLE groups AS SELECT 1::BIGINT AS s0_count")
    for some in (entries[::2], entries[1::2]):
        told = ", ".join(f"({entry.example}) IS NOT DISTINCT FROM ({entry.gives}) AS e" for entry in some)
        values = con.sql(plan_text(f"SELECT {told}, COUNT(*) FROM log", ACCESS).final_sql).fetchall()[0]
        assert [entry.name for entry, value in zip(some, values, strict=False) if value is not True] == []


@pytest.mark.parametrize(
    "entry", [entry for entry in ENTRIES if entry.what == "clause"], ids=lambda e: e.name
)
def test_the_examples_of_clauses_are_planned(entry: Entry) -> None:
    (statement,) = parse(entry.example)
    assert isinstance(statement, Select)
    if is_look(statement.query):
        assert look_of(statement.query, ACCESS).rows
        return
    tables = tables_of(statement.query, read_tables(entry.example))
    assert plan_text(entry.example, ACCESS, tables=tables).final_sql


def test_a_look_has_one_event_time() -> None:
    (statement,) = parse('SELECT cs_method AS "_TS" FROM access LIMIT 5')
    assert isinstance(statement, Select)
    with pytest.raises(QueryError, match="_ts is the rows' event time: call this column otherwise"):
        look_of(statement.query, ACCESS)


def test_everything_is_described() -> None:
    for entry in ENTRIES:
        assert entry.usage, entry
        assert entry.about, entry
        assert entry.example, entry
