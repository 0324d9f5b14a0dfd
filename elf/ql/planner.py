"""Planning: from a query and its streams' columns to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from sqlglot import exp

from elf.errors import QueryError
from elf.fields import replace
from elf.ql.dialect import Approximate, Stragglers, Trees, Within
from elf.ql.direct import direct_final_of
from elf.ql.draft import Draft, Order, Output
from elf.ql.expressions import Aggregate, Constant, Expr, Slot, rewrite, walk
from elf.ql.files import check_size
from elf.ql.fragments import after_grouping, counter, fragments_of, narrowed, session_ends, top_of
from elf.ql.fuel import fuelled
from elf.ql.job_queries import check_panes
from elf.ql.lags import lag_of
from elf.ql.levels import Level, Offline, for_master, for_spark, render_side, storeys
from elf.ql.lookups import check_lookups
from elf.ql.own import OwnAggregate
from elf.ql.partitions import opened, partitioned
from elf.ql.plan import CREDIT, Fragment, Plan, StreamJoin, Table, with_first
from elf.ql.render import render
from elf.ql.rules import apply_rules
from elf.ql.rules_after import BOUND
from elf.ql.rules_joins import check_joins, is_comma, is_file
from elf.ql.rules_streams import left_of, together
from elf.ql.statements import Query, parse_query
from elf.ql.states import States, collect
from elf.ql.streamjoins import join_of, offline
from elf.ql.tables import Joined
from elf.ql.user_functions import check_sides, with_function
from elf.ql.within import gives_way, promise_of
from elf.schema import Schema, alike

NO_OWNS: Final[Mapping[str, OwnAggregate]] = {}
_NO_PLAN: Final = Plan("", Fragment("", (), "", (), (), 0, None), (), "", (), "")


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
        ("WITHIN", Within, plan.promise is not None),
    ):
        clause = query.tree.find(kind)
        if there and clause is not None:
            raise source.at(clause, f"{word} does not go with FROM LATE: late rows are few; leave it out")
    if plan.fragment.count is not None:
        raise source.at(query.tree, "late rows have no order of their own, so they are in no windows of rows")
    if plan.session_states is not None:
        raise source.at(query.tree.args["windowing"], "late rows come in no sessions; choose other windows")
    first, *more = (replace(fragment, late_of=flows[fragment.stream]) for fragment in plan.fragments)
    return replace(plan, fragment=first, more=tuple(more), spark_sql="", spark_graphs=())


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
    owns: Mapping[str, OwnAggregate] = NO_OWNS,
) -> Plan:
    """The plan of ``query`` over these streams, each with its columns: one fragment for each stream.
    ``pane_us``: the length of its panes, a whole part of the default (``is_free``); jobs that it reads have
    their own. ``owns``: the aggregates of people's own that it may call, by name.

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
        with fuelled():
            schema = together(schemas, source, query.tree)
            draft = Draft(source, query.tree, schema, tables=tables or {}, schemas=schemas, pane_us=pane_us)
            draft = replace(draft, owns=owns)
            beside: list[Plan] = []
            found = _plan(query.sql, apply_rules(draft), beside)
            found = replace(found, beside=tuple(beside))
            promise = promise_of(source, query.tree, found)
            found = replace(found, promise=promise, gives_way=gives_way(source, query.tree))
            check_sides(found)
            check_names(found)
            check_panes(source, query.tree, found)
    except RecursionError as error:
        raise QueryError("the query is nested too deeply") from error
    check_size(query, found)
    return found


def check_names(plan: Plan) -> None:
    """Raises ``QueryError`` for columns of one fragment that DuckDB, or Spark, would confuse."""
    for fragment in plan.fragments:
        if (pair := alike(column.name for column in fragment.columns)) is not None:
            raise QueryError(
                f'columns "{pair[0]}" and "{pair[1]}" in one query: names must differ by more than case'
            )


def _plan(sql: str, asked: Draft, beside: list[Plan], *, joined: bool = False) -> Plan:
    """``beside``: the jobs that are joined anywhere in it, in the order of their ``groups_1`` …; ``joined``:
    whether it is one of them."""
    drafts = _innermost_first(sql, asked, beside)
    ends = session_ends(drafts[0])
    states = collect([*after_grouping(drafts[0]), *ends, *counter(drafts[0])])
    draft = narrowed(drafts[0], states)
    levels = [Level(draft, states), *(Level(over, collect(after_grouping(over))) for over in drafts[1:])]
    partner = join_of(draft)
    check_lookups([draft, *drafts[1:]], after_grouping(draft), joined=partner is not None)
    _check_owns(levels, joined=partner is not None)
    (first, *others), join = fragments_of(draft, states, partner)
    join = join or lag_of(draft, states, first.pane_us)
    if draft.counts and (partner is not None or joined):
        raise draft.source.at(draft.tree, "a window of rows is of one source: not of joined streams or jobs")
    if draft.approximate and (len(levels) > 1 or joined):
        raise draft.source.at(draft.tree, "APPROXIMATE does not go in a subquery")
    bound = (Output(BOUND, Slot(CREDIT, "double")),) if draft.approximate else ()
    trees = _trees(drafts)
    why_not = "a graph is of all edges" if any(one.graph is not None for one in drafts) else ""
    why_not = why_not or _not_whole(first, draft, join, others)
    planned = partitioned(levels, first.pane_us, trees, why_not)
    if (ranges := planned.partition) is not None:
        by = () if ranges.keys == first.group_keys else ranges.keys
        first = replace(first, range_keys=by, stage=ranges.stage)
    mine = levels if ranges is None else list(ranges.above)
    (top, *over) = storeys(mine)[-1]
    master = for_master(mine, bound, first.pane_us, "groups" if ranges is None else opened(mine[0]))
    spark = _spark(levels, partner)
    named = _named(draft, states)
    found = Plan(
        sql=sql,
        fragment=first,
        windows=drafts[-1].windows,
        final_sql=master.final_sql,
        outputs=tuple(output.name for output in (*drafts[-1].outputs, *bound)),
        spark_sql=spark.sql,
        graphs=master.graphs,
        spark_graphs=spark.graphs,
        top=top_of(top.draft, top.states),
        session_states=(states.state_of(ends[0]), states.state_of(ends[1])) if ends else None,
        more=tuple(others),
        trees=trees,
        limit=top.draft.limit,
        apart=bool(draft.branches or partner) and len(draft.schemas) > 1,
        join=join,
        stages=master.stages,
        named=tuple((column, output.name) for column, output in named.items()),
        kinds=tuple(output.value.kind for output in named.values()),
        direct=None if over or top.draft.plain else direct_final_of(top.draft, top.states),
        steps=planned.steps,
        components=planned.components,
        not_at_roots=planned.why,
    )
    if draft.leap and draft.changes_us is None and found.trees == 1:
        found = with_first(found)
    return reduce(with_function, draft.functions, found)


def _not_whole(first: Fragment, draft: Draft, join: StreamJoin | None, others: Sequence[Fragment]) -> str:
    """Why the root of a range does not have the whole groups of a pane; empty if it has."""
    if join is not None:
        return "streams are joined at the master" if join.side else "LAG is of several windows"
    if others:
        return "the groups of several streams meet at the master"
    if first.owns:
        return "values of an aggregate of one's own are made at the master"
    return "APPROXIMATE groups are not whole" if draft.approximate else ""


def _innermost_first(sql: str, asked: Draft, beside: list[Plan]) -> list[Draft]:
    """The nested queries with groups, innermost first, with the rows of jobs that are joined to them."""
    drafts = [number_keys(asked)]
    while (below := drafts[0].below) is not None:
        drafts.insert(0, number_keys(below))
    return [drafts[0], *(_with_sides(sql, draft, beside) for draft in drafts[1:])]


def _spark(levels: list[Level], partner: Joined | None) -> Offline:
    """The whole query for Spark; there is none for windows of rows."""
    draft, before = levels[0].draft, ""
    if draft.counts:
        return Offline("")
    exact = (Output(BOUND, Constant(0.0, "double")),) if draft.approximate else ()
    if partner is not None:
        spark, before = offline(draft, partner, len(draft.schemas) > 1)
        levels = [replace(levels[0], draft=spark), *levels[1:]]
    return for_spark(levels, exact, before)


def _check_owns(levels: Sequence[Level], *, joined: bool) -> None:
    """Raises ``QueryError`` where an aggregate of one's own is over rows that no agent has."""
    for place, level in enumerate(levels):
        found = [part for one in after_grouping(level.draft) for part in walk(one)]
        for own in (part for part in found if isinstance(part, Aggregate) and part.own is not None):
            where = "over the rows of windows" if place else "over joined streams" if joined else ""
            where = where or ("with GROUPING SETS" if level.draft.sets else "")
            if where and own.own is not None:
                text = f"{own.own.name.upper()}, an aggregate of one's own, is not supported yet {where}"
                raise level.draft.source.error(text, own.at)


def _named(draft: Draft, states: States) -> dict[str, Output]:
    """By column of the fragment what stands for it in the SELECT list."""
    found: dict[str, Output] = {}
    for output in draft.outputs:
        column = states.column_of(output.value)
        if column is not None:
            found.setdefault(column, output)
    return found


def _with_sides(sql: str, draft: Draft, beside: list[Plan]) -> Draft:
    """With the rows of the jobs that are joined to it, as SQL."""
    joins = list(draft.joins)
    for place, right in enumerate(draft.beside):
        number = len(beside) + 1
        beside.append(_NO_PLAN)
        plan = _plan(sql, right, beside, joined=True)
        *rows, graphs = render_side(plan, number)
        joins[place] = replace(joins[place], rows=rows)
        beside[number - 1] = replace(plan, final_sql="", spark_sql="", direct=None, spark_graphs=graphs)
    return replace(draft, joins=tuple(joins))


def _trees(drafts: Sequence[Draft]) -> int:
    """TREES may stand at any level; it spreads the innermost groups."""
    for draft in drafts:
        if draft.trees > 1 and not drafts[0].keys and join_of(drafts[0]) is None:
            raise draft.source.at(draft.tree.args["trees"], "TREES spreads groups: it needs GROUP BY")
        if draft.trees > 1 and (drafts[0].revise_us, drafts[0].changes_us) != (None, None):
            raise draft.source.at(
                draft.tree.args["trees"], "TREES does not go with EMIT FINAL REVISE or EMIT CHANGES yet"
            )
    return max(draft.trees for draft in drafts)


def number_keys(draft: Draft) -> Draft:
    """Keys in the order of their text, so that ``GROUP BY a, b`` and ``GROUP BY b, a`` share a fragment.

    The tie-break of the ordering (the keys as the query lists them) becomes part of ``order``.
    """
    ordered = sorted(draft.keys, key=lambda key: render(key, "duckdb"))
    place_of: dict[Expr, int] = {}
    for place, key in enumerate(ordered):
        place_of.setdefault(key, place)
    places = [place_of[key] for key in draft.keys]
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


def plan_text(
    sql: str, schema: Schema, *, stream: str = "rows", tables: Mapping[str, Table] | None = None
) -> Plan:
    """The plan of a text that holds one SELECT."""
    query = parse_query(sql)
    if query is None:
        raise QueryError("expected one SELECT")
    return plan(query, schema, stream=stream, tables=tables)
