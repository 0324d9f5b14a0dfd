"""From a schedule that fails to a small one that still does: faults are left out and it is run again."""

from __future__ import annotations

from collections.abc import Callable

from lab.chaos.schedule import Schedule
from lab.chaos.story import Verdict, play

RUNS_MAX = 40


def shrunk(
    schedule: Schedule, verdict: Verdict, run: Callable[[Schedule], Verdict] = play, runs: int = RUNS_MAX
) -> tuple[tuple[int, ...], Verdict]:
    """The numbers of the remaining faults, and their verdict. A smaller schedule counts when its finding is
    wrong, lost, doubled or broken as the first one of the whole schedule. Groups of half the faults are left
    out, then smaller ones, then each alone (Zeller's ddmin, complements only); at most ``runs`` runs."""
    kind = verdict.findings[0].kind
    left = tuple(range(1, len(schedule.faults) + 1))
    size = max(1, len(left) // 2)
    while left and runs > 0:
        for start in range(0, len(left), size):
            tried = left[:start] + left[start + size :]
            runs -= 1
            found = run(schedule.only(tried))
            if any(one.kind == kind for one in found.findings):
                left, verdict = tried, found
                break
            if not runs:
                break
        else:
            if size == 1:
                break
            size //= 2
            continue
        size = max(1, min(size, len(left) // 2))
    return left, verdict
