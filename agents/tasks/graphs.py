"""Graphs at a master (``elf.ql.graphs``): the edges of windows to rows of their vertices, by scipy.

Every window is a graph of its own. What is made depends on its edges and on nothing else, to the last bit:
they come in the order of their vertices before anything is summed, whatever the order of the groups.

It must never be imported before a plan has a graph: scipy takes 30 MB, and need not be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import normalise
from elf.errors import UserError
from elf.job.assembly.rows import KeyIndex
from elf.ql.graphs import DAMPING, NEEDS, VERTICES_MAX, Graph, GraphStep, bounds_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

TYPES: Final = {"text": pa.string(), "bigint": pa.int64(), "double": pa.float64()}
Doubles = npt.NDArray[np.float64]
Places = npt.NDArray[np.int32]
Span = tuple[int, int]
Column: TypeAlias = pa.Array | npt.NDArray[np.generic]
BLOCK: Final = 1 << 13
"""Points that are compared with centres at a time: the caches of a core hold them."""


class Vertices(NamedTuple):
    """``rows``: bounds and columns of the graph, of all windows. ``refused``: why some are without rows, and
    ``spans``: which (µs), as far as windows have bounds."""

    rows: pa.Table
    refused: str
    spans: frozenset[Span]


class Refused(Exception):
    """A graph that is too large; the text says which limit it goes beyond."""


def vertices(step: GraphStep, edges: pa.Table) -> Vertices:
    """What a step makes of the edges of some windows. Raises ``UserError`` without scipy."""
    check()
    bounds, graph = list(step.bounds), step.graph
    types = [*(edges.schema.field(name).type for name in bounds), *(TYPES[kind] for kind in graph.kinds)]
    schema = pa.schema(list(zip([*bounds, *graph.names], types, strict=True)))
    found, refused, spans = [], "", set[Span]()
    for part in _windows(edges, bounds):
        first = part.select(bounds).slice(0, 1)
        try:
            columns = _MADE[graph.algorithm](graph, part)
        except Refused as error:
            refused = refused or f"WITH GRAPH {graph.algorithm}: {error}{_told(first)}"
            spans |= _span(first)
            continue
        size = len(columns[0])
        own = [pa.repeat(first[name][0], size) for name in bounds]
        arrays = [
            pa.array(column).cast(kind) for column, kind in zip(columns, types[len(bounds) :], strict=True)
        ]
        found.append(pa.Table.from_arrays([*own, *arrays], schema=schema))
    return Vertices(pa.concat_tables(found) if found else schema.empty_table(), refused, frozenset(spans))


def check() -> None:
    """Raises ``UserError`` without scipy."""
    try:
        import scipy.sparse.csgraph  # noqa: F401
    except ImportError:
        raise UserError(f"this host {NEEDS}") from None


def _windows(edges: pa.Table, bounds: Sequence[str]) -> Iterator[pa.Table]:
    """The edges of each window."""
    if not edges.num_rows:
        return
    ends = (pc.min_max(edges[name]) for name in bounds)
    if all(one["min"] == one["max"] for one in ends):
        yield edges
        return
    ids = KeyIndex(list(bounds)).ids(normalise(edges.select(list(bounds)), list(bounds), ()))
    order = np.argsort(ids, kind="stable")
    cuts = np.flatnonzero(np.diff(ids[order])) + 1
    sorted_edges = edges.take(pa.array(order))
    for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
        yield sorted_edges.slice(start, end - start)


def _told(first: pa.Table) -> str:
    """For people: which window."""
    if "window_start" not in first.column_names:
        return ""
    start, end = (first[name][0].as_py() for name in ("window_start", "window_end"))
    return f" in the window from {start} to {end}"


def _span(first: pa.Table) -> set[Span]:
    if "window_start" not in first.column_names:
        return set()
    start, end = (first[name][0].cast(pa.int64()).as_py() for name in ("window_start", "window_end"))
    return {(start, end)}


# -- from rows to numbers ------------------------------------------------------------------------------------


class _Edges(NamedTuple):
    """``names``: the vertices, ascending; edges by their places there. ``weights``: None, all weigh 1."""

    names: pa.Array
    src: Places
    dst: Places
    weights: Doubles | None

    @property
    def matrix(self) -> csr_array:
        """Row i has what leaves vertex i. In the order of the vertices."""
        return _matrix(len(self.names), self.src, self.dst, self.weights)


def _matrix(size: int, rows: Places, columns: Places, weights: Doubles | None) -> csr_array:
    from scipy.sparse import csr_array

    values = np.ones(len(rows)) if weights is None else weights
    return csr_array((values, (rows, columns)), shape=(size, size))


def _edges(graph: Graph, rows: pa.Table) -> _Edges:
    """Raises ``Refused``."""
    kept = pc.and_(pc.is_valid(rows["src"]), pc.is_valid(rows["dst"]))
    if graph.weighted:
        weight = rows["weight"].cast(pa.float64())
        counts = pc.and_(pc.is_finite(weight), pc.greater(weight, 0.0))
        kept = pc.and_(kept, pc.fill_null(counts, False))
    if not pc.all(kept).as_py():
        rows = rows.filter(kept)
    most = bounds_of(graph)
    if rows.num_rows > most.edges:
        raise Refused(f"{rows.num_rows:,} edges{_MOST.format(most.edges)}")
    _check_work(graph, "edges", rows.num_rows)
    names, places = _numbered([rows["src"], rows["dst"]])
    if len(names) > most.vertices:
        raise Refused(f"{len(names):,} vertices{_MOST.format(most.vertices)}")
    weights = np.asarray(rows["weight"].cast(pa.float64()).to_numpy()) if graph.weighted else None
    return _Edges(names, places[: rows.num_rows], places[rows.num_rows :], weights)


def _check_work(graph: Graph, what: str, count: int) -> None:
    """Raises ``Refused`` for more than can be made in some seconds."""
    times = {
        "sources": len(graph.sources),
        "clusters": graph.clusters,
        "columns": graph.columns,
        "iterations": graph.iterations,
    }
    most = bounds_of(graph).work
    if most is not None and count * prod(filter(None, times.values())) > most:
        told = "".join(f" × {number} {name}" for name, number in times.items() if number)
        raise Refused(f"{count:,} {what}{told}{_MOST.format(most)}")


_MOST: Final = ", and {:,} is the most (take shorter windows, or leave some out with WHERE or HAVING)"


def _numbered(columns: Sequence[pa.ChunkedArray]) -> tuple[pa.Array, Places]:
    """(The distinct values, ascending; the place of each value there.)"""
    chunks = [chunk for column in columns for chunk in column.chunks]
    if not any(map(len, chunks)):
        return pa.array([], columns[0].type), np.zeros(0, np.int32)
    encoded = pa.chunked_array(chunks).dictionary_encode()
    values = encoded.chunk(0).dictionary  # that of all chunks
    order = pc.sort_indices(values).to_numpy()
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])
    return values.take(pa.array(order)), place[codes]


# -- algorithms: the columns of a graph ----------------------------------------------------------------------


def _components(graph: Graph, rows: pa.Table) -> list[Column]:
    from scipy.sparse.csgraph import connected_components

    edges = _edges(graph, rows)
    if not len(edges.names):
        return _nothing(graph)
    _, labels = connected_components(edges.matrix, directed=False)
    _, firsts = np.unique(labels, return_index=True)  # the least, since vertices ascend
    sizes = np.bincount(labels)
    return [edges.names, edges.names.take(pa.array(firsts[labels])), sizes[labels]]


def _pagerank(graph: Graph, rows: pa.Table) -> list[Column]:
    """As networkx defines it, but for the end: so many iterations. What has no edge out gives to all."""
    edges = _edges(graph, rows)
    size = len(edges.names)
    if not size:
        return _nothing(graph)
    into = _matrix(size, edges.dst, edges.src, edges.weights)
    out = np.bincount(into.indices, weights=into.data, minlength=size)
    into.data /= out[into.indices]
    ends = np.flatnonzero(out == 0)
    rank = np.full(size, 1 / size)
    for _ in range(graph.iterations):
        given = (1 - DAMPING + DAMPING * rank[ends].sum()) / size
        rank = into @ rank
        rank *= DAMPING
        rank += given
    return [edges.names, rank]


def _paths(graph: Graph, rows: pa.Table) -> list[Column]:
    """The vertices that can be reached from each source. A path is as long as its weights from its source on,
    added one by one."""
    from scipy.sparse.csgraph import dijkstra

    edges = _edges(graph, rows)
    matrix, many = None, graph.algorithm == "mssp"
    sources, places, lengths, total = list[str | int](), list[Places](), list[Doubles](), 0
    for source in sorted(graph.sources):
        place = pc.index(edges.names, pa.scalar(source, edges.names.type)).as_py()
        if place < 0:
            continue
        matrix = edges.matrix if matrix is None else matrix
        found = dijkstra(matrix, indices=place, unweighted=not graph.weighted)
        reached = np.flatnonzero(np.isfinite(found))
        total += len(reached)
        if total > VERTICES_MAX:
            raise Refused(f"{total:,} vertices that sources reach{_MOST.format(VERTICES_MAX)}")
        sources += [source] * len(reached) if many else []
        places.append(reached.astype(np.int32))
        lengths.append(found[reached])
    if not places:
        return _nothing(graph)
    names = edges.names.take(pa.array(np.concatenate(places)))
    columns: list[Column] = [names, np.concatenate(lengths)]
    return [pa.array(sources), *columns] if many else columns


def _kmeans(graph: Graph, rows: pa.Table) -> list[Column]:
    """Lloyd's algorithm over coordinates of mean 0 and deviation 1. The first centre is the point farthest
    from the mean, each next one that which is farthest from all centres; of equals the least vertex."""
    columns = [
        np.asarray(rows[name].cast(pa.float64()).fill_null(np.nan).to_numpy()) for name in graph.inputs[1:]
    ]
    points = np.stack(columns, axis=1)
    kept = np.isfinite(points).all(axis=1) & rows["vertex"].is_valid().to_numpy()
    if kept.sum() > VERTICES_MAX:
        raise Refused(f"{kept.sum():,} points{_MOST.format(VERTICES_MAX)}")
    if not kept.any():
        return _nothing(graph)
    _check_work(graph, "points", int(kept.sum()))
    names = rows["vertex"].filter(pa.array(kept)).combine_chunks()
    order = pc.sort_indices(names)
    points = points[kept][order.to_numpy()]
    spread = points.std(axis=0)
    points = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1)
    labels, apart = _clustered(points, graph.clusters, graph.iterations)
    names = names.take(order)
    _, firsts, numbers = np.unique(labels, return_index=True, return_inverse=True)
    return [names, names.take(pa.array(firsts[numbers])), np.sqrt(apart)]


def _clustered(points: Doubles, clusters: int, iterations: int) -> tuple[Places, Doubles]:
    """(The centre of each point, the square of how far it is from there.)"""
    apart = _apart(points, np.zeros(points.shape[1]))
    centres = points[[int(apart.argmax())]]
    apart = _apart(points, centres[0])
    while len(centres) < clusters and apart.max() > 0:  # else there are fewer distinct points than clusters
        centres = np.vstack([centres, points[int(apart.argmax())]])
        apart = np.minimum(apart, _apart(points, centres[-1]))
    labels = _nearest(points, centres)
    for _ in range(iterations):
        sums = [np.bincount(labels, weights=column, minlength=len(centres)) for column in points.T]
        counts = np.bincount(labels, minlength=len(centres))
        moved = np.stack(sums, axis=1) / np.maximum(counts, 1)[:, None]
        centres = np.where(counts[:, None] > 0, moved, centres)
        before, labels = labels, _nearest(points, centres)
        if (before == labels).all():
            break
    return labels, _apart(points, centres[labels])


def _apart(points: Doubles, centres: Doubles) -> Doubles:
    """The square of how far each point is from a centre, or from its own."""
    found = np.empty(len(points))
    for start in range(0, len(points), BLOCK):
        block = slice(start, start + BLOCK)
        own = centres if centres.ndim == 1 else centres[block]
        found[block] = ((points[block] - own) ** 2).sum(axis=1)
    return found


def _nearest(points: Doubles, centres: Doubles) -> Places:
    """The centre that each point is nearest to; of equals the first."""
    labels = np.empty(len(points), np.int32)
    for start in range(0, len(points), BLOCK):
        block = points[start : start + BLOCK]
        labels[start : start + BLOCK] = np.stack([_apart(block, one) for one in centres]).argmin(axis=0)
    return labels


def _nothing(graph: Graph) -> list[Column]:
    return [pa.array([], TYPES[kind]) for kind in graph.kinds]


_MADE: Final[dict[str, Callable[[Graph, pa.Table], list[Column]]]] = {
    "components": _components,
    "pagerank": _pagerank,
    "sssp": _paths,
    "mssp": _paths,
    "kmeans": _kmeans,
}
