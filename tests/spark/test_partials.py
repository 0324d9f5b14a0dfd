"""Partial aggregates of Spark merge with those of agents: whoever has which lines, the answer is the same."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from agents.tasks.direct import types_of
from agents.tasks.engine import Finisher, Mapper
from elf.aggregates import merge_tables, normalise
from elf.cli.offline_run import windows_of
from elf.client.windows import WINDOW_COLUMNS
from elf.errors import UserError
from elf.job.assembly.windows import Assembly
from elf.job.worker.fitting import arrow_schema
from elf.ql.plan import Fragment, Function, Plan
from elf.ql.planner import plan_text
from elf.ql.user_functions import with_function
from elf.windows import Calendar
from spark_backend.compare import LiveWindow, compare
from spark_backend.partials import partials
from tests.support.offline import AGGREGATES, BASE_US, CLICKS, SECOND, Click, archived, clicks, store_clicks

MORE = (
    "SUM(price) AS t, MIN(user.location) AS u, MAX(ts) AS v, ARRAY_AGG(clicks ORDER BY price) AS w, "
    "MAX_BY(product, clicks) AS x, HISTOGRAM(clicks, 4) AS y, COUNT(user.location) AS z"
)
QUERIES = (
    f"SELECT product, {AGGREGATES}, {MORE} FROM clicks WHERE clicks <> 0 GROUP BY product "
    "WINDOWING 10 SECONDS",
    f"SELECT {AGGREGATES}, {MORE} FROM clicks WINDOWING 20 SECONDS SLIDE 5 SECONDS",
    "SELECT user.location AS place, price, COUNT(*) AS n, AVG(clicks) AS a FROM clicks "
    "GROUP BY user.location, price WINDOWING CUMULATE 30 SECONDS STEP 10 SECONDS",
    "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product ORDER BY n DESC LIMIT 2 APPROXIMATE "
    "WINDOWING 10 SECONDS",
)


def mapped(fragment: Fragment, rows: list[Click]) -> pa.Table:
    """What the maps of agents make of these rows."""
    timed = [(r.ts_us, r.product, r.location, r.clicks, r.price) for r in rows if r.ts_us is not None]
    types = arrow_schema(CLICKS.columns).types
    columns = list(zip(*timed, strict=True)) or [()] * len(types)
    table = pa.table([pa.array(v, t) for v, t in zip(columns, types, strict=True)], names=CLICKS.names())
    panes = [row[0] // fragment.pane_us if fragment.pane_us else 0 for row in timed]
    mapper = Mapper.of(fragment)
    try:
        made = mapper.run(table.append_column("_pane", pa.array(panes, pa.int64())))
        return normalise(made, fragment.keys, fragment.states)
    finally:
        mapper.close()


def merged(fragment: Fragment, tables: list[pa.Table]) -> pa.Table:
    return merge_tables(tables, ("_pane", *fragment.keys), fragment.task_states)


def windows(plan: Plan, panes: pa.Table) -> list[LiveWindow]:
    """Of the first minute, by elf's own merge and final fragment."""
    finisher = Finisher(plan)
    assembly = Assembly(plan, Calendar(plan.windows, plan.fragment.pane_us))
    found = []
    for groups in assembly.windows(BASE_US, BASE_US + 60 * SECOND, panes):
        result = finisher.run(groups)
        for window in windows_of(result):
            start, end = (window.table[name].cast(pa.int64())[0].as_py() for name in WINDOW_COLUMNS)
            found.append(LiveWindow(start, end, 0, {}, window.table))
    finisher.close()
    return found


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_lines_shared_out_between_spark_and_agents_give_one_answer(
    quick_spark: SparkSession, tmp_path: Path, number: int
) -> None:
    plan = plan_text(QUERIES[number], CLICKS, stream="clicks")
    fragment = plan.fragment
    rng = random.Random(number)
    rows = clicks(250, number)
    archive, *agents = ([r for r, to in zip(rows, places, strict=True) if to == n] for places in [
        [rng.randrange(3) for _ in rows]] for n in range(3))  # fmt: skip
    store_clicks(tmp_path / "t", archive)
    ours = partials(quick_spark, fragment, [archived(tmp_path / "t")], (BASE_US, BASE_US + 60 * SECOND))
    if fragment.keep is not None:
        assert ours["credit"].to_pylist() == [0.0] * ours.num_rows
        ours = ours.drop_columns(["credit"])
    assert ours.schema.equals(types_of(fragment))
    assert ours.num_rows > 0
    both = merged(fragment, [ours, *(mapped(fragment, some) for some in agents)])
    alone = merged(fragment, [mapped(fragment, rows)])
    assert both.num_rows == alone.num_rows
    if fragment.keep is None:
        found, wanted = windows(plan, both), windows(plan, alone)
        assert len(found) == len(wanted) > 0
        told = pa.concat_tables([window.table for window in wanted])
        comparison = compare(found, told)
        assert comparison.equal, [window for window in comparison.windows if not window.equal][:1]


def test_everything_is_one_pane_with_the_rows_that_have_no_time(
    quick_spark: SparkSession, tmp_path: Path
) -> None:
    rows = clicks(60, 9)
    store_clicks(tmp_path / "t", rows)
    plan = plan_text("SELECT COUNT(*) AS n, SUM(clicks) AS s FROM clicks", CLICKS, stream="clicks")
    (row,) = partials(quick_spark, plan.fragment, [archived(tmp_path / "t")]).to_pylist()
    assert row.pop("_pane") == 0
    assert sorted(map(int, row.values())) == sorted([60, sum(one.clicks for one in rows)])


def test_a_key_range_has_its_own_groups_alone(quick_spark: SparkSession, tmp_path: Path) -> None:
    rows = clicks(80, 5)
    store_clicks(tmp_path / "t", rows)
    plan = plan_text(
        "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 60 SECONDS TREES 2",
        CLICKS,
        stream="clicks",
    )
    parts = [partials(quick_spark, one, [archived(tmp_path / "t")]) for one in plan.fragments]
    products = [part["k0"].to_pylist() for part in parts]
    assert sorted([*products[0], *products[1]]) == sorted({row.product for row in rows})
    assert all(products)


def test_what_spark_has_no_map_for_is_refused(quick_spark: SparkSession, tmp_path: Path) -> None:
    counted = plan_text("SELECT COUNT(*) AS n FROM clicks WINDOWING 4 ROWS", CLICKS, stream="clicks")
    plan = plan_text("SELECT COUNT(*) AS n FROM clicks WINDOWING 4 SECONDS", CLICKS, stream="clicks")
    own = with_function(plan, Function("map", "def map(batch):\n    return batch\n", "f.py"))
    for fragment in (counted.fragment, own.fragment):
        with pytest.raises(UserError, match="Spark has no map for this query over clicks"):
            partials(quick_spark, fragment, [archived(tmp_path / "t")])
