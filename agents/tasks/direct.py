"""Direct maps (``elf.ql.direct``): rows to partial aggregates by Arrow, without a statement."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from agents.tasks.conditions import holds
from elf.aggregates import State, canonical_key, may_overflow, normalise, ordered, restore
from elf.grouping import grouped
from elf.job.ports import MapperPort
from elf.job.worker.fitting import arrow_schema, as_schema
from elf.ql.plan import Direct, Fragment

if TYPE_CHECKING:
    from agents.tasks.engine import Mapper

TYPES_KEPT: Final = 256
"""Fragments of which it is kept how their columns are: to find that out takes some ms each."""


def mapper_of(fragment: Fragment) -> DirectMapper | Mapper:
    """The fastest mapper of a fragment without a user's function."""
    return _by_sql(fragment) if fragment.direct is None else DirectMapper(fragment, fragment.direct)


def _by_sql(fragment: Fragment) -> Mapper:
    from agents.tasks.engine import Mapper  # DuckDB, as in agents.tasks.streams

    return Mapper.of(fragment)


@lru_cache(maxsize=TYPES_KEPT)
def types_of(fragment: Fragment) -> pa.Schema:
    """The columns that a fragment's map makes, as they are merged; what is no map's (``CREDIT``, the source
    of windows of rows) is not among them."""
    return no_panes(fragment).schema


def no_panes(fragment: Fragment) -> pa.Table:
    """The groups of no pane of a fragment, in their types."""
    mapper = mapper_of(fragment)
    try:
        made = mapper.run(mapper.schema.empty_table())
        for cell, _ in fragment.owns:
            made = made.set_column(made.schema.get_field_index(cell), cell, pa.array([], pa.binary()))
        return normalise(made, fragment.keys, fragment.states)
    finally:
        mapper.close()


class DirectMapper(MapperPort):
    """``elf.job.ports.MapperPort`` of a fragment whose map is ``direct``. Its groups are those of ``Mapper``,
    in another order."""

    def __init__(self, fragment: Fragment, direct: Direct) -> None:
        self._fragment, self._direct = fragment, direct
        self.schema = pa.schema([*arrow_schema(fragment.columns), pa.field("_pane", pa.int64())])
        self._keys = fragment.keys
        self._states = tuple(zip(fragment.task_states, direct.states, strict=True))
        self._sums = [(s, given) for s, given in self._states if given and _how(s) == "sum"]

    @cached_property
    def _sql(self) -> Mapper:
        return _by_sql(self._fragment)

    def run(self, rows: pa.Table) -> pa.Table:
        """Sums of integers that might not fit 64 bits are left to DuckDB, which has 128."""
        rows = as_schema(self.schema, rows)
        if any(may_overflow(state, rows[column]) for state, column in self._sums):
            return self._sql.run(rows)
        of_groups = self._grouped(rows)
        if self._direct.where:
            of_groups = of_groups.filter(holds(self._direct.where, rows))
        by = ["_pane", *self._keys]
        how = {
            state.name: (state.name, _how(state)) if given else (None, "count_all")
            for state, given in self._states
        }
        found = grouped(of_groups, by, how)
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
        """There is nothing to prepare."""

    def close(self) -> None:
        if "_sql" in self.__dict__:
            self._sql.close()


def _how(state: State) -> str:
    """What Arrow calls it."""
    return "count" if state.identity_zero else state.merge
