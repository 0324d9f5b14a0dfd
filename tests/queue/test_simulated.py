"""The queue on virtual time: the paper's experiments."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from elf.cli.main import app
from lab.cli.simqueue import faults
from lab.queue import scenarios
from lab.queue.optimal import counterexamples
from lab.queue.sharing import natjam
from lab.queue.world import Cluster, Job, World
from spark_backend.queue.policies import Policies, RunEviction, TaskEviction


def test_the_thirteen_steps_come_in_their_order() -> None:
    story = scenarios.step_by_step(1)
    asks = next(n for n, line in enumerate(story) if "production asks" in line)
    steps = [
        re.split(r"\s{2,}", line.strip())[1]
        for line in story[asks:]
        if "research asks" not in line and "resumes" not in line
    ]
    assert steps[:12] == ["1", "2, 3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13"]


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_the_experiments_are_as_the_paper_says(name: str) -> None:
    done = CliRunner().invoke(app, ["sim", "queue", "--scenario", name, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ok"]
    assert found[name]


def test_production_first_and_research_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 6.19, once instead of five times."""
    monkeypatch.setattr(scenarios, "RUNS", 1)
    found = scenarios.fig_6_19(1)
    assert not faults("fig6.19", found), found
    assert set(found) == {"natjam", "kill", "hard_cap", "soft_cap"}
    assert all(figures.keys() >= {"production", "research"} for figures in found.values())  # type: ignore[attr-defined]


def test_the_latest_deadline_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 6.20, once, and with the deadlines of Figure 6.21."""
    monkeypatch.setattr(scenarios, "RUNS", 1)
    monkeypatch.setattr(scenarios, "EPSILONS", (0.2, 0.8))
    assert not faults("fig6.20", scenarios.fig_6_20(1))
    assert not faults("fig6.21", scenarios.fig_6_21(1))


def test_shortest_remaining_time_is_optimal_for_one_victim() -> None:
    cases, worse = counterexamples(4, 4, (1, 3, 8), TaskEviction.SRT)
    assert cases > 400
    assert worse == 0
    assert counterexamples(4, 4, (1, 3, 8), TaskEviction.LRT)[1] > 0


@pytest.mark.parametrize("policies", [Policies(runs) for runs in RunEviction])
def test_the_same_seed_is_the_same_run_and_production_kills_nobody(policies: Policies) -> None:
    jobs = [
        Job("a", (40_000,) * 12, (2_000,), deadline_ms=300_000),
        Job("b", (30_000,) * 12, at_ms=3_000, deadline_ms=200_000),
        Job("c", (9_000,) * 9, at_ms=30_000, production=True, deadline_ms=60_000),
    ]
    cluster = Cluster(hosts=2, each=8)
    seen = [World(cluster, natjam(policies), 3).run(jobs) for _ in range(2)]
    assert seen[0] == seen[1]
    assert sum(seen[0].suspends.values()) > 0
    if not policies.by_deadline:
        assert seen[0].suspends["c"] == seen[0].killed == 0


def test_a_scenario_that_is_not_there_is_named() -> None:
    done = CliRunner().invoke(app, ["sim", "queue", "--scenario", "fig7"])
    assert done.exit_code != 0
    assert "there is no scenario fig7" in str(done.exception or done.output)
