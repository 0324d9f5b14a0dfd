"""``elf bench durability``: the same groups whether the disk is waited for or not; fsyncs are counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elf.batch import decode
from lab.bench.durability import Durability
from lab.bench.ingest import QUERIES, compare
from lab.bench.measure import Task
from lab.bench.sides import ask
from lab.bench.task_side import run_lane
from lab.generator import Clicks, write_finite


def test_a_small_one(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Durability(
        rows=20_000, repeat=1, agents=1, jobs=2, fragments=2, window=1, seconds=3, backlog_mib=8
    )
    assert bench.perform(as_json=True) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["ratio"] > 0
    (rate,) = found["fsyncs_per_s"]
    assert 0.5 < rate < 30
    assert 0 < found["backlog_first_window_s"] < 60
    assert found["backlog_lines_per_s"] > 1000


def test_the_lane_gives_the_same_groups_whether_it_waits_or_not(tmp_path: Path) -> None:
    log = tmp_path / "clicks.json"
    with log.open("wb") as out:
        write_finite(Clicks(1), out, rows=10_000, start_us=0, per_second=500, disorder_us=500_000, seed=1)
    answers = []
    for durable in (None, False, True):
        answer = tmp_path / f"answer {durable}"
        ask(run_lane, Task(str(log), "json", QUERIES["json"], str(answer), archive=True, durable=durable))
        answers.append(decode(answer.read_bytes()))
    assert answers[0].num_rows > 3
    compare(answers[1], answers[0])
    compare(answers[2], answers[0])
