"""What would come again and again is said once in a while."""

from __future__ import annotations

from agents.logs import Seldom


def test_it_is_said_again_after_its_pause_and_little_is_remembered() -> None:
    seldom = Seldom(60.0, most=2)
    assert [seldom.now("a", now) for now in (0.0, 1.0, 59.0, 60.0, 61.0)] == [True, False, False, True, False]
    assert [seldom.now(what, 62.0) for what in "bcab"] == [True, True, True, True]
    assert not seldom.now("a", 63.0)
