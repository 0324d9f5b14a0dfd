"""Packed columns: any values come back, and any bytes at all give columns or a ``ValueError``."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.cbt.pack import pack, unpack

VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20) | st.just(b"z" * 100_000),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2300, 1, 1)),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)
    | st.integers(-5, 5).map(Decimal),
    pa.decimal256(50, 0): st.integers(-(10**40), 10**40).map(Decimal),
    pa.null(): st.none(),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=3),
}


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_what_is_packed_comes_back(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.integers(0, 20))
    columns = [
        pa.array(data.draw(st.lists(st.none() | VALUES[kind], min_size=rows, max_size=rows)), kind)
        for kind in kinds
    ]
    table = pa.table(columns, names=[f"c{i}" for i in range(len(kinds))])
    start = data.draw(st.integers(0, rows))
    part = table.slice(start)
    found = unpack(pack(part), table.schema)
    found.validate(full=True)
    for mine, other in zip(found.columns, part.columns, strict=True):
        assert repr(mine.to_pylist()) == repr(other.to_pylist())


WHOLE = pa.table({"k": [f"key {i}" for i in range(50)], "n": range(50), "d": [Decimal(i) for i in range(50)]})
PACKED = pack(WHOLE)


@given(st.lists(st.tuples(st.integers(0, len(PACKED) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_damaged_bytes(damage: list[tuple[int, int]]) -> None:
    data = bytearray(PACKED)
    for place, value in damage:
        data[place] = value
    try:
        table = unpack(bytes(data), WHOLE.schema)
        table.validate(full=True)
    except (ValueError, pa.ArrowInvalid):
        return
    assert table.num_columns == 3


@given(st.binary(max_size=80))
def test_other_bytes(data: bytes) -> None:
    with pytest.raises(ValueError):
        unpack(data, WHOLE.schema)


def test_random_letters_take_their_entropy_and_little_more() -> None:
    import numpy as np

    letters = np.random.default_rng(1).integers(48, 48 + 64, (10_000, 12), dtype=np.uint8)
    table = pa.table({"k": pa.array([row.tobytes() for row in letters], pa.binary()), "n": [1] * 10_000})
    assert len(pack(table)) < 9.2 * 10_000
