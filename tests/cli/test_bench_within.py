"""``elf bench within``: what its figures are made of; the fleets themselves take minutes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from elf.client import Window
from elf.errors import ElfError, UserError
from elf.schema import Column, Schema
from lab.bench.measure import plan_of
from lab.bench.metered import Meter
from lab.bench.within.bench import ENGINES, Within, engines
from lab.bench.within.beside import Beside, Seen, Took, beside
from lab.bench.within.kept import STREAM, Kept
from lab.bench.within.load import LINES, WORKLOADS, Lines, Random, Workload
from lab.bench.within.modelled import FEEDS, PROMISE, SETTINGS, WINDOWS_MIN, Modelled, Setting
from lab.bench.within.modelled import judged as judged_model
from lab.bench.within.overload import JOBS, UNLIKE, Costs, job_of, judged, promise_of

SCHEMA = Schema(
    (Column("ts", "timestamp"), *(Column(name, "text") for name in ("person", "word", "text"))), "ts"
)


def planned(query: str, stream: str = STREAM) -> object:
    return plan_of(query.replace(f"FROM {stream}", "FROM input"), SCHEMA).fragment


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


def test_settings_of_the_model_are_jobs_with_flows_of_their_own() -> None:
    looks = [Setting(name, "1 SECONDS", 0) for name, feed in FEEDS.items() if feed.promise]
    flows = {(one.feed, planned(f"{one.query} {PROMISE}", one.feed)) for one in (*SETTINGS, *looks)}
    assert len(flows) == len(SETTINGS) + len(looks)
    assert {one.feed for one in SETTINGS} == {*FEEDS}
    assert len({one.lateness_ms % 1_000 for one in SETTINGS}) == len(SETTINGS) >= 10
    assert {one.title for one in SETTINGS if one.trees > 1}
    for feed in FEEDS.values():
        assert planned(f"{SETTINGS[0].query} {feed.promise}", SETTINGS[0].feed)


async def test_lines_come_at_random_moments_and_as_often_as_is_asked_for(tmp_path: Path) -> None:
    with (tmp_path / "a").open("ab", buffering=0) as often, (tmp_path / "b").open("ab", buffering=0) as rare:
        async with Random([(often, 400.0), (rare, 40.0)]).on():
            while rare.tell() == 0 or often.tell() < 20 * rare.tell() // 3:
                await asyncio.sleep(0.05)
    times = [json.loads(line)["ts"] for line in (tmp_path / "a").read_bytes().splitlines()]
    assert times == sorted(times)
    assert len(times) > 5


def told(panes: int, mean_ms: float, model_ms: float = 0.0) -> dict[str, Any]:
    """What EXPLAIN LATENCY says, as far as it is looked at: ``wait`` is all of it but for 2 ms."""
    phases = {"wait": {"mean_ms": mean_ms - 2}, "seal": {"mean_ms": 2.0}}
    total = {"mean_ms": model_ms, "p99_ms": 2 * model_ms}
    model = {"phases": {"wait": {"mean_ms": model_ms - 1}, "seal": {"mean_ms": 1.0}}, "total": total}
    return {
        "panes": panes,
        "phases": phases,
        "total": {"mean_ms": mean_ms},
        "predicted": {**model, "facts": {"depth": 1}},
    }


def test_a_model_is_held_to_what_comes_after_it_was_asked() -> None:
    took_ms = [99.0] * (WINDOWS_MIN - 1) + [159.0]
    before, after = told(10, 62.0, model_ms=90.0), told(30, 102.0, model_ms=1.0)
    one = judged_model("even", before, after, took_ms)
    assert (one.windows, one.panes, one.facts) == (WINDOWS_MIN, 20, {"depth": 1})
    assert (one.mean.modelled, one.mean.measured, one.mean.error) == (90.0, 100.0, 0.1)
    assert one.p99 is not None
    assert (one.p99.modelled, one.p99.measured, one.p99.error) == (180.0, 159.0, 0.1321)
    assert one.as_before.error == pytest.approx(0.38), "62 ms before, then 100"
    assert set(one.phases) == {"wait"}, "what takes less than 5 ms is not judged"
    assert (one.phases["wait"].modelled, one.phases["wait"].measured) == (89.0, 120.0)
    few = judged_model("even", before, after, took_ms[1:])
    assert few.p99 is None
    nothing = {"panes": 0, "predicted": None}
    for then, now, took in ((before, before, took_ms), (before, after, []), (nothing, after, took_ms)):
        with pytest.raises(ElfError, match="even: no window or no stamped pane"):
            judged_model("even", then, now, took)

    found = Modelled([one, few])
    assert [(count, near, least) for _, count, near, least in found.shares()] == [
        (2, 1.0, 0.9),
        (1, 1.0, 0.85),
        (2, 0.0, 1.0),
        (2, 0.0, None),
    ]
    report = Within().report({"model": [found]})
    assert (
        "model, modelled of measured: even; 60 windows, 20 stamped panes; ms: wait 89 of 120" in report.notes
    )
    assert {figure.what: (figure.elf, figure.beside.get("target")) for figure in report.figures[-4:]} == {
        "means modelled within 15% of measured, of 2": (100.0, 90.0),
        "0.99 quantiles modelled within 20% of measured, of 1": (100.0, 85.0),
        "phases above 5 ms modelled within 15% of measured, of 2": (0.0, 100.0),
        "means, taken to be as before, within 15% of measured, of 2": (0.0, None),
    }
    assert len(report.figures) == 2 + 1 + 4


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
    meters = [(100.0, zero), (101.0, half), (102.0, all_)]
    found = judged([(1_000, one) for one in windows], costs, (5_000, 7_000), meters)
    assert found.of_oracle == 0.4, "4,000 of the 10,000 pairs for which there was a second"
    assert found.in_time == round(1 / JOBS, 3)
    assert found.sampled == 0.2
    assert found.of_oracle_all == 0.2
    assert (found.core, found.loop_share) == (1.0, 0.15)
    assert found.in_time_each == {"1000": 0.5}
    unlike = judged([(5_000, windows[1]), (100, windows[2])], costs, (5_000, 7_000), meters)
    assert unlike.in_time_each == {"100": 0.0, "5000": 1.0}, "each within what its own job promises"
    assert {promise_of(number, UNLIKE) for number in range(JOBS)} == {*UNLIKE}


def test_the_report_has_other_engines_beside_the_same_workload_and_says_which_runs_kept_it() -> None:
    kept = [Kept(100, 600.0, [50.0] * 99 + [110.0], 0), Kept(100, 600.0, [50.0] * 10, 3)]
    report = Within().report(
        {
            "word count": kept,
            "spark, word count": [Took([500.0] * 4, 600.0, 0)],
            "flink, word count": [Took([20.0] * 4, 600.0, 2)],
            "flink, sessions": [Took([30.0, 40.0], 600.0, 0)],
        }
    )
    assert "word count: 1 of 2 runs met the bound with nothing left out" in report.notes
    assert "flink, word count: 2 of 4 windows have other counts than what was written" in report.notes
    figures = {figure.what: figure for figure in report.figures}
    median = figures["word count, p50 of windows"]
    assert (median.elf, dict(median.beside)) == (
        50.0,
        {"Spark Structured Streaming": 500.0, "Flink SQL": 20.0},
    )
    assert figures["Flink SQL, sessions: windows (p50, p99)"].elf == (30.0, 40.0)


def test_a_window_of_an_engine_is_there_with_its_last_row() -> None:
    start, seen = 1_767_225_600_000, Seen()
    for line, late_ms in (
        (b"Picked up JAVA_TOOL_OPTIONS: -D", 0),
        (b"+I[2026-01-01T00:00, w1, 1]", 5),  # as Flink prints it at a full minute
        (b"+I[2026-01-01T00:00:01, w1, 2]", 1_010),
        (b"+I[2026-01-01T00:00:01, a, b], 3]", 1_020),
        (b"+I[2026-01-01 00:00:02.0, w1, 4]\r\n", 2_500),  # as Spark does
        (b"+I[2026-01-01 00:00:02.25, w1, 8]", 2_600),
        (b"+I[2026-01-01T00:00:03, w1, 1]", 3_001),
    ):
        seen.hear(line, start + late_ms)
    written = Counter({start: 1, start + 999: 4, start + 1_000: 5, start + 1_400: 8})
    found = seen.took(WORKLOADS["word count"], 600.0, written, warm=1)
    assert found == Took([20.0, 500.0, 350.0], 600.0, wrong=1), "that of 2 s has 4 of 13"
    assert seen.took(WORKLOADS["sessions"], 600.0, written, warm=1).wrong == 0


COUNTS = """
import json, socket, sys
from collections import Counter
from datetime import UTC, datetime, timedelta
job = json.loads(sys.argv[3])
epoch, size = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=job["size_ms"])
counts, last = Counter(), 0
print("something else", flush=True)
for line in socket.create_connection(("127.0.0.1", job["port"])).makefile():
    row = json.loads(line)
    number = (datetime.fromisoformat(row["ts"]) - epoch) // size
    if number != last:
        end = (epoch + (last + 1) * size).replace(tzinfo=None)
        print(*(f"+I[{end}, {key}, {n}]" for key, n in counts.items()), sep="\\n", flush=True)
        counts, last = Counter(), number
    counts[row[job["key"]]] += 1
"""


def test_an_engine_gets_lines_and_its_windows_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.bench.within.beside.WARM_SECS", 0.0)
    (tmp_path / "counts.py").write_text(COUNTS)
    engine = Beside("counts", "Counts", (sys.executable, str(tmp_path / "counts.py")))
    found = beside(engine, Workload("word", "", 100, 100), 500.0, 5.0)
    assert found.took_ms
    assert (found.rate, found.wrong) == (500.0, 0)
    (tmp_path / "counts.py").write_text("raise OSError('no heap')")
    with pytest.raises(ElfError, match=r"Counts stopped with status 1(?s:.*)OSError: no heap"):
        beside(engine, WORKLOADS["sessions"], 500.0, 5.0)


@pytest.mark.skipif(
    "ELF_TEST_ENVS" not in os.environ,
    reason="ELF_TEST_ENVS names no folder that `elf bench peers --envs` has made",
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("name", ENGINES)
def test_the_engines_count_what_was_written(name: str, workload: str) -> None:
    there, lacking = engines(Path(os.environ["ELF_TEST_ENVS"]))
    assert name in there, lacking
    found = beside(there[name], WORKLOADS[workload], 100.0, 10.0)
    assert found.took_ms
    assert found.wrong == 0


def test_what_planning_takes_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert Within(only=["planner"]).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < said["planner"]["look_ms"] < 500
    assert [figure["beside"] for figure in said["figures"]] == [{"target": 3.0}] * 2


def test_who_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise UserError("Spark needs Java 17")

    monkeypatch.setattr("lab.bench.within.bench.check_spark", no_java)
    with pytest.raises(UserError, match="--only storm: there are sessions, word count, windowed word count"):
        Within(only=["storm"])
    how = f"not installed: Flink SQL; install with: elf bench peers --envs {tmp_path} --install flink"
    with pytest.raises(UserError, match=f"^--only flink, word count: {how}$"):
        Within(only=["flink, word count"], envs=tmp_path)
    assert Within(envs=tmp_path).report({}).notes[1:] == [
        "Spark Structured Streaming is not here: Spark needs Java 17",
        how,
    ]
    with pytest.raises(UserError, match="--only spark, sessions: Spark Structured Streaming is not"):
        Within(only=["spark, sessions"], envs=tmp_path)
    python = tmp_path / "flink" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert engines(tmp_path)[0]["flink"].python == (str(python), "-I")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    assert engines(tmp_path)[1]["flink"] == "no java for Flink SQL: install Java 17, or set JAVA_HOME"
