"""GROUP BY with ROLLUP, CUBE and GROUPING SETS.

The map, the trees and the panes group by all keys, so that jobs share their flows; the final fragment merges
the groups once more for each set. ``z0``, ``z1`` … tell which keys a row lacks: GROUPING(key). As in SQL, the
empty set gives its one row over no rows too (in windows there is none: they are keys of every set), and a set
that occurs twice gives its rows twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product
from math import prod
from typing import Final

from sqlglot import exp

from elf.aggregates import State

SETS_MAX: Final = 64
Set = tuple[exp.Expr, ...]
SetsNode = exp.Rollup | exp.Cube | exp.GroupingSets


def sets_in(items: Sequence[exp.Expr]) -> int:
    """How many grouping sets there are in the items of GROUP BY: known before they are made."""
    return prod(map(_ways_in, items))


def _ways_in(item: exp.Expr) -> int:
    if isinstance(item, exp.Rollup):
        return len(item.expressions) + 1
    if isinstance(item, exp.Cube):
        return 1 << len(item.expressions)
    if isinstance(item, exp.GroupingSets):
        return sum(map(_ways_in, item.expressions))
    return 1


def sets_of(items: Sequence[exp.Expr]) -> list[Set]:
    """The grouping sets of the items of GROUP BY: of several lists every combination."""
    ways = [_ways(item) for item in items]
    return [tuple(dict.fromkeys(node for part in parts for node in part)) for parts in product(*ways)]


def nodes_of(items: Iterable[exp.Expr]) -> Iterator[exp.Expr]:
    """The items of GROUP BY, and those inside ROLLUP, CUBE and GROUPING SETS."""
    for item in items:
        yield from nodes_of(item.expressions) if isinstance(item, SetsNode) else _members(item)


def _ways(item: exp.Expr) -> list[Set]:
    if isinstance(item, exp.Rollup):
        parts = [_members(part) for part in item.expressions]
        return [sum(parts[:size], ()) for size in range(len(parts), -1, -1)]
    if isinstance(item, exp.Cube):
        parts = [_members(part) for part in item.expressions]
        sizes = range(len(parts), -1, -1)
        return [sum(chosen, ()) for size in sizes for chosen in combinations(parts, size)]
    if isinstance(item, exp.GroupingSets):
        return [way for part in item.expressions for way in _ways(part)]
    return [_members(item)]


def _members(part: exp.Expr) -> Set:
    if isinstance(part, exp.Tuple):
        return tuple(part.expressions)
    return (part.this,) if isinstance(part, exp.Paren) else (part,)


def regrouped(
    groups: str, bounds: Sequence[str], sets: Iterable[frozenset[int]], keys: int, cells: Sequence[str],
    states: Sequence[State],
) -> str:  # fmt: skip
    """SQL of a relation like ``groups`` with a row for each group of each set, and ``z0`` … A set that occurs
    several times has its rows once: ``repeated`` comes last."""
    always = [f"g.{bound}" for bound in bounds]
    parts = [f"g.{cell}" for cell in cells]
    items = [*always, *(f"g.k{i}" for i in range(keys)), *parts]
    items += [f"CAST(GROUPING(g.k{i}) AS BIGINT) AS z{i}" for i in range(keys)]
    for state in states:
        merged = f"{state.merge.upper()}(g.{state.name})"
        zero = f"CAST(COALESCE({merged}, 0) AS BIGINT)"
        items.append(f"{zero if state.identity_zero else merged} AS {state.name}")
    kinds = dict.fromkeys(sets)
    lists = [", ".join([*always, *(f"g.k{i}" for i in sorted(one)), *parts]) for one in kinds]
    by = ", ".join(f"({one})" for one in lists)
    having = "COUNT(*) > 0"
    if not bounds and keys and frozenset() in kinds:
        names = [*(f"k{i}" for i in range(keys)), *cells, *(state.name for state in states)]
        groups = _and_nothing(groups, names)
        having = f"COUNT(g.counted) > 0 OR ({_all_left_out(keys)}{_ordinary(parts)})"
    return f"(SELECT {', '.join(items)} FROM {groups} AS g GROUP BY GROUPING SETS ({by}) HAVING {having})"


def _and_nothing(groups: str, names: Sequence[str]) -> str:
    """The groups, ``counted``, and a row that adds nothing to any: the empty set over no groups. (Spark makes
    groups of GROUPING SETS from rows alone, and so do both engines where there are cells.)"""
    all_of = ", ".join(f"g.{name}" for name in names)
    none = ", ".join(f"NULL AS {name}" for name in names)
    return f"(SELECT {all_of}, 1 AS counted FROM {groups} AS g UNION ALL SELECT {none}, NULL AS counted)"


def _all_left_out(keys: int) -> str:
    return " AND ".join(f"GROUPING(g.k{i}) = 1" for i in range(keys))


def _ordinary(cells: Sequence[str]) -> str:
    return "".join(f" AND {cell} IS NULL" for cell in cells)


def repeated(groups: str, sets: Sequence[frozenset[int]], keys: int) -> str:
    """The rows of each set as often as the set occurs."""
    copies = Counter(sets)
    most = max(copies.values())
    if most == 1:
        return groups
    whens = " ".join(f"WHEN {_is_of(one, keys)} THEN {count}" for one, count in copies.items() if count > 1)
    times = ", ".join(f"({number})" for number in range(1, most + 1))
    again = f"(VALUES {times}) AS again(number)"
    return f"(SELECT g.* FROM {groups} AS g CROSS JOIN {again} WHERE again.number <= CASE {whens} ELSE 1 END)"


def _is_of(one: frozenset[int], keys: int) -> str:
    return " AND ".join(f"g.z{i} = {0 if i in one else 1}" for i in range(keys)) or "TRUE"
