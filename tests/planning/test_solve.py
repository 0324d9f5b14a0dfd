"""The settings that keep a promise: the cheapest ones, for a region around the present rate; or the best."""

from __future__ import annotations

import time
from itertools import product

import pytest

from elf.fields import replace
from elf.planning.latency import Costs, Member, Moments, looked, normal_quantile, total
from elf.planning.phases import ABOUT
from elf.planning.solve import (
    DEFAULT_MEMBER,
    DEFAULTS,
    LOOK_MS,
    LOOKS_SHARE,
    POLLS_MS,
    RATES,
    TREES,
    Known,
    Setting,
    phases_with,
    solve,
)

COSTS = Costs(sync=Moments(8.0, 4.0), hop=Moments(1.0, 0.1), depth=1, draft=3.0)
KNOWN = Known(members=[Member(500.0, 3.0)] * 4, costs=COSTS, pane_ms=10_000.0)


def test_the_longest_pause_between_looks_that_keeps_the_promise_is_chosen() -> None:
    reached = {
        poll: normal_quantile(total(phases_with(KNOWN, Setting(poll)).values()), 0.99) for poll in POLLS_MS
    }
    assert sorted(reached.values(), reverse=True) == list(reached.values())
    for poll, ms in reached.items():
        found = solve(KNOWN, ms / 0.89, 99.0)
        assert (found.keeps, found.setting) == (True, Setting(poll))
        assert found.reached == pytest.approx(ms)
        assert sum(one.mean for one in found.phases.values()) == pytest.approx(found.total.mean)
    assert set(found.phases) == set(ABOUT)


def test_what_nothing_keeps_is_said_with_the_best_there_is() -> None:
    found = solve(KNOWN, 10.0, 99.0)
    assert (found.keeps, found.region, found.setting.poll_ms) == (False, None, POLLS_MS[-1])
    assert found.reached > 10.0
    again = solve(KNOWN, found.reached, 99.0)
    assert again.keeps, "without anything to spare it is kept"
    assert solve(KNOWN, again.total.mean / 0.89, None).keeps, "a mean is less than a quantile"


def test_the_least_number_of_trees_that_carries_the_rate_is_chosen() -> None:
    heavy = replace(KNOWN, costs=replace(COSTS, draft=20_000.0), trees=TREES)
    found = solve(heavy, 60_000.0, 99.0)
    assert (found.keeps, found.setting) == (False, found.setting), "the master would merge for 20 s of 10"
    busy = replace(KNOWN, costs=replace(COSTS, draft=6_000.0, window=50.0), now=Setting(50, 2), trees=TREES)
    found = solve(busy, 20_000.0, 99.0)
    assert (found.keeps, found.setting.trees) == (True, 2)
    tight = solve(busy, 2_500.0, 99.0)
    assert (tight.keeps, tight.setting.trees) == (True, 8)
    assert not solve(replace(busy, trees=(1,)), 60_000.0, 99.0).keeps
    assert "is not carried" in "; ".join(solve(replace(busy, trees=(1,)), 60_000.0, 99.0).reasons)


def test_what_was_measured_beyond_the_model_stays() -> None:
    model = phases_with(KNOWN, Setting())
    measured = {name: Moments(one.mean + 7.0, one.variance + 9.0) for name, one in model.items()}
    there = replace(KNOWN, measured=measured)
    for poll in POLLS_MS:
        alone, with_it = phases_with(KNOWN, Setting(poll)), phases_with(there, Setting(poll))
        for name, one in alone.items():
            assert with_it[name].mean == pytest.approx(one.mean + 7.0)
            assert with_it[name].variance == pytest.approx(one.variance + 9.0)
    less = {name: Moments(one.mean / 2, one.variance / 2) for name, one in model.items()}
    found = phases_with(replace(KNOWN, measured=less), Setting())
    assert found["commit"].mean == pytest.approx(less["commit"].mean), "what was measured is believed"
    assert found["wait"].mean == pytest.approx(model["wait"].mean), "a wait may be longer the next time"


def test_a_job_that_reads_the_flow_of_another_has_a_commit_of_its_own() -> None:
    beside = replace(KNOWN, beside=True)
    assert phases_with(KNOWN, Setting())["window"].mean == 0
    assert phases_with(beside, Setting())["window"].mean > phases_with(KNOWN, Setting())["commit"].mean


def test_the_region_is_where_the_promise_is_kept() -> None:
    found = solve(KNOWN, 200.0, 99.0)
    assert found.region is not None
    low, high = found.region
    assert low < 1.0 < high
    for times in RATES:
        members = [Member(times * one.lines_s, max(1.0, times) * one.cpu_ms) for one in KNOWN.members]
        draft = 0.8 + 2.2 * max(1.0, times)
        there = replace(KNOWN, members=members, costs=replace(COSTS, draft=draft))
        reached = normal_quantile(total(phases_with(there, found.setting).values()), 0.99)
        assert (reached <= 200.0) == (low <= times <= high), times


def test_few_lines_are_not_looked_for_all_the_time() -> None:
    """Each look costs CPU: panes of a tenth of a second and a line now and then."""
    quiet = replace(KNOWN, members=[Member(0.5, 1.0)], pane_ms=100.0)
    found = solve(quiet, 1.0, 99.0)
    assert found.setting.poll_ms > POLLS_MS[-1]
    looks = min(looked(0.5, found.setting.poll_ms / 1000), 100.0 / found.setting.poll_ms)
    assert looks * LOOK_MS / 100.0 <= LOOKS_SHARE


def test_nothing_better_is_found_by_trying_all() -> None:
    busy = replace(KNOWN, costs=replace(COSTS, draft=900.0, window=50.0), now=Setting(50, 4), trees=TREES)
    for within, percent in product((30.0, 150.0, 400.0, 1_000.0, 4_000.0), (None, 50.0, 99.0)):
        found = solve(busy, within, percent)
        reached = {}
        for setting in (Setting(poll, m) for m in TREES for poll in POLLS_MS):
            whole = total(phases_with(busy, setting).values())
            reached[setting] = whole.mean if percent is None else normal_quantile(whole, percent / 100)
        assert found.keeps == (min(reached.values()) <= within)
        if found.keeps:
            spare = [one for one, ms in reached.items() if ms <= 0.9 * within]
            able = spare or [one for one, ms in reached.items() if ms <= within]
            assert found.setting == min(able, key=lambda one: (one.trees, -one.poll_ms))


def test_a_large_fleet_takes_less_than_a_second() -> None:
    members = [Member(0.02 * (1 + at), 2.0) for at in range(1_280)]
    known = Known(members=members, costs=replace(DEFAULTS, depth=3), pane_ms=5_000.0, trees=TREES)
    began = time.process_time()
    assert solve(known, 500.0, 99.0).reasons
    assert time.process_time() - began < 1.0
    assert solve(replace(known, members=[DEFAULT_MEMBER] * 1_280), 500.0, 99.0).keeps
