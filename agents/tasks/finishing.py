"""Direct final fragments (``elf.ql.direct``): groups to result rows by Arrow, without a statement."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agents.tasks.conditions import TYPES, holds
from elf.aggregates import ordered
from elf.job.ports import FinisherPort
from elf.ql.plan import DirectFinal, Plan, Value

if TYPE_CHECKING:
    from agents.tasks.engine import Finisher

_EXACT: Final = 1 << 53
"""Up to here a double is each whole number."""
Int64s = npt.NDArray[np.int64]


class NeedsSql(Exception):
    """These groups have types, or values, of which only DuckDB says what becomes of them."""


def finisher_of(plan: Plan, whole: FinisherPort | None = None) -> FinisherPort:
    """The fastest that runs a plan's final fragment. ``whole``: that of which it is a part, which says how it
    has failed."""
    return _by_sql(plan, whole) if plan.direct is None else DirectFinisher(plan, plan.direct, whole)


def _by_sql(plan: Plan, whole: FinisherPort | None) -> Finisher:
    from agents.tasks.engine import Finisher  # DuckDB, as in agents.tasks.streams

    return Finisher(plan, whole)


class DirectFinisher(FinisherPort):
    """``elf.job.ports.FinisherPort`` of a plan whose final fragment is ``direct``. Its rows are those of
    ``Finisher``, bit by bit."""

    def __init__(self, plan: Plan, direct: DirectFinal, whole: FinisherPort | None = None) -> None:
        self._plan, self._direct, self._whole = plan, direct, whole or self
        self._names = [*direct.bounds, *plan.outputs]

    @cached_property
    def _sql(self) -> Finisher:
        return _by_sql(self._plan, self._whole)

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        try:
            return _finished(self._direct, groups, self._names)
        except NeedsSql:
            return self._sql.run(groups, *beside)

    def join(self, groups: pa.Table) -> pa.Table:
        return self._sql.join(groups)

    def stage(self, place: int, groups: pa.Table) -> pa.Table:
        return self._sql.stage(place, groups)

    def side(self, number: int) -> Finisher:
        return self._sql.side(number)

    def close(self) -> None:
        if "_sql" in self.__dict__:
            self._sql.close()


def _finished(direct: DirectFinal, groups: pa.Table, names: list[str]) -> pa.Table:
    """The result rows, in their order. Raises ``NeedsSql``."""
    if not groups.num_rows:
        raise NeedsSql
    groups = groups.combine_chunks()
    bounds = [groups[name] for name in direct.bounds]
    rows = pa.table([*bounds, *(_column(one, groups) for one in direct.outputs)], names=names)
    order = _order(direct, groups, bounds)
    if direct.having:
        tested = pa.table({name: _tested(value, groups) for name, value in direct.tested})
        order = order[pc.fill_null(holds(direct.having, tested), False).to_numpy()[order]]
    if direct.limit is not None or direct.offset:
        rank = _ranks(bounds, order)
        last = len(order) if direct.limit is None else direct.offset + direct.limit
        order = order[(rank >= direct.offset) & (rank < last)]
    return rows.take(pa.array(order))


def _order(direct: DirectFinal, groups: pa.Table, bounds: list[pa.ChunkedArray]) -> Int64s:
    """The places of the groups in the order of the result. Arrow puts NULLs last, whichever the direction."""
    columns, keys = list(bounds), ["ascending"] * len(bounds)
    for item in direct.order:
        column = ordered(_column(item.value, groups), "max")
        if item.nulls_first and column.null_count:
            columns.append(column.is_valid())
            keys.append("ascending")
        columns.append(column)
        keys.append("descending" if item.descending else "ascending")
    names = [str(place) for place in range(len(columns))]
    if groups.num_rows == 1 or not columns:
        return np.arange(groups.num_rows)
    places = pc.sort_indices(pa.table(columns, names=names), sort_keys=list(zip(names, keys, strict=True)))
    return np.asarray(places.to_numpy()).astype(np.int64)


def _ranks(bounds: list[pa.ChunkedArray], order: Int64s) -> Int64s:
    """Of each row in order, how many rows of its window are before it."""
    place = np.arange(len(order))
    if not bounds or not len(order):
        return place
    first = np.zeros(len(order), dtype=np.int64)
    for bound in bounds:
        us = bound.to_numpy()[order]
        first[1:] = np.maximum(first[1:], np.where(us[1:] != us[:-1], place[1:], 0))
    return place - np.maximum.accumulate(first)


def _tested(value: Value, groups: pa.Table) -> pa.ChunkedArray:
    """A value in a condition. Of NaN Arrow says that it is equal to nothing."""
    column = _column(value, groups)
    if value.kind == "double" and pc.any(pc.is_nan(column)).as_py():
        raise NeedsSql
    return column


def _column(value: Value, groups: pa.Table) -> pa.ChunkedArray:
    """A value of each group."""
    column = groups[value.name]
    if value.count:
        return _average(column, groups[value.count])
    if column.type != TYPES[value.kind]:
        raise NeedsSql
    return column


def _average(sums: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.ChunkedArray:
    """As in DuckDB, where sums are the same as doubles."""
    if counts.type != pa.int64() or counts.null_count:
        raise NeedsSql
    number = counts.to_numpy()
    missing = sums.is_null().to_numpy() | (number == 0)
    return pa.chunked_array([pa.array(_doubles(sums) / np.maximum(number, 1), mask=missing)])


def _doubles(sums: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Sums as doubles; where there is none, 0."""
    if sums.null_count:
        sums = sums.fill_null(0)
    if sums.type == pa.float64():
        return np.asarray(sums.to_numpy())
    if sums.type != TYPES["hugeint"]:
        raise NeedsSql
    chunk = sums.chunk(0)
    halves = np.frombuffer(chunk.buffers()[1], np.int64).reshape(-1, 2)
    low, high = halves[chunk.offset : chunk.offset + len(chunk)].T
    if (high != low >> 63).any() or (low > _EXACT).any() or (low < -_EXACT).any():
        raise NeedsSql
    return np.asarray(low, dtype=np.float64)
