"""Planning: from a query and its stream's columns to fragments (DESIGN section 5, steps 3 and 7).

The map fragment depends only on what decides the contents of its partial aggregates: WHERE, the keys, the
aggregates, the pane. Names, HAVING, ORDER BY, LIMIT, the spelling and the order of the SELECT list do not
change it, so jobs share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from elf.errors import QueryError
from elf.ql import render_final, render_map, render_spark
from elf.ql.expressions import Aggregate, Expr, Ref, Slot, rewrite, walk
from elf.ql.plan import Fragment, Plan, Top
from elf.ql.render import render
from elf.ql.rules import Draft, Order, Output, apply_rules
from elf.ql.source import Source
from elf.ql.statements import Query, Select, parse
from elf.ql.states import States, collect
from elf.schema import Column, Schema
from elf.windows import Session, pane_us_of

_ORDERED_STATES: Final = ("count", "sum", "min", "max")
"""Aggregates that are in the order of their one state."""


def streams_of(query: Query) -> tuple[str, ...] | str:
    """The names after FROM, or ``"*"``."""
    tables = [clause.this for clause in _sources(query.tree)]
    if any(isinstance(table.this, exp.Star) for table in tables):
        return "*"
    return tuple(dict.fromkeys(table.name for table in tables if table.name))


def _sources(tree: exp.Expr) -> Iterable[exp.Expr]:
    clause = tree.args.get("from_")
    return ([clause] if clause is not None else []) + list(tree.args.get("joins") or [])


def plan(query: Query, schema: Schema, *, stream: str) -> Plan:
    """The plan of ``query`` over the columns of ``schema``; ``stream`` is the name that the fragment reads.

    Raises ``QueryError``.
    """
    source = Source(query.source)
    if not isinstance(query.tree, exp.Select):
        raise source.at(query.tree, f"{query.tree.key.upper()} is not supported yet")
    try:
        return _plan(query.sql, query.tree, schema, stream, source)
    except RecursionError as error:
        raise QueryError("the query is nested too deeply") from error


def _plan(sql: str, tree: exp.Select, schema: Schema, stream: str, source: Source) -> Plan:
    draft = number_keys(apply_rules(Draft(source, tree, schema)))
    ends = _session_ends(draft)
    states = collect([*_after_grouping(draft), *ends])
    fragment = Fragment(
        stream=stream,
        columns=_columns(draft, ends, schema),
        map_sql=render_map.render_map(draft, states),
        keys=(*(f"k{index}" for index in range(len(draft.keys))), *states.cells),
        states=(*(column.state for column in states.columns), *states.cell_states),
        pane_us=pane_us_of(draft.windows),
        lateness_us=draft.lateness_us,
        where_sql=render_map.render_where(draft.where, "duckdb"),
        cells=tuple(states.cells),
    )
    return Plan(
        sql=sql,
        fragment=fragment,
        windows=draft.windows,
        final_sql=render_final.render_final(draft, states, "duckdb"),
        outputs=tuple(output.name for output in draft.outputs),
        spark_sql=render_spark.render_spark(draft, states),
        top=_top(draft, states),
        session_states=(states.state_of(ends[0]), states.state_of(ends[1])) if ends else None,
    )


def _top(draft: Draft, states: States) -> Top | None:
    """What a LIMIT leaves, where the first item of the ORDER BY is an aggregate in the order of its state,
    and a group is one row.
    """
    if not draft.limit or states.cells or draft.having is not None or not draft.order:
        return None
    first = draft.order[0]
    if not isinstance(first.value, Aggregate) or first.value.name not in _ORDERED_STATES:
        return None
    return Top(states.state_of(first.value), first.descending, first.nulls_first, draft.limit)


def _session_ends(draft: Draft) -> tuple[Aggregate, ...]:
    """The first and the last event time of a group, by which its pieces are stitched to sessions."""
    event_time = draft.schema.event_time
    if event_time is None or not any(isinstance(kind, Session) for kind in draft.windows):
        return ()
    time = Ref(event_time, "timestamp", 0)
    return tuple(Aggregate(name, (time,), "timestamp") for name in ("min", "max"))


def _after_grouping(draft: Draft) -> list[Expr]:
    having = [] if draft.having is None else [draft.having]
    return [*(output.value for output in draft.outputs), *having, *(order.value for order in draft.order)]


def number_keys(draft: Draft) -> Draft:
    """Keys in the order of their text, so that ``GROUP BY a, b`` and ``GROUP BY b, a`` share a fragment.

    The tie-break of the ordering (the keys as the query lists them) becomes part of ``order``.
    """
    ordered = sorted(draft.keys, key=lambda key: render(key, "duckdb"))
    slots = {
        Slot(f"k{i}", key.kind): Slot(f"k{ordered.index(key)}", key.kind) for i, key in enumerate(draft.keys)
    }

    def renumber(expr: Expr) -> Expr:
        return rewrite(expr, lambda part: slots[part] if isinstance(part, Slot) else None)

    orders = [replace(order, value=renumber(order.value)) for order in draft.order]
    said = {order.value for order in orders}
    ties = [Order(slot, descending=False, nulls_first=False) for slot in slots.values() if slot not in said]
    return replace(
        draft,
        keys=tuple(ordered),
        outputs=tuple(Output(output.name, renumber(output.value)) for output in draft.outputs),
        having=None if draft.having is None else renumber(draft.having),
        order=(*orders, *ties),
    )


def _columns(draft: Draft, ends: Sequence[Expr], schema: Schema) -> tuple[Column, ...]:
    """The columns that the map fragment reads, in the schema's order."""
    expressions = [*draft.where, *draft.keys, *_after_grouping(draft), *ends]
    names = {part.name for expr in expressions for part in walk(expr) if isinstance(part, Ref)}
    return tuple(column for column in schema.columns if column.name in names)


def plan_text(sql: str, schema: Schema, *, stream: str = "rows") -> Plan:
    """The plan of a text that holds one SELECT."""
    statements = parse(sql)
    if len(statements) != 1 or not isinstance(statements[0], Select):
        raise QueryError("expected one SELECT")
    return plan(statements[0].query, schema, stream=stream)
