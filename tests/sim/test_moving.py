"""``elf sim moving``: what it measures, and that it says when a target is missed."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from elf.errors import UserError
from elf.planning import etp
from lab.bench.simulated.costs import Costs
from lab.moving import fused, groups, jobs
from lab.moving.balanced import balanced
from lab.moving.master import moved
from lab.moving.rates import Flowing, Instance, Kind, dealt, fair
from lab.moving.scenarios import SCENARIOS
from lab.scenarios import ScenarioOptions, run_scenarios

SCALING = ("figure_6.8", "scale_out_page_load", "scale_out_network")


def test_the_last_line_has_each_scenario_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_scenarios(SCENARIOS, ScenarioOptions(SCALING, 1, True)) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["ok"]
    assert [set(said[name]) for name in SCALING] == [{"measured", "target", "reached"}] * 3
    assert said["figure_6.8"]["measured"]["etp_percent"] == {"3": 40, "4": 40, "6": 20, "1": 0}


def test_a_target_that_is_missed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = etp.Target("lines", congested=False, etp=0.0)
    monkeypatch.setattr(etp, "target", lambda topology, rate: first)
    assert run_scenarios(SCENARIOS, ScenarioOptions(("scale_out_page_load",), 1, False)) == 1
    assert "below the target: scale_out_page_load" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"there is no scenario x: figure_6\.8, scale_out_page_load"):
        run_scenarios(SCENARIOS, ScenarioOptions(("x",), 1, False))


def test_random_jobs_are_as_the_paper_draws_them() -> None:
    rng = random.Random(3)
    for _ in range(20):
        job = jobs.random_job(60, rng)
        sent = Counter[int]()
        for (origin, target), rate in job.rates.items():
            assert origin < target
            sent[origin] += rate  # type: ignore[assignment]
        assert max(sent.values()) <= jobs.SENT
        assert all(1 <= len(one) <= 30 for one in job.attributes)


def test_by_rate_the_fewest_tuples_go_between_components_and_without_a_score_the_most() -> None:
    found = jobs.shares(60, 100, 1)
    assert found["comm"]["between"] < found["attributes"]["between"] < found["baseline"]["between"]
    assert found["comm"]["components"] > found["attributes"]["components"]


def test_who_wants_little_gets_it_and_the_others_share_the_rest() -> None:
    assert fair([10, 100, 100], 100) == [10, 45, 45]
    assert fair([10, 20], 100) == [10, 20]


def test_nothing_comes_from_nowhere_and_what_waits_is_bounded() -> None:
    kinds = (Kind("in", 1.0, ("out",), offered=2_000), Kind("out", 0.5))
    flowing = Flowing(kinds, dealt(kinds, 1, 2), queue_max=500)
    flowing.run(20)
    # one core does a thousand of 1 ms in a second
    assert flowing.throughput() == pytest.approx(1_000, rel=0.01)
    assert max(one.queue for one in flowing.instances) <= 500
    assert etp.congested(flowing.topology()) == ("in",)


def test_an_instance_that_starts_later_does_nothing_before() -> None:
    kinds = (Kind("in", 1.0, offered=100),)
    flowing = Flowing(kinds, [Instance(0, "m", starts_s=5)], queue_max=10_000)
    flowing.run(10)
    assert flowing.silent_s(0) == 5


def test_moves_that_cost_little_keep_rows_from_waiting() -> None:
    cheap, dear = groups.Cost(0, 1), groups.Cost(50, 100, 20)
    rarely, often, always = (
        groups.figure_13(dear, 300),
        groups.figure_13(dear, 60),
        groups.figure_13(cheap, 1),
    )
    assert rarely.mean_ms > often.mean_ms > 10 * always.mean_ms
    assert min(rarely.moves, often.moves, always.moves) > 0


def test_fused_operators_have_the_same_tuples_and_take_less() -> None:
    tuples = fused.drawn(1, 20_000, 200)
    assert fused.consolidate(fused.partials_of(tuples)) == fused.consolidate(
        [fused.handed_on(one) for one in fused.partials_of(tuples)]
    )
    assert fused.fast_job(tuples, 4) < fused.fast_job(tuples, 0)


def test_a_master_is_moved_in_no_time_while_its_state_would_take_some() -> None:
    found = moved(1_000, 1, 1, Costs())
    assert len(found.gaps) == 2
    assert 0 < found.instant_ms < 100
    assert found.cost.pause_ms > 0


def test_after_a_rolling_restart_jobs_spread() -> None:
    found = balanced(1, Costs(), agents=4, jobs=8)
    assert 1 <= found["after"] < found["before"] + 0.1
    assert found["masters_most_after"] <= found["masters_most_before"]
