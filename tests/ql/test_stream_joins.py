"""Two streams joined within an interval: random rows, in fleets of several sizes, against DuckDB over all
rows; and what such a join needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from agents.formats import get_format
from agents.inputs.ranges import split_inputs
from agents.run import Fleet
from agents.runinputs import FleetStream
from agents.tasks.streamtask import TaskStatus
from elf.client.windows import split
from elf.errors import QueryError, UserError
from elf.ql.groups import plan_groups
from elf.ql.plan import Function, Plan
from elf.ql.planner import plan_streams, streams_of
from elf.ql.statements import Select, parse
from elf.ql.user_functions import with_function
from elf.wire.clients import WindowResult
from tests.support.ql_pipeline import Result, difference, plain, run_by_hand
from tests.support.stream_cases import BUYS, CASES, CLICKS, lines, rows

SCHEMAS = {"clicks": CLICKS, "buys": BUYS}


def planned(text: str) -> Plan:
    (asked,) = parse(text)
    assert isinstance(asked, Select)
    return plan_streams(asked.query, {name: SCHEMAS[name] for name in streams_of(asked.query)})


async def live(
    tables: dict[str, pa.Table], folder: Path, agents: int, queries: Sequence[str]
) -> list[Result]:
    """What a fleet of so many agents says to each of the queries."""
    streams = []
    for (stream, table), schema in zip(tables.items(), (CLICKS, BUYS), strict=True):
        path = folder / f"{stream}.json"
        path.write_text("".join(line + "\n" for line in lines(table)), encoding="utf-8")
        facts = TaskStatus(stream, get_format("json"), schema.event_time, "")
        streams.append(FleetStream(facts, split_inputs([str(path)], agents), lines(table)[:100]))
    fleet, found = Fleet(streams), [list[WindowResult]() for _ in queries]
    try:
        await fleet.start()
        failed = await fleet.answer(queries, lambda number, result: found[number].append(result))
        assert not failed
    finally:
        await fleet.stop()
    return [joined(results) for results in found]


def joined(results: Sequence[WindowResult]) -> Result:
    """Columns, and the rows of all windows by their starts and ends."""
    windows = {(str(one.start), str(one.end)): one.table for result in results for one in split(result)}
    tables = [table for _, table in sorted(windows.items(), key=lambda item: item[0]) if table.num_columns]
    rows = [row for table in tables for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]
    return tables[0].column_names if tables else [], plain(rows)


@pytest.mark.parametrize(
    ("agents", "seed", "cases"), [(1, 1, CASES), (3, 2, CASES), (16, 3, CASES[1:3])], ids=["1", "3", "16"]
)
def test_a_fleet_answers_as_duckdb(
    tmp_path: Path, agents: int, seed: int, cases: Sequence[tuple[str, str]]
) -> None:
    tables = rows(seed, 100)
    connection = duckdb.connect(":memory:")
    for name, table in tables.items():
        connection.register(name, table)
    found = asyncio.run(live(tables, tmp_path, agents, [asked for asked, _ in cases]))
    for (asked, by_hand), got in zip(cases, found, strict=True):
        assert got[1]
        assert difference(got, run_by_hand(connection, by_hand)) is None, asked


@pytest.mark.parametrize(
    ("bounds", "windows", "pane_s", "reach_s"),
    [
        ("c.ts AND c.ts + INTERVAL 10 SECONDS", "30 SECONDS", 10, (0, 10)),
        ("c.ts - INTERVAL 7 SECONDS AND c.ts", "30 SECONDS", 6, (12, 0)),
        ("c.ts - INTERVAL 1 HOUR AND c.ts + INTERVAL 4 SECONDS", "1 MINUTE SLIDE 10 SECONDS", 2.5, (3600, 5)),
        ("c.ts + INTERVAL 5 SECONDS AND c.ts + INTERVAL 90 SECONDS", "20 SECONDS", 20, (0, 100)),
        ("c.ts AND c.ts + INTERVAL 10 MILLISECONDS", "30 SECONDS", 1, (0, 1)),
        ("c.ts AND c.ts + INTERVAL 1 SECOND", "1 HOUR", 60, (0, 60)),
        ("c.ts AND c.ts", "30 SECONDS", 30, (0, 0)),
    ],
)
def test_panes_are_no_longer_than_the_interval(
    bounds: str, windows: str, pane_s: float, reach_s: tuple[int, int]
) -> None:
    plan = planned(
        f"SELECT COUNT(*) FROM clicks AS c JOIN buys AS b ON c.user = b.user AND b.time BETWEEN {bounds} "
        f"WINDOWING {windows}"
    )
    assert {one.pane_us for one in plan.fragments} == {pane_s * 1_000_000}
    assert plan.reach == tuple(us * 1_000_000 for us in reach_s)


def test_what_travels() -> None:
    """Conditions on a side are in its map, a key range has all rows of its keys, and equal needs are equal
    fragments."""
    text = (
        "SELECT c.product, COUNT(*) AS n FROM clicks AS c {} JOIN buys AS b ON {} AND b.price > 5 "
        "AND c.n < 7 AND b.time BETWEEN c.ts AND c.ts + INTERVAL 10 SECONDS "
        "WHERE c.store = 'x' GROUP BY 1 WINDOWING 30 SECONDS TREES 3"
    )
    plan = planned(text.format("", "c.user = b.user AND lower(c.product) = b.product"))
    clicks, buys = (plan.fragment, *plan.more)
    assert [one.range for one in plan.fragments] == [(i, 3) for _ in "cb" for i in range(3)]
    assert [one.group_keys for one in (clicks, buys)] == [("k0", "k1")] * 2
    assert [c.name for c in clicks.columns] == ["ts", "user", "product", "n", "store"]
    assert [c.name for c in buys.columns] == ["user", "product", "time", "price"]
    assert "< 7" in clicks.where_sql
    assert "> 5" in buys.where_sql
    assert plan.join is not None
    assert "> 5" not in plan.join.sql
    left = planned(text.format("LEFT", "c.user = b.user AND lower(c.product) = b.product"))
    assert left.join is not None
    assert "< 7" in left.join.sql
    assert "> 5" not in left.join.sql
    turned = planned(text.format("", "b.product = lower(c.product) AND b.user = c.user"))
    assert turned.fragments == plan.fragments


def test_what_does_not_go_with_a_join() -> None:
    pairs = "FROM clicks AS a JOIN clicks AS b ON a.user = b.user AND a.ts = b.ts"
    with pytest.raises(UserError, match="a map function over streams that are joined"):
        with_function(planned(f"SELECT COUNT(*) {pairs}"), Function("map", "", "f.py"))
    (asked,) = parse(f"SELECT a.user, COUNT(*) AS n {pairs} GROUP BY a.user")
    assert isinstance(asked, Select)
    with pytest.raises(QueryError, match="joins no streams: subscribe to both"):
        plan_groups(asked.query, CLICKS, stream="clicks")
