"""State columns as arrays of numbers, so that numpy merges the states of all keys at once.

A state becomes *numeric columns*: arrays with one number a row, each with a ufunc that merges two numbers and
a neutral number. A sum of integers is one int64 column while no window can exceed it, else four columns of 32
bits each, so that it stays exact and 38 digits overflow at the end or not at all. Doubles are added as they
are, and compared in DuckDB's order. Texts (and other ordered values) are compared by their rank among all
values seen. There is no loop over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State, ordered, restore
from elf.errors import ElfBug

Array = npt.NDArray[Any]
Form = Literal["narrow", "wide", "floats", "extremes", "places"]

_HIGHEST: Final = np.iinfo(np.int64).max
_LOWEST: Final = np.iinfo(np.int64).min
_LIMB_BITS: Final = 32
_LIMB: Final = np.int64((1 << _LIMB_BITS) - 1)


class NumericColumn(msgspec.Struct, frozen=True):
    """How two numbers merge, and the number that stands for no value."""

    merge: np.ufunc
    dtype: type[np.generic]
    identity: int

    def none(self, shape: int | tuple[int, int]) -> Array:
        """An array of so many "no value" numbers."""
        return np.full(shape, self.identity, self.dtype)


PRESENT: Final = NumericColumn(np.maximum, np.uint8, 0)
"""1 where there is a row (or a value that is not NULL)."""
_COUNTED: Final = NumericColumn(np.add, np.int64, 0)
_ADDED: Final = NumericColumn(np.add, np.float64, 0)
_EXTREME: Final = {
    "min": NumericColumn(np.minimum, np.int64, _HIGHEST),
    "max": NumericColumn(np.maximum, np.int64, _LOWEST),
}


class Coder:
    """One state to numeric columns and back. ``terms_max``: how many values are ever merged into one.

    It learns from the columns that it ``admits``; arrays made before then go through the function that
    ``admit`` returns.
    """

    def __init__(self, state: State, terms_max: int) -> None:
        self.state = state
        self.form: Form = "narrow" if state.merge == "sum" else "extremes"
        self._kind: pa.DataType = pa.null()
        self._values: pa.Array | None = None
        self._largest = ((1 << 63) - 1) // terms_max

    @property
    def numerics(self) -> tuple[NumericColumn, ...]:
        """The merge of each array of ``encode``. Counts are never NULL; for others the first numeric column
        says which rows have a value."""
        values: tuple[NumericColumn, ...]
        match self.form:
            case "narrow":
                values = (_COUNTED,)
            case "wide":
                values = (_COUNTED,) * 4
            case "floats":
                values = (_ADDED,)
            case _:
                values = (_EXTREME[self.state.merge],)
        return values if self.state.identity_zero else (PRESENT, *values)

    def admit(self, column: pa.ChunkedArray) -> Callable[[list[Array]], list[Array]] | None:
        """Prepare for these values; returns how to convert arrays of earlier values, where they change."""
        kind = column.type
        if pa.types.is_null(kind):
            return None
        if not pa.types.is_null(self._kind) and self._kind != kind:
            raise ElfBug(f"state {self.state.name} was {self._kind} and is {kind}")
        self._kind = kind
        if self.state.merge == "sum":
            return self._admit_sum(column)
        if not _is_numeric(kind):
            return self._admit_places(column)
        return None

    def _admit_sum(self, column: pa.ChunkedArray) -> Callable[[list[Array]], list[Array]] | None:
        if pa.types.is_floating(self._kind):
            before, self.form = self.form, "floats"
            return None if before == "floats" else lambda a: [*a[:-1], a[-1].astype(np.float64)]
        if self.form == "wide":
            return None
        low, high = _integers(column)
        fits = (high == low >> 63) & (np.abs(low) <= self._largest) & (low != _LOWEST)
        if fits.all():
            return None
        self.form = "wide"
        return lambda a: [*a[:-1], *_limbs(a[-1], a[-1] >> 63)]

    def _admit_places(self, column: pa.ChunkedArray) -> Callable[[list[Array]], list[Array]] | None:
        self.form = "places"
        fresh = column.unique().drop_null()
        known = self._values if self._values is not None else fresh.slice(0, 0)
        whole = pa.concat_arrays([known, fresh]).unique()
        if self._values is not None and len(whole) == len(known):
            return None
        self._values = whole.take(pc.array_sort_indices(whole))
        if not len(known):
            return None
        places = pc.index_in(known, self._values).to_numpy(zero_copy_only=False).astype(np.int64)
        identity = self.numerics[-1].identity

        def moved(arrays: list[Array]) -> list[Array]:
            valid, old = arrays
            new = np.full(old.shape, identity, np.int64)
            new[valid != 0] = places[old[valid != 0]]
            return [valid, new]

        return moved

    def encode(self, column: pa.ChunkedArray) -> list[Array]:
        """One array for each numeric column, with one number a row of an admitted column."""
        valid = column.is_valid().to_numpy() if column.null_count else None
        values = self._numbers(column)
        if valid is not None:
            for numeric, numbers in zip(self.numerics[-len(values) :], values, strict=True):
                numbers[~valid] = numeric.identity
        if self.state.identity_zero:
            return values
        present = np.ones(len(column), np.uint8) if valid is None else valid.astype(np.uint8)
        return [present, *values]

    def _numbers(self, column: pa.ChunkedArray) -> list[Array]:
        """The values; anything where they are NULL."""
        kind = column.type
        if pa.types.is_null(kind):
            numerics = self.numerics if self.state.identity_zero else self.numerics[1:]
            return [numeric.none(len(column)) for numeric in numerics]
        if self.form == "floats":
            return [np.array(column.cast(pa.float64()).fill_null(0.0).to_numpy())]
        if self.form in ("narrow", "wide"):
            low, high = _integers(column)
            return [low] if self.form == "narrow" else _limbs(low, high)
        if self.form == "places":
            column = pc.index_in(column, self._values)
        elif pa.types.is_floating(kind):
            column = ordered(column, self.state.merge)
        return [np.array(column.cast(pa.int64()).fill_null(0).to_numpy())]

    def decode(self, arrays: Sequence[Array]) -> pa.ChunkedArray:
        """The state column of merged numeric columns; raises ``SumOverflow``."""
        count = len(arrays[0])
        if pa.types.is_null(self._kind):
            return pa.chunked_array(
                [np.zeros(count, np.int64)] if self.state.identity_zero else [pa.nulls(count)]
            )
        values = arrays if self.state.identity_zero else arrays[1:]
        null = None if self.state.identity_zero or arrays[0].all() else arrays[0] == 0
        match self.form:
            case "wide":
                return restore(
                    pa.chunked_array([_decimals(values, self._scale(), null)]), self.state, self._kind
                )
            case "narrow" if pa.types.is_decimal(self._kind):
                halves = np.stack([values[0], values[0] >> 63], axis=1)
                return pa.chunked_array([_from_words(self._kind, halves, null)])
            case "places":
                places = pa.array(values[0], mask=null)
                known = self._values if self._values is not None else pa.nulls(0, self._kind)
                return pa.chunked_array([known.take(places)])
            case "extremes" if pa.types.is_floating(self._kind):
                return restore(pa.chunked_array([pa.array(values[0], mask=null)]), self.state, self._kind)
        return pa.chunked_array([pa.array(values[0], mask=null)]).cast(self._kind)

    def rank(self, arrays: Sequence[Array]) -> Array | None:
        """int64, in the order of the values; None where the numeric columns do not give it."""
        if self.form == "wide":
            return None
        values: Array = arrays[-1]
        if self.form == "floats":
            bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
            values = bits ^ ((bits >> 63) & np.int64(_HIGHEST))
        return values

    def _scale(self) -> int:
        return self._kind.scale if pa.types.is_decimal(self._kind) else 0


def _is_numeric(kind: pa.DataType) -> bool:
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_timestamp)
    return any(is_a(kind) for is_a in numbers)


def _integers(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """(low, high) 64 bits of integers, or of decimals without their point; 0 where NULL."""
    if not pa.types.is_decimal128(column.type):
        low: Array = np.array(column.cast(pa.int64()).fill_null(0).to_numpy())
        return low, low >> 63
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    words = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    if array.null_count:
        words = words * array.is_valid().to_numpy(zero_copy_only=False)[:, None]
    return words[:, 0].copy(), words[:, 1].copy()


def _limbs(low: Array, high: Array) -> list[Array]:
    """128-bit numbers in four numeric columns of 32 bits, the last one with the sign."""
    return [low & _LIMB, (low >> _LIMB_BITS) & _LIMB, high & _LIMB, high >> _LIMB_BITS]


def _decimals(limbs: Sequence[Array], scale: int, null: Array | None) -> pa.Array:
    """Sums of limbs as decimal256: no sum of 2**31 numbers leaves it."""
    words: list[Array] = []
    carry: Array = np.zeros(len(limbs[0]), np.int64)
    for limb in limbs:
        carry = limb + (carry >> _LIMB_BITS)
        words.append(carry & _LIMB)
    low = words[0] | words[1] << _LIMB_BITS
    high = words[2] | words[3] << _LIMB_BITS
    rest = carry >> _LIMB_BITS
    return _from_words(pa.decimal256(76, scale), np.stack([low, high, rest, rest >> 63], axis=1), null)


def _from_words(kind: pa.DataType, words: Array, null: Array | None) -> pa.Array:
    """Decimals of rows of int64 words, the lowest first."""
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(words), [valid, pa.py_buffer(np.ascontiguousarray(words))])
