"""Conditions without SQL (``elf.ql.plan.Condition``) over rows, by Arrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import SUM_TYPE
from elf.batch import ARROW_TYPES
from elf.ql.plan import Condition, ValueType

TYPES: Final = dict[ValueType, pa.DataType]([*ARROW_TYPES.items(), ("hugeint", SUM_TYPE)])
"""Of values that are compared and sorted."""
_OPERATIONS: Final[dict[str, Callable[..., pa.ChunkedArray]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "is_null": pc.is_null,
    "not": pc.invert,
}
_CONNECTED: Final = {"and": pc.and_kleene, "or": pc.or_kleene}


def holds(where: Sequence[Condition], rows: pa.Table) -> pa.ChunkedArray:
    """Of which rows all of these (at least one) are true; NULL where it is not known."""
    return reduce(pc.and_kleene, (_value(one, rows) for one in where))


def rows_wanted(rows: pa.Table, any_of: Sequence[Sequence[Condition]]) -> npt.NDArray[np.bool_] | None:
    """For which rows one of several WHERE is true; None: there are none, and all rows are wanted."""
    if not any_of:
        return None
    found = reduce(pc.or_kleene, (holds(where, rows) for where in any_of))
    return np.asarray(pc.fill_null(found, False).to_numpy(), dtype=np.bool_)


def _value(part: Condition, rows: pa.Table) -> pa.ChunkedArray | pa.Scalar:
    """A part of a condition, of each row; NULL where it is not known."""
    if part.op == "column":
        return rows[part.name]
    if part.op == "constant":
        return pa.scalar(part.value, TYPES[part.kind])
    values = [_value(one, rows) for one in part.parts]
    if part.op == "in":
        column, *items = values
        among = pa.array([item.as_py() for item in items], column.type)
        return pc.if_else(pc.is_valid(column), pc.is_in(column, among), pa.scalar(None, pa.bool_()))
    if part.op in _CONNECTED:
        return reduce(_CONNECTED[part.op], values)
    return _OPERATIONS[part.op](*values)
