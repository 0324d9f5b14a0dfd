"""Random queries over the columns of ``logs``. Aggregates come from the language's own table.

What the engines do not promise is avoided by construction (and counted nowhere): an inexact value is a bare
column of the result, never a key, a condition, or what the rows are ordered by.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from elf.bench.differential.expressions import KINDS, Expressions, columns, kind_of
from elf.bench.differential.tree import Node, Query, leaf
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.expressions import Kind

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
    }
)
"""Aggregates of the same bits everywhere, whatever they are of. (APPROX_COUNT_DISTINCT: but not DuckDB's.)"""
SUMS: Final = frozenset({"sum", "avg"})
"""Of the same bits where their argument is steady."""
BARE: Final = frozenset({"approx_count_distinct"})
"""Never inside anything: DuckDB's own answer is another one."""

_WINDOWS: Final = (
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
_LATENESS: Final = ("LATENESS 0 SECONDS", "LATENESS 2 SECONDS", "LATENESS 1 MINUTE")
_SECONDS: Final = ("0.5", "0.9", "0.99", "0", "1", "3", "10")
"""Second arguments of aggregates."""


def make_query(rng: random.Random, *, lateness: bool) -> Query:
    """A query that the binder takes. ``lateness``: it may say LATENESS."""
    rows = Expressions(rng, columns())
    keys = [_key(rows) for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 3]))]
    aggregates = [_aggregate(rows) for _ in range(rng.choice([1, 1, 2, 3, 4]))]
    grouped = _grouped(rng, keys, aggregates)
    outputs = [node for node in aggregates if rng.random() < 0.9]
    outputs += [grouped.make(rng.choice(KINDS), 2) for _ in range(rng.choice([0, 0, 1, 2]))]
    if not outputs and not keys:
        outputs = aggregates[:1]
    if not any(node.aggregated for node in outputs) and not keys:
        outputs.append(aggregates[0])
    query = Query(keys=tuple(keys), outputs=tuple(outputs))
    if rng.random() < 0.45:
        query = replace(query, where=tuple(rows.make("boolean", 2) for _ in range(rng.choice([1, 1, 2]))))
    if rng.random() < 0.25:
        query = replace(query, having=(grouped.make("boolean", 2),))
    if rng.random() < 0.5:
        order = [
            grouped.make(rng.choice(sorted(grouped.leaves) or KINDS), 1) for _ in range(rng.choice([1, 2]))
        ]
        how = ["", " DESC", " ASC", " NULLS FIRST", " DESC NULLS FIRST", " DESC NULLS LAST"]
        numbers = [
            node
            for node in order
            if not node.args and not node.aggregated and node.template[0] in "-0123456789"
        ]
        query = replace(query, order=tuple((node, rng.choice(how)) for node in order if node not in numbers))
    if rng.random() < 0.4:
        query = replace(query, limit=rng.choice([0, 1, 2, 3, 5, 100]))
    if rng.random() < 0.65:
        query = replace(query, window=rng.choice(_WINDOWS))
        if lateness and rng.random() < 0.5:
            query = replace(query, lateness=rng.choice(_LATENESS))
    return query


def _key(rows: Expressions) -> Node:
    """A column or an expression that has one."""
    rng = rows.rng
    while True:
        node = rows.make(rng.choice(KINDS), rng.choice([0, 0, 1, 2]))
        names = {part.template for part in node.walk() if not part.args}
        if node.exact and any(name in names for nodes in columns().values() for name in map(str, nodes)):
            return node


def _grouped(rng: random.Random, keys: Sequence[Node], aggregates: Sequence[Node]) -> Expressions:
    """Expressions over keys and exact aggregates."""
    leaves: dict[Kind, list[Node]] = {}
    for node in [*keys, *aggregates]:
        if node.exact and _name(node) not in BARE:
            found = replace(node, args=node.args)
            leaves.setdefault("bigint" if node.kind == "hugeint" else node.kind, []).append(_narrowed(found))
    return Expressions(rng, leaves)


def _narrowed(node: Node) -> Node:
    """A sum as a bigint where that is another type."""
    if node.kind != "hugeint":
        return node
    return Node("CAST({0} AS BIGINT)", "bigint", (node,), aggregated=True)


def _name(node: Node) -> str:
    return node.template.partition("(")[0].lower()


@cache
def second_arguments(name: str) -> tuple[str, ...]:
    """The constants that an aggregate takes behind its argument; empty where it takes none."""
    return tuple(text for text in _SECONDS if any(kind_of(f"{name}({c}, {text})") for c in ("n", "page")))


@cache
def _shapes(name: str) -> tuple[tuple[Kind, bool], ...]:
    """The types that an aggregate is of, and whether with DISTINCT."""
    texts: Mapping[Kind, str] = {
        "bigint": "n",
        "double": "x",
        "text": "page",
        "boolean": "ok",
        "timestamp": "ts",
    }
    second = f", {second_arguments(name)[0]}" if second_arguments(name) else ""
    return tuple(
        (kind, distinct)
        for kind, column in texts.items()
        for distinct in (False, True)
        if kind_of(f"{name}({'DISTINCT ' if distinct else ''}{column}{second})")
    )


def usable_aggregates() -> frozenset[str]:
    """The aggregates that random arguments reach."""
    return frozenset(name for name in AGGREGATES if _shapes(name))


def _aggregate(rows: Expressions) -> Node:
    rng = rows.rng
    if rng.random() < 0.15:
        return _filtered(rows, "COUNT(*)", "bigint", (), exact=True)
    name = rng.choice(sorted(usable_aggregates()))
    kind, distinct = rng.choice(_shapes(name))
    arg = rows.make(kind, rng.choice([0, 0, 0, 1, 2]))
    if name in SUMS and rng.random() < 0.4:
        arg = rng.choice([node for node in columns()[kind] if node.steady] or [arg])
    args, second = [arg], ""
    if second_arguments(name):
        args.append(leaf(rng.choice(second_arguments(name)), "double"))
        second = ", {1}"
    word = "DISTINCT " if distinct else ""
    shape = {"bigint": "n", "double": "x", "text": "page", "boolean": "ok", "timestamp": "ts"}[kind]
    result = kind_of(f"{name}({word}{shape}{f', {args[1]}' if second else ''})")
    if result is None:
        return _aggregate(rows)
    steady = kind == "bigint" or arg.steady
    exact = arg.exact and (name in EXACT or (name in SUMS and steady and (name == "sum" or not distinct)))
    return _filtered(rows, f"{name.upper()}({word}{{0}}{second})", result, tuple(args), exact=exact)


def _filtered(rows: Expressions, template: str, kind: Kind, args: tuple[Node, ...], *, exact: bool) -> Node:
    if rows.rng.random() < 0.2:
        template += f" FILTER (WHERE {{{len(args)}}})"
        args = (*args, rows.make("boolean", 1))
    return Node(template, kind, args, exact=exact, aggregated=True)
