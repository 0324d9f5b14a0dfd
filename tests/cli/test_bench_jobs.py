"""``elf bench jobs``: equal jobs say the same, and share their panes."""

from __future__ import annotations

import json

import pytest

from elf.errors import UserError
from lab.bench.jobs import Found, Jobs
from lab.bench.metered import Meter
from lab.bench.runner import Scratch


def test_a_small_one(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Jobs(jobs=6, distinct=2, agents=3, window=1, windows=3, at_once=3, hosts=1)
    assert bench.perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    few, many = said["distinct"], said["all"]
    assert _mastered(few["masters"]) == (2, 3)
    assert _mastered(many["masters"]) == (6, 3)
    assert many["created_again"] == 0
    assert few["pane_commits_a_window"] == pytest.approx(many["pane_commits_a_window"], abs=1)
    assert few["window_commits_a_window"] == pytest.approx(2, abs=1)
    assert many["window_commits_a_window"] == pytest.approx(6, abs=2)
    assert said["ratios"]["cpu_s_a_window"] > 0
    assert many["mib"] > 1


def _mastered(masters: dict[str, int]) -> tuple[int, int]:
    """How many jobs there are, and agents."""
    return sum(int(jobs) * agents for jobs, agents in masters.items()), sum(masters.values())


def test_where_all_jobs_differ_there_is_one_fleet() -> None:
    bench = Jobs(jobs=2, distinct=2, windows=2)
    with Scratch() as scratch:
        assert list(bench.sides(scratch)) == ["all"]
    spent = [Meter(1.0, 2.0, 40.0, 0.0, 0.0, 0.0, 0.0)]
    report = bench.report({"all": [Found(1.0, {}, 0.0, 0, spent, [1.0], {}, {})]})
    assert [(figure.elf, figure.beside) for figure in report.figures] == [(1.5, {}), (20.0, {})]


def test_more_kinds_than_jobs() -> None:
    with pytest.raises(UserError, match="50 different jobs of 3"):
        Jobs(jobs=3)
