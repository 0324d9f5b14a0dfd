"""Which tasks are done in time: against all subsets of small cases, and each step of the tree against its
definition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from elf.planning.deadlines import Task, Tasks, _Node, largest


def in_time(tasks: Sequence[Task], now: float) -> bool:
    for task in sorted(tasks, key=lambda one: one.deadline):
        now += task.cost
        if now > task.deadline:
            return False
    return True


def most(tasks: Sequence[Task], now: float) -> int:
    """By trying all."""
    return next(
        n for n in range(len(tasks), -1, -1) if any(in_time(some, now) for some in combinations(tasks, n))
    )


def drawn(rng: random.Random, count: int, costs: Sequence[float] = (1, 2, 5, 9)) -> list[Task]:
    return [Task(rng.choice(costs), rng.randrange(1, 25), n) for n in range(count)]


@pytest.mark.parametrize("seed", range(150))
def test_as_many_as_by_trying_all(seed: int) -> None:
    rng = random.Random(seed)
    tasks = drawn(rng, rng.randrange(1, 10))
    now = float(rng.randrange(3))
    kept, dropped = largest(tasks, now)
    assert sorted(kept + dropped) == sorted(tasks)
    assert in_time(kept, now)
    assert len(kept) == most(tasks, now)
    tree = Tasks()
    ordered = sorted(tasks, key=lambda one: one.deadline)
    left_out = [one for task in ordered for one in tree.offer([task], now)]
    assert sorted(tree.sequence() + left_out) == sorted(tasks)
    assert in_time(tree.sequence(), now)
    assert len(tree) == len(kept), "in the order of their deadlines, one at a time are no fewer"
    together = Tasks()
    together.offer(tasks, now)
    assert len(together) == len(kept)
    apart = Tasks()
    for task in tasks:
        apart.offer([task], now)
    assert in_time(apart.sequence(), now)
    assert len(apart) >= len(kept) - 1


def check(node: _Node | None) -> tuple[float, Task | None, float]:
    """(sum, dearest, φ) of a subtree by their definitions, which are compared with what it says."""
    if node is None:
        return 0.0, None, float("inf")
    assert node.group == sorted(node.group)
    assert node.group, "a deadline without tasks is gone"
    for child in (node.left, node.right):
        assert child is None or child.priority < node.priority
    tasks = [task for part in _inorder(node) for task in part.group]
    deadlines = [part.deadline for part in _inorder(node)]
    assert deadlines == sorted(set(deadlines))
    slack, until = float("inf"), 0.0
    for part in _inorder(node):
        until += sum(task.cost for task in part.group)
        slack = min(slack, part.deadline - until)
    assert node.total == pytest.approx(sum(task.cost for task in tasks))
    assert node.dearest == max(tasks)
    assert node.slack == pytest.approx(slack)
    check(node.left)
    check(node.right)
    return node.total, node.dearest, node.slack


def _inorder(node: _Node | None) -> list[_Node]:
    return [] if node is None else [*_inorder(node.left), node, *_inorder(node.right)]


@pytest.mark.parametrize("seed", range(12))
def test_the_tree_says_what_its_tasks_come_to_after_each_step(seed: int) -> None:
    rng = random.Random(seed)
    tree, now, done, offered = Tasks(), 0.0, list[Task](), list[Task]()
    dropped: list[Task] = []
    for step in range(120):
        names = range(10 * step, 10 * step + 3)
        some = [Task(rng.choice((0.5, 2.0, 10.0)), now + rng.randrange(5, 30), name) for name in names]
        offered += some
        dropped += tree.offer(some, now)
        check(tree._root)
        assert tree.schedulable(now)
        assert in_time(tree.sequence(), now)
        if (task := tree.next()) is not None:
            assert task.deadline == min(one.deadline for one in [task, *tree.sequence()])
            done.append(task)
            now += task.cost
            assert now <= task.deadline
        check(tree._root)
    assert sorted(done + dropped + tree.sequence()) == sorted(offered)
    assert dropped


def depth(node: _Node | None) -> int:
    return 0 if node is None else 1 + max(depth(node.left), depth(node.right))


def test_the_tree_stays_shallow_where_deadlines_come_in_order() -> None:
    tree = Tasks()
    for n in range(4_000):
        tree.offer([Task(1.0, 10_000.0 + n, n)], 0.0)
    assert len(tree) == 4_000
    assert depth(tree._root) < 50


def test_of_equal_tasks_the_same_are_left_out_in_any_order() -> None:
    tasks = [Task(2.0, 7.0, n) for n in range(8)]
    for seed in range(5):
        some = tasks[:]
        random.Random(seed).shuffle(some)
        tree = Tasks()
        for task in some:
            tree.offer([task], 0.0)
        assert [task.name for task in tree.sequence()] == [0, 1, 2]
