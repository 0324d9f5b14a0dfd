"""The graph computations of the examples of ``elf.job.graphs``, and a part's vertices."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa

from elf.job.graphs import Components, GraphJob, KMeans, MultiSourcePaths, PageRank, ShortestPaths
from elf.job.graphs.part import Part, ids_of
from tests.support.two_agents import two_agents

EDGES = "SELECT user.name, product, COUNT(*) AS n FROM clicks GROUP BY user.name, product"
ENDS = ("user.name", "product")


class Degrees(GraphJob):
    """As in the example of ``GraphJob``."""

    edges, ends = EDGES, ENDS

    def first(self, vertices: Any, count: int) -> Any:
        return vertices.out * 0

    def tell(self, values: Any, vertices: Any) -> Any:
        return values * 0 + 1

    def update(self, values: Any, heard: Any, vertices: Any, count: int, total: float) -> Any:
        return heard

    def goes_on(self, number: int, total: float) -> bool:
        return number < 1


class Pages(PageRank):
    edges, ends = EDGES, ENDS


class Rings(Components):
    edges, ends = EDGES, ENDS


class Clicks(ShortestPaths):
    edges, ends, source = EDGES, ENDS, "ada"


class Both(MultiSourcePaths):
    edges, ends, sources = EDGES, ENDS, ("ada", "bob")


class Alike(KMeans):
    edges = "SELECT product, COUNT(*) AS n, SUM(clicks) AS clicks FROM clicks GROUP BY product"
    ends, columns, clusters = ("product",), ("n", "clicks"), 2


def vertices(names: Sequence[str], out: Sequence[float] = ()) -> Part:
    """Vertices of a part without edges, in the order of their names."""
    column, none = pa.array(names), np.zeros(0, dtype=np.int32)
    sums = np.array(out or [0.0] * len(names))
    degrees = np.zeros(len(names), dtype=np.int32)
    return Part(ids_of(column), column, sums, np.zeros(0, dtype=np.int64), degrees, none, np.zeros(0))


NAMES = {
    "Degrees": Degrees, "Pages": Pages, "Rings": Rings, "Clicks": Clicks, "Both": Both, "Alike": Alike,
    "vertices": vertices, "two_agents": two_agents, "inf": inf, "np": np, "pa": pa,
}  # fmt: skip
