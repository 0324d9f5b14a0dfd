"""Direct maps (``elf.ql.direct``): rows to partial aggregates by Arrow, without a statement."""

from __future__ import annotations

import pyarrow as pa

from agents.tasks.conditions import holds
from agents.tasks.engine import Mapper, as_schema
from elf.aggregates import State, canonical_key, may_overflow, normalise, ordered, restore
from elf.grouping import grouped
from elf.job.ports import MapperPort
from elf.ql.plan import Direct, Fragment


def mapper_of(fragment: Fragment) -> MapperPort:
    """The fastest mapper of a fragment without a user's function."""
    return Mapper.of(fragment) if fragment.direct is None else DirectMapper(fragment, fragment.direct)


class DirectMapper(MapperPort):
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
        self._sql.close()


def _how(state: State) -> str:
    """What Arrow calls it."""
    return "count" if state.identity_zero else state.merge
