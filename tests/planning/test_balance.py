"""Flux's rule, and when it may act."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.planning.balance import Load, balance, imbalance
from elf.planning.pacing import Pace, turn


def test_the_biggest_unit_that_suits_goes_from_the_first_to_the_last_and_so_on() -> None:
    loads = {
        "a": Load({"huge": 90, "big": 30, "small": 5}),
        "b": Load({"x": 40, "y": 30}),
        "c": Load({"z": 20}),
        "d": Load({}, fixed=10),
    }
    found = balance(loads)
    # with the huge one d would be at 100, which is less than 125, so it suits
    assert [(one.unit, one.origin, one.target) for one in found.moves] == [
        ("huge", "a", "d"),
        ("x", "b", "c"),
    ]
    assert (found.moves[0].size, found.moves[0].origin_load, found.moves[0].target_load) == (90, 125, 10)
    assert found.reasons[0] == "the busiest of 4 agents has 2.22 times the mean load"


def test_what_would_only_change_sides_stays() -> None:
    found = balance({"a": Load({"only": 100}), "b": Load({})})
    assert found.moves == ()
    assert found.reasons[1] == "no unit of a suits b, which are at 100 and 0"


def test_held_units_stay() -> None:
    loads = {"a": Load({"big": 40, "small": 10}, fixed=50), "b": Load({})}
    assert [one.unit for one in balance(loads, held={"big"}).moves] == ["small"]


units = st.dictionaries(st.sampled_from("uvwxyz"), st.integers(1, 100), max_size=6)


@given(st.lists(st.tuples(units, st.integers(0, 50)), min_size=1, max_size=8))
def test_each_move_makes_the_variance_smaller_and_nothing_is_lost(
    drawn: list[tuple[dict[str, int], int]],
) -> None:
    loads = {
        f"a{n}": Load({f"{n}{u}": s for u, s in us.items()}, fixed) for n, (us, fixed) in enumerate(drawn)
    }
    there = {agent: dict(load.units) for agent, load in loads.items()}
    for one in balance(loads).moves:
        before = [sum(there[a].values()) + loads[a].fixed for a in loads]
        there[one.target][one.unit] = there[one.origin].pop(one.unit)
        after = [sum(there[a].values()) + loads[a].fixed for a in loads]
        assert statistics.pvariance(after) < statistics.pvariance(before)
        assert max(after) <= max(before)


@given(st.integers(2, 12), st.integers(1, 60), st.randoms(use_true_random=False))
def test_repeated_it_comes_to_rest(agents: int, jobs: int, rng) -> None:  # type: ignore[no-untyped-def]
    there: dict[str, dict[str, float]] = {f"a{n}": {} for n in range(agents)}
    for job in range(jobs):
        there[f"a{rng.randrange(agents)}"][f"j{job}"] = rng.randint(1, 100)
    for _ in range(200):
        loads = {agent: Load(units) for agent, units in there.items()}
        moves = balance(loads).moves
        if not moves:
            return
        for one in moves:
            there[one.target][one.unit] = there[one.origin].pop(one.unit)
    raise AssertionError("it goes on and on")


def test_nobody_who_does_nothing_is_out_of_balance() -> None:
    assert imbalance({"a": Load({}), "b": Load({})}) == 1.0
    assert imbalance({}) == 1.0


PACE = Pace(above=1.3, below=1.1, period_ms=10_000, follow_ms=30_000, cool_ms=60_000)


def test_it_begins_above_one_limit_and_goes_on_to_the_other() -> None:
    assert not turn(PACE, 1.2, [], (), 100_000).due
    assert turn(PACE, 1.31, [], (), 100_000).due
    # it has begun: the last change was 20 s ago
    assert turn(PACE, 1.2, [("j", 80_000)], (), 100_000).due
    assert not turn(PACE, 1.1, [("j", 80_000)], (), 100_000).due
    # nothing has changed for long: it is at rest
    assert not turn(PACE, 1.2, [("j", 60_000)], (), 100_000).due


def test_what_has_moved_is_measured_and_stays_for_a_while() -> None:
    assert not turn(PACE, 9.0, [("j", 95_000)], (), 100_000).due
    assert turn(PACE, 9.0, [("i", 30_000), ("j", 50_000)], {"k"}, 100_000).held == {"j", "k"}
    assert "5 s ago" in turn(PACE, 9.0, [("j", 95_000)], (), 100_000).reasons[0]


def test_there_are_only_so_many_moves_an_hour() -> None:
    moved = [(f"j{n}", 1_000 * n) for n in range(60)]
    pace = Pace(most=60)
    assert not turn(pace, 9.0, moved, (), 3_500_000).due
    assert "60 in the last hour" in turn(pace, 9.0, moved, (), 3_500_000).reasons[0]
    assert turn(pace, 9.0, moved, (), 3_600_001).due


def test_another_clock_that_is_behind_moves_nothing_early() -> None:
    assert not turn(PACE, 9.0, [("j", 105_000)], (), 100_000).due


def test_a_pace_that_would_turn_round_and_round_is_refused() -> None:
    with pytest.raises(ValueError, match="no pace"):
        Pace(above=1.1, below=1.2)
