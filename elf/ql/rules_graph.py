"""WITH GRAPH in a query (``elf.ql.graphs``): it is written out as two queries in the language itself, that of
the edges and that of the vertices, before anything is bound::

    SELECT vertex, rank FROM log GROUP BY a, b HAVING COUNT(*) > 1 WITH GRAPH pagerank WEIGHT SUM(n) LIMIT 9

    SELECT vertex, rank FROM (
      SELECT a AS src, b AS dst, SUM(n) AS weight FROM log GROUP BY a, b HAVING COUNT(*) > 1
    ) LIMIT 9

The subquery has what the clause says in its meta, and what ``FROM`` reads are its vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from sqlglot import exp

from elf.fields import replace
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.dialect import WithGraph
from elf.ql.draft import Draft, about
from elf.ql.expressions import NUMERIC, Ref
from elf.ql.graphs import (
    COLUMNS_MAX,
    ITERATED,
    ITERATIONS,
    ITERATIONS_MAX,
    NAMES,
    SOURCES_MAX,
    WEIGHED,
    Algorithm,
    Graph,
)
from elf.ql.grouping import SetsNode
from elf.ql.kinds import INT64_MAX, INT64_MIN

GRAPH: Final = "graph of the edges"
"""In the meta of the query of edges: the clause."""
_OF_EDGES: Final = ("from_", "joins", "where", "group", "places")
"""The clauses that the query of the edges has."""


@about("graph")
def read_graph(draft: Draft, clause: WithGraph) -> Draft:
    """WITH GRAPH: the query of vertices over that of edges."""
    _check(draft, clause)
    tree = draft.tree.copy()
    clause = tree.args["graph"]
    edges = exp.Select()
    for part in _OF_EDGES:
        if (node := tree.args.get(part)) is not None:
            tree.set(part, None)
            edges.set(part, node)
    edges.set("having", clause.args.get("having"))
    edges.set("expressions", _items(draft, edges.args["group"], clause))
    edges.meta[GRAPH] = clause
    tree.set("graph", None)
    tree.set("from_", exp.From(this=exp.Subquery(this=edges)))
    if len(tree.expressions) == 1 and isinstance(tree.expressions[0], exp.Star):
        tree.set("expressions", [_named(name, tree.expressions[0]) for name in NAMES[clause.name]])
    return replace(draft, tree=tree)


def _check(draft: Draft, clause: WithGraph) -> None:
    """Raises ``QueryError`` where there are no edges, and for arguments that the algorithm does not have."""
    group, name = draft.tree.args.get("group"), clause.name
    nodes = [] if group is None else group.expressions
    sets = next((node for node in nodes if isinstance(node, SetsNode)), None)
    if sets is not None:
        raise draft.source.at(sets, "WITH GRAPH takes plain keys in GROUP BY: no grouping sets")
    wanted = "one key, the points" if name == "kmeans" else "two keys, where an edge begins and where it ends"
    if len(nodes) != (1 if name == "kmeans" else 2):
        raise draft.source.at(
            clause if group is None else group, f"WITH GRAPH {name} is over GROUP BY with {wanted}"
        )
    for node in nodes:
        if isinstance(node, exp.Literal) and not node.is_string:
            raise draft.source.at(
                node, f"GROUP BY {node.name}: with WITH GRAPH the SELECT list has no keys; write the column"
            )
    _check_vertices(draft, name)
    if (sampling := draft.tree.args.get("sampling")) is not None:
        raise draft.source.at(
            sampling, "SAMPLE does not go with WITH GRAPH: a graph of some edges is another"
        )
    if (weight := clause.args.get("weight")) is not None and name not in WEIGHED:
        raise draft.source.at(weight, f"WITH GRAPH {name} has no WEIGHT: leave it out")
    if clause.args.get("iterations") is not None and name not in ITERATED:
        raise draft.source.at(clause, f"WITH GRAPH {name} ends by itself: leave ITERATIONS out")


def _check_vertices(draft: Draft, name: str) -> None:
    """Raises ``QueryError`` where a clause about vertices has something of the edges."""
    tree = draft.tree
    whole = any(call.name.lower() in AGGREGATES for item in tree.expressions for call in _calls(item))
    for part, clause in (("having", "HAVING"), ("order", "ORDER BY")):
        node = tree.args.get(part)
        found = next((call for call in _calls(node) if call.name.lower() in AGGREGATES), None)
        if found is not None and not whole:
            hint = "; a HAVING about edges stands before WITH GRAPH" if part == "having" else ""
            raise draft.source.at(found, f"{clause} after WITH GRAPH is about vertices, one by one{hint}")
    known = {*NAMES[name], *(item.alias.lower() for item in tree.expressions)}
    nodes = [*tree.expressions, *(tree.args.get(part) for part in ("having", "qualify", "order"))]
    columns = (one for node in nodes if node is not None for one in node.find_all(exp.Column))
    for one in columns:
        if not isinstance(one.this, exp.Star) and one.name.lower() not in known:
            names = ", ".join(NAMES[name])
            raise draft.source.at(one, f'WITH GRAPH {name} gives {names}; "{one.name}" is none of them')


def _calls(node: exp.Expr | None) -> Iterator[exp.Anonymous]:
    return iter(()) if node is None else node.find_all(exp.Anonymous)


def _items(draft: Draft, group: exp.Group, clause: WithGraph) -> list[exp.Expr]:
    """The SELECT list of the query of edges, or points."""
    keys = [node.copy() for node in group.expressions]
    if clause.name == "kmeans":
        values = [keys[0], *clause.expressions[1:]]
        names = ["vertex", *(f"x{place}" for place in range(len(values) - 1))]
    else:
        weight = clause.args.get("weight")
        values, names = [*keys, *([] if weight is None else [weight])], ["src", "dst", "weight"]
    return [
        exp.alias_(value, name, quoted=True, copy=False) for value, name in zip(values, names, strict=False)
    ]


def _named(name: str, star: exp.Expr) -> exp.Expr:
    column = exp.column(name)
    column.meta.update(star.meta)
    return exp.alias_(column, name, quoted=True)


def vertices_of(draft: Draft, edges: Draft, clause: WithGraph) -> Draft:
    """The query over the vertices that a graph of these edges has. Raises ``QueryError``."""
    graph = _graph(draft, edges, clause)
    columns = {name: Ref(name, kind) for name, kind in zip(graph.names, graph.kinds, strict=True)}
    return replace(draft, graph=graph, derived=columns)


def _graph(draft: Draft, edges: Draft, clause: WithGraph) -> Graph:
    name, source = clause.name, draft.source
    group = edges.tree.args["group"]
    kinds = [output.value.kind for output in edges.outputs]
    ends = kinds[:1] if name == "kmeans" else kinds[:2]
    if len(set(ends)) > 1:
        raise source.at(group, f"an edge goes from {' to '.join(ends)}: CAST one end to the other's type")
    if ends[0] not in ("text", "bigint"):
        raise source.at(group, f"a vertex is a text or an integer, not a {ends[0]}: CAST it")
    for kind, item in zip(kinds[len(ends) :], edges.tree.expressions[len(ends) :], strict=True):
        if kind not in NUMERIC:
            what = "a coordinate" if name == "kmeans" else "WEIGHT"
            raise source.at(item, f"{what} is a number, not a {kind}")
    graph = Graph(cast(Algorithm, name), ends[0], clause.args.get("weight") is not None)
    if name in ITERATED:
        graph = replace(graph, iterations=_iterations(draft, clause))
    if name == "kmeans":
        return replace(graph, clusters=_clusters(draft, clause), columns=len(kinds) - 1)
    return replace(graph, sources=_sources(draft, clause, ends[0]))


def _iterations(draft: Draft, clause: WithGraph) -> int:
    text = clause.args.get("iterations") or str(ITERATIONS)
    if not text.isdigit() or not 1 <= int(text) <= ITERATIONS_MAX:
        raise draft.source.at(clause, f"ITERATIONS takes a whole number from 1 to {ITERATIONS_MAX}")
    return int(text)


def _clusters(draft: Draft, clause: WithGraph) -> int:
    args = clause.expressions
    what = f"kmeans takes how many clusters (2 to {SOURCES_MAX}) and 1 to {COLUMNS_MAX} numbers of a point"
    if not 2 <= len(args) <= COLUMNS_MAX + 1:
        raise draft.source.at(clause, f"{what}, as in kmeans(3, COUNT(*), AVG(bytes))")
    number = _constant(args[0])
    if not isinstance(number, int) or not 2 <= number <= SOURCES_MAX:
        raise draft.source.at(args[0], f"{what}: a whole number comes first")
    return number


def _sources(draft: Draft, clause: WithGraph, kind: str) -> tuple[str | int, ...]:
    name, args = clause.name, clause.expressions
    if name not in ("sssp", "mssp"):
        if args:
            raise draft.source.at(args[0], f"WITH GRAPH {name} has no arguments: leave them out")
        return ()
    most = 1 if name == "sssp" else SOURCES_MAX
    if not 1 <= len(args) <= most:
        takes = "the vertex where paths begin" if most == 1 else f"1 to {most} vertices where paths begin"
        raise draft.source.at(clause, f"{name} takes {takes}, as in {name}('/index.html')")
    wanted = str if kind == "text" else int
    for arg in args:
        if not isinstance(_constant(arg), wanted):
            raise draft.source.at(
                arg,
                f"a source is a constant, {'a text' if wanted is str else 'a whole number'} as vertices are",
            )
    return tuple(dict.fromkeys(value for arg in args if (value := _constant(arg)) is not None))


def _constant(node: exp.Expr) -> str | int | None:
    """A text or a whole number of 64 bits; None: something else."""
    if isinstance(node, exp.Neg):
        value = _constant(node.this)
        return -value if isinstance(value, int) else None
    if not isinstance(node, exp.Literal):
        return None
    if node.is_string:
        return str(node.this)
    return int(node.this) if node.this.isdigit() and INT64_MIN <= int(node.this) <= INT64_MAX else None
