"""Settings of a promise that are worked out anew: when that helps, one after another, and not to and fro."""

from __future__ import annotations

import pytest

from elf.planning.drift import LATE_MS, SOON_MS, pause_of


@pytest.mark.parametrize(
    ("poll_ms", "reached_ms", "kept", "rested_ms", "expected"),
    [
        (50, 120, False, SOON_MS, 20),
        (50, 140, False, SOON_MS, 10),
        (50, 148, False, SOON_MS, 2),
        (50, 149, False, SOON_MS, 50),
        (50, 120, False, SOON_MS - 1, 50),
        (2, 101, False, LATE_MS, 2),
        (5, 40, True, LATE_MS, 20),
        (5, 20, True, LATE_MS, 50),
        (5, 20, True, LATE_MS - 1, 5),
        (20, 60, True, LATE_MS, 20),
        (50, 20, True, LATE_MS, 50),
    ],
)
def test_looks_are_as_far_apart_as_the_promise_lets_them(
    poll_ms: int, reached_ms: int, kept: bool, rested_ms: int, expected: int
) -> None:
    assert pause_of(poll_ms, reached_ms, 100.0, kept=kept, rested_ms=rested_ms) == expected


def test_what_was_changed_is_not_changed_back() -> None:
    for before in (50, 20, 10, 5):
        for reached in range(60, 160):
            after = pause_of(before, reached, 100.0, kept=reached <= 100, rested_ms=LATE_MS)
            then = reached - (before - after)
            assert pause_of(after, then, 100.0, kept=then <= 100, rested_ms=LATE_MS) == after
