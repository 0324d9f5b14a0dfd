"""How many roots a job should have, and which agents can go."""

from __future__ import annotations

import pytest

from elf.planning.scaling import FULL, IDLE, Job, as_asked, leaving, places, trees_for


@pytest.mark.parametrize(
    ("job", "bounds", "trees", "why"),
    [
        (
            Job(1, 0.7),
            (1, 4),
            2,
            "its root takes 70% of a core, from 60% there is one more; 100% of",
        ),
        (Job(2, 1.3), (1, 4), 3, "each of its 2 roots takes 65% of a core"),
        (Job(4, 3.0), (1, 4), 4, "and there are 4 at most"),
        (Job(1, 0.59), (1, 4), 1, "neither much nor little"),
        (Job(2, 0.31), (1, 4), 2, "neither much nor little"),
        (Job(2, 0.29), (1, 4), 1, "with one fewer each takes 29%, of 30% at most"),
        (Job(2, 0.0), (2, 4), 2, "neither much nor little"),
        (Job(1, 0.0), (2, 4), 2, "it has 1, and is to have 2 to 4"),
        (Job(6, 0.0), (2, 4), 4, "it has 6, and is to have 2 to 4"),
        (Job(2, 1.4, 0.7), (1, 4), 2, "more roots would only wait for its master"),
    ],
)
def test_a_job_that_scales_by_itself(job: Job, bounds: tuple[int, int], trees: int, why: str) -> None:
    found = trees_for(job, *bounds)
    assert found.trees == trees
    assert why in found.reasons[0]


@pytest.mark.parametrize("load", [x / 100 for x in range(1, 400, 7)])
def test_what_has_just_grown_does_not_shrink(load: float) -> None:
    """Whatever load: one change leads to no change back, and all come to an end."""
    trees, seen = 1, [1]
    for _ in range(10):
        trees = trees_for(Job(trees, load), 1, 8).trees
        seen.append(trees)
    assert seen == sorted(seen)
    assert seen[-1] == seen[-2]
    assert trees == 8 or load / trees <= FULL
    assert IDLE <= FULL / 2


def test_who_is_asked_is_told_what_it_will_bring() -> None:
    (why,) = as_asked(Job(1, 0.9), 3).reasons
    assert why == (
        "its root takes 90% of a core; 100% of its output waits for its roots; with 3 of them each takes 30%"
    )
    assert "nothing of it is congested" in as_asked(Job(1, 0.1), 2).reasons[0]
    assert "waits for its master, and not for its roots" in as_asked(Job(2, 0.2, 0.9), 1).reasons[0]


def test_new_roots_go_where_least_is_done_and_none_is_yet() -> None:
    loads = {"a": 0.1, "b": 0.5, "c": 0.3, "d": 0.2}
    assert places(loads, {"a"}, 2) == ("d", "c")
    assert places(loads, {"a"}, 5) == ("d", "c", "b", "a", "d")
    assert places({}, (), 2) == ()


def test_who_matters_least_goes_and_never_who_has_streams() -> None:
    jobs = {"big": Job(2, 0.4, 0.1), "small": Job(1, 0.1)}
    masters = {"web": [], "h1": ["big"], "h2": ["small"], "h3": []}
    roots = {"web": [], "h1": ["big"], "h2": ["small"], "h3": ["big"]}
    found = leaving(jobs, masters, roots, stay=("web",), count=2)
    assert [(one.agent, one.masters, one.roots) for one in found.leavers] == [("h2", 1, 1), ("h3", 0, 1)]
    assert found.leavers[0].etp_sum == pytest.approx(2 * 0.1 / 0.6)
    assert "ETPSum 0.33" in found.reasons[0]
    with pytest.raises(ValueError, match="4 of 4 machines cannot go"):
        leaving(jobs, masters, roots, stay=("web",), count=4)
