"""The algorithms of ``WITH GRAPH`` (``elf.ql.graphs``) over the vertices of several agents."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elf.job.graphs.job import GraphJob
from elf.job.graphs.part import Values
from elf.job.graphs.worker import Vertices
from elf.job.program.host import Host, JobError

DAMPING: Final = 0.85
MEMBERS: Final = 20


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

    iterations = 20

    def __init__(self, name: str, creator: str, host: Host) -> None:
        """Made by the agent, as ``GraphJob``.

        Args:
            name (str): the job's name.
            creator (str): the user who submitted it.
            host (Host): what runs the job.
        """
        super().__init__(name, creator, host)
        if type(self.iterations) is not int or self.iterations < 1:
            raise JobError(f"iterations = {self.iterations!r}: how many, 1 or more")

    def first(self, vertices: Vertices, count: int) -> Values:
        """All vertices alike.

        Args:
            vertices (Vertices): as in ``GraphJob``.
            count (int): as there.

        Returns:
            numpy.ndarray: ranks.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Pages)[0].first(vertices(["ada", "bob"]), 2).tolist()
            [0.5, 0.5]
        """
        return np.full(len(vertices.ids), 1.0 / count)

    def tell(self, values: Values, vertices: Vertices) -> Values:
        """The rank, a share of it for each weight of the edges out of it.

        Args:
            values (numpy.ndarray): ranks.
            vertices (Vertices): as in ``GraphJob``.

        Returns:
            numpy.ndarray: ranks by weight.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Pages)[0].tell(np.array([1.0]), vertices(["ada"], out=[2.0])).tolist()
            [0.5]
        """
        return values / np.maximum(vertices.out, np.finfo(np.float64).tiny)

    def along(self, told: Values, weights: Values) -> Values:
        """The share of an edge.

        Args:
            told (numpy.ndarray): ranks by weight.
            weights (numpy.ndarray): of the edges.

        Returns:
            numpy.ndarray: ranks.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Pages)[0].along(np.array([0.5]), np.array([2.0])).tolist()
            [1.0]
        """
        return told * weights

    def measure(self, before: Values | None, values: Values, vertices: Vertices) -> Values:
        """The rank that no edge leads on: all vertices get a share of it.

        Args:
            before (numpy.ndarray | None): of the iteration before.
            values (numpy.ndarray): ranks.
            vertices (Vertices): as in ``GraphJob``.

        Returns:
            numpy.ndarray: ranks, 0 where an edge leads on.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Pages)[0].measure(None, np.array([0.5]), vertices(["ada"], out=[2.0])).tolist()
            [0.0]
        """
        return np.where(vertices.out == 0, values, 0.0)

    def update(self, values: Values, heard: Values, vertices: Vertices, count: int, total: float) -> Values:
        """Ranks of the next iteration.

        Args:
            values (numpy.ndarray): ranks.
            heard (numpy.ndarray): what came along edges.
            vertices (Vertices): as in ``GraphJob``.
            count (int): as there.
            total (float): the rank that no edge leads on.

        Returns:
            numpy.ndarray: ranks.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Pages)[0].update(None, np.array([1.0]), None, 1, 0.0).tolist()
            [1.0]
        """
        return (1.0 - DAMPING) / count + DAMPING * (heard + total / count)

    def goes_on(self, number: int, total: float) -> bool:
        """Up to ``iterations``.

        Args:
            number (int): of the iteration that is over.
            total (float): what was measured in it.

        Returns:
            bool: whether there is another one.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Pages)[0].goes_on(20, 0.0)
            False
        """
        return number < self.iterations


class Components(GraphJob):
    """Which vertices hang together, whichever way the edges go: ``WITH GRAPH components``. Rows have
    ``component`` (its least vertex), ``size``, and ``members``, some of its vertices, from the largest on.

    Attributes:
        both_ways (bool): edges go both ways.
        integers (bool): labels are integers.
        combine (str): a vertex hears the least label.
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
    combine: ClassVar[str] = "min"
    least = 2

    def first(self, vertices: Vertices, count: int) -> Values:
        """Each vertex has its own label, its hash.

        Args:
            vertices (Vertices): as in ``GraphJob``.
            count (int): as there.

        Returns:
            numpy.ndarray: labels.

        Raises:
            Nothing.

        Example:
            >>> len(two_agents(Rings)[0].first(vertices(["ada"]), 1))
            1
        """
        return vertices.ids

    def update(self, values: Values, heard: Values, vertices: Vertices, count: int, total: float) -> Values:
        """The least label that is heard of.

        Args:
            values (numpy.ndarray): labels.
            heard (numpy.ndarray): the least label next to each vertex.
            vertices (Vertices): as in ``GraphJob``.
            count (int): as there.
            total (float): how many labels have changed.

        Returns:
            numpy.ndarray: labels.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Rings)[0].update(np.array([7]), np.array([3]), None, 1, 0.0).tolist()
            [3]
        """
        return np.minimum(values, heard)

    def goes_on(self, number: int, total: float) -> bool:
        """Until nothing changes.

        Args:
            number (int): of the iteration that is over.
            total (float): how many labels have changed in it.

        Returns:
            bool: whether there is another one.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Rings)[0].goes_on(3, 0.0)
            False
        """
        return total > 0

    def answer(self, values: Values, vertices: Vertices) -> pa.Table:
        """Of each component, what this part has of it.

        Args:
            values (numpy.ndarray): labels.
            vertices (Vertices): as in ``GraphJob``.

        Returns:
            pyarrow.Table: ``label``, ``size`` and some ``members``.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Rings)[0].answer(np.array([3]), vertices(["ada"])).to_pylist()
            [{'label': 3, 'size': 1, 'members': ['ada']}]
        """
        names = pa.table({"label": values, "name": vertices.names}).sort_by(
            [("label", "ascending"), ("name", "ascending")]
        )
        groups = names.group_by("label", use_threads=False).aggregate([("name", "count"), ("name", "list")])
        members = pc.list_slice(groups["name_list"], 0, MEMBERS)
        return pa.table({"label": groups["label"], "size": groups["name_count"], "members": members})

    def result(self, tables: list[pa.Table]) -> pa.Table:
        """The largest components.

        Args:
            tables (list[pyarrow.Table]): of the parts.

        Returns:
            pyarrow.Table: rows as above.

        Raises:
            Nothing.

        Example:
            >>> master, below = two_agents(Rings)
            >>> one = master.answer(np.array([3, 3]), vertices(["ada", "bob"]))
            >>> master.result([one]).to_pylist()
            [{'component': 'ada', 'size': 2, 'members': ['ada', 'bob']}]
        """
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


class ShortestPaths(GraphJob):
    """How far each vertex is from one of them, in edges, or by the sum of the weights: ``WITH GRAPH sssp``.
    Rows have ``vertex`` and ``value``, the distance, from the nearest on; what cannot be reached has none.

    Attributes:
        combine (str): a vertex hears the least distance.
        source (str): that vertex.

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

    combine: ClassVar[str] = "min"
    source = ""

    def first(self, vertices: Vertices, count: int) -> Values:
        """Each vertex but the source is out of reach.

        Args:
            vertices (Vertices): as in ``GraphJob``.
            count (int): as there.

        Returns:
            numpy.ndarray: distances.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Clicks)[0].first(vertices(["ada", "bob"]), 2).tolist() in ([0.0, inf], [inf, 0.0])
            True
        """
        return np.where(pc.equal(vertices.names, self.source).to_numpy(zero_copy_only=False), 0.0, np.inf)

    def along(self, told: Values, weights: Values) -> Values:
        """An edge further.

        Args:
            told (numpy.ndarray): distances.
            weights (numpy.ndarray): of the edges.

        Returns:
            numpy.ndarray: distances.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Clicks)[0].along(np.array([1.0]), np.array([2.0])).tolist()
            [3.0]
        """
        return told + weights

    def update(self, values: Values, heard: Values, vertices: Vertices, count: int, total: float) -> Values:
        """The shorter way.

        Args:
            values (numpy.ndarray): distances.
            heard (numpy.ndarray): the least that came along edges.
            vertices (Vertices): as in ``GraphJob``.
            count (int): as there.
            total (float): how many distances have changed.

        Returns:
            numpy.ndarray: distances.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Clicks)[0].update(np.array([7.0]), np.array([3.0]), None, 1, 0.0).tolist()
            [3.0]
        """
        return np.minimum(values, heard)

    def goes_on(self, number: int, total: float) -> bool:
        """Until nothing changes.

        Args:
            number (int): of the iteration that is over.
            total (float): how many distances have changed in it.

        Returns:
            bool: whether there is another one.

        Raises:
            Nothing.

        Example:
            >>> two_agents(Clicks)[0].goes_on(0, 2.0)
            True
        """
        return total > 0

    def result(self, tables: list[pa.Table]) -> pa.Table:
        """The nearest vertices.

        Args:
            tables (list[pyarrow.Table]): of the parts.

        Returns:
            pyarrow.Table: rows as above.

        Raises:
            Nothing.

        Example:
            >>> far = pa.table({"vertex": ["ada", "bob"], "value": [inf, 1.0]})
            >>> two_agents(Clicks)[0].result([far]).to_pylist()
            [{'vertex': 'bob', 'value': 1.0}]
        """
        every = pa.concat_tables(tables)
        near = every.filter(pc.is_finite(every["value"]))
        return near.sort_by([("value", "ascending"), ("vertex", "ascending")]).slice(0, self.rows)
