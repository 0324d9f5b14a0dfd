"""``elf sim latency``: what it measures is what it says, and a target that is missed is named."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elf.errors import UserError
from elf.planning.deadlines import Task
from lab.latency import mixed, overload, scenarios
from lab.latency.modelled import RULES, best, highest, most_rows, phases_of
from lab.latency.overload import CostAware, DOver, Edf, Overload
from lab.latency.pipeline import PHASES, Node, Setting, Workload, _Job, simulate
from lab.scenarios import ScenarioOptions, run_scenarios


def test_threads_share_the_cores_and_do_one_job_at_a_time() -> None:
    ended: list[tuple[int, float, float]] = []
    node = Node(2, 3, lambda thread, job, now: ended.append((thread, job.begun, now)))
    for thread in range(3):
        node.give(0.0, thread, _Job(2.0, []))
    node.give(0.0, 0, _Job(1.0, []))
    node.run()
    # three threads on two cores: each at two thirds, until all are done together; then one is alone
    assert sorted(round(now, 6) for _, _, now in ended) == [3.0, 3.0, 3.0, 4.0]
    assert max(begun for _, begun, _ in ended) == pytest.approx(3.0)


def test_the_phases_of_rows_follow_one_another() -> None:
    workload, setting = Workload(), Setting(2, 2, 20.0, 30.0)
    took = simulate(workload, setting, 10.0, 1.0, seed=1)
    assert took.shape[1] == len(PHASES)
    assert took.min() >= -1e-9
    assert took[:, 0].max() <= setting.batch_ms + 1e-9
    assert took[:, PHASES.index("shuffle")].max() <= setting.shuffle_ms + 1e-9
    assert took[:, PHASES.index("fetch")].max() <= 1.02 * setting.fetch_ms
    again = simulate(workload, setting, 10.0, 1.0, seed=1)
    assert np.array_equal(took, again), "the same seed, the same rows"


def test_the_model_says_what_is_simulated_of_each_phase() -> None:
    found = scenarios.compared(Workload(), Setting(4, 4, 100.0, 100.0), 40.0, seed=1, secs=3.0)
    assert found["mean"]["error"] < 0.15
    assert found["p99"]["error"] < 0.2
    assert set(found["phases"]) >= {"shuffle", "fetch"}
    assert all(one["error"] < 0.2 for one in found["phases"].values())
    assert len(scenarios.settings()) >= 34
    with pytest.raises(ValueError, match="of 4 cores"):
        phases_of(Workload(), Setting(4, 4, 10.0, 10.0), 200.0)


def test_costs_have_the_moments_that_are_computed() -> None:
    workload = Workload(memory=0.3)
    drawn = workload.costs(np.random.default_rng(1), 400_000)
    for power in (1, 2, 3):
        assert workload.moment(power) == pytest.approx(float((drawn**power).mean()), rel=0.02)


def test_the_highest_rate_and_the_setting_that_carries_it() -> None:
    assert highest(lambda rate: rate, 10.0, 64.0) == pytest.approx(10.0, abs=1.0)
    assert highest(lambda rate: float("inf"), 10.0, 64.0) == 0.0
    workload = Workload()
    setting, rate = best(workload, 500.0)
    assert 0 < rate <= most_rows(workload)
    assert rate >= max(best(workload, 500.0, [rule])[1] for rule in RULES)
    assert len(RULES) == 9
    assert setting.shuffle_ms < 1_000.0, "a second to the shuffle alone is beyond the bound"


def test_flows_with_one_promise_lose_little_by_weights_and_others_less_by_turns() -> None:
    for times, least in ((1.4, 0.9), (1.8, 0.8)):
        found = mixed.compared(mixed.Load(mixed.MIXES["alike"], (times,)))
        assert least <= found["weights"] <= 1.0
        assert found["turns"] <= 1.0
    for name in ("SQL within 0.1, 1 and 5 s", "Python within 5 s"):
        unlike = mixed.compared(mixed.Load(mixed.MIXES[name], (1.8,), secs=30))
        assert unlike["weights"] < 0.7 < 0.8 < unlike["turns"] <= 1.0
    light = mixed.compared(mixed.Load(mixed.MIXES["alike"], (0.7,), secs=30))
    assert set(light.values()) == {1.0}


def test_dear_rows_are_left_out_and_others_are_in_time() -> None:
    load = Overload(classes=scenarios.CHUNKS, factor=1.8, secs=5.0)
    found = overload.run(load, 1)
    assert found["cost-aware"]["share"] > found["edf"]["share"]
    assert 0.8 <= found["cost-aware"]["of_oracle"] <= 1.0
    assert found["d-over"]["of_oracle"] <= 1.0
    light = overload.run(Overload(classes=scenarios.CHUNKS, factor=0.3, secs=5.0), 1)
    assert light["edf"]["share"] == light["cost-aware"]["share"] == light["d-over"]["share"] == 1.0


def test_each_policy_on_a_case_that_can_be_counted_by_hand() -> None:
    tasks = [Task(9.0, 10.0, 0), Task(4.0, 10.0, 1), Task(4.0, 10.0, 2), Task(1.0, 10.0, 3)]

    def done(policy: overload.Policy) -> list[int]:
        now, names = 0.0, list[int]()
        policy.offer(tasks, now)
        while (task := policy.next(now)) is not None:
            now += task.cost
            names.append(task.name)
        return names

    assert done(CostAware()) == [3, 1, 2]
    assert done(Edf()) == [0, 3], "the earliest first, whatever it costs"
    assert done(DOver(9.0)) == [0, 3], "those that fit when they come are privileged"
    assert overload.oracle(np.array([9.0, 4.0, 4.0, 1.0]), 10.0) == 3


def test_the_last_line_has_each_scenario_beside_its_target(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scenarios, "settings", lambda: [(Setting(4, 4, 10.0, 100.0), 30.0)])
    monkeypatch.setattr(scenarios, "SECS", 1.0)
    run_scenarios(scenarios.SCENARIOS, ScenarioOptions(("model", "scheduler"), 1, True))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [set(said[name]) for name in ("model", "scheduler")] == [{"measured", "target", "reached"}] * 2
    (each,) = said["model"]["measured"]["each"]
    assert set(each) == {"setting", "rows_s", "mean", "p99", "phases"}
    monkeypatch.setattr(scenarios, "_a_task_us", lambda count, seed: float(count))
    assert run_scenarios(scenarios.SCENARIOS, ScenarioOptions(("scheduler",), 1, False)) == 1
    assert "below the target: scheduler" in capsys.readouterr().err
    with pytest.raises(
        UserError, match="there is no scenario x: model, rules, overload, promises, scheduler"
    ):
        run_scenarios(scenarios.SCENARIOS, ScenarioOptions(("x",), 1, False))
