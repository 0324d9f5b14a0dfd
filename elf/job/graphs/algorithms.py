"""The algorithms of ``WITH GRAPH`` (``elf.ql.graphs``) over the vertices of several agents. ``Algorithm``
says what their methods take and give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elf.job.graphs.algorithm import Vertices
from elf.job.graphs.job import GraphJob, are_texts
from elf.job.graphs.part import Values
from elf.job.program.host import JobError
from elf.ql.graphs import DAMPING, ITERATIONS, SOURCES_MAX

MEMBERS: Final = 20
"""Of a component, that its row names."""


class PageRank(GraphJob):
    """The share of a walk at random that is at each vertex: ``WITH GRAPH pagerank``, over several agents.
    Rows have ``vertex`` and ``value``, the rank, from the highest on. With a ``weight`` a step takes an edge
    by its share of it.

    Attributes:
        iterations (int): how many there are.

    Example:
        >>> class Pages(PageRank):
        ...     edges = "SELECT user.name, product, COUNT(*) AS n FROM clicks GROUP BY user.name, product"
        ...     ends = ("user.name", "product")

        >>> master, below = two_agents(Pages)
        >>> edges = {"user.name": ["ada", "bob"], "product": ["Doom", "Doom"], "n": [1, 3]}
        >>> below.insert(pa.table(edges), "edges")
        >>> below.on_timer()
        >>> _ = master.deliver(b"", {"begin": True})
        >>> [row["vertex"] for row in master.deliver(b"", {"top": 3})]
        ['Doom', 'ada', 'bob']
    """

    iterations = ITERATIONS

    def _check(self) -> None:
        super()._check()
        if type(self.iterations) is not int or self.iterations < 1:
            raise JobError(f"iterations = {self.iterations!r}: how many, 1 or more")

    def first(self, vertices: Vertices, count: int) -> Values:
        return np.full(len(vertices.ids), 1.0 / count)

    def tell(self, values: Values, vertices: Vertices) -> Values:
        return values / np.maximum(vertices.out, np.finfo(np.float64).tiny)  # by weight of the edges out

    def along(self, told: Values, weights: Values) -> Values:
        return told * weights

    def measure(self, before: Values | None, values: Values, vertices: Vertices) -> Values:
        return np.where(vertices.out == 0, values, 0.0)  # what no edge leads on: all get a share of it

    def update(self, values: Values, heard: Values, vertices: Vertices, count: int, total: Any) -> Values:
        ranks: Values = (1.0 - DAMPING) / count + DAMPING * (heard + total / count)
        return ranks

    def goes_on(self, number: int, total: Any) -> bool:
        return number < self.iterations


class _Least(GraphJob):
    """A vertex takes over what it hears if that is less than what it has, until no value changes."""

    combine: ClassVar[str] = "min"

    def update(self, values: Values, heard: Values, vertices: Vertices, count: int, total: Any) -> Values:
        return np.minimum(values, heard)

    def goes_on(self, number: int, total: Any) -> bool:
        return bool(total > 0)


class Components(_Least):
    """Which vertices hang together, whichever way the edges go: ``WITH GRAPH components``. Rows have
    ``component`` (its least vertex), ``size``, and ``members``, some of its vertices, from the largest on.

    Attributes:
        both_ways (bool): edges go both ways.
        integers (bool): labels are integers.
        least (int): smaller components have no row.

    Example:
        >>> class Rings(Components):
        ...     edges = "SELECT user.name, product, COUNT(*) AS n FROM clicks GROUP BY user.name, product"
        ...     ends = ("user.name", "product")

        >>> master, below = two_agents(Rings)
        >>> edges = {"user.name": ["ada", "bob"], "product": ["Doom", "Doom"], "n": [1, 3]}
        >>> below.insert(pa.table(edges), "edges")
        >>> below.on_timer()
        >>> _ = master.deliver(b"", {"begin": True})
        >>> master.deliver(b"", {"top": 1})
        [{'component': 'Doom', 'size': 3, 'members': ['Doom', 'ada', 'bob']}]
    """

    both_ways: ClassVar[bool] = True
    integers: ClassVar[bool] = True
    least = 2

    def _check(self) -> None:
        super()._check()
        if type(self.least) is not int:
            raise JobError(f"least = {self.least!r}: how many vertices, a whole number")

    def first(self, vertices: Vertices, count: int) -> Values:
        return vertices.ids  # each vertex has its own label, its hash

    def answer(self, values: Values, vertices: Vertices) -> pa.Table:
        names = pa.table({"label": values, "name": vertices.names}).sort_by(
            [("label", "ascending"), ("name", "ascending")]
        )
        groups = names.group_by("label", use_threads=False).aggregate([("name", "count"), ("name", "list")])
        members = pc.list_slice(groups["name_list"], 0, MEMBERS)
        return pa.table({"label": groups["label"], "size": groups["name_count"], "members": members})

    def result(self, tables: list[pa.Table]) -> pa.Table:
        every = pa.concat_tables(tables)
        sizes = every.group_by("label", use_threads=False).aggregate([("size", "sum")])
        order = [("size_sum", "descending"), ("label", "ascending")]
        kept = sizes.filter(pc.greater_equal(sizes["size_sum"], self.least)).sort_by(order)
        parts: dict[int, list[str]] = {label: [] for label in kept["label"].to_pylist()}
        for row in every.select(["label", "members"]).to_pylist():
            if row["label"] in parts:
                parts[row["label"]] += row["members"]
        members = [sorted(some)[:MEMBERS] for some in parts.values()]
        found = {"component": [some[0] for some in members], "size": kept["size_sum"], "members": members}
        types = [pa.string(), pa.int64(), pa.list_(pa.string())]
        rows = pa.table(found, pa.schema(list(zip(found, types, strict=True))))
        return rows.sort_by([("size", "descending"), ("component", "ascending")]).slice(0, self.rows)


class ShortestPaths(_Least):
    """How far each vertex is from one of them, in edges, or by the sum of the weights: ``WITH GRAPH sssp``.
    Rows have ``vertex`` and ``value``, the distance, from the nearest on; what cannot be reached has none.

    Attributes:
        source (str): that vertex; it must be said.

    Example:
        >>> class Clicks(ShortestPaths):
        ...     edges = "SELECT user.name, product, COUNT(*) AS n FROM clicks GROUP BY user.name, product"
        ...     ends = ("user.name", "product")
        ...     source = "ada"

        >>> master, below = two_agents(Clicks)
        >>> edges = {"user.name": ["ada", "bob"], "product": ["Doom", "Doom"], "n": [1, 3]}
        >>> below.insert(pa.table(edges), "edges")
        >>> below.on_timer()
        >>> _ = master.deliver(b"", {"begin": True})
        >>> master.deliver(b"", {"top": 3})
        [{'vertex': 'ada', 'value': 0.0}, {'vertex': 'Doom', 'value': 1.0}]
    """

    source: str | None = None

    def _check(self) -> None:
        super()._check()
        if not isinstance(self.source, str):
            raise JobError(f"source = {self.source!r}: the vertex where paths begin, a text in ' '")

    def first(self, vertices: Vertices, count: int) -> Values:
        return np.where(pc.equal(vertices.names, self.source).to_numpy(zero_copy_only=False), 0.0, np.inf)

    def along(self, told: Values, weights: Values) -> Values:
        return told + weights

    def result(self, tables: list[pa.Table]) -> pa.Table:
        every = pa.concat_tables(tables)
        near = every.filter(pc.is_finite(every["value"]))
        return near.sort_by([("value", "ascending"), ("vertex", "ascending")]).slice(0, self.rows)


class MultiSourcePaths(_Least):
    """How far each vertex is from each of several: ``WITH GRAPH mssp``. Rows have ``source``, ``vertex`` and
    ``distance``, in edges, or the sum of the weights, from the nearest on; what cannot be reached from a
    source has none. A vertex has a number for each source, so a part has room for fewer of them.

    Attributes:
        sources (tuple[str, ...]): those vertices; at most 64.

    Example:
        >>> class Both(MultiSourcePaths):
        ...     edges = "SELECT user.name, product, COUNT(*) AS n FROM clicks GROUP BY user.name, product"
        ...     ends = ("user.name", "product")
        ...     sources = ("ada", "bob")

        >>> master, below = two_agents(Both)
        >>> edges = {"user.name": ["ada", "bob"], "product": ["Doom", "Doom"], "n": [1, 3]}
        >>> below.insert(pa.table(edges), "edges")
        >>> below.on_timer()
        >>> _ = master.deliver(b"", {"begin": True})
        >>> master.deliver(b"", {"top": 4})[2:]  # doctest: +NORMALIZE_WHITESPACE
        [{'source': 'ada', 'vertex': 'Doom', 'distance': 1.0},
         {'source': 'bob', 'vertex': 'Doom', 'distance': 1.0}]
    """

    sources: Sequence[str] = ()

    def _check(self) -> None:
        super()._check()
        if not are_texts(self.sources) or not 1 <= len(self.sources) <= SOURCES_MAX:
            raise JobError(f"sources = {self.sources!r}: 1 to {SOURCES_MAX} texts, in ( ,)")
        self._sources = sorted(set(self.sources))
        self.width = len(self._sources)

    def first(self, vertices: Vertices, count: int) -> Values:
        here = [pc.equal(vertices.names, one).to_numpy(zero_copy_only=False) for one in self._sources]
        return np.where(np.stack(here, axis=1), 0.0, np.inf)

    def along(self, told: Values, weights: Values) -> Values:
        return told + weights

    def answer(self, values: Values, vertices: Vertices) -> pa.Table:
        places, sources = np.nonzero(np.isfinite(values))
        rank = np.argsort(pc.sort_indices(vertices.names).to_numpy())  # names of the nearest only are copied
        nearest = np.lexsort((rank[places], sources, values[places, sources]))[: self.rows]
        places, sources = places[nearest], sources[nearest]
        found = {
            "source": pa.array(self._sources, pa.string()).take(pa.array(sources)),
            "vertex": vertices.names.take(pa.array(places)),
            "distance": values[places, sources],
        }
        return pa.table(found)

    def result(self, tables: list[pa.Table]) -> pa.Table:
        order = [("distance", "ascending"), ("source", "ascending"), ("vertex", "ascending")]
        return pa.concat_tables(tables).sort_by(order).slice(0, self.rows)
