"""Settings of a promise that are worked out anew: when that helps, one after another, and not to and fro."""

from __future__ import annotations

import pytest

from elf.planning.drift import pause_of


@pytest.mark.parametrize(
    ("poll_ms", "reached_ms", "kept", "expected"),
    [
        (50, 120, False, 20),
        (50, 140, False, 10),
        (50, 148, False, 2),
        (50, 149, False, 50),
        (2, 101, False, 2),
        (5, 40, True, 20),
        (5, 20, True, 50),
        (20, 60, True, 20),
        (50, 20, True, 50),
    ],
)
def test_looks_are_as_far_apart_as_the_promise_lets_them(
    poll_ms: int, reached_ms: int, kept: bool, expected: int
) -> None:
    assert pause_of(poll_ms, reached_ms, 100.0, kept=kept) == expected


def test_what_was_changed_is_not_changed_back() -> None:
    for before in (50, 20, 10, 5):
        for reached in range(60, 160):
            after = pause_of(before, reached, 100.0, kept=reached <= 100)
            then = reached - (before - after)
            assert pause_of(after, then, 100.0, kept=then <= 100) == after
