"""From a bound query to the fragments over its streams.

The map fragment depends only on what decides the contents of its partial aggregates: WHERE, the keys, the
aggregates, the pane. Names, HAVING, ORDER BY, LIMIT, and the spelling and order of the SELECT list do not
change it, so jobs share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from elf.aggregates import State
from elf.fields import replace
from elf.ql.direct import conditions_of, direct_of
from elf.ql.draft import Draft
from elf.ql.expressions import Aggregate, Constant, Expr, Over, Ref, rewrite, walk
from elf.ql.kinds import become
from elf.ql.plan import COUNTED, CREDIT, Count, Fragment, StreamJoin, Top
from elf.ql.render_map import render_map, render_where
from elf.ql.render_spark import render_partials
from elf.ql.states import States
from elf.ql.streamjoins import join_plan
from elf.ql.tables import Joined, changed, needed
from elf.schema import Column, Schema
from elf.windows import Session, pane_us_of

KEPT: Final = 10
"""APPROXIMATE: every sender keeps so many times the rows that the query asks for."""
_ORDERED_STATES: Final = ("count_star", "count", "sum", "min", "max")
"""Aggregates that are in the order of their one state."""


def fragments_of(
    draft: Draft, states: States, partner: Joined | None
) -> tuple[tuple[Fragment, ...], StreamJoin | None]:
    """One for each stream; and how their panes meet, where one is joined to another."""
    if partner is not None:
        return join_plan(draft, partner, states, draft.schemas)
    made = (
        _fragment(stream, one, *_of_stream(_branches(draft, stream), states, draft.schema, one))
        for stream, one in draft.schemas.items()
    )
    return tuple(made), None


def _fragment(stream: str, schema: Schema, draft: Draft, states: States) -> Fragment:
    credit = (State(CREDIT, "sum"),) if draft.approximate else ()
    counted, before = counter(draft), f"{stream}:" if len(draft.schemas) > 1 else ""
    pane_us = draft.pane_us or pane_us_of(draft.windows)
    return Fragment(
        stream=stream,
        columns=_columns(draft, states, schema),
        map_sql=render_map(draft, states),
        direct=direct_of(draft, states),
        where=() if draft.branches else conditions_of(_of_stream_alone(draft.where)),
        keys=(
            *(COUNTED if draft.counts else ()),
            *(f"k{index}" for index in range(len(draft.keys))),
            *states.cells,
        ),
        states=(*states.kept, *credit),
        pane_us=pane_us,
        spark_sql="" if draft.counts else render_partials(draft, states, pane_us),
        lateness_us=draft.lateness_us,
        revise_us=draft.revise_us,
        changes_us=draft.changes_us,
        wait_us=draft.wait_us,
        leap=draft.leap,
        mirror=draft.mirror,
        where_sql="" if draft.branches else render_where(_of_stream_alone(draft.where), "duckdb"),
        cells=tuple(states.cells),
        owns=states.owns,
        keep=_keep(draft, states) if draft.approximate else None,
        tables=tuple(
            joined.table for joined in [*(j for b in draft.branches for j in b.joins), *draft.joins]
        ),
        count=Count(draft.counts, states.state_of(counted[0]), before) if counted else None,
    )


def narrowed(draft: Draft, states: States) -> Draft:
    """With only those columns of tables and branches that its map reads."""
    read = list(_references(draft, states))
    names = {ref.name for ref in read if not ref.table}
    return replace(
        draft,
        joins=needed(draft.joins, read),
        branches=tuple(branch.narrowed(names) for branch in draft.branches),
    )


def _references(draft: Draft, states: States) -> Iterator[Ref]:
    """Every column that the map fragment reads."""
    aggregated = [arg for column in states.columns for arg in column.aggregate.args]
    cells = [cell.given for cell in states.cells.values()]
    on = [part for joined in draft.joins for part in joined.on]
    for expr in (*draft.where, *draft.keys, *aggregated, *cells, *on):
        yield from (part for part in walk(expr) if isinstance(part, Ref))


def _columns(draft: Draft, states: States, schema: Schema) -> tuple[Column, ...]:
    """The stream's columns that the map fragment reads, in the schema's order."""
    read = [ref for branch in draft.branches for ref in branch.references()]
    names = {ref.name for ref in (read if draft.branches else _references(draft, states)) if not ref.table}
    return schema.chosen(names)


def _of_stream(draft: Draft, states: States, whole: Schema, own: Schema) -> tuple[Draft, States]:
    """What is computed from raw rows, over the columns that one of the streams has."""
    if whole == own or draft.branches:
        return draft, states

    def change(part: Expr) -> Expr | None:
        if not isinstance(part, Ref) or part.table:
            return None
        column = next((column for column in own.columns if column.name == part.name), None)
        if column is None:
            return Constant(None, part.kind)
        return become(Ref(column.name, column.type, part.at), part.kind)

    keys = tuple(rewrite(key, change) for key in draft.keys)
    where = tuple(rewrite(condition, change) for condition in draft.where)
    return replace(draft, keys=keys, where=where, joins=changed(draft.joins, change)), states.over(change)


def _branches(draft: Draft, stream: str) -> Draft:
    """The branches of a UNION ALL that read this stream."""
    return replace(draft, branches=tuple(one for one in draft.branches if one.stream == stream))


def _of_stream_alone(conditions: Iterable[Expr]) -> tuple[Expr, ...]:
    """The conditions in which no joined table takes part: they are checked before the join."""
    return tuple(
        one for one in conditions if not any(isinstance(part, Ref) and part.table for part in walk(one))
    )


def counter(draft: Draft) -> tuple[Aggregate, ...]:
    """The state that tells how many rows of a window of rows a group has. Raises ``QueryError`` where the
    order of rows is undefined."""
    if draft.counts and draft.branches:
        raise draft.source.at(
            draft.tree, "a window of rows is of one source, and UNION ALL would mix them: make a job for each"
        )
    return (Aggregate("count_star", (), "bigint"),) if draft.counts else ()


def _keep(draft: Draft, states: States) -> Top | None:
    top = top_of(draft, states)
    return None if top is None else replace(top, rows=KEPT * top.rows)


def top_of(draft: Draft, states: States) -> Top | None:
    """What a LIMIT leaves, if the first item of the ORDER BY is an aggregate in the order of its state, and a
    group is one row. (Windows of rows that are full in one pane are several.)"""
    later = (draft.having, draft.qualify) != (None, None) or draft.distinct or draft.sets
    if not draft.limit or states.cells or later or not draft.order or draft.counts:
        return None
    ranked = any(isinstance(part, Over) for expr in after_grouping(draft) for part in walk(expr))
    if ranked:
        return None
    first = draft.order[0]
    if not isinstance(first.value, Aggregate) or first.value.name not in _ORDERED_STATES:
        return None
    return Top(states.state_of(first.value), first.descending, first.nulls_first, draft.offset + draft.limit)


def session_ends(draft: Draft) -> tuple[Aggregate, ...]:
    """The first and the last event time of a group, by which its pieces are stitched to sessions."""
    event_time = draft.schema.event_time
    if event_time is None or not any(isinstance(kind, Session) for kind in draft.windows):
        return ()
    time = Ref(event_time, "timestamp", 0)
    return tuple(Aggregate(name, (time,), "timestamp") for name in ("min", "max"))


def after_grouping(draft: Draft) -> list[Expr]:
    conditions = [condition for condition in (draft.having, draft.qualify) if condition is not None]
    return [*(output.value for output in draft.outputs), *conditions, *(order.value for order in draft.order)]
