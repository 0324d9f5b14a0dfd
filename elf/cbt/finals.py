"""The tree's own aggregates: from raw rows to partial states, and from merged states to values, in Arrow.

``elf.aggregates`` defines the states; only here they are computed without a database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from elf.aggregates import State
from elf.cbt.own import Own
from elf.paos.builtin import AGGREGATES
from elf.paos.pao import PAO

_COLUMN_AGGREGATES: Final = ("count", "sum", "min", "max", "avg")
Asked = tuple[str, str | None] | tuple[PAO, str | Sequence[str]]
"""An aggregate and its column, or one of one's own and its columns."""


class Finals:
    """A list of aggregates over some keys. States that two of them need are kept once."""

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Asked]) -> None:
        self._keys = tuple(keys)
        self._aggregates = tuple(_own_or_plain(one) for one in aggregates)
        self._owns = {one.state.name: one for one in self._aggregates if isinstance(one, Own)}
        self._argument: dict[str, str | None] = {}
        states: dict[str, State] = {}
        for one in self._aggregates:
            if isinstance(one, Own):
                states[one.state.name] = one.state
                continue
            name, column = one
            known = name == "count" if column is None else name in _COLUMN_AGGREGATES
            if not known:
                raise ValueError(f"no aggregate {name!r} of {column!r}")
            for rule in AGGREGATES["count_star" if column is None else name].states:
                state = State(_name(rule.suffix, column), rule.merge, rule.identity_zero)
                states[state.name] = state
                self._argument[state.name] = column
        self.states = tuple(states.values())
        self._results = [one.name if isinstance(one, Own) else _name(*one) for one in self._aggregates]
        names = [*keys, *self._results]
        if len(set(names)) != len(names):
            raise ValueError(f"results need different names: {', '.join(names)}")

    def partials_of(self, batch: pa.RecordBatch | pa.Table) -> pa.Table:
        """The state columns of each raw row; raises ``ValueError`` on a missing column or one that cannot
        be summed."""
        rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        needed = [*self._keys, *(column for column in self._argument.values() if column is not None)]
        needed += [column for one in self._owns.values() for column in one.columns]
        missing = [name for name in needed if name not in rows.column_names]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}")
        columns = [rows[name] for name in self._keys]
        columns += [self._state_of(state, rows) for state in self.states]
        return pa.table(columns, names=[*self._keys, *(state.name for state in self.states)])

    def _state_of(self, state: State, rows: pa.Table) -> pa.ChunkedArray:
        if state.name in self._owns:
            return self._owns[state.name].of_rows(rows)
        column = self._argument[state.name]
        if column is None:
            return pa.chunked_array([np.ones(rows.num_rows, dtype=np.int64)])
        values = rows[column]
        if state.identity_zero:
            return values.is_valid().cast(pa.int64())
        if state.merge != "sum":
            return values
        if pa.types.is_floating(values.type):
            return values.cast(pa.float64())
        if (
            pa.types.is_integer(values.type)
            or pa.types.is_decimal(values.type)
            or pa.types.is_null(values.type)
        ):
            return values
        raise ValueError(f"column {column} is {values.type}, which has no sum")

    def of_states(self, rows: pa.Table) -> pa.Table:
        """Keys, then the value of each aggregate, of merged states."""
        columns = [rows[name] for name in self._keys]
        for one in self._aggregates:
            if isinstance(one, Own):
                columns.append(one.values(rows[one.state.name]))
            else:
                columns.append(self._value(*one, rows))
        return pa.table(columns, names=[*self._keys, *self._results])

    @staticmethod
    def _value(name: str, column: str | None, rows: pa.Table) -> pa.ChunkedArray:
        if name != "avg":
            return rows[_name(name, column)]
        total, count = rows[_name("sum", column)], rows[_name("count", column)]
        return pc.divide(_doubles(total), count.cast(pa.float64()))


def _own_or_plain(asked: Asked) -> Own | tuple[str, str | None]:
    match asked:
        case (PAO() as pao, columns):
            return Own(pao, columns)
        case (str() as name, None | str() as column):
            return name, column
    raise ValueError(f"no aggregate {asked!r}")


def _doubles(total: pa.ChunkedArray) -> pa.ChunkedArray:
    """The nearest doubles. Arrow's own cast of a decimal rounds twice; those of integers and texts round
    once.
    """
    if not pa.types.is_decimal(total.type):
        return total.cast(pa.float64())
    try:
        return total.cast(pa.int64()).cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        return total.cast(pa.string()).cast(pa.float64())


def _name(aggregate: str, column: str | None) -> str:
    return aggregate if column is None else f"{aggregate}_{column}"
