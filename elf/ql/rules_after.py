"""The rules from SELECT on: what is made from groups, in which order, and how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from elf.fields import replace
from elf.ql.bind_names import name_in_subquery
from elf.ql.bind_over import ordered_within
from elf.ql.bind_windows import LAGS_US_MAX, PANES_MAX
from elf.ql.draft import Draft, Order, Output, about, has_aggregates, ordinal
from elf.ql.expressions import (
    Aggregate,
    Call,
    Constant,
    Expr,
    Over,
    Ref,
    Slot,
    conjuncts,
    connect,
    rewrite,
    walk,
)
from elf.ql.fragments import after_grouping
from elf.ql.scope import Scope
from elf.ql.source import start_of
from elf.windows import Session, Sliding, pane_us_of
from elf.windows.kinds import span

_RAW = (
    "gives raw rows, which would need unbounded state; group them, for instance with SELECT DISTINCT, or "
    "look at some of them: LIMIT n, and no clause but WHERE"
)


def bind_outputs(draft: Draft) -> Draft:
    """The SELECT list, over keys and aggregates, under unique names."""
    if not draft.tree.expressions:
        raise draft.source.at(draft.tree, "the SELECT list is empty")
    scope = draft.scope("SELECT", aggregates=True, aliased=False)
    outputs = []
    grouped = bool(draft.keys) or has_aggregates(draft)
    taken = set(draft.bounds)
    for item in draft.tree.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            raise draft.source.at(item, f"SELECT * {_RAW}")
        value = scope.bind(item.this if isinstance(item, exp.Alias) else item)
        if not grouped:
            raise draft.source.at(item, f"a SELECT without an aggregate and without GROUP BY {_RAW}")
        name = _unique(output_name(scope, item, value), taken)
        outputs.append(Output(name, _over_groups(draft, value, "SELECT")))
    return replace(draft, outputs=tuple(outputs))


def output_name(scope: Scope, item: exp.Expr, value: Expr) -> str:
    """The alias, else the column's own name (for a subquery, its name there), else the text as written."""
    if isinstance(item, exp.Alias):
        return item.alias
    called = name_in_subquery(item, scope)
    if called is not None:
        return called
    if isinstance(value, Ref):
        return value.name
    return " ".join(scope.source.text[item.meta["from"] : item.meta["to"] + 1].split())


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 0
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate.lower())
    return candidate


@about("having")
def bind_having(draft: Draft, clause: exp.Expr) -> Draft:
    """HAVING."""
    condition = draft.scope("HAVING", aggregates=True).condition(clause.this, "HAVING")
    return replace(draft, having=connect("and", conjuncts(_over_groups(draft, condition, "HAVING"))))


@about("qualify")
def bind_qualify(draft: Draft, clause: exp.Expr) -> Draft:
    """QUALIFY: a condition over window functions."""
    condition = draft.scope("QUALIFY", aggregates=True).condition(clause.this, "QUALIFY")
    return replace(draft, qualify=_over_groups(draft, condition, "QUALIFY"))


@about("order")
def bind_order(draft: Draft, clause: exp.Expr) -> Draft:
    """ORDER BY (SORT BY is the same): aliases, ordinals, expressions over keys and aggregates."""
    items = []
    for ordered in clause.expressions:
        for part, value in ordered.args.items():
            if value and part not in ("this", "desc", "nulls_first"):
                raise draft.source.at(ordered, f"ORDER BY … {part.upper()} is not supported yet")
        node = ordered.this
        plain_name = isinstance(node, exp.Column)
        scope = draft.scope("ORDER BY", aggregates=True, aliases_first=plain_name)
        value = _over_groups(draft, scope.bind(ordinal(draft, node, "ORDER BY") or node), "ORDER BY")
        if draft.distinct and value not in [output.value for output in draft.outputs]:
            raise draft.source.at(
                ordered, "with SELECT DISTINCT, ORDER BY takes only what is in the SELECT list"
            )
        items.append(Order(value, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))))
    return replace(draft, order=tuple(items))


def read_lags(draft: Draft) -> Draft:
    """LAG and LEAD of windows: a window has the groups of its own rows. Raises ``QueryError``."""
    values = after_grouping(draft)
    found = [part for value in values for part in walk(value) if isinstance(part, Aggregate) and part.offset]
    if not found:
        return draft
    if (refused := _no_lags(draft, [part.offset for part in found])) is not None:
        raise draft.source.error(f"LAG and LEAD of windows {refused}", found[0].at)
    present = Call(">", (Aggregate("count_star", (), "bigint"), Constant(0, "bigint")), "boolean")
    return replace(draft, having=connect("and", (*conjuncts(draft.having), present)))


def _no_lags(draft: Draft, offsets: Sequence[int]) -> str | None:
    """Why a query cannot have LAG of windows so far away; None if it can."""
    if draft.below is not None:
        return "are over the rows of a stream: say them in the subquery, or in the job that is read"
    if any(joined.streams for joined in draft.joins):
        return "do not go with a join of streams"
    window, pane_us = next(iter(draft.windows), None), pane_us_of(draft.windows)
    if len(draft.windows) != 1 or not isinstance(window, Sliding):
        return "need windows of one size, as in WINDOWING 1 MINUTE"
    needed_us = window.size_us + (max(0, *offsets) - min(0, *offsets)) * window.slide_us
    if needed_us > PANES_MAX * pane_us:
        return f"would need {needed_us // pane_us:,} panes of {span(pane_us)}, and {PANES_MAX:,} is the most"
    if needed_us > LAGS_US_MAX:
        return f"would need the panes of {span(needed_us)}, and {span(LAGS_US_MAX)} is the most"
    return "do not go with EMIT CHANGES" if draft.changes_us is not None else None


def read_limit(draft: Draft) -> Draft:
    """LIMIT, a constant."""
    clause, offset = draft.tree.args.get("limit"), draft.tree.args.get("offset")
    if offset is not None:
        draft = replace(draft, offset=_whole(draft, offset.expression, "OFFSET"))
    if clause is None:
        return draft
    if isinstance(clause, exp.Fetch) or clause.args.get("limit_options"):
        raise draft.source.at(clause, "FETCH and LIMIT … PERCENT are not supported; write LIMIT n")
    count = _whole(draft, clause.expression, "LIMIT")
    if not clause.expressions:
        return replace(draft, limit=count)
    scope = draft.scope("LIMIT BY", aggregates=True)
    parts = [_over_groups(draft, scope.bind(part), "LIMIT BY") for part in clause.expressions]
    ways = tuple((order.descending, order.nulls_first) for order in draft.order)
    by = [order.value for order in draft.order]
    rank = Over("row_number", (*_bounds(draft), *parts, *by), "bigint", 0, ways)
    rank = ordered_within(rank, _slots(draft))
    within = Call("<=", (rank, Constant(count, "bigint")), "boolean")
    return replace(draft, qualify=connect("and", (*conjuncts(draft.qualify), within)))


def _whole(draft: Draft, node: exp.Expr, clause: str) -> int:
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
        raise draft.source.at(node, f"{clause} takes a whole number")
    return int(node.name)


def _bounds(draft: Draft) -> tuple[Expr, ...]:
    """The columns that separate result windows."""
    return tuple(Slot(bound, "timestamp") for bound in draft.bounds)


def _slots(draft: Draft) -> tuple[Expr, ...]:
    """The columns that distinguish rows after grouping."""
    slots = [Slot(f"k{index}", key.kind) for index, key in enumerate(draft.keys)]
    left_out = [Slot(f"z{index}", "bigint") for index in range(len(draft.keys) if draft.sets else 0)]
    return (*slots, *left_out)


def _over_groups(draft: Draft, expr: Expr, clause: str) -> Expr:
    """``expr`` with keys as slots. A column that is neither a key nor inside an aggregate has no single value
    a group."""
    slots = {key: Slot(f"k{index}", key.kind) for index, key in enumerate(draft.keys)}

    def change(part: Expr) -> Expr | None:
        if part in slots:
            return slots[part]
        if isinstance(part, Aggregate | Slot):
            return part
        if isinstance(part, Call) and part.op == "grouping":
            return _grouping(draft, part)
        if isinstance(part, Over):
            args = tuple(rewrite(arg, change) for arg in part.args)
            args = (*args[: part.arguments], *_bounds(draft), *args[part.arguments :])
            return ordered_within(replace(part, args=args), _slots(draft))
        if isinstance(part, Ref):
            message = f'column "{part.name}" in {clause} must be in GROUP BY or inside an aggregate'
            raise draft.source.error(message, part.at)
        return None

    return rewrite(expr, change)


def _grouping(draft: Draft, call: Call) -> Expr:
    """GROUPING(key): 1 in rows of a grouping set without the key."""
    if call.args[0] not in draft.keys:
        raise draft.source.error("GROUPING takes what is in GROUP BY", start_of(draft.tree))
    return Slot(f"z{draft.keys.index(call.args[0])}", "bigint") if draft.sets else Constant(0, "bigint")


BOUND: Final = "error_bound"
"""The column with the error of an approximate row."""
_COUNTED: Final = ("count_star", "count", "sum")


@about("approximate")
def read_approximate(draft: Draft, clause: exp.Expr) -> Draft:
    """LIMIT n APPROXIMATE: one COUNT or SUM, the greatest first."""
    refused = _not_approximate(draft)
    if refused:
        raise draft.source.at(clause, f"APPROXIMATE {refused}")
    return replace(draft, approximate=True)


def _not_approximate(draft: Draft) -> str:
    """Why the rows of a query cannot be cut with a bound on the error; empty if they can."""
    order = draft.order[0] if draft.order else None
    if draft.limit is None:
        return "goes with a LIMIT"
    if draft.below is not None or draft.qualify is not None or draft.having is not None or draft.distinct:
        return "goes with neither HAVING, LAG, QUALIFY, LIMIT BY, DISTINCT nor subqueries"
    if not draft.keys or draft.sets:
        return "needs a plain GROUP BY"
    if draft.trees > 1:
        return "sends little enough for one tree: leave out TREES"
    if any(isinstance(kind, Session) for kind in draft.windows):
        return "does not go with sessions, whose pieces must all be there"
    if draft.counts:
        return "does not go with windows of rows"
    if draft.revise_us is not None or draft.changes_us is not None:
        return "does not go with EMIT FINAL REVISE or CHANGES: what was left out cannot be bounded then"
    if order is None or not isinstance(order.value, Aggregate) or not order.descending:
        return "needs ORDER BY COUNT(…) DESC or SUM(…) DESC: other values have no bound on what was left out"
    found = {part for o in draft.outputs for part in walk(o.value) if isinstance(part, Aggregate)}
    for one in (order.value, *sorted(found - {order.value}, key=repr)):
        name = one.name.upper().replace("COUNT_STAR", "COUNT")
        if one.name not in _COUNTED:
            return f"goes with COUNT and SUM only; of {name} nobody could say by how much it may be wrong"
        if one != order.value:
            return f"bounds the value that it orders by only; leave out the other {name}"
    if order.nulls_first:
        return "goes with NULLS LAST only"
    if any(output.name.lower() == BOUND for output in draft.outputs):
        return f"adds a column {BOUND}: give yours another name"
    return ""
