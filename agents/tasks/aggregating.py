"""Aggregates of people's own on an agent (``elf.paos``, ``elf.ql.own``): cells are made of rows, merged, and
made values, in sandboxes.

    OwnMapper      rows to cells, on the stream task: what fails costs the rows of its batch, as of a function
    merging        cells to fewer cells: in open panes, at a combiner, at a root. It never fails
    OwnFinisher    cells to values, at the master: what fails is NULL, and its windows say so

Merging is only ever thrift: a group with two cells means what it means with the one that they merge to. So an
agent that runs no code, or a merge that fails, costs bytes and no results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agents.tasks.finishing import finisher_of
from agents.tasks.streams import FunctionsAt, Running
from elf.aggregates import normalise
from elf.batch import ARROW_TYPES
from elf.fields import replace
from elf.functions.aggregate import Aggregate, AggregateFailed
from elf.job.assembly.rows import KeyIndex
from elf.job.ports import FinisherPort, MapFailed, MapperPort
from elf.paos.laws import OWN_ROWS_MAX
from elf.ql.cells import COUNT
from elf.ql.own import OwnAggregate, owns_of, valued_cells
from elf.ql.plan import Fragment, Plan

LAWS_TIMES: Final = 10
Int64s = npt.NDArray[np.int64]
Merge = Callable[[pa.Table], pa.Table]
"""The same groups in fewer rows."""


class OwnMapper(MapperPort):
    """``mapper`` makes a row of arguments for each row; here they become a state for each group."""

    def __init__(self, fragment: Fragment, mapper: MapperPort, at: FunctionsAt) -> None:
        self._fragment = fragment
        self._mapper = mapper
        self._at = at
        self._functions = {own: at.of(own.function) for own in owns_of([fragment])}
        self._owns = {cell: Aggregate(own, self._functions[own]) for cell, own in fragment.owns}
        self._given_up = ""
        self._slow = set[OwnAggregate]()

    def prepare(self) -> None:
        """Raises ``MapFailed``."""
        for function in self._functions.values():
            if why := function.refused():
                raise MapFailed(why, 0, None)
        self._mapper.prepare()

    def run(self, rows: pa.Table) -> pa.Table:
        """Raises ``MapFailed``."""
        if self._given_up:
            raise MapFailed(self._given_up, rows.num_rows, None)
        groups = self._mapper.run(rows)
        try:
            for cell, own in self._owns.items():
                groups = _created(groups, cell, own, _plain_keys(self._fragment, groups))
        except AggregateFailed as error:
            if error.failed.is_slow:
                self._give_up(str(error))
            raise MapFailed(str(error), rows.num_rows, None) from None
        return groups

    def try_out(self, rows: pa.Table) -> None:
        """The laws, on rows of this agent. Raises ``MapFailed``."""
        arguments = self._mapper.run(rows)
        for cell, own in self._owns.items():
            some = arguments.filter(arguments[cell].is_valid()).slice(0, OWN_ROWS_MAX)
            broken = broken_law(own.own, _arguments(some, cell, own), self._at) if some.num_rows else ""
            if broken:
                raise MapFailed(f"{own.own.filename}: {broken}", rows.num_rows, None)
        self.run(rows)

    def merged(self, groups: pa.Table) -> pa.Table:
        return _merged(self._fragment, groups, self._owns, self._at.log, self._slow)

    def _give_up(self, why: str) -> None:
        self._given_up = why
        self._end()

    def _end(self) -> None:
        for function in self._functions.values():
            function.close()

    def close(self) -> None:
        self._mapper.close()
        self._end()


def broken_law(own: OwnAggregate, columns: Sequence[pa.Array], at: FunctionsAt) -> str:
    """The law that is broken of these rows, or of drawn ones where there are none, in one line; empty: none.
    That takes many calls of the class, so it may take longer than one."""
    limits = replace(at.limits, call_secs=LAWS_TIMES * at.limits.call_secs)
    try:
        with replace(at, limits=limits).running(own.function) as call:
            return Aggregate(own, call).broken_law(columns)
    except AggregateFailed as error:
        return str(error).removeprefix(f"{own.filename}: ")


@contextlib.contextmanager
def merging(
    fragment: Fragment, at: Running, log: Callable[[str], None], slow: set[OwnAggregate]
) -> Iterator[Merge | None]:
    """What merges the groups of a fragment, in processes that end with the block; None: there is nothing to
    merge. ``log`` is told why something could not be; ``slow``: those that are not tried again, since that
    takes too long here, or is not allowed."""
    if not fragment.owns:
        yield None
        return
    with contextlib.ExitStack() as running:
        calls = {own: running.enter_context(at.running(own.function)) for own in owns_of([fragment])}
        owns = {cell: Aggregate(own, calls[own]) for cell, own in fragment.owns}
        yield lambda groups: _merged(fragment, groups, owns, log, slow)


class OwnFinisher(FinisherPort):
    """The final fragment of a plan, over groups whose states have become values; each time in processes of
    their own. ``whole``: the finisher of which it is a side."""

    def __init__(self, plan: Plan, at: Running, whole: OwnFinisher | None = None) -> None:
        self._plan = plan
        self._at = at
        self._whole = whole or self
        self._finisher = finisher_of(plan, self._whole)
        self._beside = [OwnFinisher(replace(side, beside=()), at, self._whole) for side in plan.beside]

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        """(What stages have made has values.)"""
        sides = zip(self._plan.sides, (groups, *beside), strict=True)
        tables = (table if side.stages else self._valued(side, table) for side, table in sides)
        return self._finisher.run(*tables)

    def join(self, groups: pa.Table) -> pa.Table:
        return self._finisher.join(groups)

    def stage(self, place: int, groups: pa.Table) -> pa.Table:
        """The first is over groups that agents have made; its windows are no results."""
        groups = groups if place else self._valued(self._plan.before(0), groups)
        return self._finisher.stage(place, groups)

    def side(self, number: int) -> FinisherPort:
        return self._beside[number - 1] if number else self

    def _valued(self, side: Plan, groups: pa.Table) -> pa.Table:
        groups, failure = valued(side, groups, self._at)
        if failure:
            self._whole.fail(failure, None)
        return groups

    def close(self) -> None:
        for one in (self._finisher, *self._beside):
            one.close()


def valued(side: Plan, groups: pa.Table, at: Running) -> tuple[pa.Table, str]:
    """The groups with values where they had states; and why some are NULL, empty: none are."""
    failure, states = "", {state.name for state in side.made.states}
    keys = [name for name in groups.column_names if name not in states and name not in side.made.cells]
    for cell, own in valued_cells(side, side.made).items() if groups.num_columns else ():
        try:
            groups = _with_values(groups, cell, own, keys, at)
        except AggregateFailed as error:
            failure = failure or str(error)
            groups = _without(groups, cell, own)
    return groups, failure


def _with_values(
    groups: pa.Table, cell: str, own: OwnAggregate, keys: Sequence[str], at: Running
) -> pa.Table:
    states = groups.filter(groups[cell].is_valid()).combine_chunks()
    if not states.num_rows:
        return _without(groups, cell, own)
    ids, firsts = _numbered(states, keys)
    with at.running(own.function) as call:
        values = Aggregate(own, call).value(ids, _column(states, cell), _column(states, COUNT.name))
    made = _with(states.take(pa.array(firsts)), cell, values)
    return pa.concat_tables([_without(groups, cell, own), made.filter(values.is_valid())])


def _without(groups: pa.Table, cell: str, own: OwnAggregate) -> pa.Table:
    """Without the rows of a cell, whose column is of its values."""
    rest = groups.filter(pc.invert(groups[cell].is_valid()))
    return _with(rest, cell, pa.nulls(rest.num_rows, ARROW_TYPES[own.signature.returns]))


def _plain_keys(fragment: Fragment, groups: pa.Table) -> list[str]:
    """What distinguishes groups. (Windows of rows have no source yet when they come from the map.)"""
    keys = ("_pane", *fragment.keys)
    return [key for key in keys if key not in fragment.cells and key in groups.column_names]


def _created(groups: pa.Table, cell: str, own: Aggregate, keys: Sequence[str]) -> pa.Table:
    """With a state for each group in a cell of arguments."""
    there = groups[cell].is_valid()
    given = groups.filter(there).combine_chunks()
    others = groups.filter(pc.invert(there))
    others = _with(others, cell, pa.nulls(others.num_rows, pa.binary()))
    if not given.num_rows:
        return others
    ids, firsts = _numbered(given, keys)
    states = own.create(ids, _arguments(given, cell, own))
    return pa.concat_tables([others, _with(given.take(pa.array(firsts)), cell, states)])


def _merged(
    fragment: Fragment,
    groups: pa.Table,
    owns: Mapping[str, Aggregate],
    log: Callable[[str], None],
    slow: set[OwnAggregate],
) -> pa.Table:
    for cell, own in owns.items():
        if own.own in slow:
            continue
        try:
            groups = _merged_cell(groups, cell, own, _plain_keys(fragment, groups))
        except AggregateFailed as error:
            log(f"states stay unmerged: {error}")
            if error.failed.is_slow:
                slow.add(own.own)
    return groups


def _merged_cell(groups: pa.Table, cell: str, own: Aggregate, keys: Sequence[str]) -> pa.Table:
    there = groups[cell].is_valid()
    states = groups.filter(there).combine_chunks()
    if not states.num_rows:
        return groups
    ids, firsts = _numbered(states, keys)
    times = states[COUNT.name].to_numpy()
    rows = np.bincount(ids)
    several = (rows > 1) | (np.bincount(ids, weights=times - 1) > 0)
    if not several.any():
        return groups
    chosen = pa.array(several[ids])
    some = states.filter(chosen).combine_chunks()
    numbers = (np.cumsum(several) - 1)[ids[several[ids]]]
    merged = own.merge(numbers, _column(some, cell), _column(some, COUNT.name))
    made = _with(states.take(pa.array(firsts[several])), cell, merged)
    made = _with(made, COUNT.name, pa.array(np.ones(len(merged), np.int64)))
    return pa.concat_tables([groups.filter(pc.invert(there)), states.filter(pc.invert(chosen)), made])


def _numbered(rows: pa.Table, keys: Sequence[str]) -> tuple[Int64s, Int64s]:
    """(The number of each row's group, the first row of each group.)"""
    index = KeyIndex(keys)
    ids = index.ids(normalise(rows.select(list(keys)), keys, ()))
    firsts = np.full(index.size, len(ids), np.int64)
    np.minimum.at(firsts, ids, np.arange(len(ids)))
    return ids, firsts


def _arguments(rows: pa.Table, cell: str, own: Aggregate) -> list[pa.Array]:
    fields = _column(rows, cell).flatten()
    kinds = own.own.signature.arguments
    return [field.cast(ARROW_TYPES[kind]) for field, kind in zip(fields, kinds, strict=True)]


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()


def _with(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, column)
