"""Direct maps (``elf.ql.direct``): rows to partial aggregates by Arrow, without a statement."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.tasks.engine import Mapper, as_schema
from elf.aggregates import State, canonical_key, may_overflow, normalise, ordered, restore
from elf.job.ports import MapperPort
from elf.job.worker.fitting import ARROW_TYPES
from elf.ql.plan import Condition, Direct, Fragment

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


def mapper_of(fragment: Fragment) -> MapperPort:
    """The fastest mapper of a fragment without a user's function."""
    return Mapper.of(fragment) if fragment.direct is None else DirectMapper(fragment, fragment.direct)


class DirectMapper:
    """``elf.job.ports.MapperPort`` of a fragment whose map is ``direct``. Its groups are those of ``Mapper``,
    in another order."""

    def __init__(self, fragment: Fragment, direct: Direct) -> None:
        self._direct = direct
        self._keys = fragment.keys
        self._states = tuple(zip(fragment.task_states, direct.states, strict=True))
        self._sums = [(s, given) for s, given in self._states if given and _how(s) == "sum"]
        self._sql = Mapper.of(fragment)

    def run(self, rows: pa.Table) -> pa.Table:
        """Sums of integers that might not fit 64 bits are left to DuckDB, which has 128."""
        rows = as_schema(self._sql.schema, rows)
        if any(may_overflow(state, rows[column]) for state, column in self._sums):
            return self._sql.run(rows)
        grouped = self._grouped(rows)
        if self._direct.where:
            grouped = grouped.filter(reduce(pc.and_kleene, (_value(one, rows) for one in self._direct.where)))
        by = ["_pane", *self._keys]
        how = [([], "count_all") if not given else (state.name, _how(state)) for state, given in self._states]
        found = grouped.group_by(by, use_threads=False).aggregate(how)
        made = [
            restore(column, state, rows.schema.field(given).type) if state.merge != "sum" else column
            for (state, given), column in zip(self._states, found.columns[len(by) :], strict=True)
        ]
        names = [*by, *(state.name for state, _ in self._states)]
        table = pa.table([*found.columns[: len(by)], *made], names=names)
        return normalise(table, self._keys, [state for state, _ in self._states])

    def _grouped(self, rows: pa.Table) -> pa.Table:
        """What is grouped, under the names of keys and states."""
        found = {"_pane": rows["_pane"]}
        for key, column in zip(self._keys, self._direct.keys, strict=True):
            found[key] = canonical_key(rows[column])
        for state, given in self._states:
            if given:
                found[state.name] = ordered(canonical_key(rows[given]), state.merge)
        return pa.table(found)

    def prepare(self) -> None:
        """There is no statement to be planned."""

    def close(self) -> None:
        self._sql.close()


def _how(state: State) -> str:
    """What Arrow calls it."""
    return "count" if state.identity_zero else state.merge


def _value(part: Condition, rows: pa.Table) -> pa.ChunkedArray | pa.Scalar:
    """A part of a condition, of each row; NULL where it is not known."""
    if part.op == "column":
        return rows[part.name]
    if part.op == "constant":
        return pa.scalar(part.value, ARROW_TYPES[part.kind])
    values = [_value(one, rows) for one in part.parts]
    if part.op == "in":
        column, *items = values
        among = pa.array([item.as_py() for item in items], column.type)
        return pc.if_else(pc.is_valid(column), pc.is_in(column, among), pa.scalar(None, pa.bool_()))
    if part.op in _CONNECTED:
        return reduce(_CONNECTED[part.op], values)
    return _OPERATIONS[part.op](*values)
