"""Groups in memory (``table.c``): rows come, and those of a known key are merged into it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.errors import ElfBug
from elf.native import binding
from elf.native.columns import UInt64s, values_of, width_of

KEY: Final = "key"
_HOW: Final = {
    (KEY, ""): 0,
    ("sum", "integer"): 1,
    ("sum", "decimal"): 2,
    ("min", "integer"): 3,
    ("max", "integer"): 4,
    ("min", "double"): 5,
    ("max", "double"): 6,
}
"""As ``table.c`` has them."""
_DONE, _NO_ROOM = 0, 1
CAPACITY: Final = 1 << 12
"""Groups for which there is room at first, a power of two."""
_TEXT_MAX: Final = (1 << 31) - 1
Of = TypeVar("Of", bound=np.generic)


def how_of(merge: str, kind: pa.DataType) -> int | None:
    """How a column of keys (``KEY``) or states is merged; None where it cannot be here. Sums of doubles
    depend on the order in which they are made, which is numpy's."""
    if merge == KEY:
        return None if width_of(kind) is None else 0
    family = ""
    if pa.types.is_int64(kind) or (merge != "sum" and pa.types.is_timestamp(kind)):
        family = "integer"
    elif pa.types.is_float64(kind):
        family = "double"
    elif kind == pa.decimal128(38, 0):
        family = "decimal"
    return _HOW.get((merge, family))


@dataclass(eq=False)
class _Column:
    """The buffers of one column."""

    kind: pa.DataType
    values: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    offsets: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(1, np.int32))
    valid: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))


class GroupTable:
    """Groups of some columns, each with its way of merging (``how_of``); their hashes come with the rows."""

    def __init__(
        self,
        library: ctypes.CDLL,
        kinds: Sequence[pa.DataType],
        hows: Sequence[int],
        capacity: int = CAPACITY,
    ) -> None:
        self._library = library
        self._columns = [_Column(kind) for kind in kinds]
        self._held = (binding.Held * len(kinds))(
            *(binding.Held(how=how, width=width_of(kind)) for kind, how in zip(kinds, hows, strict=True))
        )
        self._table = binding.Table(column_count=len(kinds))
        self._row_bytes = 8 + sum(int(held.width) or 4 for held in self._held)
        self._slots = self._hashes = np.zeros(0, np.uint64)
        self._make_room(capacity)
        for place, held in enumerate(self._held):
            if not held.width:
                self._make_text_room(place, 16 * capacity)

    @property
    def count(self) -> int:
        """Groups."""
        return int(self._table.count)

    @property
    def capacity(self) -> int:
        """Groups for which there is room."""
        return int(self._table.capacity)

    @property
    def nbytes(self) -> int:
        """What they take, without room for more."""
        return self.count * self._row_bytes + sum(int(held.used) for held in self._held)

    def add(self, columns: Sequence[pa.Array], hashes: UInt64s) -> int:
        """Add rows. Returns how many it has taken: of the others the first has a sum that does not fit, or
        too many keys are alike in their hashes."""
        given = [values_of(column) for column in columns]
        found = [column for column in given if column is not None]
        if len(found) < len(self._columns):
            return 0
        rows, done = len(hashes), 0
        arguments = self._held, (binding.Values * len(found))(*found), hashes.ctypes.data
        while True:
            done = int(self._library.elf_table_add(ctypes.byref(self._table), *arguments, done, rows))
            if done < 0:
                raise ElfBug("the native part was given rows that are unsound")
            if self._table.stopped != _NO_ROOM or not self._grow(columns, done):
                return done

    def arrays(self) -> list[pa.Array]:
        """The hashes, then the columns, in the order in which keys came. They share the table's memory: it
        must not change any more."""
        count = self.count
        found = [pa.array(self._hashes[:count])]
        for column, held in zip(self._columns, self._held, strict=True):
            there = np.unpackbits(column.valid, count=count, bitorder="little")
            buffers = [None if there.all() else pa.py_buffer(column.valid)]
            if not held.width:
                buffers.append(pa.py_buffer(column.offsets))
            whole = column.values[: held.width * count or held.used]
            found.append(pa.Array.from_buffers(column.kind, count, [*buffers, pa.py_buffer(whole)]))
        return found

    def _grow(self, columns: Sequence[pa.Array], row: int) -> bool:
        """Make room for a row, and more; False where that cannot be."""
        if self.count == self._table.capacity:
            self._make_room(2 * self.count)
        for place, (held, column) in enumerate(zip(self._held, columns, strict=True)):
            needed = 0 if held.width else held.used + column.slice(row, 1).nbytes
            if needed > _TEXT_MAX:
                return False
            if needed > held.room:
                self._make_text_room(place, min(_TEXT_MAX, max(2 * held.room, needed)))
        return True

    def _make_room(self, capacity: int) -> None:
        count = self.count
        for column, held in zip(self._columns, self._held, strict=True):
            column.valid = _larger(column.valid, (count + 7) // 8, np.zeros((capacity + 7) // 8, np.uint8))
            held.valid = column.valid.ctypes.data
            if held.width:
                column.values = _larger(
                    column.values, held.width * count, np.empty(held.width * capacity, np.uint8)
                )
                held.values, held.room = column.values.ctypes.data, held.width * capacity
            else:
                column.offsets = _larger(column.offsets, count + 1, np.zeros(capacity + 1, np.int32))
                held.offsets = column.offsets.ctypes.data
        self._hashes = _larger(self._hashes, count, np.empty(capacity, np.uint64))
        self._slots = np.zeros(2 * capacity, np.uint64)
        self._table.hashes, self._table.capacity = self._hashes.ctypes.data, capacity
        self._table.slots, self._table.slot_count = self._slots.ctypes.data, 2 * capacity
        self._library.elf_table_place(ctypes.byref(self._table))

    def _make_text_room(self, place: int, room: int) -> None:
        column, held = self._columns[place], self._held[place]
        column.values = _larger(column.values, held.used, np.empty(room, np.uint8))
        held.values, held.room = column.values.ctypes.data, room


def _larger(old: npt.NDArray[Of], count: int, fresh: npt.NDArray[Of]) -> npt.NDArray[Of]:
    """A larger array with what the old one holds."""
    fresh[:count] = old[:count]
    return fresh
