"""Gathering rows, against Arrow and against Python, one value at a time."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.cbt.gather import take_column, take_firsts

Column = tuple[list[object], pa.DataType]

FEW_DOUBLES = st.sampled_from([0.0, -1.5, math.inf, math.nan])


@st.composite
def columns(draw: st.DrawFn) -> Column:
    """Few different values, so that neighbours are often equal."""
    size = draw(st.integers(0, 70))
    letter = st.sampled_from([0, 65, 66, 255])
    even = st.tuples(letter, letter).map(lambda ends: bytes([ends[0], *[0] * size, ends[1]])[: max(1, size)])
    values, kind = draw(
        st.sampled_from(
            [
                (even, pa.binary()),
                (st.binary(max_size=3), pa.binary()),
                (st.text("aé", max_size=2), pa.string()),
                (st.integers(-1, 1), pa.int64()),
                (st.integers(0, 2), pa.uint8()),
                (FEW_DOUBLES, pa.float64()),
                (st.booleans(), pa.bool_()),
            ]
        )
    )
    value = values | st.none() if draw(st.booleans()) else values
    return draw(st.lists(value, min_size=1, max_size=20)), kind


def shown(values: list[object]) -> list[object]:
    return ["NaN" if value != value else value for value in values]


@given(columns(), st.data())
@settings(max_examples=300, deadline=None)
def test_rows_are_those_asked_for(column: Column, data: st.DataObject) -> None:
    values, kind = column
    skip = data.draw(st.integers(0, len(values) - 1))
    rows = data.draw(st.lists(st.integers(0, len(values) - skip - 1), max_size=30))
    given_rows = pa.chunked_array([pa.array(values, kind)[skip:]])
    found = take_column(given_rows, np.array(rows, dtype=np.int64))
    found.validate(full=True)
    assert found.type == kind
    assert shown(found.to_pylist()) == shown([values[skip:][row] for row in rows])


@given(columns(), st.data())
@settings(max_examples=300, deadline=None)
def test_firsts_of_groups_of_equal_values(column: Column, data: st.DataObject) -> None:
    values, kind = column
    order = data.draw(st.permutations(range(len(values))))
    first = [True, *data.draw(st.lists(st.booleans(), min_size=len(values) - 1, max_size=len(values) - 1))]
    found = take_firsts(pa.chunked_array([pa.array(values, kind)]), np.array(order), np.array(first))
    run = shown([values[row] for row in order])
    alike = all(
        begins or here == before for begins, here, before in zip(first[1:], run[1:], run, strict=False)
    )
    if not alike:
        assert found is None
        return
    assert found is not None
    found.validate(full=True)
    assert shown(found.to_pylist()) == [value for value, begins in zip(run, first, strict=True) if begins]
