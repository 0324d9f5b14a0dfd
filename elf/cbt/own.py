"""An aggregate of one's own (``elf.paos``) in a tree: one column of states, as bytes.

NULL is no state: that of a row with a NULL in any argument, and the value of a group without others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State
from elf.errors import UserError
from elf.paos.pao import PAO
from elf.paos.running import Calls, Misbehaved

Int64s = npt.NDArray[np.int64]


class Own:
    """Raises ``ValueError`` for a class, or columns, that it cannot be."""

    def __init__(self, pao: PAO, columns: str | Sequence[str] | None) -> None:
        try:
            self._calls = Calls(pao)
        except Misbehaved as error:
            raise ValueError(str(error)) from None
        self.columns = (columns,) if isinstance(columns, str) else tuple(columns or ())
        if len(self.columns) != (wanted := len(self._calls.arguments)):
            raise ValueError(f"{self._calls.title} takes {wanted} columns, not {len(self.columns)}")
        self.name = "_".join([self._calls.title.lower(), *self.columns])
        self.state = State(f"own_{self.name}", "own", by=self._merged)

    def of_rows(self, rows: pa.Table) -> pa.ChunkedArray:
        """The state of each row. Raises ``UserError``, as all that calls the class."""
        given = [rows[name].combine_chunks() for name in self.columns]
        there = functools.reduce(pc.and_, (column.is_valid() for column in given))
        with self._told("create"):
            kinds = zip(given, self._calls.arguments, strict=True)
            known = [column.filter(there).cast(kind) for column, kind in kinds]
            made = self._calls.created(np.arange(len(known[0])), known)
        return pa.chunked_array([_spread(made, there)])

    def values(self, states: pa.ChunkedArray) -> pa.ChunkedArray:
        """The value of each state."""
        column = states.combine_chunks()
        there = column.is_valid()
        known = column.filter(there)
        with self._told("finalize"):
            made = self._calls.values(np.arange(len(known)), known, np.ones(len(known), np.int64))
        return pa.chunked_array([_spread(made, there)])

    def _merged(self, ids: Int64s, states: pa.Array) -> pa.Array:
        there = states.is_valid()
        known, numbers = states.filter(there), ids[there.to_numpy(zero_copy_only=False)]
        with self._told("merge"):
            merged = self._calls.merged(numbers, known, np.ones(len(known), np.int64))
        found = np.zeros(int(ids[-1]) + 1 if len(ids) else 0, np.bool_)
        found[numbers] = True
        return _spread(merged, pa.array(found))

    @contextmanager
    def _told(self, method: str) -> Iterator[None]:
        """Whatever the class raises, as one kind of error: a merge that fails leaves the tree as it was."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{self._calls.title}.{method}() fails: {error!r}") from error


def _spread(values: pa.Array, there: pa.Array) -> pa.Array:
    """The values where they are, and NULL elsewhere."""
    return pc.replace_with_mask(pa.nulls(len(there), values.type), there, values)
