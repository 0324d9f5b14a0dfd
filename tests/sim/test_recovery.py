"""A twentieth of a ring dies at once: the trees are whole again within 4 s, 3 of them detection."""

from __future__ import annotations

import random

from lab.overlay.simulator import simulate


def test_trees_are_whole_again_four_seconds_after_a_mass_kill() -> None:
    report = simulate(80, 50, 0.05, random.Random(3), jobs=20)
    assert report.jobs.unrepaired == 0
    assert report.crashed == 4
    assert max(report.jobs.recovery_seconds) <= 4.0
