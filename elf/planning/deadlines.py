"""Which rows to work on when not all can be done in time (SCALLA, VLDB 2015, section 4): each task has a cost
and a deadline, and counts one if it is done by then and nothing else.

*EDF* takes the earliest deadline first, and is best where costs are alike. Where they differ, as many tasks
as possible are done in time if the dearest are left out:

    Algorithm 1: for each deadline, in order: while the tasks up to it take longer than there is time, drop
    the dearest of them. What is left is a largest set that can be done (Proposition 4.1).

Algorithm 2 (``Tasks``) keeps that set while tasks come and go. Its *deadline tree* has a node for each
deadline with the costs of its tasks, and for its subtree their sum, the dearest of them, and φ: the latest
moment at which the subtree's tasks can begin, one after the other, and all be in time. So the set can be done
from now on if now ≤ φ of the root; and the first deadline that is missed, and the dearest task up to it, are
found on one way down. All take O(log m) for m deadlines; rounding deadlines down to some grain keeps m small.

What is left out stays out. So it is a largest set where tasks come in the order of their deadlines, as
arrivals with one bound do; where later ones have earlier deadlines a task or two may be missing from it. A
task that has begun has left the set. Of equal tasks the one with the greater name is left out, in whatever
order they come.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence

import msgspec


class Task(msgspec.Struct, frozen=True, order=True):
    """``cost`` and ``deadline`` have one unit of time. ``rank``: of a higher one all are left out before any
    of a lower one; ``dear``: what it takes beside what it is worth (None: it is worth one)."""

    cost: float
    deadline: float
    name: int
    rank: int = 1
    dear: float | None = None


def _dear(task: Task) -> tuple[int, float, float, int]:
    """What is left out first has most of it."""
    return task.rank, task.cost if task.dear is None else task.dear, task.deadline, task.name


def largest(tasks: Iterable[Task], now: float) -> tuple[list[Task], list[Task]]:
    """Algorithm 1, from scratch: a largest set of tasks that can be done from now on, in the order of their
    deadlines, and those that are left out."""
    kept: list[Task] = []
    dropped = []
    until = now
    for task in sorted(tasks, key=_by_deadline):
        insort(kept, task, key=_dear)
        until += task.cost
        while kept and until > task.deadline:
            dearest = kept.pop()
            until -= dearest.cost
            dropped.append(dearest)
    return sorted(kept, key=_by_deadline), dropped


def _by_deadline(task: Task) -> tuple[float, Task]:
    return task.deadline, task


class _Node:
    """A deadline of the tree: a treap, whose shape follows from the deadlines alone."""

    __slots__ = ("deadline", "dearest", "group", "left", "own", "priority", "right", "slack", "total")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.priority = _mixed(deadline)
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.group: list[Task] = []
        """Cheapest first."""
        self.own = 0.0
        self.total = 0.0
        self.dearest: Task | None = None
        self.slack = float("inf")

    def renew(self) -> None:
        """After a change below."""
        left, right, dearest = self.left, self.right, self.group[-1] if self.group else None
        before, total, slack = 0.0, self.own, float("inf")
        if left is not None:
            before, slack = left.total, left.slack
            dearest = _dearer(dearest, left.dearest)
        upto = before + self.own
        if self.group:
            slack = min(slack, self.deadline - upto)
        total = upto
        if right is not None:
            total += right.total
            slack = min(slack, right.slack - upto)
            dearest = _dearer(dearest, right.dearest)
        self.total, self.dearest, self.slack = total, dearest, slack


def _dearer(one: Task | None, other: Task | None) -> Task | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=_dear)


def _mixed(deadline: float) -> int:
    return hash((deadline, 0x9E3779B97F4A7C15)) & ((1 << 62) - 1)


class Tasks:
    """The set of Algorithm 2 and its deadline tree. Invariant between calls of ``offer``: all of them can be
    done in time from the moment of the last call on, if nothing else is done."""

    def __init__(self) -> None:
        self._root: _Node | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def offer(self, tasks: Iterable[Task], now: float) -> list[Task]:
        """More tasks; those that are left out, of all. Also without new ones: time goes by."""
        dropped = self._fit(now)
        for task in sorted(tasks, key=_by_deadline):
            self.insert(task)
            dropped += self._fit(now)
        return dropped

    def next(self) -> Task | None:
        """The task to begin: the cheapest of the earliest deadline. It leaves the set."""
        node = self._root
        if node is None:
            return None
        while node.left is not None:
            node = node.left
        task = node.group[0]
        self.remove(task)
        return task

    def schedulable(self, now: float) -> bool:
        return self._root is None or now <= self._root.slack

    def sequence(self) -> list[Task]:
        """In the order in which they would be done."""
        return [task for node in _nodes(self._root) for task in node.group]

    def _fit(self, now: float) -> list[Task]:
        dropped = []
        while (dearest := self.missing(now)) is not None:
            self.remove(dearest)
            dropped.append(dearest)
        return dropped

    def missing(self, now: float) -> Task | None:
        """What is to be left out next, since not all can be done from now on; None: all can."""
        return None if self.schedulable(now) else self._dearest_up_to(now)

    def _dearest_up_to(self, now: float) -> Task:
        """Of the tasks up to the first deadline that is missed."""
        node, until, dearest = self._root, now, None
        while node is not None:
            left = node.left
            if left is not None and until > left.slack:
                node = left
                continue
            if left is not None:
                until, dearest = until + left.total, _dearer(dearest, left.dearest)
            until, dearest = until + node.own, _dearer(dearest, node.group[-1])
            if until > node.deadline:
                break
            node = node.right
        assert dearest is not None
        return dearest

    # -- the treap -------------------------------------------------------------------------------------------

    def insert(self, task: Task) -> None:
        """One more, whether it can be done or not."""
        way = self._way(task.deadline)
        if not way or way[-1].deadline != task.deadline:
            node = _Node(task.deadline)
            if way:
                _hang(way[-1], node)
            way.append(node)
        insort(way[-1].group, task, key=_dear)
        way[-1].own += task.cost
        self._count += 1
        self._settle(way)

    def _settle(self, way: list[_Node]) -> None:
        """The last node of a way rises as far as its priority goes; all on the way are renewed."""
        node = way.pop()
        node.renew()
        while way and way[-1].priority < node.priority:
            parent = way.pop()
            if parent.left is node:
                parent.left, node.right = node.right, parent
            else:
                parent.right, node.left = node.left, parent
            parent.renew()
            node.renew()
            if way:
                _swap(way[-1], parent, node)
        for above in reversed(way):
            above.renew()
        self._root = way[0] if way else node

    def remove(self, task: Task) -> None:
        """One less."""
        way = self._way(task.deadline)
        node = way[-1]
        del node.group[bisect_left(node.group, _dear(task), key=_dear)]
        node.own = node.own - task.cost if node.group else 0.0
        self._count -= 1
        if node.group:
            node.renew()
        else:
            way.pop()
            below = _merged(node.left, node.right)
            if way:
                _swap(way[-1], node, below)
            else:
                self._root = below
        for above in reversed(way):
            above.renew()

    def _way(self, deadline: float) -> list[_Node]:
        """From the root to the node of a deadline, or to where it would hang."""
        found, node = [], self._root
        while node is not None:
            found.append(node)
            if node.deadline == deadline:
                break
            node = node.left if deadline < node.deadline else node.right
        return found


def _hang(parent: _Node, node: _Node) -> None:
    if node.deadline < parent.deadline:
        parent.left = node
    else:
        parent.right = node


def _swap(parent: _Node, old: _Node, new: _Node | None) -> None:
    if parent.left is old:
        parent.left = new
    else:
        parent.right = new


def _merged(left: _Node | None, right: _Node | None) -> _Node | None:
    """One tree of two, all deadlines of one before those of the other."""
    if left is None or right is None:
        return left or right
    if left.priority > right.priority:
        left.right = _merged(left.right, right)
        left.renew()
        return left
    right.left = _merged(left, right.left)
    right.renew()
    return right


def _nodes(root: _Node | None) -> Sequence[_Node]:
    """In the order of their deadlines."""
    found: list[_Node] = []
    stack: list[_Node] = []
    node = root
    while stack or node is not None:
        while node is not None:
            stack.append(node)
            node = node.left
        node = stack.pop()
        found.append(node)
        node = node.right
    return found
