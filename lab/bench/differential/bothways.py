"""Each direct map and final fragment (``elf.ql.direct``) done by DuckDB too, over the same rows or groups:
what differs is an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from agents.tasks.direct import DirectMapper
from agents.tasks.engine import Finisher, Mapper
from agents.tasks.finishing import DirectFinisher
from elf.aggregates import merge_tables
from elf.errors import ElfBug
from elf.job.ports import FinisherPort, MapperPort
from elf.ql.plan import Fragment, Plan
from lab.bench.differential.differences import FLOAT_TOLERANCE


def both_ways(fragment: Fragment) -> MapperPort:
    """In the place of ``agents.tasks.direct.mapper_of``."""
    sql, direct = Mapper.of(fragment), fragment.direct
    return sql if direct is None else BothWays(fragment, DirectMapper(fragment, direct), sql)


def finished_both_ways(plan: Plan) -> FinisherPort:
    """In the place of ``agents.tasks.finishing.finisher_of``."""
    sql, direct = Finisher(plan), plan.direct
    return sql if direct is None else FinishedBothWays(plan, DirectFinisher(plan, direct), sql)


class FinishedBothWays(FinisherPort):
    """Rows must be the same to the bit, in the same order."""

    def __init__(self, plan: Plan, direct: FinisherPort, sql: FinisherPort) -> None:
        self._plan = plan
        self._direct, self._sql = direct, sql

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        """Raises ``ElfBug`` where they differ."""
        found, expected = self._direct.run(groups), self._sql.run(groups)
        same = found.schema == expected.schema and all(map(_same_bits, found.columns, expected.columns))
        if not same:
            raise ElfBug(f"{self._plan.final_sql}\nArrow: {found}\nDuckDB: {expected}\nof {groups}")
        return found

    def join(self, groups: pa.Table) -> pa.Table:
        return self._sql.join(groups)

    def stage(self, place: int, groups: pa.Table) -> pa.Table:
        return self._sql.stage(place, groups)

    def side(self, number: int) -> FinisherPort:
        return self._sql.side(number)

    def close(self) -> None:
        self._direct.close()
        self._sql.close()


class BothWays(MapperPort):
    """Sums of doubles may differ by their order, relative to the sum of what is
    added: rows are small integers and eighths where these are compared."""

    def __init__(self, fragment: Fragment, direct: MapperPort, sql: MapperPort) -> None:
        self._fragment = fragment
        self._direct, self._sql = direct, sql

    def prepare(self) -> None:
        self._direct.prepare()
        self._sql.prepare()

    def run(self, rows: pa.Table) -> pa.Table:
        """Raises ``ElfBug`` where they differ."""
        found, expected = self._direct.run(rows), self._sql.run(rows)
        one, other = self._sorted(found), self._sorted(expected)
        if one.schema != other.schema or not _same(_cells(one), _cells(other)):
            raise ElfBug(f"{self._fragment.map_sql}\nArrow: {one}\nDuckDB: {other}\nof {rows}")
        return found

    def close(self) -> None:
        self._direct.close()
        self._sql.close()

    def _sorted(self, groups: pa.Table) -> pa.Table:
        keys, states = ["_pane", *self._fragment.keys], self._fragment.task_states
        merged = merge_tables([groups.slice(0, 0), groups], keys, states)
        if merged.num_rows != groups.num_rows:
            raise ElfBug(f"a group twice: {groups}")
        return merged.sort_by([(key, "ascending") for key in keys])


def _cells(table: pa.Table) -> Iterable[Sequence[object]]:
    return (column.to_pylist() for column in table.columns)


def _same(one: Iterable[Sequence[object]], other: Iterable[Sequence[object]]) -> bool:
    return all(
        len(mine) == len(theirs) and all(map(_alike, mine, theirs))
        for mine, theirs in zip(one, other, strict=True)
    )


def _same_bits(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    return list(map(repr, one.to_pylist())) == list(map(repr, other.to_pylist()))


def _alike(one: object, other: object) -> bool:
    if not isinstance(one, float) or not isinstance(other, float):
        return one == other
    return one == other or abs(one - other) <= FLOAT_TOLERANCE * abs(one) or (one != one and other != other)
