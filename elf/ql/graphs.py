"""``WITH GRAPH``: what a graph of a window's groups is made into.

The groups of a query with two keys are edges, from the first key to the second; WITH GRAPH turns the edges of
each window into rows of its vertices, and what is said of the result (SELECT, HAVING after it, ORDER BY,
LIMIT) is said of these. For ``kmeans`` groups are points: one key, and their coordinates.

- *A step between two statements.* The edges are the result of one level of the query and the vertices the
  rows of the next one (``elf.ql.levels``), so agents, trees, panes and windows know nothing of graphs. A
  ``GraphStep`` is a function of its rows alone: whoever makes a window, and however often, makes the same.
- *No warm start.* Ranks that began with those of the window before would depend, in their last digits, on who
  has made which windows; so every window begins anew, and PageRank has a fixed number of iterations.
- *A vertex is a text or an integer*, of one type at both ends. An edge with a NULL end, or a weight that is
  not a number above 0, is none. Labels are the least vertex of what they name.
- *Bounded.* A graph with more edges, vertices, rows or work than ``bounds_of`` says is refused: its window
  has no rows, and says so. Nothing interrupts a graph that is begun, and all windows of an agent share two
  threads, so the most work is some ten seconds. scipy's components and paths let no other thread of the agent
  run, its beats neither: such graphs are smaller, so that this is less than a second.

scipy does it at the master (``agents.tasks.graphs``), DataFrames in Spark (``spark_backend.graphs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct

Algorithm = Literal["components", "pagerank", "sssp", "mssp", "kmeans"]

EDGES_MAX: Final = 16_000_000
"""Edges of a graph, or points."""
VERTICES_MAX: Final = 4_000_000
"""Vertices of a graph, and rows that it is made into."""
ALONE_EDGES_MAX: Final = 2_000_000
"""Edges of a graph while which is made nothing else runs."""
ALONE_VERTICES_MAX: Final = 1_000_000
"""Vertices of such a graph."""
WORK: Final[Mapping[str, str]] = {
    "pagerank": "edges × iterations",
    "kmeans": "points × clusters × columns × iterations",
    "mssp": "edges × sources",
}
"""What is counted as work, by algorithm."""
WORK_MAX: Final = 500_000_000
PATHS_MAX: Final = 50_000_000
"""The work of mssp."""
ITERATIONS: Final = 20
ITERATIONS_MAX: Final = 100
SOURCES_MAX: Final = 64
"""Of mssp; also the clusters of kmeans."""
COLUMNS_MAX: Final = 16
"""Coordinates of a point."""
DAMPING: Final = 0.85

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "components": ("vertex", "component", "size"),
    "pagerank": ("vertex", "rank"),
    "sssp": ("vertex", "distance"),
    "mssp": ("source", "vertex", "distance"),
    "kmeans": ("vertex", "cluster", "distance"),
}
"""The columns of the vertices, by algorithm."""
ALGORITHMS: Final = tuple(NAMES)
WEIGHED: Final = ("pagerank", "sssp", "mssp")
ITERATED: Final = ("pagerank", "kmeans")
VertexKind = Literal["text", "bigint"]
ABLE: Final = "with graph"
"""What agents that can make graphs say of themselves, among the functions that they can answer."""
NEEDS: Final = "has no package scipy, which WITH GRAPH needs: install elf-stream[graphs] there"


class Graph(Struct, frozen=True):
    """``vertex``: the type of vertices. ``weighted``: whether edges have weights; without any each weighs 1.
    ``sources``: where paths begin. ``clusters`` and ``columns``: of kmeans, how many of each."""

    algorithm: Algorithm
    vertex: VertexKind
    weighted: bool = False
    iterations: int = 0
    sources: tuple[str | int, ...] = ()
    clusters: int = 0
    columns: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return NAMES[self.algorithm]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns of its edges, or points."""
        if self.algorithm == "kmeans":
            return ("vertex", *(f"x{place}" for place in range(self.columns)))
        return ("src", "dst", "weight") if self.weighted else ("src", "dst")

    @property
    def kinds(self) -> tuple[Literal["text", "bigint", "double"], ...]:
        """The types of its columns."""
        measured: Mapping[str, Literal["bigint", "double"]] = {
            "size": "bigint",
            "rank": "double",
            "distance": "double" if self.weighted or self.algorithm == "kmeans" else "bigint",
        }
        return tuple(measured.get(name, self.vertex) for name in self.names)

    @property
    def text(self) -> str:
        """For people."""
        parts = [str(self.algorithm)]
        if self.algorithm == "kmeans":
            parts[0] += f"({self.clusters}, {self.columns} column{'s'[: self.columns > 1]})"
        elif self.sources:
            parts[0] += f"({', '.join(map(repr, self.sources))})"
        parts += ["by weight"] if self.weighted else []
        parts += [f"{self.iterations} iterations"] if self.iterations else []
        return ", ".join(parts)


class Bounds(NamedTuple):
    """``work``: None, that of its edges."""

    edges: int
    vertices: int
    work: int | None


def bounds_of(graph: Graph) -> Bounds:
    """Beyond which a graph is refused."""
    if graph.algorithm in ITERATED:
        return Bounds(EDGES_MAX, VERTICES_MAX, WORK_MAX)
    return Bounds(ALONE_EDGES_MAX, ALONE_VERTICES_MAX, PATHS_MAX if graph.algorithm == "mssp" else None)


class GraphStep(Struct, frozen=True):
    """``sql``: gives ``bounds`` of windows and the graph's ``inputs``, over ``groups`` (DuckDB) or the rows
    (Spark). ``view``: what Spark calls the vertices; the master's statements call them ``groups``."""

    graph: Graph
    sql: str
    bounds: tuple[str, ...]
    view: str = "groups"


def rows_of(step: GraphStep) -> str:
    """The vertices in SQL."""
    return f"SELECT * FROM {step.view}"


def listed(names: Sequence[str]) -> str:
    """``a, b or c``."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[:-1] else names)
