"""Which tasks of a flow have a turn together."""

from __future__ import annotations

import pytest

from elf.planning.budgets import WEIGHT_MAX
from elf.planning.turns import (
    CUT_LAST,
    NEAR_MS,
    TURN_LATER_MS,
    TURN_MAX_MS,
    UNCUT,
    Bound,
    Postponed,
    Turns,
)

ROWS = 1_000
"""Of a task, for which it takes 10 ms."""


def turns(*tasks: tuple[str, int, float]) -> Turns[Postponed]:
    """Of tasks (flow, weight, due), all maps of which take as much."""
    made = Turns[Postponed]()
    made.mapped("map", ROWS, 10.0)
    for flow, weight, due_ms in tasks:
        rank = UNCUT if weight == WEIGHT_MAX else CUT_LAST
        made.offer(Postponed(flow, "map", ROWS, weight, due_ms, rank))
    return made


def together(made: Turns[Postponed], until_ms: float = 1e9) -> list[tuple[str, int, float]]:
    found = made.next(0.0, takes_ms=TURN_MAX_MS, idle=True, until_ms=until_ms)
    return [(one.flow, one.weight, one.due_ms) for one in found]


def test_what_is_due_together_is_done_together_and_little_of_what_is_due_later() -> None:
    soon, later = ("a", 1, 500.0), ("a", 1, 900.0)
    assert together(turns(*[soon] * 20, ("b", 1, 600.0))) == [soon] * (int(TURN_MAX_MS) // 10)
    assert together(turns(soon, ("b", 1, 600.0), *[later] * 20)) == [soon] + [later] * (
        int(TURN_LATER_MS) // 10 - 1
    )


def test_all_weights_are_done_together_but_what_is_cut_short_takes_nothing_along_that_is_due_later() -> None:
    whole, cut, later = ("a", 1, 500.0), ("a", WEIGHT_MAX, 500.0), ("a", 1, 900.0)
    assert sorted(together(turns(cut, whole, later))) == [whole, cut]
    assert sorted(together(turns(whole, cut, later))) == [whole, later, cut], "it is second"


def test_nothing_comes_along_that_is_due_after_that() -> None:
    assert together(turns(("a", 1, 50.0), ("a", 1, 60.0)), until_ms=55.0) == [("a", 1, 50.0)]


@pytest.mark.parametrize(
    ("within_ms", "ended_ms", "near"),
    [
        (100, 10, True),
        (100, 200, False),
        (100, -10, True),
        (1_000, 10, False),
        (1_000, 700, False),
        (0, 1, False),
    ],
)
def test_a_pane_is_near_to_be_sealed_that_has_just_ended_and_is_promised_soon(
    within_ms: float, ended_ms: float, near: bool
) -> None:
    now_ms = 10_000.0 + ended_ms
    assert NEAR_MS < 200
    assert Bound(within_ms, CUT_LAST).is_near(now_ms, 10_000.0) is near
