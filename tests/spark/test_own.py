"""Aggregates of one's own in Spark say what agents say, whoever has made which states."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from agents.tasks.aggregating import OwnFinisher, OwnMapper
from agents.tasks.direct import mapper_of, types_of
from agents.tasks.streams import FunctionsAt
from elf.aggregates import merge_tables, normalise
from elf.cli.main import app
from elf.cli.offline_run import windows_of
from elf.client.windows import WINDOW_COLUMNS
from elf.examples import correlation
from elf.functions.sandbox import Sandboxes
from elf.job.assembly.windows import Assembly
from elf.job.worker.fitting import arrow_schema
from elf.ql.own import OwnAggregate
from elf.ql.plan import Plan
from elf.ql.planner import plan_streams
from elf.ql.statements import parse_query
from elf.windows import Calendar
from spark_backend import session
from spark_backend.compare import LiveWindow, compare
from spark_backend.offline import run
from spark_backend.partials import partials
from tests.support.confined import needs_confinement
from tests.support.offline import BASE_US, CLICKS, SECOND, Click, archived, clicks, store_clicks

pytestmark = needs_confinement

PATH = Path(correlation.__file__)
QUERY = (
    "SELECT product, together(clicks, price) AS r, COUNT(DISTINCT clicks) AS d, COUNT(*) AS n FROM clicks "
    "GROUP BY product HAVING together(clicks, price) IS NOT NULL WINDOWING 20 SECONDS SLIDE 10 SECONDS"
)


def planned() -> Plan:
    query = parse_query(QUERY)
    assert query is not None
    own = OwnAggregate("together", PATH.read_text(), PATH.name)
    return plan_streams(query, {"clicks": CLICKS}, owns={"together": own})


@pytest.fixture(scope="module")
def at() -> Iterator[FunctionsAt]:
    sandboxes = Sandboxes()
    yield FunctionsAt(sandboxes, lambda _: None)
    sandboxes.close()


def mapped(plan: Plan, rows: list[Click], at: FunctionsAt) -> pa.Table:
    """What the map of an agent makes of these rows."""
    fragment = plan.fragment
    timed = [(r.ts_us, r.product, r.location, r.clicks, r.price) for r in rows if r.ts_us is not None]
    types = arrow_schema(CLICKS.columns).types
    columns = zip(zip(*timed, strict=True), types, strict=True)
    table = pa.table([pa.array(v, t) for v, t in columns], names=CLICKS.names())
    panes = pa.array([row[0] // fragment.pane_us for row in timed], pa.int64())
    mapper = OwnMapper(fragment, mapper_of(fragment), at)
    try:
        return normalise(mapper.run(table.append_column("_pane", panes)), fragment.keys, fragment.states)
    finally:
        mapper.close()


def windows(plan: Plan, panes: pa.Table, at: FunctionsAt) -> list[LiveWindow]:
    """Of the first minute, by elf's own merge and final fragment."""
    finisher, found = OwnFinisher(plan, at), []
    assembly = Assembly(plan, Calendar(plan.windows, plan.fragment.pane_us))
    for groups in assembly.windows(BASE_US, BASE_US + 60 * SECOND, panes):
        for window in windows_of(finisher.run(groups)):
            start, end = (window.table[name].cast(pa.int64())[0].as_py() for name in WINDOW_COLUMNS)
            found.append(LiveWindow(start, end, 0, {}, window.table))
    assert not finisher.failure
    finisher.close()
    return found


def test_states_of_spark_and_of_agents_merge_to_what_spark_says_of_all_rows(
    quick_spark: SparkSession, tmp_path: Path, at: FunctionsAt
) -> None:
    plan, rows = planned(), clicks(240, 3)
    fragment, keys = plan.fragment, ("_pane", *planned().fragment.keys)
    store_clicks(tmp_path / "part", rows[::3])
    store_clicks(tmp_path / "all", rows)
    ours = partials(quick_spark, fragment, [archived(tmp_path / "part")], (BASE_US, BASE_US + 60 * SECOND))
    assert ours.schema.equals(types_of(fragment))
    assert len(ours["c1" if pa.types.is_binary(ours["c1"].type) else "c0"].drop_null()) > 10
    both = merge_tables(
        [ours, mapped(plan, rows[1::3], at), mapped(plan, rows[2::3], at)], keys, fragment.states
    )
    live = windows(plan, both, at)
    offline = run(
        quick_spark, plan, [archived(tmp_path / "all")], windows=[(w.start_us, w.end_us) for w in live]
    )
    comparison = compare(live, offline)
    assert len(live) > 4
    assert comparison.equal, [window for window in comparison.windows if not window.equal][:1]


def test_the_command_line_takes_it_and_a_replay_says_the_same(
    quick_spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    import logging

    monkeypatch.setattr(session, "opened", lambda *_, **__: nullcontext(quick_spark))
    monkeypatch.setattr(logging, "disable", lambda _: None)
    store_clicks(tmp_path / "t", clicks(150, 8))
    text = f"CREATE AGGREGATE together FROM '{PATH}'; {QUERY}"
    told = []
    for command in (["offline", "run"], ["run"]):
        capfd.readouterr()
        app(
            [*command, "-q", text, "--archive", str(tmp_path / "t"), "--output", "json"],
            standalone_mode=False,
        )
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        told.append(sorted(rows, key=lambda row: (row["window_start"], row["product"])))
    assert len(told[0]) > 6
    for one, other in zip(*told, strict=True):
        assert math.isclose(one.pop("r"), other.pop("r"), rel_tol=1e-9, abs_tol=1e-12)
        assert one == other
