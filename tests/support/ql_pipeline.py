"""The live road in small: map over parts, merge, assemble windows, merge, finish. And comparing results."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from agents.committing.sides import met
from agents.committing.staging import RangeStages, stage_of, staged_panes
from agents.tasks.engine import Finisher, OverGroups, no_groups
from elf.aggregates import identity_row, merge_tables, split_by_range
from elf.job.assembly.windows import Assembly
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.ql.plan import Plan
from elf.windows import Calendar

Row = tuple[Any, ...]
STAGES = RangeStages(OverGroups)
Result = tuple[list[str], list[Row]]
"""Names of the columns, and the rows in order."""


def run_live(con: duckdb.DuckDBPyConnection, plan: Plan, table: pa.Table, *, parts: int, seed: int) -> Result:
    """What a fleet of ``parts`` agents would answer, the rows spread over them at random."""
    fragment = plan.fragment
    timed = table.filter(pc.is_valid(table["ts"])) if plan.windows else table
    micros = timed["ts"].cast(pa.int64()).to_pylist() if fragment.pane_us else [0] * timed.num_rows
    panes = [micro // fragment.pane_us if fragment.pane_us else 0 for micro in micros]
    needed = timed.select([column.name for column in fragment.columns])
    rows = needed.append_column("_pane", pa.array(panes, pa.int64()))
    rng = random.Random(seed)
    owners = [rng.randrange(parts) for _ in range(rows.num_rows)]
    partials = []
    for part in range(parts):
        mine = rows.take(pa.array([index for index, owner in enumerate(owners) if owner == part], pa.int64()))
        con.register("rows", mine)
        partials.append(con.sql(fragment.map_sql).to_arrow_table())
        con.unregister("rows")
    assert partials[0].column_names == ["_pane", *fragment.keys, *(state.name for state in fragment.states)]
    merged = merge_tables(partials, ["_pane", *fragment.keys], list(fragment.states))
    if plan.join is not None:
        finisher = Finisher(plan)
        merged = met(plan.join, merged, (START_OF_TIME, END_OF_TIME), finisher)
        finisher.close()
    if fragment.stage is not None:
        merged = _committed(plan, merged)
    con.register("groups", _groups(plan, merged))
    try:
        return _rows(con.sql(plan.final_sql).to_arrow_table())
    finally:
        con.unregister("groups")


def _committed(plan: Plan, merged: pa.Table) -> pa.Table:
    """What the roots of all ranges have made of the groups, as the master puts it together."""
    fragment, stage = plan.fragment, stage_of(plan.fragment)
    split = zip(plan.own_fragments, split_by_range(merged, fragment.ranged_by, plan.trees), strict=True)
    made = [staged_panes(one, part, STAGES) for one, part in split if part.num_rows]
    found = [table for table in made if table is not None]
    if not found:
        return (
            no_groups(plan)
            .drop_columns(["window_start", "window_end"])
            .append_column("_pane", pa.array([], pa.int64()))
        )
    names = ["_pane", *stage.keys, *(state.name for state in stage.states)]
    together = pa.concat_tables([table.select(names) for table in found], promote_options="permissive")
    whole = merge_tables(found, ["_pane", *stage.keys], list(stage.states))
    assert not stage.disjoint or whole.num_rows == together.num_rows
    return together if stage.disjoint else whole


def _groups(plan: Plan, merged: pa.Table | None) -> pa.Table:
    fragment, made = plan.fragment, plan.committed
    assert merged is not None
    if not plan.windows:
        whole = merge_tables([merged.drop_columns("_pane")], list(made.keys), list(made.states))
        empty = whole.num_rows == 0 and not made.keys
        return identity_row(whole.schema, list(made.states)) if empty else whole
    assembly = Assembly(plan, Calendar(plan.windows, fragment.pane_us))
    found = [table for table in assembly.windows(START_OF_TIME, END_OF_TIME, merged) if table.num_rows]
    return pa.concat_tables(found) if found else _none(plan, merged)


def _none(plan: Plan, merged: pa.Table) -> pa.Table:
    empty = merged.slice(0, 0).drop_columns("_pane")
    for name in ("window_start", "window_end"):
        empty = empty.append_column(name, pa.array([], pa.timestamp("us")))
    return empty


def run_by_hand(con: duckdb.DuckDBPyConnection, sql: str) -> Result:
    """The hand-written query."""
    return _rows(con.sql(sql).to_arrow_table())


def _rows(table: pa.Table) -> Result:
    return table.column_names, plain(
        list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    )


def plain(rows: list[Row]) -> list[Row]:
    """Rows without the engines' own number and time types."""
    return [tuple(_plain(value) for value in row) for row in rows]


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        assert value == value.to_integral_value()
        return int(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC).replace(tzinfo=None)
    return value


def same(left: object, right: object) -> bool:
    """Equal; for doubles, to one part in 10¹². A boolean is no number, an integer no double."""
    if isinstance(left, float) and isinstance(right, float):
        return (
            left == right
            or (math.isnan(left) and math.isnan(right))
            or math.isclose(left, right, rel_tol=1e-12)
        )
    return type(left) is type(right) and left == right


def difference(got: Result, wanted: Result) -> str | None:
    """What is different, for a person to read; None when nothing is."""
    if got[0] != wanted[0]:
        return f"columns {got[0]} instead of {wanted[0]}"
    if len(got[1]) != len(wanted[1]):
        return f"{len(got[1])} rows instead of {len(wanted[1])}"
    for number, (mine, other) in enumerate(zip(got[1], wanted[1], strict=True)):
        for name, a, b in zip(got[0], mine, other, strict=True):
            if not same(a, b):
                return f"row {number}, column {name}: {a!r} instead of {b!r}; the rows are {mine} and {other}"
    return None
