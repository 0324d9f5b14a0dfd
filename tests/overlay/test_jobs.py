"""Jobs in a simulated world: placed, grown into trees, and repaired after a crash."""

from __future__ import annotations

import random
from collections import Counter

from lab.overlay.jobs import first_times, grow, parents, place, shape, whole
from lab.overlay.oracles import closest, tree_faults
from lab.overlay.simulator import simulate
from overlay.messages import Message
from overlay.placement import candidates
from tests.support.worlds import names, ring


def weigh(message: Message) -> int:
    return len(repr(message))


def test_jobs_have_the_less_loaded_root_and_trees_that_heal() -> None:
    report = simulate(30, 20, 0.2, random.Random(8), jobs=40, weigh=weigh, rest_ms=5_000, check=True)
    jobs = report.jobs
    assert (jobs.unplaced, jobs.ungrown, jobs.unrepaired) == (0, 0, 0)
    assert len(jobs.roots) == len(jobs.first) == 40
    assert max(Counter(jobs.roots).values()) < max(Counter(jobs.first).values())
    assert len(jobs.recovery_seconds) == len(jobs.trees) == 20
    assert all(0 < seconds < 10 for seconds in jobs.recovery_seconds)
    assert (report.lookups.total, report.lookups.wrong, report.lookups.lost) == (20 + 2 * 40 + 20, 0, 0)
    for root, tree in zip(jobs.roots, jobs.trees, strict=False):
        assert len(tree) == 30
        assert [node for node, above in tree.items() if node == above] == [root]
    assert report.maintenance.messages_per_s * 20 < report.maintenance.bytes_per_s


def test_without_jobs_and_weights_there_are_none() -> None:
    report = simulate(10, 5, 0.0, random.Random(8), rest_ms=1_000)
    assert (report.jobs.roots, report.jobs.trees, report.jobs.recovery_seconds) == ((), (), ())
    assert report.maintenance.bytes_per_s == 0


def test_a_grown_tree_has_a_shape() -> None:
    world = ring(25)
    topic = b"t" * 16
    assert None not in grow(world, [topic], 10_000)
    assert tree_faults(world, topic, names(world)) == []
    tree = parents(world, topic)
    assert set(tree) == set(names(world))
    assert tree[closest(world, topic)] == closest(world, topic)
    found = shape([tree])
    world.run(3_000)  # paths are news of a second ago
    assert found.fanout_max == max(len(o.children(topic)) for o in world.running())
    assert found.depth_max == max(len(o.path(topic)) for o in world.running())
    world.crash(closest(world, topic))
    assert not whole(world, topic)()


def test_shapes_of_given_trees() -> None:
    chain, star = {"a": "a", "b": "a", "c": "b"}, {"x": "x", "y": "x", "z": "x"}
    found = shape([chain, star])
    assert (found.depth_mean, found.depth_max, found.fanout_max) == (round(5 / 6, 4), 2, 2)
    assert shape([]).depth_max == 0
    assert shape([{"a": "b", "b": "a"}]).depth_max == 2


def test_times_are_those_when_a_condition_first_held() -> None:
    world = ring(2)
    start = world.now
    soon, never = first_times(world, [lambda: world.now >= start + 200, lambda: False], 1_000)
    assert (soon, never) == (200, None)
    assert world.now == start + 1_000


def test_a_job_whose_key_was_lost_is_not_placed() -> None:
    keys = [candidates(b"one"), candidates(b"two")]
    ends = dict.fromkeys((*keys[0], keys[1][0]), "n0")
    assert place(keys, ends) == [(keys[0][0], "n0", "n0")]
