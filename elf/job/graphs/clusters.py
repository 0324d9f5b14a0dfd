"""``WITH GRAPH kmeans`` over the points of several agents.

It is Lloyd's algorithm, and iterations are what a master must know next of all points: the ends of each
coordinate, the means, the deviations, the first centres one by one, and then rounds. What parts report is the
least or the greatest of something, or sums; these are of whole numbers (``_limbs``), which come to the same
in any order, so that where points lie cannot be seen in the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import frexp, fsum, ldexp, sqrt
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.job.graphs.algorithm import Vertices
from elf.job.graphs.job import GraphJob, are_texts
from elf.job.graphs.part import Doubles, Values
from elf.job.program.host import JobError
from elf.ql.graphs import COLUMNS_MAX, ITERATIONS, ITERATIONS_MAX, SOURCES_MAX

BITS: Final = (26, 52, 78)
"""After the point. Sums of 2²³ numbers that are 8 on the mean, in steps of 2⁻²⁶, have less than the 53 bits
of a double; so do those of what is left of each, in steps of 2⁻⁵² and 2⁻⁷⁸."""
FARTHEST: Final = [("distance", "descending"), ("vertex", "ascending")]
Labels = npt.NDArray[np.int64]


class KMeans(GraphJob):
    """Groups of points: ``WITH GRAPH kmeans``. Each row of ``edges`` is a point, called by the column in
    ``ends``; ``columns`` are numbers of it. What several agents have of a point is added up, so take
    ``COUNT`` and ``SUM``; ``coordinates`` makes averages of these. A NULL adds nothing, and a point that has
    only NULLs in a column, or a coordinate that is not finite, is none.

    Each coordinate is brought to mean 0 and deviation 1. The first centre is the point farthest from the
    mean, each next one that which is farthest from all centres. Rows have ``vertex``, ``cluster`` (its least
    vertex) and ``distance`` from its centre, from the farthest on.

    Attributes:
        clusters (int): how many; 2 to 64.
        iterations (int): rounds of Lloyd's algorithm at most; 1 to 100. It is over when no point changes.
        width (int): a value is the number of a cluster, and the square of the distance.

    Example:
        >>> class Alike(KMeans):
        ...     edges = "SELECT product, COUNT(*) AS n, SUM(clicks) AS clicks FROM clicks GROUP BY product"
        ...     ends, columns, clusters = ("product",), ("n", "clicks"), 2

        >>> master, below = two_agents(Alike)
        >>> points = {"product": ["Chess", "Doom", "Go"], "n": [1, 7, 1], "clicks": [2, 90, 2]}
        >>> below.insert(pa.table(points), "edges")
        >>> below.on_timer()
        >>> _ = master.deliver(b"", {"begin": True})
        >>> {row["vertex"]: row["cluster"] for row in master.deliver(b"", {"top": 3})}
        {'Chess': 'Chess', 'Doom': 'Doom', 'Go': 'Chess'}
    """

    clusters = 3
    iterations = ITERATIONS
    width = 2

    def _check(self) -> None:
        super()._check()
        if type(self.clusters) is not int or not 2 <= self.clusters <= SOURCES_MAX:
            raise JobError(f"clusters = {self.clusters!r}: how many, 2 to {SOURCES_MAX}")
        if type(self.iterations) is not int or not 1 <= self.iterations <= ITERATIONS_MAX:
            raise JobError(f"iterations = {self.iterations!r}: how many at most, 1 to {ITERATIONS_MAX}")
        if not are_texts(self.columns) or not 1 <= len(self.columns) <= COLUMNS_MAX:
            raise JobError(f"columns = {self.columns!r}: 1 to {COLUMNS_MAX} names of numbers, in ( ,)")

    def coordinates(self, numbers: Sequence[Values]) -> Sequence[Values]:
        """The coordinates of points. Without an override their numbers.

        Args:
            numbers (Sequence[numpy.ndarray]): for each of ``columns`` those of all points of a part.

        Returns:
            Sequence[numpy.ndarray]: each as long; what is not finite is no coordinate.

        Raises:
            What your code raises makes the job ``failing``.

        Example:
            >>> class Means(Alike):
            ...     def coordinates(self, numbers):
            ...         return [numbers[1] / numbers[0]]
            >>> two_agents(Means)[1].coordinates([np.array([2.0]), np.array([6.0])])
            [array([3.])]
        """
        return numbers

    # -- an agent's part -------------------------------------------------------------------------------------

    def _points(self, vertices: Vertices) -> tuple[npt.NDArray[np.bool_], list[Doubles]]:
        """(Which vertices are points, the coordinates of these.)"""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = [np.asarray(one, dtype=np.float64) for one in self.coordinates(vertices.numbers)]
        if not found or any(one.shape != vertices.ids.shape for one in found):
            raise JobError(f"coordinates gives no column of {len(vertices.ids)} numbers for each coordinate")
        if len(found) > COLUMNS_MAX:
            raise JobError(f"coordinates gives {len(found)} columns; at most {COLUMNS_MAX}")
        are = np.logical_and.reduce([np.isfinite(one) for one in found])
        return are, [one[are] for one in found]

    def first(self, vertices: Vertices, count: int) -> Values:
        are, _ = self._points(vertices)
        return np.stack([np.where(are, 0.0, -1.0), np.zeros(len(are))], axis=1)

    def measure(self, before: Values | None, values: Values, vertices: Vertices) -> Values:
        changed: Values = np.ones(len(values)) if before is None else values[:, 0] != before[:, 0]
        return changed

    def update(self, values: Values, heard: Values, vertices: Vertices, count: int, total: Any) -> Values:
        if "spreads" not in total:
            return values
        are, points = self._points(vertices)
        found = values.copy()
        found[are] = np.stack(_nearest(_even(points, total), total["centres"]), axis=1)
        return found

    def report(self, values: Values, vertices: Vertices, total: Any) -> Any:
        are, points = self._points(vertices)
        if not total:
            ends = [[float(one.min()), float(one.max())] for one in points if len(one)]
            return {"points": len(points[0]), "ends": ends}
        whole = np.zeros(len(points[0]), dtype=np.int64)
        if "spreads" not in total:
            scaled = _scaled(points, total)
            summed = [one * one for one in scaled] if "means" in total else scaled
            return {"sums": _sums(summed, whole, 1)}
        labels, apart = values[are, 0].astype(np.int64), values[are, 1]
        points, many = _even(points, total), max(len(total["centres"]), 1)
        found = {"sums": _sums(points, labels, many), "counts": np.bincount(labels, minlength=many).tolist()}
        return found | {"farthest": _farthest(apart, points, vertices.names.filter(pa.array(are)))}

    def answer(self, values: Values, vertices: Vertices) -> pa.Table:
        # The farthest, and without a distance what may be the name of a cluster: the least of each.
        found = {"label": values[:, 0].astype(np.int64), "vertex": vertices.names}
        rows = pa.table({**found, "distance": np.sqrt(values[:, 1])})
        rows = rows.filter(pc.greater_equal(rows["label"], 0)).sort_by("vertex")
        _, firsts = np.unique(rows["label"].to_numpy(), return_index=True)
        least = rows.take(pa.array(firsts)).set_column(2, "distance", pa.nulls(len(firsts), pa.float64()))
        return pa.concat_tables([rows.sort_by(FARTHEST).slice(0, self.rows), least])

    # -- the master ------------------------------------------------------------------------------------------

    def agreed(self, before: Any, total: float, reports: list[Any]) -> Any:
        if not before:
            points = sum(one["points"] for one in reports)
            columns = zip(*(one["ends"] for one in reports if one["points"]), strict=True)
            ends = [(min(low for low, _ in one) / 2, max(high for _, high in one) / 2) for one in columns]
            powers = [frexp(high - low)[1] for low, high in ends]
            return {"over": not points, "points": points, "lows": [low for low, _ in ends], "powers": powers}
        sums = np.sum([one["sums"] for one in reports], axis=0)
        if "spreads" not in before:
            (found,) = ([one / before["points"] for one in row] for row in _values(sums))
            if "means" not in before:
                return before | {"means": found}
            spreads = [sqrt(one) or 1.0 for one in found]
            return before | {"spreads": spreads, "centres": [], "round": 0}
        far = min((one["farthest"] for one in reports if one["farthest"]), key=lambda one: (-one[0], one[1]))
        centres, number = before["centres"], before["round"]
        if not centres or (number == 0 and len(centres) < self.clusters and far[0] > 0):
            return before | {"centres": [*centres, far[2]]}
        if number and (total == 0 or number == self.iterations):
            return before | {"over": True}
        counts = np.sum([one["counts"] for one in reports], axis=0).tolist()
        moved = [
            [one / count for one in row] if count else centre
            for row, count, centre in zip(_values(sums), counts, centres, strict=True)
        ]
        return before | {"centres": moved, "round": number + 1}

    def goes_on(self, number: int, total: Any) -> bool:
        return not total["over"]

    def result(self, tables: list[pa.Table]) -> pa.Table:
        every = pa.concat_tables(tables)
        names: dict[int, str] = {}
        for row in every.filter(pc.is_null(every["distance"])).to_pylist():
            names[row["label"]] = min(row["vertex"], names.get(row["label"], row["vertex"]))
        rows = every.filter(pc.is_valid(every["distance"])).sort_by(FARTHEST).slice(0, self.rows)
        clusters = pa.array([names[label] for label in rows["label"].to_pylist()], pa.string())
        return pa.table({"vertex": rows["vertex"], "cluster": clusters, "distance": rows["distance"]})


# -- coordinates, each a column: what is made of them is made alike wherever a point is ----------------------


def _scaled(points: Sequence[Doubles], known: Any) -> list[Doubles]:
    """How far from the least, by the distance of both ends: of at most 1, however little beside their size
    numbers differ. Halves, since that distance may be more than a double. Where means are known, what is
    left without them."""
    means = known.get("means", [0.0] * len(points))
    columns = zip(points, known["lows"], known["powers"], means, strict=True)
    return [np.ldexp(one / 2 - low, -power) - mean for one, low, power, mean in columns]


def _even(points: Sequence[Doubles], known: Any) -> list[Doubles]:
    """Of mean 0 and deviation 1."""
    return [one / spread for one, spread in zip(_scaled(points, known), known["spreads"], strict=True)]


def _apart(points: Sequence[Doubles], centre: Sequence[float]) -> Doubles:
    """The square of how far each point is from a centre."""
    found = np.zeros(len(points[0]))
    for one, place in zip(points, centre, strict=True):
        found += (one - place) ** 2
    return found


def _nearest(points: Sequence[Doubles], centres: Sequence[Sequence[float]]) -> tuple[Doubles, Doubles]:
    """(The centre that each point is nearest to, of equals the first; how far it is from there.) Without
    centres it is the mean."""
    labels, least = np.zeros(len(points[0])), _apart(points, centres[0] if centres else [0.0] * len(points))
    for label, centre in enumerate(centres[1:], 1):
        apart = _apart(points, centre)
        nearer = apart < least
        labels[nearer], least[nearer] = label, apart[nearer]
    return labels, least


def _farthest(apart: Doubles, points: Sequence[Doubles], names: pa.Array) -> list[Any] | None:
    """(The square of its distance, its name, its coordinates); of equals the least name."""
    if not len(apart):
        return None
    equal = np.flatnonzero(apart == apart.max())
    first = equal[pc.sort_indices(names.take(pa.array(equal)))[0].as_py()]
    return [float(apart[first]), names[first].as_py(), [float(one[first]) for one in points]]


def _limbs(numbers: Doubles) -> Iterator[Doubles]:
    """Whole numbers that are these together, in steps of ``BITS``."""
    for bits in BITS:
        whole = np.rint(np.ldexp(numbers, bits))
        numbers = numbers - np.ldexp(whole, -bits)
        yield whole


def _sums(points: Sequence[Doubles], labels: Labels, many: int) -> list[list[list[float]]]:
    """By label and coordinate, the sums of limbs."""
    sums = [[np.bincount(labels, weights=limb, minlength=many) for limb in _limbs(one)] for one in points]
    found: list[list[list[float]]] = np.moveaxis(np.array(sums), -1, 0).tolist()
    return found


def _values(sums: npt.NDArray[Any]) -> list[list[float]]:
    """By label and coordinate, what limbs come to."""
    return [[fsum(map(ldexp, limbs, (-bits for bits in BITS))) for limbs in row] for row in sums.tolist()]
