"""Planning: from a query and its stream's columns to fragments.

The map fragment depends only on what decides the contents of its partial aggregates: WHERE, the keys, the
aggregates, the pane. Names, HAVING, ORDER BY, LIMIT, the spelling and the order of the SELECT list do not
change it, so jobs share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from elf.aggregates import State
from elf.errors import QueryError
from elf.ql.dialect import Approximate, Stragglers, Trees
from elf.ql.draft import Draft, Order, Output
from elf.ql.expressions import Aggregate, Constant, Expr, Over, Ref, Slot, rewrite, walk
from elf.ql.files import check_size
from elf.ql.job_queries import check_panes
from elf.ql.kinds import become
from elf.ql.levels import Level, for_master, for_spark, render_side, storeys
from elf.ql.plan import COUNTED, CREDIT, Count, Fragment, Plan, Table, Top, with_first
from elf.ql.render import render
from elf.ql.render_map import render_map, render_where
from elf.ql.rules import apply_rules
from elf.ql.rules_after import BOUND
from elf.ql.rules_joins import check_joins, is_comma, is_file
from elf.ql.rules_streams import left_of, together
from elf.ql.statements import Query, parse_query
from elf.ql.states import States, collect
from elf.ql.streamjoins import join_of, join_plan, offline
from elf.ql.tables import changed, needed
from elf.ql.user_functions import check_sides, with_function
from elf.schema import Column, Schema, alike
from elf.windows import Session, pane_us_of

KEPT: Final = 10
"""APPROXIMATE: every sender keeps so many times the rows that the query asks for."""
_NO_PLAN: Final = Plan("", Fragment("", (), "", (), (), 0, None), (), "", (), "")
_ORDERED_STATES: Final = ("count_star", "count", "sum", "min", "max")
"""Aggregates that are in the order of their one state."""


def streams_of(query: Query, *, jobs: bool = False) -> tuple[str, ...] | str:
    """The names of streams after FROM and JOIN, or ``"*"``. ``jobs``: whether it may read some beside. Raises
    ``QueryError``.
    """
    check_joins(query.source, query.tree)
    job = next((table for table in query.tree.find_all(exp.Table) if table.meta.get("job")), None)
    if job is not None and not jobs:
        raise query.source.at(
            job,
            "there are no jobs here: FROM JOB is for statements to a fleet, and for elf run after CREATE JOB",
        )
    named = {cte.alias.lower() for cte in query.tree.find_all(exp.CTE)}
    tables = [
        table
        for table in query.tree.find_all(exp.Table, bfs=False)
        if table.name.lower() not in named and not is_file(table) and not table.meta.get("job")
    ]
    if any(isinstance(table.this, exp.Star) for table in tables):
        return "*"
    return tuple(dict.fromkeys(table.name for table in tables if table.name))


def late_of(query: Query) -> str | None:
    """The job after ``FROM LATE``, if the query reads late rows."""
    found = (table for table in query.tree.find_all(exp.Table) if table.meta.get("late"))
    return next((table.name for table in found), None)


def over_late(query: Query, plan: Plan, flows: Mapping[str, str]) -> Plan:
    """The plan over the late rows of these flows (uids, by stream) instead of all rows. Raises
    ``QueryError``.
    """
    source, emit = query.source, query.tree.args.get("emit")
    if plan.fragment.revise_us is not None and emit is not None:
        raise source.at(
            emit, "late rows have the time at which they came, so none of them is late: no REVISE"
        )
    for word, kind, there in (
        ("TREES", Trees, plan.trees > 1),
        ("APPROXIMATE", Approximate, plan.fragment.keep is not None),
        ("STRAGGLERS LEAP", Stragglers, plan.fragment.leap),
    ):
        clause = query.tree.find(kind)
        if there and clause is not None:
            raise source.at(clause, f"{word} does not go with FROM LATE: late rows are few; leave it out")
    if plan.fragment.count is not None:
        raise source.at(query.tree, "late rows have no order of their own, so they are in no windows of rows")
    if plan.session_states is not None:
        raise source.at(query.tree.args["windowing"], "late rows come in no sessions; choose other windows")
    first, *more = (replace(fragment, late_of=flows[fragment.stream]) for fragment in plan.fragments)
    return replace(plan, fragment=first, more=tuple(more), spark_sql="")


def plan(query: Query, schema: Schema, *, stream: str, tables: Mapping[str, Table] | None = None) -> Plan:
    """The plan of ``query`` over the columns of ``schema``; ``stream`` is the name that the fragment reads.
    ``tables``: those that it joins (``tables_of``).

    Raises ``QueryError``.
    """
    named = streams_of(query)
    beside = any(map(is_comma, query.tree.args.get("joins") or [])) or left_of(query.tree) is not None
    if named != "*" and len(named) > 1 and beside:
        second = next(table for table in query.tree.find_all(exp.Table, bfs=False) if table.name == named[1])
        raise query.source.at(second, "several streams are for a fleet and elf run, not for this")
    return plan_streams(query, {stream: schema}, tables)


def plan_streams(
    query: Query,
    schemas: Mapping[str, Schema],
    tables: Mapping[str, Table] | None = None,
    pane_us: int | None = None,
) -> Plan:
    """The plan of ``query`` over these streams, each with its columns: a fragment a stream. ``pane_us``: the
    length of its panes, a whole part of what they would be (``is_free``); jobs that it reads have their own.

    A column that a stream lacks is NULL there; integers and doubles make doubles. Raises ``QueryError``.
    """
    source = query.source
    if isinstance(query.tree, exp.Except | exp.Intersect):
        raise source.at(query.tree, f"{query.tree.key.upper()} is not supported; UNION ALL in FROM is")
    if isinstance(query.tree, exp.SetOperation):
        raise source.at(query.tree, "UNION ALL stands in FROM: SELECT … FROM (SELECT … UNION ALL SELECT …)")
    if not isinstance(query.tree, exp.Select):
        raise source.at(query.tree, f"{query.tree.key.upper()} is not supported yet")
    try:
        schema = together(schemas, source, query.tree)
        draft = Draft(source, query.tree, schema, tables=tables or {}, schemas=schemas, pane_us=pane_us)
        beside: list[Plan] = []
        found = _plan(query.sql, apply_rules(draft), beside)
        found = replace(found, beside=tuple(beside))
        check_sides(found)
        check_names(found)
        check_panes(source, query.tree, found)
    except RecursionError as error:
        raise QueryError("the query is nested too deeply") from error
    check_size(query, found)
    return found


def check_names(plan: Plan) -> None:
    """Raises ``QueryError`` for columns of one fragment that DuckDB, or Spark, would take for each other."""
    for fragment in plan.fragments:
        if (pair := alike(column.name for column in fragment.columns)) is not None:
            raise QueryError(
                f'columns "{pair[0]}" and "{pair[1]}" in one query: names must differ by more than case'
            )


def _plan(sql: str, asked: Draft, beside: list[Plan], *, joined: bool = False) -> Plan:
    """``beside``: of the jobs that are joined anywhere in it, in the order of their ``groups_1`` …;
    ``joined``: whether it is one of them.
    """
    whole = number_keys(asked)
    drafts = [whole]
    while drafts[0].below is not None:
        drafts.insert(0, number_keys(drafts[0].below))
    drafts = [drafts[0], *(_with_sides(sql, draft, beside) for draft in drafts[1:])]
    ends = _session_ends(drafts[0])
    states = collect([*_after_grouping(drafts[0]), *ends, *_counter(drafts[0])])
    read = list(_references(drafts[0], states))
    names = {ref.name for ref in read if not ref.table}
    draft = replace(
        drafts[0],
        joins=needed(drafts[0].joins, read),
        branches=tuple(branch.narrowed(names) for branch in drafts[0].branches),
    )
    levels = [Level(draft, states), *(Level(over, collect(_after_grouping(over))) for over in drafts[1:])]
    partner = join_of(draft)
    if partner is None:
        join, before = None, ""
        first, *others = (
            _fragment(stream, one, *_of_stream(_branches(draft, stream), states, draft.schema, one))
            for stream, one in draft.schemas.items()
        )
    else:
        (first, *others), join = join_plan(draft, partner, states, draft.schemas)
    if draft.counts and (partner is not None or joined):
        raise draft.source.at(draft.tree, "a window of rows is of one source: not of joined streams or jobs")
    if draft.approximate and (len(levels) > 1 or joined):
        raise draft.source.at(draft.tree, "APPROXIMATE does not go in a subquery")
    bound = (Output(BOUND, Slot(CREDIT, "double")),) if draft.approximate else ()
    exact = (Output(BOUND, Constant(0.0, "double")),) if draft.approximate else ()
    master, made_of = for_master(levels, bound, first.pane_us), storeys(levels)[-1][0]
    if partner is not None:
        spark, before = offline(draft, partner, len(draft.schemas) > 1)
        levels[0] = Level(spark, states)
    found = Plan(
        sql=sql,
        fragment=first,
        windows=whole.windows,
        final_sql=master.final_sql,
        outputs=tuple(output.name for output in (*whole.outputs, *bound)),
        spark_sql="" if draft.counts else before + for_spark(levels, exact),
        top=_top(made_of.draft, made_of.states),
        session_states=(states.state_of(ends[0]), states.state_of(ends[1])) if ends else None,
        more=tuple(others),
        trees=_trees(drafts),
        limit=made_of.draft.limit,
        apart=bool(draft.branches or join) and len(draft.schemas) > 1,
        join=join,
        stages=master.stages,
        named=_named(draft, states),
    )
    if draft.leap and draft.changes_us is None:
        found = with_first(found)
    for function in draft.functions:
        found = with_function(found, function)
    return found


def _named(draft: Draft, states: States) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for output in draft.outputs:
        column = states.column_of(output.value)
        if column is not None:
            found.setdefault(column, output.name)
    return tuple(found.items())


def _with_sides(sql: str, draft: Draft, beside: list[Plan]) -> Draft:
    """With the rows of the jobs that are joined to it, as SQL."""
    joins = list(draft.joins)
    for place, right in enumerate(draft.beside):
        number = len(beside) + 1
        beside.append(_NO_PLAN)
        plan = _plan(sql, right, beside, joined=True)
        joins[place] = replace(joins[place], rows=render_side(plan, number))
        beside[number - 1] = replace(plan, final_sql="", spark_sql="")
    return replace(draft, joins=tuple(joins))


def _trees(drafts: Sequence[Draft]) -> int:
    """TREES may stand at any level; what it spreads are the innermost groups."""
    for draft in drafts:
        if draft.trees > 1 and not drafts[0].keys and join_of(drafts[0]) is None:
            raise draft.source.at(draft.tree.args["trees"], "TREES spreads groups: it needs GROUP BY")
        if draft.trees > 1 and (drafts[0].revise_us, drafts[0].changes_us) != (None, None):
            raise draft.source.at(
                draft.tree.args["trees"], "TREES does not go with EMIT FINAL REVISE or EMIT CHANGES yet"
            )
        if draft.trees > 1 and drafts[0].leap:
            raise draft.source.at(
                draft.tree.args["trees"],
                "TREES does not go with STRAGGLERS LEAP: an agent could be leapt over in one tree and not in "
                "another",
            )
    return max(draft.trees for draft in drafts)


def _fragment(stream: str, schema: Schema, draft: Draft, states: States) -> Fragment:
    credit = (State(CREDIT, "sum"),) if draft.approximate else ()
    counter, before = _counter(draft), f"{stream}:" if len(draft.schemas) > 1 else ""
    return Fragment(
        stream=stream,
        columns=_columns(draft, states, schema),
        map_sql=render_map(draft, states),
        keys=(
            *(COUNTED if draft.counts else ()),
            *(f"k{index}" for index in range(len(draft.keys))),
            *states.cells,
        ),
        states=(*(column.state for column in states.columns), *states.cell_states, *credit),
        pane_us=draft.pane_us or pane_us_of(draft.windows),
        lateness_us=draft.lateness_us,
        revise_us=draft.revise_us,
        changes_us=draft.changes_us,
        wait_us=draft.wait_us,
        leap=draft.leap,
        mirror=draft.mirror,
        where_sql="" if draft.branches else render_where(_of_stream_alone(draft.where), "duckdb"),
        cells=tuple(states.cells),
        keep=_keep(draft, states) if draft.approximate else None,
        tables=tuple(
            joined.table for joined in [*(j for b in draft.branches for j in b.joins), *draft.joins]
        ),
        count=Count(draft.counts, states.state_of(counter[0]), before) if counter else None,
    )


def _counter(draft: Draft) -> tuple[Aggregate, ...]:
    """What tells how many rows of a window of rows a group has. Raises ``QueryError`` where nobody could say
    which row comes first.
    """
    if draft.counts and draft.branches:
        raise draft.source.at(
            draft.tree, "a window of rows is of one source, and UNION ALL would mix them: make a job for each"
        )
    return (Aggregate("count_star", (), "bigint"),) if draft.counts else ()


def _of_stream_alone(conditions: Iterable[Expr]) -> tuple[Expr, ...]:
    """Those that no joined table has a part in: they are looked at before the join."""
    return tuple(
        one for one in conditions if not any(isinstance(part, Ref) and part.table for part in walk(one))
    )


def _branches(draft: Draft, stream: str) -> Draft:
    """Of a UNION ALL, those that read this stream."""
    return replace(draft, branches=tuple(one for one in draft.branches if one.stream == stream))


def _keep(draft: Draft, states: States) -> Top | None:
    top = _top(draft, states)
    return None if top is None else replace(top, rows=KEPT * top.rows)


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


def _top(draft: Draft, states: States) -> Top | None:
    """What a LIMIT leaves, where the first item of the ORDER BY is an aggregate in the order of its state,
    and a group is one row. (Windows of rows that are full in one pane are several.)
    """
    later = (draft.having, draft.qualify) != (None, None) or draft.distinct or draft.sets
    if not draft.limit or states.cells or later or not draft.order or draft.counts:
        return None
    ranked = any(isinstance(part, Over) for expr in _after_grouping(draft) for part in walk(expr))
    if ranked:
        return None
    first = draft.order[0]
    if not isinstance(first.value, Aggregate) or first.value.name not in _ORDERED_STATES:
        return None
    return Top(states.state_of(first.value), first.descending, first.nulls_first, draft.offset + draft.limit)


def _session_ends(draft: Draft) -> tuple[Aggregate, ...]:
    """The first and the last event time of a group, by which its pieces are stitched to sessions."""
    event_time = draft.schema.event_time
    if event_time is None or not any(isinstance(kind, Session) for kind in draft.windows):
        return ()
    time = Ref(event_time, "timestamp", 0)
    return tuple(Aggregate(name, (time,), "timestamp") for name in ("min", "max"))


def _after_grouping(draft: Draft) -> list[Expr]:
    conditions = [condition for condition in (draft.having, draft.qualify) if condition is not None]
    return [*(output.value for output in draft.outputs), *conditions, *(order.value for order in draft.order)]


def number_keys(draft: Draft) -> Draft:
    """Keys in the order of their text, so that ``GROUP BY a, b`` and ``GROUP BY b, a`` share a fragment.

    The tie-break of the ordering (the keys as the query lists them) becomes part of ``order``.
    """
    ordered = sorted(draft.keys, key=lambda key: render(key, "duckdb"))
    places = [ordered.index(key) for key in draft.keys]
    slots: dict[Expr, Expr] = {
        Slot(f"k{i}", key.kind): Slot(f"k{places[i]}", key.kind) for i, key in enumerate(draft.keys)
    }
    left_out: dict[Expr, Expr] = {
        Slot(f"z{i}", "bigint"): Slot(f"z{place}", "bigint") for i, place in enumerate(places)
    }
    if draft.sets:
        slots.update(left_out)

    def renumber(expr: Expr) -> Expr:
        return rewrite(expr, lambda part: slots.get(part) if isinstance(part, Slot) else None)

    orders = [replace(order, value=renumber(order.value)) for order in draft.order]
    said = {order.value for order in orders}
    apart = [renumber(output.value) for output in draft.outputs] if draft.distinct else slots.values()
    ties = [
        Order(value, descending=False, nulls_first=False)
        for value in dict.fromkeys(apart)
        if value not in said
    ]
    return replace(
        draft,
        keys=tuple(ordered),
        outputs=tuple(Output(output.name, renumber(output.value)) for output in draft.outputs),
        sets=tuple(frozenset(places[index] for index in one) for one in draft.sets),
        having=None if draft.having is None else renumber(draft.having),
        qualify=None if draft.qualify is None else renumber(draft.qualify),
        order=(*orders, *ties),
    )


def _columns(draft: Draft, states: States, schema: Schema) -> tuple[Column, ...]:
    """The stream's columns that the map fragment reads, in the schema's order."""
    read = [ref for branch in draft.branches for ref in branch.references()]
    names = {ref.name for ref in (read if draft.branches else _references(draft, states)) if not ref.table}
    return tuple(column for column in schema.columns if column.name in names)


def _references(draft: Draft, states: States) -> Iterator[Ref]:
    """Every column that the map fragment reads."""
    aggregated = [arg for column in states.columns for arg in column.aggregate.args]
    cells = [cell.given for cell in states.cells.values()]
    on = [part for joined in draft.joins for part in joined.on]
    for expr in (*draft.where, *draft.keys, *aggregated, *cells, *on):
        yield from (part for part in walk(expr) if isinstance(part, Ref))


def plan_text(
    sql: str, schema: Schema, *, stream: str = "rows", tables: Mapping[str, Table] | None = None
) -> Plan:
    """The plan of a text that holds one SELECT."""
    query = parse_query(sql)
    if query is None:
        raise QueryError("expected one SELECT")
    return plan(query, schema, stream=stream, tables=tables)
