"""Groups of rows, and what is often made of them: sums, extremes and lists of each group, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.grouping import grouped

Array = npt.NDArray[Any]
Int64s = npt.NDArray[np.int64]


class Groups:
    """Which group each of some rows is in. Values are given for all rows, and come back one for each group.

    Attributes:
        ids (numpy.ndarray): int64, the group of each row, from 0 to ``count`` - 1; each occurs.
        count (int): how many groups there are.

    Example:
        >>> groups = Groups([0, 1, 0], 2)
        >>> groups.sum([1, 2, 3]).tolist(), groups.size().tolist()
        ([4, 2], [2, 1])
    """

    def __init__(self, ids: npt.ArrayLike, count: int) -> None:
        """
        Args:
            ids (ArrayLike): the group of each row.
            count (int): how many groups there are; each has a row.
        """
        self.ids: Int64s = np.asarray(ids, np.int64)
        self.count = count

    @cached_property
    def order(self) -> Int64s:
        """The rows, those of each group together and in the order in which they came."""
        return np.argsort(self.ids, kind="stable")

    @cached_property
    def starts(self) -> Int64s:
        """Where each group begins in ``order``."""
        return np.searchsorted(self.ids[self.order], np.arange(self.count))

    @cached_property
    def _edges(self) -> Int64s:
        """Where each group begins in ``order``, and where the last one ends."""
        return np.append(self.starts, len(self.ids))

    def _taken(self, values: Any) -> pa.Array:
        """The values in that order."""
        return column(values).take(pa.array(self.order))

    def size(self) -> Int64s:
        """How many rows each group has.

        Returns:
            numpy.ndarray: int64, one for each group.

        Raises:
            Nothing.

        Example:
            >>> Groups([0, 0, 0], 1).size().tolist()
            [3]
        """
        return np.bincount(self.ids, minlength=self.count).astype(np.int64)

    def sum(self, values: Any) -> Array:
        """The sum of each group; of integers exact.

        Args:
            values (Column): numbers or booleans, one for each row.

        Returns:
            numpy.ndarray: int64 or float64, one for each group.

        Raises:
            OverflowError: for integers whose sum might not fit 64 bits.

        Example:
            >>> Groups([0, 0, 1], 2).sum(pa.array([1.5, 2.0, 3.0])).tolist()
            [3.5, 3.0]
        """
        numbers = _numbers(values)
        if numbers.dtype.kind == "f":
            return self._reduced(np.add, numbers.astype(np.float64))
        if len(numbers) and max(int(numbers.max()), -int(numbers.min())) * int(self.size().max()) >= 1 << 63:
            raise OverflowError("a sum of integers might not fit 64 bits: make doubles of them")
        return self._reduced(np.add, numbers.astype(np.int64))

    def min(self, values: Any) -> Any:
        """The least of each group.

        Args:
            values (Column): numbers, booleans, times or texts, one for each row.

        Returns:
            numpy.ndarray | pyarrow.Array: of the type of the values, one for each group.

        Raises:
            Nothing.

        Example:
            >>> Groups([0, 0, 1], 2).min(["b", "a", "c"]).to_pylist()
            ['a', 'c']
        """
        return self._extreme(values, np.minimum, "min")

    def max(self, values: Any) -> Any:
        """The greatest of each group, as ``min``.

        Args:
            values (Column): numbers, booleans, times or texts, one for each row.

        Returns:
            numpy.ndarray | pyarrow.Array: of the type of the values, one for each group.

        Raises:
            Nothing.

        Example:
            >>> Groups([0, 0, 1], 2).max([3, 7, 5]).tolist()
            [7, 5]
        """
        return self._extreme(values, np.maximum, "max")

    def lists(self, values: Any) -> pa.ListArray:
        """The values of each group as a list, in no order that means anything.

        Args:
            values (Column): one for each row.

        Returns:
            pyarrow.ListArray: one for each group.

        Raises:
            Nothing.

        Example:
            >>> Groups([0, 1, 0], 2).lists([1, 2, 3]).to_pylist()
            [[1, 3], [2]]
        """
        return pa.ListArray.from_arrays(pa.array(self._edges.astype(np.int32)), self._taken(values))

    def concat(self, lists: Any) -> pa.ListArray:
        """The lists of each group as one.

        Args:
            lists (Column): a list for each row.

        Returns:
            pyarrow.ListArray: one for each group.

        Raises:
            Nothing.

        Example:
            >>> Groups([0, 1, 0], 2).concat([[1], [2], [3, 4]]).to_pylist()
            [[1, 3, 4], [2]]
        """
        taken = self._taken(lists)
        lengths = pc.list_value_length(taken).to_numpy(zero_copy_only=False).astype(np.int64)
        edges = np.append(0, np.cumsum(lengths))[self._edges]
        return pa.ListArray.from_arrays(pa.array(edges.astype(np.int32)), taken.flatten())

    def each(self, function: Callable[..., Any], *columns: Any) -> list[Any]:
        """What a function makes of the values of each group. It is called once for each, so it is for what
        numpy cannot do for all at once.

        Args:
            function (Callable): takes a numpy array for each column (a list, of texts).
            columns (Column): one value for each row.

        Returns:
            list: what it gives, one for each group.

        Raises:
            Nothing.

        Example:
            >>> Groups([0, 1, 0], 2).each(lambda x: float(np.median(x)), [1, 2, 3])
            [2.0, 2.0]
        """
        parts = [self._parts(one) for one in columns]
        return [function(*values) for values in zip(*parts, strict=True)]

    def _parts(self, values: Any) -> list[Any]:
        taken = self._taken(values)
        plain = pa.types.is_primitive(taken.type)
        rows = taken.to_numpy(zero_copy_only=False) if plain else taken.to_pylist()
        return [rows[start:end] for start, end in pairwise(self._edges.tolist())]

    def _reduced(self, how: np.ufunc, numbers: Array) -> Array:
        if not self.count:
            return numbers[:0]
        with np.errstate(invalid="ignore", over="ignore"):
            reduced: Array = how.reduceat(numbers[self.order], self.starts)
        return reduced

    def _extreme(self, values: Any, how: np.ufunc, name: str) -> Any:
        given = column(values)
        if pa.types.is_integer(given.type) or pa.types.is_floating(given.type):
            return self._reduced(how, _numbers(given))
        table = pa.table({"group": self.ids, "value": given})
        found = grouped(table, ["group"], {"extreme": ("value", name)}).sort_by("group")
        return found["extreme"].combine_chunks()


def column(values: Any) -> pa.Array:
    """Values as an Arrow array."""
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values if isinstance(values, pa.Array) else pa.array(values)


def _numbers(values: Any) -> Array:
    given = column(values) if not isinstance(values, np.ndarray) else values
    numbers: Array = given if isinstance(given, np.ndarray) else given.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind not in "iufb":
        raise TypeError(f"numbers are wanted, not {getattr(given, 'type', given.dtype)}")
    return numbers
