"""The class that an aggregate of one's own subclasses."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

if TYPE_CHECKING:
    from elf.paos.groups import Groups

Column = Any
"""What stands for a column of values: a ``pyarrow.Array``, a numpy array, or a list."""


class PAO(abc.ABC):
    """An aggregate of one's own: what it remembers of the rows of a group, and how memories merge.

    ``merge`` must be commutative and associative, and states of parts, merged, must give what the state of
    all rows gives: rows are split among agents, chunks and panes in ways that nobody chooses. The class keeps
    nothing in itself: an object lives for some calls, and there are many of them.

    Attributes:
        arguments (Sequence[str]): the ELF-QL type of each argument, written out in the class:
            ``("double",)``. Integers become doubles where a double is wanted.
        state (Mapping[str, str | pyarrow.DataType]): the columns of a state, by name: types of ELF-QL, or
            Arrow's integers, doubles, booleans, timestamps, texts, binaries, and lists of these.
        returns (str): the ELF-QL type of the value, written out.

    Example:
        >>> import numpy as np
        >>> import pyarrow as pa
        >>> class Product(PAO):
        ...     arguments = ("double",)
        ...     state = {"product": "double"}
        ...     returns = "double"
        ...
        ...     def create(self, groups, x):
        ...         return {"product": groups.each(lambda values: float(np.prod(values)), x)}
        ...
        ...     def merge(self, groups, states):
        ...         return self.create(groups, states["product"])
        ...
        ...     def finalize(self, states):
        ...         return states["product"]
        >>> from elf.cbt import BufferTree
        >>> tree = BufferTree(["k"], [(Product(), "x")])
        >>> tree.insert(pa.table({"k": ["a", "b", "a"], "x": [2.0, 3.0, 4.0]}))
        >>> tree.flush().sort_by("k").to_pylist()
        [{'k': 'a', 'product_x': 8.0}, {'k': 'b', 'product_x': 3.0}]
    """

    arguments: ClassVar[Sequence[str]] = ()
    state: ClassVar[Mapping[str, str | pa.DataType]] = {}
    returns: ClassVar[str] = ""

    @abc.abstractmethod
    def create(self, groups: Groups, *columns: pa.Array) -> Mapping[str, Column]:
        """The states of groups of rows.

        Args:
            groups (Groups): which group each row is in; each has one row at least.
            columns (pyarrow.Array): a column for each argument, without NULLs.

        Returns:
            Mapping[str, Column]: the columns of ``state``, by name, with a value for each group.

        Raises:
            Exception: whatever it likes; then the rows are of no use to it, and are counted as rejected.
        """

    @abc.abstractmethod
    def merge(self, groups: Groups, states: pa.RecordBatch) -> Mapping[str, Column]:
        """The states of groups of states.

        Args:
            groups (Groups): which group each state is in; each has one at least.
            states (pyarrow.RecordBatch): the columns of ``state``.

        Returns:
            Mapping[str, Column]: as of ``create``.

        Raises:
            Exception: whatever it likes; then the states stay apart.
        """

    @abc.abstractmethod
    def finalize(self, states: pa.RecordBatch) -> Column:
        """The value of each state.

        Args:
            states (pyarrow.RecordBatch): the columns of ``state``.

        Returns:
            Column: as many values, of type ``returns``; they may be NULL.

        Raises:
            Exception: whatever it likes; then the values are NULL, and their windows say so.
        """
