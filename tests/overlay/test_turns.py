"""Turns: nobody waits longer than is said, and nobody new at all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overlay.turns import Turns

CROWDS = st.lists(st.integers(0, 30), unique=True, max_size=31)


@given(CROWDS, st.integers(1, 9), st.integers(1, 5))
def test_each_of_a_crowd_has_its_turn_as_often_as_is_said(
    crowd: list[int], at_once: int, turns_max: int
) -> None:
    turns: Turns[int] = Turns(at_once, turns_max)
    assert sorted(turns.take(crowd)) == sorted(crowd), "to whom nobody has spoken"
    assert 1 <= turns.every <= turns_max
    for _ in range(3):
        spoken = [turns.take(crowd) for _ in range(turns.every)]
        assert {one for part in spoken for one in part} == set(crowd)
        if len(crowd) <= at_once * turns_max:
            assert max(map(len, spoken)) <= at_once


@given(st.lists(CROWDS, min_size=1, max_size=12), st.integers(1, 5))
def test_whoever_stays_waits_no_longer_than_was_said_while_others_come_and_go(
    crowds: list[list[int]], at_once: int
) -> None:
    turns: Turns[int] = Turns(at_once, turns_max=3)
    waits: dict[int, int] = {}
    for crowd in crowds:
        now = turns.take([*crowd, 99])
        waits = {one: 0 if one in now else waits[one] + 1 for one in (*crowd, 99)}
        assert set(now) <= {*crowd, 99}
        assert max(waits.values()) < 3


def test_who_is_forgotten_is_spoken_to_the_next_time() -> None:
    turns: Turns[str] = Turns(1, 9)
    assert turns.take("abcd") == ["a", "b", "c", "d"]
    assert turns.take("abcd") == ["a"]
    turns.forget("a")
    turns.forget("z")
    assert turns.take("abcd") == ["a", "b"]
