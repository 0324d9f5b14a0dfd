"""Partial aggregates as rows of numbers: a slot, a key number, and one value for each numeric column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.job.assembly.numeric import Array, NumericColumn

Int64s = npt.NDArray[np.int64]


class KeyIndex:
    """Numbers for keys, from 0, in the order in which they came."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._names = list(keys)
        self.keys: pa.Table | None = None
        self.size = 0 if keys else 1

    def ids(self, rows: pa.Table) -> Int64s:
        """The number of each row's key; keys are in the canonical form of ``normalise``."""
        if not self._names:
            return np.zeros(rows.num_rows, np.int64)
        found = rows.select(self._names)
        whole = (
            found if self.keys is None else pa.concat_tables([self.keys, found], promote_options="permissive")
        )
        codes = _codes(whole[self._names[0]])
        for name in self._names[1:]:
            more = _codes(whole[name])
            codes = _codes(pa.chunked_array([codes * (int(more.max(initial=0)) + 1) + more]))
        self.size = int(codes.max(initial=-1)) + 1
        first = np.empty(self.size, np.int64)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        self.keys = whole.take(pa.array(first))
        return codes[len(codes) - rows.num_rows :]


def _codes(column: pa.ChunkedArray) -> Int64s:
    """Equal values as equal numbers, 0, 1, … in the order of their first appearance."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    codes = array.dictionary_encode(null_encoding="encode").indices
    return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)


@dataclass
class Rows:
    """Partial aggregates: slot (ascending), key number and one array for each numeric column; each (slot,
    key) occurs once."""

    slots: Int64s
    ids: Int64s
    values: list[Array]

    def between(self, first: int, last: int) -> tuple[slice, Int64s, Int64s]:
        """(which rows, their slots counted from ``first``, their keys) of slots ``[first, last)``."""
        begin, end = np.searchsorted(self.slots, (first, last))
        rows = slice(int(begin), int(end))
        return rows, self.slots[rows] - first, self.ids[rows]

    def followed_by(self, more: Rows) -> Rows:
        """These rows, then ``more``."""
        return Rows(
            np.concatenate([self.slots, more.slots]),
            np.concatenate([self.ids, more.ids]),
            [np.concatenate(pair) for pair in zip(self.values, more.values, strict=True)],
        )

    def merged(self, keys: int, numerics: Sequence[NumericColumn]) -> Rows:
        """Rows that share slot and key merged into one, from the left to the right."""
        both, place = np.unique(self.slots * keys + self.ids, return_inverse=True)
        values = []
        for numeric, given in zip(numerics, self.values, strict=True):
            merged = numeric.none(len(both))
            with np.errstate(invalid="ignore", over="ignore"):
                numeric.merge.at(merged, place, given)
            values.append(merged)
        return Rows(both // keys, both % keys, values)
