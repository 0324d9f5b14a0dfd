"""GROUP BY with ROLLUP, CUBE and GROUPING SETS.

The map, the trees and the panes group by all keys, as without them, so that jobs share their flows; the
final fragment merges the groups once more for each set. ``z0``, ``z1`` … tell which keys a row is without:
GROUPING(key).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Final

from sqlglot import exp

from elf.aggregates import State

SETS_MAX: Final = 64
Set = tuple[exp.Expr, ...]
SetsNode = exp.Rollup | exp.Cube | exp.GroupingSets


def sets_of(items: Sequence[exp.Expr]) -> list[Set]:
    """The grouping sets of the items of GROUP BY: of several lists every combination."""
    ways = [_ways(item) for item in items]
    return [tuple(dict.fromkeys(node for part in parts for node in part)) for parts in product(*ways)]


def _ways(item: exp.Expr) -> list[Set]:
    if isinstance(item, exp.Rollup):
        parts = [_members(part) for part in item.expressions]
        return [sum(parts[:size], ()) for size in range(len(parts), -1, -1)]
    if isinstance(item, exp.Cube):
        parts = [_members(part) for part in item.expressions]
        sizes = range(len(parts), -1, -1)
        return [sum(chosen, ()) for size in sizes for chosen in combinations(parts, size)]
    if isinstance(item, exp.GroupingSets):
        return [way for part in item.expressions for way in _inside(part)]
    return [(item,)]


def _inside(part: exp.Expr) -> list[Set]:
    return _ways(part) if isinstance(part, SetsNode) else [_members(part)]


def _members(part: exp.Expr) -> Set:
    if isinstance(part, exp.Tuple):
        return tuple(part.expressions)
    return (part.this,) if isinstance(part, exp.Paren) else (part,)


def regrouped(
    groups: str, bounds: Sequence[str], sets: Iterable[frozenset[int]], keys: int, cells: Iterable[str],
    states: Iterable[State],
) -> str:  # fmt: skip
    """SQL of a relation like ``groups`` with a row for each group of each set, and ``z0`` …"""
    always = [f"g.{bound}" for bound in bounds]
    cells = [f"g.{cell}" for cell in cells]
    items = [*always, *(f"g.k{i}" for i in range(keys)), *cells]
    items += [f"CAST(GROUPING(g.k{i}) AS BIGINT) AS z{i}" for i in range(keys)]
    for state in states:
        merged = f"{state.merge.upper()}(g.{state.name})"
        zero = f"CAST(COALESCE({merged}, 0) AS BIGINT)"
        items.append(f"{zero if state.identity_zero else merged} AS {state.name}")
    lists = [", ".join([*always, *(f"g.k{i}" for i in sorted(one)), *cells]) for one in sets]
    by = ", ".join(f"({one})" for one in lists)
    return f"(SELECT {', '.join(items)} FROM {groups} AS g GROUP BY GROUPING SETS ({by}) HAVING COUNT(*) > 0)"
