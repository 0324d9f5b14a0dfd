"""Random queries over the columns of ``logs``. Aggregates come from the language's own table.

What the engines do not promise is avoided by construction (and counted nowhere): an inexact value is a bare
column of the result, never a key, a condition, or what the rows are ordered by.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.expressions import Kind
from lab.bench.differential.expressions import KINDS, Expressions, columns, kind_of
from lab.bench.differential.over_jobs import over_jobs
from lab.bench.differential.sources import (
    BARE,
    any_key,
    columns_of,
    function_of,
    join_files,
    of_both,
    projection,
    union,
)
from lab.bench.differential.tree import Node, Query, leaf

EXACT: Final = frozenset(
    {
        "count",
        "min",
        "max",
        "first",
        "last",
        "bool_and",
        "bool_or",
        "every",
        "approx_top_k",
        "approx_count_distinct",
        "max_by",
        "min_by",
        "arg_max",
        "arg_min",
        "histogram",
        "array_agg",
    }
)
"""Aggregates of the same bits everywhere, whatever they are of. (APPROX_COUNT_DISTINCT: but not DuckDB's.)"""
SUMS: Final = frozenset({"sum", "avg"})
"""Of the same bits where their argument is steady."""
_TIMED: Final = frozenset({"first", "last"})

_ALIGNED: Final = (
    "WINDOWING 10 SECONDS",
    "WINDOWING 1 MINUTE",
    "WINDOWING 1500 MILLISECONDS",
    "WINDOWING 1 DAY",
    "WINDOWING 20 SECONDS SLIDE 5 SECONDS",
    "WINDOWING 7 SECONDS SLIDE 5 SECONDS",
    "WINDOWING 2 MINUTES SLIDE 30 SECONDS",
    "WINDOW TUMBLING (SIZE 30 SECONDS)",
    "WINDOW HOPPING (SIZE 60 SECONDS, ADVANCE BY 20 SECONDS)",
)
_WHOLE_PANES: Final = ("WINDOWING 10 SECONDS", "WINDOWING 1 SECOND", "WINDOWING 3 SECONDS")
"""Agents leave out what cannot be among the first rows of these (``elf.job.thresholds``)."""
_UNBROKEN: Final = (
    *_ALIGNED,
    "WINDOWING 10 SECONDS, 30 SECONDS, 1 MINUTE",
    "WINDOWING 20 SECONDS SLIDE 5 SECONDS, 15 SECONDS",
    "WINDOWING CUMULATE 1 MINUTE STEP 10 SECONDS",
    "WINDOWING CUMULATE 1 DAY STEP 2 HOURS, 10 MINUTES",
    "WINDOWING LANDMARK EVERY 10 SECONDS",
)
"""Kinds of windows that grouping sets, and APPROXIMATE, may have."""
_WINDOWS: Final = (
    *_UNBROKEN,
    "WINDOWING SESSION 2 SECONDS MAX 10 SECONDS",
    "WINDOWING SESSION 300 MILLISECONDS",
    "WINDOW SESSION (20 SECONDS)",
)
_COUNTED: Final = ("WINDOWING 3 ROWS", "WINDOWING 20 ROWS", "WINDOW TUMBLING (SIZE 100 ROWS)")
_TREES: Final = ("TREES 2", "TREES 5")
_EMIT: Final = ("EMIT FINAL", "EMIT FINAL REVISE 3 SECONDS", "EMIT FINAL REVISE 1 DAY", "STRAGGLERS MIRROR")
_LATENESS: Final = ("LATENESS 0 SECONDS", "LATENESS 2 SECONDS", "LATENESS 1 MINUTE")
_SECONDS: Final = (", 0.5", ", 0.9", ", 0.99", ", 0", ", 1", ", 3", ", 10", ", {1}")
_ORDERS: Final = (
    " LIMIT 2",
    " ORDER BY {0}",
    " ORDER BY {0} DESC LIMIT 3",
    " ORDER BY {1}",
    " ORDER BY {1} DESC",
    " ORDER BY {1} NULLS FIRST LIMIT 5",
    " ORDER BY {1} DESC NULLS FIRST",
)
"""What may stand behind the argument of an aggregate; ``{1}`` is another value."""
_FRAMES: Final = (
    "",
    " ROWS UNBOUNDED PRECEDING",
    " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " RANGE UNBOUNDED PRECEDING",
)
_OF: Final[Mapping[Kind, str]] = {
    "bigint": "n",
    "double": "x",
    "text": "page",
    "boolean": "ok",
    "timestamp": "ts",
}


def make_query(rng: random.Random, *, lateness: bool) -> Query:
    """A query that the binder takes. ``lateness``: files are read as they are, so it may say LATENESS and
    have windows of rows.
    """
    if rng.random() < 0.1:
        return over_jobs(
            rng, lambda: _over_streams(rng, lateness=lateness), lambda of: _grouping(rng, of, timed=False)
        )
    return _over_streams(rng, lateness=lateness)


def _over_streams(rng: random.Random, *, lateness: bool) -> Query:
    if rng.random() < 0.06:
        return _approximate(rng, lateness=lateness)
    if rng.random() < 0.05:
        query = replace(_approximate(rng, lateness=lateness), approximate=False)
        return replace(query, window=rng.choice(_WHOLE_PANES), emit="STRAGGLERS LEAP")
    leaves, under = columns(), None
    chance = rng.random()
    if chance < 0.12:
        under = _grouping(rng, columns(), timed=True)
        leaves = columns_of(under)
    elif chance < 0.2:
        under = projection(rng)
        leaves = columns_of(under)
    elif chance < 0.28:
        under = union(rng)
        leaves = columns_of(under)
    joins: tuple[str, ...] = ()
    if chance >= 0.12 and rng.random() < 0.15:
        joins, leaves = join_files(rng, leaves, raw=under is None)
    # FIRST and LAST are by event time, which rows of groups have none of.
    query = replace(_grouping(rng, leaves, timed=chance >= 0.12), under=under, joins=joins)
    if under is not None:
        query = replace(query, named=rng.random() < 0.4)
    if rng.random() < 0.7:
        windows: Sequence[str] = _UNBROKEN if _has_sets(query) else _WINDOWS
        if lateness and not joins and (under is None or not under.others) and rng.random() < 0.1:
            windows = _COUNTED
        query = _windowed(rng, query, windows, lateness=lateness)
        if query.window in _ALIGNED and _innermost(query) is query and rng.random() < 0.2:
            query = _lagged(rng, query)
        if query.lateness and rng.random() < 0.5:
            query = replace(query, emit=rng.choice(_EMIT))
    plain = "REVISE" not in query.emit and "ROWS" not in query.window
    staged = _innermost(query) is not query  # later stages may be at the roots
    if _innermost(query).keys and plain and rng.random() < (0.4 if staged else 0.08):
        query = replace(query, trees=rng.choice(_TREES))
    if not joins and (under is None or not under.others) and rng.random() < 0.1:
        query = of_both(rng, query)
    return _parameterised(rng, query) if rng.random() < 0.08 else query


def _lagged(rng: random.Random, query: Query) -> Query:
    """With what its aggregates were in other windows."""
    nodes = [
        one
        for one in query.outputs
        if one.exact and function_of(one) in AGGREGATES and " OVER (" not in one.template
    ]
    for node in [*nodes, leaf("COUNT(*)", "bigint", aggregated=True)][:2]:
        name, more = rng.choice(["LAG", "LAG", "LEAD"]), rng.choice(["", ", 1", ", 2", ", 3"])
        there = Node(f"{name}({{0}}{more})", node.kind, (node,), aggregated=True)
        query = replace(query, outputs=(*query.outputs, _narrowed(there)))
    return query


def _windowed(rng: random.Random, query: Query, windows: Sequence[str], *, lateness: bool) -> Query:
    query = replace(query, window=rng.choice(windows))
    if lateness and windows is not _COUNTED and rng.random() < 0.4:
        query = replace(query, lateness=rng.choice(_LATENESS))
    return query


def _approximate(rng: random.Random, *, lateness: bool) -> Query:
    """The groups of many keys with the greatest count or sum."""
    rows = Expressions(rng, columns())
    keys = [rng.choice([leaf("big", "bigint"), leaf("raw", "text"), any_key(rows)])]
    keys += [any_key(rows) for _ in range(rng.choice([0, 0, 1, 2]))]
    steady = [node for kind in ("bigint", "double") for node in rows.leaves[kind] if node.steady]
    counted = rng.choice(steady)
    value = rng.choice(
        [leaf("COUNT(*)", "bigint", aggregated=True)]
        + [Node(f"{name}({{0}})", counted.kind, (counted,), aggregated=True) for name in ("COUNT", "SUM")]
    )
    query = Query(keys=tuple(keys), outputs=(value,), order=((value, " DESC"),), approximate=True)
    query = replace(query, limit=rng.choice([1, 1, 2, 3, 10]))
    if rng.random() < 0.3:
        query = replace(query, where=(rows.make("boolean", 2),))
    if value.args:  # groups of NULLs alone have no value to bound
        query = replace(query, where=(*query.where, Node("{0} IS NOT NULL", "boolean", (counted,))))
    if rng.random() < 0.6:
        query = _windowed(rng, query, _UNBROKEN, lateness=lateness)
    return of_both(rng, query) if rng.random() < 0.2 else query


def _innermost(query: Query) -> Query:
    """The level whose groups the trees roll up: a subquery without groups is none."""
    under = query.under
    if under is None or not (under.keys or any(node.aggregated for node in under.outputs)):
        return query
    return under


def _parameterised(rng: random.Random, query: Query) -> Query:
    """With a parameter in the place of a constant of WHERE or of the SELECT list."""
    constants = [
        node
        for top in (*query.where, *query.outputs)
        for node in top.walk()
        if not node.args and (node.template[0] in "'-0123456789" or node.template in ("TRUE", "FALSE"))
    ]
    if not constants:
        return query
    constant = rng.choice(constants)
    name = leaf(":given", constant.kind)
    changed = query.changed(lambda node: name if node == constant else node)
    return replace(changed, given=((name, constant.template),))


def _has_sets(query: Query) -> bool:
    return bool(query.sets) or (query.under is not None and _has_sets(query.under))


def _grouping(rng: random.Random, leaves: Mapping[Kind, Sequence[Node]], *, timed: bool) -> Query:
    """A SELECT with groups over rows of these columns. ``timed``: the rows have an event time."""
    rows = Expressions(rng, leaves)
    keys = [any_key(rows) for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 3]) if leaves else 0)]
    aggregates = [_aggregate(rows, timed=timed) for _ in range(rng.choice([1, 1, 2, 3, 4]))]
    sets = rng.choice(["ROLLUP", "CUBE", _sets(rng, len(keys))]) if keys and rng.random() < 0.15 else ""
    grouped = _grouped(rng, keys, aggregates)
    outputs = [node for node in aggregates if rng.random() < 0.9]
    outputs += [grouped.make(rng.choice(KINDS), 2) for _ in range(rng.choice([0, 0, 1, 2]))]
    outputs += [_over(grouped) for _ in range(rng.choice([0, 0, 0, 1]))]
    if sets:
        outputs.append(Node("GROUPING({0})", "bigint", (rng.choice(keys),), aggregated=True))
    if not outputs and not keys:
        outputs = aggregates[:1]
    if not any(node.aggregated for node in outputs) and not keys:
        outputs.append(aggregates[0])
    query = Query(keys=tuple(keys), outputs=tuple(outputs), sets=sets)
    if rng.random() < 0.45:
        query = replace(query, where=tuple(rows.make("boolean", 2) for _ in range(rng.choice([1, 1, 2]))))
        if timed and rng.random() < 0.15:
            query = replace(query, where=(*query.where, _listed(rows)))
    if rng.random() < 0.25:
        query = replace(query, having=(grouped.make("boolean", 2),))
    if keys and rng.random() < 0.15:
        query = replace(query, qualify=(_ranked(grouped),))
    if all(node.exact and function_of(node) not in BARE for node in outputs) and rng.random() < 0.1:
        query = replace(query, distinct=True)
    elif rng.random() < 0.5:
        query = replace(query, order=_order(rng, grouped))
    chance = rng.random()
    if chance < 0.4:
        query = replace(query, limit=rng.choice([0, 1, 2, 3, 5, 100]))
    elif chance < 0.5 and keys:
        query = replace(query, by=(rng.choice([1, 2]), (rng.choice(keys),)))
    if rng.random() < 0.1:
        query = replace(query, offset=rng.choice([1, 2, 7]))
    return query


def _listed(rows: Expressions) -> Node:
    """A condition with IN (SELECT …)."""
    condition = rows.listed(1)
    if rows.rng.random() < 0.5:
        return condition
    return rows.join(
        f"({{0}} {rows.rng.choice(['AND', 'OR'])} {{1}})", "boolean", condition, rows.make("boolean", 1)
    )


def _sets(rng: random.Random, keys: int) -> str:
    """Lists of keys, by their numbers; each key is in one of them."""
    numbers = [str(number + 1) for number in range(keys)]
    lists = [rng.sample(numbers, rng.randrange(keys + 1)) for _ in range(rng.choice([1, 2]))]
    told = [", ".join(one) for one in [numbers, *lists]]
    return f"({', '.join(f'({one})' for one in told)})"


def _order(rng: random.Random, grouped: Expressions) -> tuple[tuple[Node, str], ...]:
    order = [grouped.make(rng.choice(sorted(grouped.leaves) or KINDS), 1) for _ in range(rng.choice([1, 2]))]
    how = ["", " DESC", " ASC", " NULLS FIRST", " DESC NULLS FIRST", " DESC NULLS LAST"]
    numbers = [
        node for node in order if not node.args and not node.aggregated and node.template[0] in "-0123456789"
    ]
    return tuple((node, rng.choice(how)) for node in order if node not in numbers)


def _over(grouped: Expressions) -> Node:
    """A window function over groups, of values that are the same everywhere in any order."""
    rng = grouped.rng
    nodes = [node for found in grouped.leaves.values() for node in found]
    if not nodes or rng.random() < 0.3:
        part = rng.choice(nodes) if nodes and rng.random() < 0.5 else None
        text = f"{rng.choice(['COUNT(*)', 'SUM(COUNT(*))', 'AVG(COUNT(*))', 'MAX(COUNT(*))'])} OVER ("
        kind: Kind = "double" if text.startswith("AVG") else "hugeint" if text.startswith("SUM") else "bigint"
        if part is None:
            return Node(text + ")", kind, (), aggregated=True)
        return Node(text + "PARTITION BY {0})", kind, (part,), aggregated=True)
    if rng.random() < 0.3:
        return _framed(rng, nodes)
    if rng.random() < 0.4:
        node, part = rng.choice(nodes), rng.choice(nodes)
        name = rng.choice(["COUNT", "MIN", "MAX", *(["SUM"] if node.kind == "bigint" else [])])
        kind = {"COUNT": "bigint", "SUM": "hugeint"}.get(name, node.kind)  # type: ignore[assignment]
        return Node(f"{name}({{0}}) OVER (PARTITION BY {{1}})", kind, (node, part), aggregated=True)
    return _rank(grouped, nodes)


def _framed(rng: random.Random, nodes: Sequence[Node]) -> Node:
    """A value, or a total, of other groups in an order."""
    node, by, part = (rng.choice(nodes) for _ in range(3))
    names = ["COUNT", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LAG", "LEAD"]
    name = rng.choice([*names, *(["SUM", "AVG"] if node.kind == "bigint" else [])])
    kinds: Mapping[str, Kind] = {"COUNT": "bigint", "SUM": "hugeint", "AVG": "double"}
    beside = name in ("LAG", "LEAD")
    over = f"ORDER BY {{1}}{rng.choice(['', ' DESC', ' NULLS FIRST'])}{'' if beside else rng.choice(_FRAMES)}"
    if rng.random() < 0.5:
        over = f"PARTITION BY {{2}} {over}"
    offset = rng.choice(["", ", 1", ", 2"]) if beside else ""
    return Node(
        f"{name}({{0}}{offset}) OVER ({over})", kinds.get(name, node.kind), (node, by, part), aggregated=True
    )


def _rank(grouped: Expressions, nodes: Sequence[Node]) -> Node:
    rng = grouped.rng
    by, part = rng.choice(nodes), rng.choice(nodes)
    way = rng.choice(["", " DESC", " NULLS FIRST", " DESC NULLS FIRST"])
    name = rng.choice(["ROW_NUMBER", "RANK", "DENSE_RANK"])
    if rng.random() < 0.4:
        return Node(f"{name}() OVER (ORDER BY {{0}}{way})", "bigint", (by,), aggregated=True)
    over = f"{name}() OVER (PARTITION BY {{1}} ORDER BY {{0}}{way})"
    return Node(over, "bigint", (by, part), aggregated=True)


def _ranked(grouped: Expressions) -> Node:
    """A condition on a rank."""
    nodes = [node for found in grouped.leaves.values() for node in found]
    rank = _rank(grouped, nodes) if nodes else leaf("COUNT(*) OVER ()", "bigint", aggregated=True)
    return Node(f"{{0}} {grouped.rng.choice(['<= 2', '= 1', '> 1'])}", "boolean", (rank,), aggregated=True)


def _grouped(rng: random.Random, keys: Sequence[Node], aggregates: Sequence[Node]) -> Expressions:
    """Expressions over keys and exact aggregates."""
    leaves: dict[Kind, list[Node]] = {}
    for node in [*keys, *aggregates]:
        if node.exact and function_of(node) not in BARE:
            found = replace(node, args=node.args)
            leaves.setdefault("bigint" if node.kind == "hugeint" else node.kind, []).append(_narrowed(found))
    return Expressions(rng, leaves)


def _narrowed(node: Node) -> Node:
    """A sum as a bigint where that is another type."""
    if node.kind != "hugeint":
        return node
    return Node("CAST({0} AS BIGINT)", "bigint", (node,), aggregated=True)


@dataclass(frozen=True)
class _Shape:
    """A call of an aggregate that the binder takes: of values of ``kind``, with what stands around them."""

    kind: Kind
    word: str
    behind: str

    def text(self, name: str) -> str:
        return f"{name.upper()}({self.word}{{0}}{self.behind})"


@cache
def _shapes(name: str) -> tuple[_Shape, ...]:
    made = (
        _Shape(kind, word, behind)
        for kind in _OF
        for word in ("", "DISTINCT ")
        for behind in ("", *_SECONDS, *_ORDERS)
    )
    return tuple(one for one in made if kind_of(one.text(name).format(_OF[one.kind], "x")))


def usable_aggregates() -> frozenset[str]:
    """The aggregates that random arguments reach."""
    return frozenset(name for name in AGGREGATES if _shapes(name))


def _aggregate(rows: Expressions, *, timed: bool) -> Node:
    rng = rows.rng
    if rng.random() < 0.15:
        return _filtered(rows, "COUNT(*)", "bigint", (), exact=True)
    name = rng.choice(sorted(usable_aggregates() - (frozenset() if timed else _TIMED)))
    shape = rng.choice(_shapes(name))
    arg = rows.make(shape.kind, rng.choice([0, 0, 0, 1, 2]))
    if name in SUMS and rng.random() < 0.4:
        arg = rng.choice([node for node in rows.leaves.get(shape.kind, ()) if node.steady] or [arg])
    args = [arg]
    if "{1}" in shape.behind:
        args.append(rows.make(rows.any_kind(), rng.choice([0, 0, 1])))
    result = kind_of(shape.text(name).format(*(_OF[one.kind] for one in args)))
    if result is None:
        return _aggregate(rows, timed=timed)
    steady, plain = shape.kind == "bigint" or arg.steady, name == "sum" or not shape.word
    exact = all(one.exact for one in args) and (name in EXACT or (name in SUMS and steady and plain))
    return _filtered(rows, shape.text(name), result, tuple(args), exact=exact)


def _filtered(rows: Expressions, template: str, kind: Kind, args: tuple[Node, ...], *, exact: bool) -> Node:
    if rows.rng.random() < 0.2:
        template += f" FILTER (WHERE {{{len(args)}}})"
        args = (*args, rows.make("boolean", 1))
    return Node(template, kind, args, exact=exact, aggregated=True)
