"""What the planner writes, word for word: SQL for good queries, messages for bad ones.

``--rewrite-ql`` renews the expectations; a person reads the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elf.errors import QueryError
from elf.ql.files import tables_of
from elf.ql.planner import plan, plan_streams, plan_text, streams_of
from elf.ql.statements import CreateJob, Query, Select, parse
from elf.schema import Schema
from tests.support.ql_table import CONTENTS, SCHEMA
from tests.support.stream_cases import BUYS, CLICKS

_HERE = Path(__file__).parent
STREAMS = {"clicks": CLICKS, "buys": BUYS, "timeless": Schema(CLICKS.columns)}
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


def _message(text: str, planned: Callable[[Query], object]) -> str:
    try:
        for statement in parse(text):
            if isinstance(statement, Select | CreateJob):
                planned(statement.query)
    except QueryError as error:
        return str(error)
    return "(accepted)"


def _over(schema: Schema) -> Callable[[Query], object]:
    return lambda query: plan(query, schema, stream="x", tables=tables_of(query, CONTENTS))


def _over_streams(query: Query) -> object:
    schemas = {name: STREAMS[name] for name in streams_of(query) if name in STREAMS} or STREAMS
    return plan_streams(query, schemas, tables_of(query, CONTENTS))


def _check_messages(path: Path, planned: Callable[[Query], object], rewrite: bool) -> None:
    blocks = path.read_text(encoding="utf-8").strip("\n").split("\n\n")
    pairs = [block.partition("\n----\n")[::2] for block in blocks]
    got = [(text, _message(text, planned)) for text, _ in pairs]
    if rewrite:
        path.write_text(
            "\n\n".join(f"{text}\n----\n{message}" for text, message in got) + "\n", encoding="utf-8"
        )
        return
    assert got == pairs
    assert not [text for text, message in got if message == "(accepted)"]


def test_messages(rewrite_ql: bool) -> None:
    _check_messages(_HERE / "refused.txt", _over(SCHEMA), rewrite_ql)


def test_messages_about_joins(rewrite_ql: bool) -> None:
    _check_messages(_HERE / "refused_joins.txt", _over(SCHEMA), rewrite_ql)


def test_messages_about_joined_streams(rewrite_ql: bool) -> None:
    _check_messages(_HERE / "refused_streams.txt", _over_streams, rewrite_ql)


def test_messages_without_event_time(rewrite_ql: bool) -> None:
    schema = Schema(tuple(column for column in SCHEMA.columns if column.type != "timestamp"))
    _check_messages(_HERE / "refused_timeless.txt", _over(schema), rewrite_ql)
