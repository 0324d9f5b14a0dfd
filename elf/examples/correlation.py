"""An aggregate of one's own: how far two numbers go together, from -1 to 1 (Pearson).

    CREATE AGGREGATE correlation FROM 'correlation.py';
    SELECT cs_uri_stem, correlation(sc_bytes, duration) AS together FROM access GROUP BY cs_uri_stem …

What is kept of a group are its means and the squares around them, which merge without losing digits (Chan,
Golub and LeVeque 1979): sums of squares would.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from elf.paos import PAO, Groups


class Correlation(PAO):
    """The correlation of two numbers over the rows of a group; NULL where one of them does not vary.

    Example:
        >>> from elf.cbt import BufferTree
        >>> tree = BufferTree([], [(Correlation(), ("x", "y"))])
        >>> tree.insert(pa.table({"x": [1.0, 2.0, 3.0], "y": [10.0, 30.0, 50.0]}))
        >>> tree.flush()["correlation_x_y"][0].as_py() > 0.999
        True
    """

    arguments = ("double", "double")
    state: ClassVar = dict.fromkeys(("x", "y", "xx", "yy", "xy"), "double") | {"n": "bigint"}
    returns = "double"

    def create(self, groups: Groups, x: pa.Array, y: pa.Array) -> Mapping[str, Any]:
        """Each row is a group of one.

        Args:
            groups (Groups): the group of each row.
            x (pyarrow.Array): doubles.
            y (pyarrow.Array): doubles.

        Returns:
            Mapping[str, Any]: the columns of the state.

        Raises:
            Nothing.
        """
        none = np.zeros(len(x))
        columns = [x.to_numpy(), y.to_numpy(), none, none, none, np.ones(len(x), np.int64)]
        return self.merge(groups, pa.RecordBatch.from_arrays(list(map(pa.array, columns)), list(self.state)))

    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Any]:
        """The means of all, and what the means of parts are off them.

        Args:
            groups (Groups): the group of each state.
            states (pyarrow.RecordBatch): the columns of the states.

        Returns:
            Mapping[str, Any]: the columns of the state.

        Raises:
            Nothing.
        """
        x, y, xx, yy, xy, n = (states[name].to_numpy() for name in self.state)
        count = groups.sum(n)
        mean_x, mean_y = groups.sum(n * x) / count, groups.sum(n * y) / count
        dx, dy = x - mean_x[groups.ids], y - mean_y[groups.ids]
        return {
            "n": count,
            "x": mean_x,
            "y": mean_y,
            "xx": groups.sum(xx + n * dx * dx),
            "yy": groups.sum(yy + n * dy * dy),
            "xy": groups.sum(xy + n * dx * dy),
        }

    def finalize(self, states: pa.RecordBatch) -> pa.Array:
        """What rounding leaves of numbers that are all equal is no variance.

        Args:
            states (pyarrow.RecordBatch): the columns of the states.

        Returns:
            pyarrow.Array: doubles.

        Raises:
            Nothing.
        """
        x, y, xx, yy, xy, n = (states[name].to_numpy() for name in self.state)
        still = (xx <= 1e-12 * n * x * x) | (yy <= 1e-12 * n * y * y)
        found = np.divide(xy, np.sqrt(xx) * np.sqrt(yy), out=np.zeros(len(n)), where=~still)
        return pa.array(np.clip(found, -1, 1), mask=still)
