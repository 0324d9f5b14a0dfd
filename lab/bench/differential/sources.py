"""What random queries are over, if not a stream alone: subqueries, UNION ALL, both streams, joined files."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from elf.ql.expressions import Kind
from lab.bench.differential.constants import constant_of
from lab.bench.differential.expressions import KINDS, Expressions, columns
from lab.bench.differential.tree import Node, Query, leaf

_PLACES: Final[Mapping[str, Kind]] = {
    "place": "text",
    "city": "text",
    "weight": "bigint",
    "share": "double",
    "since": "timestamp",
    "open": "boolean",
}
_BY: Final[Mapping[Kind, str]] = {
    "text": "place", "bigint": "weight", "double": "share", "timestamp": "since", "boolean": "open"
}  # fmt: skip
_SECTIONS: Final[Mapping[str, Kind]] = {"section": "text", "rank": "bigint"}
"""Columns of the files that are joined (``asked``)."""
BARE: Final = frozenset({"approx_count_distinct"})
"""Never inside anything: DuckDB's own answer is another one."""


def of_both(rng: random.Random, query: Query) -> Query:
    """Over the rows of both streams."""
    stream = rng.choice(["*", "log, more", "more, log"])
    if query.under is None:
        return replace(query, stream=stream)
    return replace(query, under=replace(query.under, stream=stream))


def columns_of(query: Query) -> Mapping[Kind, Sequence[Node]]:
    """What a subquery's columns are called outside: those that every engine gives alike."""
    found: dict[Kind, list[Node]] = {}
    for letter, nodes in zip(query.letters, (query.keys, query.outputs), strict=True):
        for index, node in enumerate(nodes):
            if node.exact and function_of(node) not in BARE and node.kind in KINDS:
                found.setdefault(node.kind, []).append(leaf(f"{letter}{index}", node.kind))
    return found


def projection(rng: random.Random) -> Query:
    """A subquery without groups."""
    rows = Expressions(rng, columns())
    outputs = [any_key(rows) for _ in range(rng.choice([2, 3, 4]))]
    where = (rows.make("boolean", 2),) if rng.random() < 0.4 else ()
    return Query(outputs=tuple(outputs), where=where)


def union(rng: random.Random) -> Query:
    """A UNION ALL of raw rows of the two streams, or of one of them twice."""
    first = projection(rng)
    kinds = [node.kind for node in first.outputs]
    others = []
    for _ in range(rng.choice([1, 1, 2])):
        stream = rng.choice(["more", "more", "log"])
        rows = Expressions(rng, columns(stream))
        outputs = [rows.make(kind, rng.choice([0, 1, 2])) for kind in kinds]
        outputs = [
            node if node.exact else constant_of(kind, rng) for kind, node in zip(kinds, outputs, strict=True)
        ]
        where = (rows.make("boolean", 2),) if rng.random() < 0.4 else ()
        others.append(Query(outputs=tuple(outputs), where=where, stream=stream))
    return replace(first, others=tuple(others))


def join_files(
    rng: random.Random, leaves: Mapping[Kind, Sequence[Node]], *, raw: bool
) -> tuple[tuple[str, ...], Mapping[Kind, Sequence[Node]]]:
    """Tables beside the rows, and the columns of both. ``raw``: the rows are a stream's."""
    rows, joins = Expressions(rng, leaves), []
    found = {kind: list(nodes) for kind, nodes in leaves.items()}
    if raw and rng.random() < 0.4:
        joins.append(f"{rng.choice(['', 'LEFT ', 'LEFT '])}JOIN 'sections.csv' AS q USING (page)")
        for name, kind in _SECTIONS.items():
            found.setdefault(kind, []).append(leaf(f"q.{name}", kind))
    if not joins or rng.random() < 0.5:
        kind = rng.choice([kind for kind in _BY if kind in leaves])
        left = rows.make(kind, rng.choice([0, 0, 0, 1]))
        if not any(part in leaves[kind] for part in left.walk()):  # nothing but constants
            left = rng.choice(leaves[kind])
        if raw and kind == "text" and rng.random() < 0.7:
            left = leaf("host", "text")
        on = f"{left} = p.{_BY[kind]}{rng.choice(['', '', ' AND p.open', ' AND p.weight > 1'])}"
        joins.append(f"{rng.choice(['', 'LEFT ', 'LEFT '])}JOIN 'places.csv' AS p ON {on}")
        for name, of in _PLACES.items():
            found.setdefault(of, []).append(leaf(f"p.{name}", of, steady=name == "share"))
    return tuple(joins), found


def any_key(rows: Expressions) -> Node:
    """A column or an expression that has one."""
    rng = rows.rng
    while True:
        node = rows.make(rng.choice(KINDS), rng.choice([0, 0, 1, 2]))
        names = {part.template for part in node.walk() if not part.args}
        if node.exact and any(name in names for nodes in rows.leaves.values() for name in map(str, nodes)):
            return node


def function_of(node: Node) -> str:
    return node.template.partition("(")[0].lower()
