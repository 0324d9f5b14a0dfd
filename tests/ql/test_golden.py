"""What the planner writes, word for word: SQL for good queries, messages for bad ones.

``--rewrite-ql`` renews the expectations; a person reads the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from elf.errors import QueryError
from elf.ql.files import tables_of
from elf.ql.planner import plan, plan_text
from elf.ql.statements import CreateJob, Select, parse
from elf.schema import Schema
from tests.ql.table import CONTENTS, SCHEMA

_HERE = Path(__file__).parent
GOLDEN = sorted((_HERE / "golden").glob("*.txt"))


def _renderings(sql: str) -> str:
    made = plan_text(sql, SCHEMA)
    fragment = made.fragment
    columns = ", ".join(f"{column.name} {column.type}" for column in fragment.columns)
    states = ", ".join(f"{state.name} {state.merge}" for state in fragment.states)
    return (
        f"-- columns: {columns}\n-- keys: {', '.join(fragment.keys)}\n-- states: {states}\n"
        f"-- pane_us: {fragment.pane_us}, lateness_us: {fragment.lateness_us}, windows: {made.windows}\n"
        f"-- outputs: {', '.join(made.outputs)}\n\n"
        f"-- map\n{fragment.map_sql}\n\n-- final\n{made.final_sql}\n\n-- spark\n{made.spark_sql}\n"
    )


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_renderings(path: Path, rewrite_ql: bool) -> None:
    query, _, expected = path.read_text(encoding="utf-8").partition("\n====\n")
    got = _renderings(query)
    if rewrite_ql:
        path.write_text(f"{query}\n====\n{got}", encoding="utf-8")
        return
    assert got == expected


def _message(text: str, schema: Schema) -> str:
    try:
        for statement in parse(text):
            if isinstance(statement, Select | CreateJob):
                tables = tables_of(statement.query, CONTENTS)
                plan(statement.query, schema, stream="x", tables=tables)
    except QueryError as error:
        return str(error)
    return "(accepted)"


def _check_messages(path: Path, schema: Schema, rewrite: bool) -> None:
    blocks = path.read_text(encoding="utf-8").strip("\n").split("\n\n")
    pairs = [block.partition("\n----\n")[::2] for block in blocks]
    got = [(text, _message(text, schema)) for text, _ in pairs]
    if rewrite:
        path.write_text(
            "\n\n".join(f"{text}\n----\n{message}" for text, message in got) + "\n", encoding="utf-8"
        )
        return
    assert got == pairs
    assert not [text for text, message in got if message == "(accepted)"]


def test_messages(rewrite_ql: bool) -> None:
    _check_messages(_HERE / "refused.txt", SCHEMA, rewrite_ql)


def test_messages_about_joins(rewrite_ql: bool) -> None:
    _check_messages(_HERE / "refused_joins.txt", SCHEMA, rewrite_ql)


def test_messages_without_event_time(rewrite_ql: bool) -> None:
    schema = Schema(tuple(column for column in SCHEMA.columns if column.type != "timestamp"))
    _check_messages(_HERE / "refused_timeless.txt", schema, rewrite_ql)
