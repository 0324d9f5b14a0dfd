"""Panes that were measured, phase by phase."""

from __future__ import annotations

import numpy as np

from elf.planning.phases import ABOUT, HELP, Pane, phase_of, phases_of


def pane(number: int, last: str, *took_ms: int) -> Pane:
    due = 1_000_000 * number
    times = (due, *(due + 1_000 * sum(took_ms[: place + 1]) for place in range(6)))
    return Pane(number, last, times)


def test_phases_add_up_and_the_longest_dominates() -> None:
    panes = [pane(n, "web-2" if n else "web-1", 10, 5, 40 + n, 2, 3, 0) for n in range(10)]
    found = phases_of(panes)
    assert tuple(found.phases) == tuple(ABOUT) == tuple(HELP)
    assert sum(one.mean for one in found.phases.values()) == found.total.mean == 64.5
    tree = found.phases["tree"]
    assert (tree.mean, tree.p50, tree.p99) == (44.5, 44.0, 49.0)
    assert np.isclose(tree.variance, 8.25)
    assert np.isclose(found.total.variance, 8.25), "the others do not vary"
    assert (found.dominant, found.skewed, found.last) == ("tree", 0, {"web-2": 9, "web-1": 1})
    assert found.reasons == (
        f"tree is 69% of the mean: {ABOUT['tree']}",
        HELP["tree"],
        "web-2 was the last to seal 9 of 10 panes",
    )


def test_a_step_that_ended_before_it_began_counts_nothing_and_is_said() -> None:
    found = phases_of([pane(1, "web-1", 10, 5, -4, 2, 7, 1)])
    assert found.skewed == 1
    assert [found.phases[name].mean for name in ("tree", "draft", "commit")] == [0, 0, 5]
    assert found.total.mean == 10 + 5 + 5 + 1


def test_of_nothing_there_is_nothing_to_say() -> None:
    found = phases_of([])
    assert (found.panes, found.dominant, found.total.mean) == (0, "", 0)
    assert found.reasons == ("no stamped pane is complete yet",)


def test_quantiles_are_values_that_occurred() -> None:
    found = phase_of(np.arange(1.0, 201.0))
    assert (found.p50, found.p99) == (100.0, 198.0)
