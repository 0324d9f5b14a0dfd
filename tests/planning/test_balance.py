"""Flux's rule, and what units take."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.planning.balance import Load, balance, beside, imbalance, learned


def test_the_unit_that_suits_best_goes_from_the_first_to_the_last_and_so_on() -> None:
    loads = {
        "a": Load({"huge": 90, "big": 60, "small": 5}),
        "b": Load({"x": 40, "y": 30}),
        "c": Load({"z": 20}),
        "d": Load({}, fixed=10),
    }
    found = balance(loads, most=2)
    # with the huge one d would be at 100, with the big one a is at 95: the others change less
    assert [(one.unit, one.origin, one.target) for one in found.moves] == [("big", "a", "d"), ("y", "b", "c")]
    assert (found.moves[0].size, found.moves[0].origin_load, found.moves[0].target_load) == (60, 155, 10)
    assert found.reasons[0].startswith(
        "the busiest of 4 agents has 2.43 times the mean load, and will have 1."
    )


def test_it_goes_on_with_the_loads_that_agents_will_have() -> None:
    """Several units leave an agent in one decision, each once, and no more than are needed."""
    loads = {"a": Load({f"u{n}": 10 for n in range(9)}), "b": Load({}), "c": Load({})}
    found = balance(loads, below=1.1)
    assert [one.target for one in found.moves].count("b") == 3
    assert len(found.moves) == len({one.unit for one in found.moves}) == 6
    assert found.moves[-1].origin_load == 40
    assert len(balance(loads, below=2.1).moves) == 3
    assert len(balance(loads, most=2).moves) == 2


def test_what_would_only_change_sides_stays() -> None:
    found = balance({"a": Load({"only": 100}), "b": Load({})})
    assert found.moves == ()
    assert found.reasons[1] == "no unit of a suits b, which are at 100 and 0"


def test_held_units_stay() -> None:
    loads = {"a": Load({"big": 40, "small": 10}, fixed=50), "b": Load({})}
    assert [one.unit for one in balance(loads, held={"big"}).moves] == ["small"]


def test_what_units_take_beside_what_is_counted_is_learned_of_all_agents() -> None:
    counted = {"a": Load({"u": 30.0, "v": 20.0}, 5), "b": Load({"w": 10.0}, 5), "c": Load({}, 5)}
    whole = {"a": 80.0 + 4 * 50, "b": 80.0 + 4 * 10, "c": 80.0}
    factor = learned({at: (counted[at], whole[at]) for at in whole})
    assert factor == pytest.approx(4)
    assert [beside(counted[at], whole[at], factor) for at in whole] == pytest.approx([80, 80, 80])
    # nobody's units take more than there is, nor less than is counted; and who says nothing says nothing
    assert learned({"a": (Load({"u": 50.0}), 100.0), "b": (Load({}), 1.0)}) == 1.98
    assert learned({"a": (Load({"u": 50.0}), 60.0), "b": (Load({}), 90.0)}) == 1
    assert learned({"a": (Load({"u": 50.0}), 60.0)}) == learned({}) == 1
    assert beside(counted["a"], None, 4) == 5


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
