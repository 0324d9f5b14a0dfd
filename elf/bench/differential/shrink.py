"""Smaller failures: the simplest query and the fewest lines that still fail, greedily, within a budget of
tries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elf.bench.differential.logs import Log
from elf.bench.differential.tree import Query

TRIES_MAX = 150

Fails = Callable[[Query, Log], str | None]
"""What is wrong with a query over a log; None when nothing is."""


@dataclass
class _Budget:
    fails: Fails
    left: int

    def try_one(self, query: Query, log: Log) -> str | None:
        if self.left <= 0:
            return None
        self.left -= 1
        return self.fails(query, log)


def shrink(
    query: Query, log: Log, complaint: str, fails: Fails, tries: int = TRIES_MAX
) -> tuple[Query, Log, str]:
    """The smallest failure that was found, and what is wrong with it. ``fails`` of (query, log) is
    ``complaint``."""
    budget = _Budget(fails, tries)
    log, complaint = _fewer_lines(query, log, complaint, budget, tries // 3)
    query, complaint = _simpler(query, log, complaint, budget)
    log, complaint = _fewer_lines(query, log, complaint, budget, budget.left)
    return query, log, complaint


def _fewer_lines(query: Query, log: Log, complaint: str, budget: _Budget, tries: int) -> tuple[Log, str]:
    """Without halves, then quarters … of the files, as long as it fails."""
    stop = budget.left - tries
    step = max((len(file) for file in log.files), default=0)
    while step and budget.left > stop:
        smaller = False
        for number in range(len(log.files)):
            start = 0
            while start < len(log.files[number]) and budget.left > stop:
                candidate = log.without(number, start, start + step)
                found = budget.try_one(query, candidate)
                if found is None:
                    start += step
                else:
                    log, complaint, smaller = candidate, found, True
        step = step // 2 if not smaller or step > 1 else 0
    return log, complaint


def _simpler(query: Query, log: Log, complaint: str, budget: _Budget) -> tuple[Query, str]:
    again = True
    while again and budget.left > 0:
        again = False
        for candidate in query.variants():
            found = budget.try_one(candidate, log)
            if found is not None:
                query, complaint, again = candidate, found, True
                break
            if budget.left <= 0:
                break
    return query, complaint
