"""The one pace of all that changes by itself."""

from __future__ import annotations

import pytest

from elf.planning.pacing import Change, Pace, paced, unbalanced

PACE = Pace(above=1.3, below=1.1, period_ms=10_000, follow_ms=30_000, rest_ms=30_000)
MINUTE_MS = 60_000


def changes(*found: tuple[str, int]) -> list[Change]:
    return [Change(what.partition("#")[0], what, at_ms) for what, at_ms in found]


def due(imbalance: float, *found: tuple[str, int], now_ms: int = 100_000) -> bool:
    return unbalanced(PACE, imbalance, paced(PACE, changes(*found), (), now_ms)).due


def test_it_begins_above_one_limit_and_goes_on_to_the_other() -> None:
    assert not due(1.2)
    assert due(1.31)
    # it has begun: the last change was 20 s ago
    assert due(1.2, ("j", 80_000))
    assert not due(1.1, ("j", 80_000))
    # nothing has changed for long: it is at rest
    assert not due(1.2, ("j", 60_000))


def test_changes_are_measured_before_the_next() -> None:
    turn = paced(PACE, changes(("j", 95_000)), (), 100_000)
    assert not turn.due
    assert not turn.may("other", "other")
    assert turn.reasons == ("the last change was 5 s ago: loads are measured first",)


def test_a_job_is_changed_once_at_a_time() -> None:
    turn = paced(PACE, changes(("i", 69_000), ("j", 71_000), ("r#1", 80_000)), {"k"}, 100_000)
    may = {what: turn.may(what.partition("#")[0], what) for what in ("i", "j", "k", "l", "r", "r#2")}
    assert may == {"i": True, "j": False, "k": False, "l": True, "r": False, "r#2": False}


def test_what_goes_to_and_fro_is_left_alone_for_longer_each_time() -> None:
    """The same thing of a job; what else it has, not."""
    at_ms, found = 0, []
    rests = []
    for _ in range(6):
        found.append(("j#1", at_ms))
        now_ms = at_ms
        while not (turn := paced(PACE, changes(*found), (), now_ms)).may("j", "j#1"):
            now_ms += 1_000
            assert turn.may("j", "j#2") is (now_ms - 1_000 - at_ms >= PACE.rest_ms)
        rests.append(now_ms - at_ms)
        at_ms = now_ms
    assert rests == [30_000 << n for n in range(6)]
    assert paced(PACE, changes(*found), (), at_ms + 60 * MINUTE_MS).held == frozenset(), "it is forgotten"


def test_there_are_only_so_many_changes_an_hour() -> None:
    found = changes(*((f"j{n}", 1_000 * n) for n in range(60)))
    pace = Pace(most=60)
    turn = paced(pace, found, (), 3_500_000)
    assert not turn.due
    assert turn.reasons == ("there were 60 in the last hour, of 60 at most",)
    turn = paced(pace, found, (), 3_602_000)
    assert turn.due
    assert turn.room == 3


def test_another_clock_that_is_behind_changes_nothing_early() -> None:
    assert not paced(PACE, changes(("j", 105_000)), (), 100_000).due


def test_a_pace_that_would_turn_round_and_round_is_refused() -> None:
    with pytest.raises(ValueError, match="no pace"):
        Pace(above=1.1, below=1.2)
    with pytest.raises(ValueError, match="no pace"):
        Pace(rest_ms=1_000)
