"""Every aggregate over an archive: what Spark says is what agents, merging and sliding windows say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from agents.tasks.engine import Finisher, Mapper
from elf.aggregates import merge_tables
from elf.job.assembly.windows import Assembly
from elf.job.worker.fitting import arrow_schema
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from elf.windows import Calendar, Sliding
from spark_backend import offline
from spark_backend.compare import LiveWindow, compare
from tests.support.offline import (
    AGGREGATES,
    BASE_US,
    CLICKS,
    SECOND,
    Click,
    archived,
    clicks,
    store_clicks,
    windows,
)


def live(plan: Plan, parts: list[list[Click]], first_us: int, last_us: int) -> list[LiveWindow]:
    """The windows that end in ``(first_us, last_us]``, of agents that have a part of the rows each."""
    (window,) = plan.windows
    assert isinstance(window, Sliding)
    fragment = plan.fragment
    mapper, finisher = Mapper(fragment.map_sql, fragment.columns), Finisher(plan)
    partials = []
    for part in parts:
        rows = [
            (row.ts_us, row.product, row.location, row.clicks, row.price)
            for row in part
            if row.ts_us is not None
        ]
        types = arrow_schema(CLICKS.columns).types
        columns = [
            pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)
        ]
        table = pa.table(columns, names=CLICKS.names())
        panes = pa.array([row[0] // fragment.pane_us for row in rows], pa.int64())
        partials.append(mapper.run(table.append_column("_pane", panes)))
    committed = merge_tables(partials, ("_pane", *fragment.keys), fragment.states)
    found = []
    for groups in Assembly(plan, Calendar(plan.windows, fragment.pane_us)).windows(
        first_us, last_us, committed
    ):
        result = finisher.run(groups)
        starts = result["window_start"].cast(pa.int64())
        for start in np.unique(starts.to_numpy()).tolist():
            one = result.filter(pc.equal(starts, start))
            found.append(LiveWindow(start, start + window.size_us, 0, {}, one))
    mapper.close()
    finisher.close()
    return found


@pytest.mark.parametrize(
    ("by", "shape"), [("", "20 SECONDS SLIDE 5 SECONDS"), (" GROUP BY user.location", "10 SECONDS")]
)
def test_live_is_offline(quick_spark: SparkSession, tmp_path: Path, by: str, shape: str) -> None:
    rows = clicks(400, 7)
    rows += [Click(row.ts_us, "tie", row.location, row.clicks + 1, row.price) for row in rows[:50]]
    parts = [rows[n::3] for n in range(3)]
    for n, part in enumerate(parts):
        store_clicks(tmp_path / "t", part, agent=f"agent{n}")
    plan = plan_text(f"SELECT {AGGREGATES} FROM clicks{by} WINDOWING {shape}", CLICKS, stream="clicks")
    (window,) = plan.windows
    assert isinstance(window, Sliding)
    size, slide = (us // SECOND for us in (window.size_us, window.slide_us))
    asked = windows(size, slide, (60 - size) // slide + 1)
    mine = live(plan, parts, BASE_US + (size - 1) * SECOND, BASE_US + 60 * SECOND)
    comparison = compare(mine, offline.run(quick_spark, plan, [archived(tmp_path / "t")], asked))
    assert comparison.equal_windows == len(asked) == len(comparison.windows), comparison.windows
