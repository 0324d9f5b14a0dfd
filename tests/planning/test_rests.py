"""What comes after the map of a flow, as it was measured, and the deadline that follows from it."""

from __future__ import annotations

import pytest

from elf.planning.rests import LAST, WAITING_MAX, Rest
from elf.planning.turns import CUT_LAST, Bound
from tests.support.rests import measured


def test_nearly_all_of_the_last_panes_took_no_longer() -> None:
    assert Rest().ms == 0
    assert measured(40, 70, 50).ms == 75
    assert measured(*[400] * LAST, *[50] * LAST).ms == 75
    assert measured(900, 50, 60, 50).ms < 100, "one that took long is no rule"


def test_what_takes_the_least_is_known_from_a_few_panes_on() -> None:
    assert measured(40, 70).least_ms == 0
    assert measured(40, 70, 50).least_ms == 40


def test_how_late_a_map_was_counts_for_its_deadline_and_not_for_what_is_possible() -> None:
    rest = Rest()
    for pane in range(3):
        rest.mapped(pane, 1_000 * pane, late_ms=20)
        rest.committed(pane, 1_000 * pane + 40)
    assert (rest.ms, rest.least_ms) == (90, 40)


def test_of_panes_that_were_not_seen_nothing_is_measured() -> None:
    rest = measured(40)
    assert not rest.committed(0, 9_000), "it was, once"
    for pane in range(10, 11 + WAITING_MAX):
        rest.mapped(pane, 10_000)
    assert not rest.committed(10, 99_000), "too many wait"
    assert rest.committed(11, 9_000), "clocks may be set back"
    assert rest.ms == 30, "of 40 and of 0"


@pytest.mark.parametrize(
    ("within_ms", "rest_ms", "due_ms"),
    [(100, 0, 60), (100, 30, 60), (100, 50, 50), (100, 300, 30), (1_000, 70, 750), (1_000, 400, 600)],
)
def test_a_deadline_leaves_time_for_it(within_ms: float, rest_ms: float, due_ms: float) -> None:
    assert Bound(within_ms, CUT_LAST, rest_ms=rest_ms).due_ms(0, 0) == pytest.approx(due_ms)
