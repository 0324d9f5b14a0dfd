"""``Algorithm``: what a graph computation makes of the values of vertices, wherever these are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from elf.job.graphs.part import Values


class Vertices(Protocol):
    """What an algorithm may know of the vertices of a part: a value of each, in the same order."""

    @property
    def ids(self) -> Values: ...
    @property
    def names(self) -> pa.Array: ...
    @property
    def out(self) -> Values: ...
    @property
    def numbers(self) -> tuple[Values, ...]: ...


class Algorithm(ABC):
    """Values of vertices, iteration by iteration: a vertex tells its value along the edges out of it, hears
    the sum or the least of what comes along the edges into it, and makes a new value of that. All is over
    columns, for the vertices of a part at once. ``Degrees`` is the class of the example of ``GraphJob``.

    Attributes:
        weight (str): the column with the weight of an edge; empty: each edge weighs 1.
        rows (int): so many rows of a result are kept.
        both_ways (bool): whether edges go both ways.
        columns (tuple[str, ...]): numbers of a vertex itself. Where there are some, rows are vertices and not
            edges: points. What several agents have of a point is added up.
        width (int): how many numbers the value of a vertex has. 0: it is one number. Else values are
            matrices, with a row for each vertex.
        integers (bool): whether values are integers of 64 bits, and not doubles.
        combine (str): what a vertex hears: the ``sum``, or the ``min``.

    Example:
        >>> Degrees.combine, Degrees.rows
        ('sum', 1000)
    """

    weight = ""
    rows = 1000
    columns: Sequence[str] = ()
    width = 0
    both_ways: ClassVar[bool] = False
    integers: ClassVar[bool] = False
    combine: ClassVar[str] = "sum"

    @abstractmethod
    def first(self, vertices: Vertices, count: int) -> Values:
        """The values that vertices begin with.

        Args:
            vertices (Vertices): of this part: ``names`` (pyarrow.Array of texts), ``out`` (numpy doubles: the
                sum of the weights of the edges out of each), ``ids`` (numpy integers: the hashes of the
                names, ascending) and ``numbers`` (numpy doubles for each of ``columns``; NaN where all were
                NULL).
            count (int): how many vertices the whole graph has.

        Returns:
            numpy.ndarray: a value for each vertex of the part, in its order.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[1].first(vertices(["ada"], out=[3.0]), 1).tolist()
            [0.0]
        """

    def tell(self, values: Values, vertices: Vertices) -> Values:
        """What vertices tell along the edges out of them. Without an override it is their value.

        Args:
            values (numpy.ndarray): of the part, after an iteration.
            vertices (Vertices): as in ``first``.

        Returns:
            numpy.ndarray: one for each vertex.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[1].tell(np.array([5.0]), vertices(["ada"])).tolist()
            [1.0]
        """
        return values

    def along(self, told: Values, weights: Values) -> Values:
        """What arrives at the end of edges. Without an override it is what was told. Where values have a
        ``width`` it is called for each number of theirs.

        Args:
            told (numpy.ndarray): for each edge, what was told at its beginning.
            weights (numpy.ndarray): their weights.

        Returns:
            numpy.ndarray: one for each edge.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[1].along(np.array([1.0]), np.array([3.0])).tolist()
            [1.0]
        """
        return told

    @abstractmethod
    def update(self, values: Values, heard: Values, vertices: Vertices, count: int, total: Any) -> Values:
        """The values of the next iteration.

        Args:
            values (numpy.ndarray): those of this one.
            heard (numpy.ndarray): for each vertex the sum or the least of what has arrived; without edges 0,
                or infinity (the greatest integer).
            vertices (Vertices): as in ``first``.
            count (int): how many vertices the whole graph has.
            total (float): the sum of what all vertices have measured in this iteration, or what ``agreed``
                has made of it.

        Returns:
            numpy.ndarray: one for each vertex. What is added up in the order of the vertices is the same
            wherever they are.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[1].update(None, np.array([2.0]), vertices(["ada"]), 1, 0.0).tolist()
            [2.0]
        """

    def measure(self, before: Values | None, values: Values, vertices: Vertices) -> Values:
        """What is added up over all vertices. Without an override: how many values have changed.

        Args:
            before (numpy.ndarray | None): the values of the iteration before; None: these are the first.
            values (numpy.ndarray): those of this iteration.
            vertices (Vertices): as in ``first``.

        Returns:
            numpy.ndarray: a number for each vertex.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[1].measure(np.array([1.0]), np.array([3.0]), vertices(["ada"])).tolist()
            [True]
        """
        if before is None:
            return np.ones(len(values))
        changed: Values = (values != before).reshape(len(values), max(self.width, 1)).any(axis=1)
        return changed

    def report(self, values: Values, vertices: Vertices, total: Any) -> Any:
        """What a part tells the master of its values, where one sum is not enough. Without an override
        nothing.

        Args:
            values (numpy.ndarray): those of this iteration.
            vertices (Vertices): as in ``first``.
            total (float): as in ``update``; with the first values 0.

        Returns:
            Message: some KiB. What it is made of should not depend on how vertices are spread: the greatest
            or the least, or whole numbers that are added up.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[1].report(np.array([1.0]), vertices(["ada"]), 0.0) is None
            True
        """
        return None

    def agreed(self, before: Any, total: float, reports: list[Any]) -> Any:
        """At the master: what all parts are told with the next iteration, and ``goes_on`` is asked about.
        Without an override it is the sum.

        Args:
            before (Message): the same of the iteration before; at first 0.
            total (float): the sum of what vertices have measured.
            reports (list[Message]): those of all parts.

        Returns:
            Message: some KiB.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[0].agreed(0.0, 3.0, [None, None])
            3.0
        """
        return total

    @abstractmethod
    def goes_on(self, number: int, total: Any) -> bool:
        """At the master: whether there is another iteration.

        Args:
            number (int): of the iteration that is over; that with the first values is 0.
            total (float): the sum of what its vertices have measured, or what ``agreed`` has made of it.

        Returns:
            bool: whether there is.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[0].goes_on(1, 3.0)
            False
        """

    def answer(self, values: Values, vertices: Vertices) -> pa.Table:
        """The rows of a part. Without an override: the ``rows`` greatest values, by ``vertex`` and ``value``.

        Args:
            values (numpy.ndarray): of the last iteration.
            vertices (Vertices): as in ``first``.

        Returns:
            pyarrow.Table: at most 4 MiB when it is packed.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> two_agents(Degrees)[1].answer(np.array([3.0]), vertices(["ada"])).to_pylist()
            [{'vertex': 'ada', 'value': 3.0}]
        """
        return self.result([pa.table({"vertex": vertices.names, "value": values})])

    def result(self, tables: list[pa.Table]) -> pa.Table:
        """At the master: the rows of a result. Without an override as ``answer``, of all parts.

        Args:
            tables (list[pyarrow.Table]): what ``answer`` has given for each part.

        Returns:
            pyarrow.Table: what a query is answered with.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> one, other = ({"vertex": [name], "value": [n]} for name, n in (("ada", 1), ("bob", 3)))
            >>> two_agents(Degrees)[0].result([pa.table(one), pa.table(other)])["vertex"].to_pylist()
            ['bob', 'ada']
        """
        order = [("value", "descending"), ("vertex", "ascending")]
        return pa.concat_tables(tables).sort_by(order).slice(0, self.rows)
