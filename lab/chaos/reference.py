"""What a job has to say of a window, from the rows of its panes: the oracle's reference, a few plain lines.

The queries of simulated fleets count by key. ``HAVING count >= n`` is a final fragment that is a number; so
is a stage, which adds up the counts of smaller windows. Joined jobs have the keys that all of them have, with
the sum of their counts. The one final function drops a key, and fails on another; a reduce function drops the
keys with few rows in a pane, and fails on a third. A later stage at the roots keeps the keys with the most
rows of their class, or counts the keys of each class: over all groups of a window, whoever did it for which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from elf.aggregates import split_by_range
from elf.fields import replace
from elf.ql.plan import Fragment, Function, Plan, Reduce
from lab.chaos.engine import EACH, class_of, where_of
from lab.chaos.partners import dropped_by

Counts = Counter[str]
"""Rows by key."""
Span = tuple[int, int]
"""Start and end of a window, event time in µs."""
Sums = Callable[[int, Span], Counts]
"""The rows of the panes of ``[start, end)`` of a side of a plan, by the side's number."""

DROPPED: Final = "a"
BOOM: Final = "boom"
"""A key that only the rows have which are to make the final function fail."""
DROPPING: Final = Function(
    "final",
    f"""\
def final(batch):
    keys = batch["k0"].to_pylist()
    if "{BOOM}" in keys:
        raise ValueError("{BOOM}, on " + str(len(keys)) + " rows")
    return batch.take([place for place, key in enumerate(keys) if key != "{DROPPED}"])
""",
    "dropping.py",
)


BANG: Final = "bang"
"""The same for reduce functions."""


def several(least: int) -> Function:
    """Groups of at least so many rows; its result for parts of a pane is not that for the whole."""
    return Function(
        "reduce",
        f"""\
import pyarrow as pa
def reduce(batch):
    keys, hits = batch["key"].to_pylist(), batch["hits"].to_pylist()
    if "{BANG}" in keys:
        raise ValueError("{BANG}, in " + str(len(keys)) + " groups")
    return batch.filter(pa.array([n >= {least} for n in hits], pa.bool_()))
""",
        "several.py",
    )


SEVERAL: Final = {several(least): least for least in (2, 5, 8, 12)}
"""All reduce functions that jobs of simulated fleets may have."""


def reducing(plan: Plan, least: int = 2) -> Plan:
    """The same plan with a reduce function."""
    reduce = Reduce(several(least), (("k0", "key"), ("s0", "hits")))
    return replace(plan, fragment=replace(plan.fragment, reduce=reduce))


def reduced(fragment: Fragment, counts: Counts, *, failed: bool) -> Counts | None:
    """What is committed of a pane with these rows; None where the function must fail. ``failed``: it did, at
    this pane or before."""
    if fragment.first is not None:
        least = min(sorted(counts.values(), reverse=True)[: fragment.first.rows], default=0)
        return Counter({key: n for key, n in counts.items() if n >= least})
    if fragment.stage is not None:
        return ranked(fragment.stage.sql, counts)
    if fragment.reduce is None or failed:
        return counts
    least = SEVERAL[fragment.reduce.function]
    return None if BANG in counts else Counter({key: n for key, n in counts.items() if n >= least})


def ranked(stage: str, counts: Counts) -> Counts:
    """The later stage of a query, over all groups of a pane or those of one key range."""
    if stage == EACH:
        return Counter(class_of(key) for key, n in counts.items() if n)
    most: Counts = Counter()
    for key, n in counts.items():
        most[class_of(key)] = max(most[class_of(key)], n)
    return Counter({key: n for key, n in counts.items() if n == most[class_of(key)]})


def is_right(plan: Plan, counts: Counts, sums: Sums, span: Span, *, failed: bool = False) -> bool:
    """Whether these are a window's rows; for a LIMIT the first ones with any of those that tie with the last.
    ``failed``: the final function, if there is one, was taken out."""
    whole = _final(plan, sums, span)
    if plan.final is not None and not failed:
        if BOOM in whole:
            return False
        del whole[DROPPED]
    if plan.top is None:
        return counts == whole
    most = sorted(whole.values(), reverse=True)[: plan.top.rows]
    needed = {key for key, n in whole.items() if most and n > most[-1]}
    return counts.items() <= whole.items() and needed <= counts.keys() and len(counts) >= len(most)


def _final(plan: Plan, sums: Sums, span: Span) -> Counts:
    first, *others = (
        _groups(side, lambda span, number=number: sums(number, span), span)  # type: ignore[misc]
        for number, side in enumerate(plan.sides)
    )
    joined = Counter({key: n for key, n in first.items() if all(key in other for other in others)})
    for other in others:
        joined.update({key: other[key] for key in joined})
    return having(joined, plan.final_sql)


def _groups(side: Plan, sums: Callable[[Span], Counts], span: Span) -> Counts:
    """The input of the final fragment: rows, or what a stage makes of smaller windows."""
    if not side.stages:
        later = side.fragment.stage
        return sums(span) if later is None else ranked(later.sql, sums(span))
    stage, below = side.stages[-1], side.before(len(side.stages) - 1)
    found: Counts = Counter()
    for start in range(*span, stage.window.size_us):
        found.update(having(_groups(below, sums, (start, start + stage.window.size_us)), stage.sql))
    return found


def having(counts: Counts, least: str) -> Counts:
    """The groups with at least so many rows; all if the text is empty."""
    return Counter({key: n for key, n in counts.items() if n >= int(least or 0)})


def chosen(fragment: Fragment, rows: Counts) -> Counts:
    """What the WHERE of a fragment and the tables that it joins accept, of its key range."""
    where, dropped = where_of(fragment), dropped_by(fragment.tables)
    keys = [key for key in rows if (not where or key in where) and key not in dropped]
    place, count = fragment.range
    if count > 1:
        classes = [class_of(key) for key in keys]
        table = pa.table({"k0": pa.array(keys, pa.string()), "k1": pa.array(classes, pa.string())})
        keys = split_by_range(table, fragment.ranged_by, count)[place]["k0"].to_pylist()
    return Counter({key: rows[key] for key in keys})
