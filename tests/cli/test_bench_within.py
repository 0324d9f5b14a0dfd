"""``elf bench within``: what its figures are made of; the fleets themselves take minutes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from elf.client import Window
from elf.errors import UserError
from elf.schema import Column, Schema
from lab.bench.measure import plan_of
from lab.bench.metered import Meter
from lab.bench.within.bench import Within
from lab.bench.within.kept import STREAM, Kept
from lab.bench.within.load import LINES, WORKLOADS, Lines
from lab.bench.within.overload import JOBS, Costs, job_of, judged
from lab.bench.within.spark import Took

SCHEMA = Schema(
    (Column("ts", "timestamp"), *(Column(name, "text") for name in ("person", "word", "text"))), "ts"
)


def planned(query: str) -> object:
    return plan_of(query.replace(f"FROM {STREAM}", "FROM input"), SCHEMA).fragment


def window(second: int, rows: int, sampled: int, took_ms: int) -> Window:
    start = datetime.fromtimestamp(second, UTC)
    status: dict[str, object] = {"rows_in": rows, "sampled": sampled, "took_ms": took_ms}
    return Window(
        job="a.1", name="plain0", version=1, master="m", start=start, end=start + timedelta(seconds=1),
        revision=0, status=status, table=pa.table({}),
    )  # fmt: skip


def test_its_queries_are_planned_and_no_two_dear_ones_are_one_flow() -> None:
    for workload in WORKLOADS.values():
        planned(workload.query(STREAM))
    assert len({planned(job_of(number)) for number in range(JOBS)}) == JOBS


def test_lines_are_as_many_as_are_asked_for_and_have_the_time_that_is_given() -> None:
    lines = Lines(1)
    text = lines.take(1_767_225_600_123_000, LINES + 5).splitlines()
    assert len(text) == LINES + 5
    assert text[0] == text[LINES]
    assert {json.loads(line)["ts"] for line in text} == {"2026-01-01T00:00:00.123Z"}
    assert lines.take(0, 1).splitlines()[0][32:] == text[5][32:], "it goes on where it was"
    assert not lines.take(0, 0)


def test_an_oracle_does_what_there_is_cpu_for_and_no_more_than_comes() -> None:
    costs = Costs(shared=1e-5, each=1e-5, idle=0.1)
    assert costs.pairs(lines=1_000, cpu_s=10.0, secs=1.0) == JOBS * 1_000
    assert costs.pairs(lines=10_000, cpu_s=0.7, secs=1.0) == pytest.approx(50_000)
    assert costs.pairs(lines=10_000, cpu_s=0.21, secs=1.0) == 0.0


def test_windows_that_are_late_and_rows_that_are_left_out_are_not_done() -> None:
    costs = Costs(shared=0.0, each=1e-4, idle=0.0)
    zero = Meter(0.0, 0.0, 0, 0, 0, 0, 0)
    half, all_ = Meter(0.1, 0.9, 0, 0, 0, 0, 0), Meter(0.3, 1.7, 0, 0, 0, 0, 0)
    windows = [window(100, 5_000, 0, 1_500), window(101, 5_000, 1_000, 900), window(101, 5_000, 1_000, 1_200)]
    found = judged(windows, costs, (5_000, 7_000), [(100.0, zero), (101.0, half), (102.0, all_)])
    assert found.of_oracle == 0.4, "4,000 of the 10,000 pairs for which there was a second"
    assert found.in_time == round(1 / JOBS, 3)
    assert found.sampled == 0.2
    assert found.of_oracle_all == 0.2
    assert (found.core, found.loop_share) == (1.0, 0.15)


def test_the_report_has_spark_beside_the_same_workload_and_says_which_runs_kept_it() -> None:
    kept = [Kept(100, 600.0, [50.0] * 99 + [110.0], 0), Kept(100, 600.0, [50.0] * 10, 3)]
    report = Within().report({"word count": kept, "spark, word count": [Took([500.0] * 4)]})
    assert "word count: 1 of 2 runs met the bound with nothing left out" in report.notes
    median = next(figure for figure in report.figures if figure.what == "word count, p50 of windows")
    assert (median.elf, dict(median.beside)) == (50.0, {"Spark": 500.0})


def test_what_planning_takes_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert Within(only=["planner"]).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < said["planner"]["look_ms"] < 500
    assert [figure["beside"] for figure in said["figures"]] == [{"target": 3.0}]


def test_who_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match="--only flink: there are sessions, word count, windowed word count"):
        Within(only=["flink"])
