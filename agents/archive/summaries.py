"""What is known of the values of chosen columns in a file without reading it: bounds, and a Bloom filter.

    …/agent=web-3/5f0c….parquet     the lines
    …/agent=web-3/_5f0c….bloom      for each chosen column the values that are in them, to one in a hundred

Bounds are in the manifest, filters are beside their files: a reader fetches those of the files that bounds,
hours and partitions leave, and only for a query that asks for single values.

Rules: a summary may say that a file can hold a row that it does not, and never the other way round. It is of
one type; a query for which the column has another type takes no notice of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agents.archive.manifest import Bounds, File, Value
from agents.archive.partitions import Target
from elf.batch import ARROW_TYPES
from elf.keys import hash_keys
from elf.ql.plan import Condition
from elf.schema import Column, ColumnType

HASHES: Final = 7
BITS_A_VALUE: Final = 10
"""With seven hashes: of 120 values that are not there one passes."""
VALUES_MAX: Final = 1 << 20
"""A column with more of them in a file gets no filter."""
TEXT_MAX: Final = 256
"""Characters of a bound."""
_FLIPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What says the same with its sides changed."""


class Bloom(msgspec.Struct, frozen=True):
    """A Bloom filter over values of a type; the number of its bits is a power of two."""

    kind: ColumnType
    bits: bytes

    def may_hold(self, value: Value) -> bool:
        places = _places(_hashes(pa.array([value], ARROW_TYPES[self.kind])), 8 * len(self.bits))
        bits = np.frombuffer(self.bits, np.uint8)
        return bool((bits[places >> 3] >> (places & 7) & 1).all())


def bloom(kind: ColumnType, hashes: npt.NDArray[np.uint64]) -> Bloom:
    """Of values with these hashes (``hash_keys``), each once."""
    size = 1 << max(6, math.ceil(math.log2(BITS_A_VALUE * max(1, len(hashes)))))
    bits = np.zeros(size, np.bool_)
    bits[_places(hashes, size)] = True
    return Bloom(kind, np.packbits(bits, bitorder="little").tobytes())


def _places(hashes: npt.NDArray[np.uint64], size: int) -> npt.NDArray[np.int64]:
    """By double hashing; ``HASHES`` of each."""
    low, step = hashes & np.uint64(0xFFFFFFFF), hashes >> np.uint64(32) | np.uint64(1)
    rounds = np.arange(HASHES, dtype=np.uint64)[:, None]
    return ((low + rounds * step) & np.uint64(size - 1)).astype(np.int64).ravel()


def _hashes(values: pa.Array) -> npt.NDArray[np.uint64]:
    return hash_keys([values])


class Summary:
    """Of the rows of a file, a part after the other."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._parts: dict[str, list[pa.Array]] = {column.name: [] for column in columns}
        self._bounds: dict[str, list[pa.Scalar]] = {column.name: [] for column in columns}

    def add(self, rows: pa.Table) -> None:
        """Rows with these columns."""
        for column in self._columns:
            values = pc.unique(rows[column.name].combine_chunks()).drop_null()
            if len(values):
                found = pc.min_max(values)
                self._bounds[column.name] += [found["min"], found["max"]]
                self._parts[column.name].append(_hashes(values))

    def bounds(self) -> dict[str, Bounds]:
        """Of the columns for which there are any."""
        found = {column.name: _bounds(column.type, self._bounds[column.name]) for column in self._columns}
        return {name: one for name, one in found.items() if one is not None}

    def blooms(self) -> dict[str, Bloom]:
        found = {}
        for column in self._columns:
            parts = self._parts[column.name]
            hashes = np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.uint64)
            if len(hashes) <= VALUES_MAX:
                found[column.name] = bloom(column.type, hashes)
        return found


def _bounds(kind: ColumnType, seen: Sequence[pa.Scalar]) -> Bounds | None:
    """None: no bound says what these are."""
    values = [_plain(one) for one in seen]
    if not values:
        return Bounds(kind, None, None)
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return None
    if any(isinstance(value, str) and len(value) > TEXT_MAX for value in values):
        return None
    return Bounds(kind, min(values), max(values))


def _plain(scalar: pa.Scalar) -> Value:
    is_time = pa.types.is_timestamp(scalar.type)
    value: Value = scalar.cast(pa.int64()).as_py() if is_time else scalar.as_py()
    return value


def blooms_path(path: str) -> str:
    """Where the filters of a file are."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/_{name.removesuffix('.parquet')}.bloom"


def encoded(blooms: Mapping[str, Bloom]) -> bytes:
    """As they lie there."""
    return msgspec.msgpack.encode(blooms)


def blooms_of(target: Target, path: str) -> Mapping[str, Bloom]:
    """Those of a file; none where there are none that can be read."""
    data = target.read(blooms_path(path))
    try:
        return {} if data is None else msgspec.msgpack.decode(data, type=dict[str, Bloom])
    except msgspec.DecodeError:
        return {}


def may_hold(
    file: File,
    where: Iterable[Condition],
    types: Mapping[str, ColumnType],
    blooms: Callable[[], Mapping[str, Bloom]] = dict,
) -> bool:
    """Whether a row of a file can be one for which all of these conditions are true. ``types``: of the
    columns, for the query that asks; ``blooms``: fetches the filters of the file."""
    return all(_may(one, file, types, blooms) for one in where)


def _may(
    one: Condition,
    file: File,
    types: Mapping[str, ColumnType],
    blooms: Callable[[], Mapping[str, Bloom]],
) -> bool:
    if one.op in ("and", "or"):
        parts = (_may(part, file, types, blooms) for part in one.parts)
        return all(parts) if one.op == "and" else any(parts)
    if one.op not in (*_FLIPPED, "in") or not one.parts:
        return True
    op, column, others = one.op, one.parts[0], one.parts[1:]
    if op != "in" and column.op == "constant":
        op, column, others = _FLIPPED[op], others[0], (column,)
    bounds = file.columns.get(column.name) if column.op == "column" else None
    if bounds is None or types.get(column.name) != bounds.kind:
        return True
    if any(other.op != "constant" or other.kind != bounds.kind for other in others):
        return True
    if bounds.least is None or bounds.greatest is None:
        return False
    values = [other.value for other in others if other.value is not None]
    return any(_compares(op, bounds, value, column.name, blooms) for value in values)


def _compares(
    op: str, bounds: Bounds, value: Value, name: str, blooms: Callable[[], Mapping[str, Bloom]]
) -> bool:
    """Whether a value within the bounds can be ``op`` this one."""
    least, greatest = bounds.least, bounds.greatest
    match op:
        case "<":
            return least < value  # type: ignore[operator]
        case "<=":
            return least <= value  # type: ignore[operator]
        case ">":
            return greatest > value  # type: ignore[operator]
        case ">=":
            return greatest >= value  # type: ignore[operator]
    if not least <= value <= greatest:  # type: ignore[operator]
        return False
    found = blooms().get(name)
    return found is None or found.kind != bounds.kind or found.may_hold(value)
