"""``LAG(COUNT(*))``, ``LEAD(COUNT(*), 2, 0)``: what an expression is for the same group in another window.

Without OVER, or with what other engines need for it (PARTITION BY all keys, ORDER BY window_start). How it is
computed: ``elf.ql.lags``.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from elf.fields import replace
from elf.ql.expressions import Aggregate, Call, Constant, Expr, Over, rewrite, walk
from elf.ql.kinds import become, common
from elf.ql.scope import Scope
from elf.ql.source import start_of

LAGS: Final = ("lag", "lead")
STEPS_MAX: Final = 1_000
"""How many windows, or rows, LAG and LEAD go at most."""


def bind_lag(node: exp.Anonymous, scope: Scope) -> Expr:
    """Its aggregates are those of the other window; NULL, or the third argument, where the group is not in
    it."""
    upper, nodes = node.name.upper(), node.expressions
    if not scope.aggregates or scope.within:
        scope.fail(node, f"{upper} of windows cannot be in {scope.place}; it is over groups")
    if not 1 <= len(nodes) <= 3:
        scope.fail(node, f"{upper} takes 1 to 3 arguments, not {len(nodes)}")
    value = scope.bind(nodes[0])
    found = [part for part in walk(value) if isinstance(part, Aggregate)]
    if not found:
        scope.fail(node, f"{upper} of windows takes an aggregate, such as {upper}(COUNT(*))")
    if any(part.offset for part in found) or any(isinstance(part, Over) for part in walk(value)):
        scope.fail(node, f"{upper} cannot be of LAG, LEAD or OVER; {upper}(COUNT(*), 2) goes two windows")
    offset = steps_of(nodes[1:2], upper, scope) * (1 if upper == "LAG" else -1)
    other = scope.bind(nodes[2]) if len(nodes) == 3 else Constant(None, "null")
    kind = common((value.kind, other.kind))
    if kind is None:
        scope.fail(nodes[2], f"{upper} of {value.kind} cannot give {other.kind}")
    there = Aggregate("count_star", (), "bigint", start_of(node) or 0, offset=offset)
    moved = rewrite(value, lambda part: replace(part, offset=offset) if isinstance(part, Aggregate) else None)
    given = Call(">", (there, Constant(0, "bigint")), "boolean")
    return Call("case", (given, become(moved, kind), become(other, kind)), kind)


def is_over_windows(node: exp.Window) -> bool:
    """Whether it is LAG or LEAD OVER (… ORDER BY window_start)."""
    order = node.args.get("order")
    names = (
        [item.this.name for item in order.expressions if isinstance(item.this, exp.Column)] if order else []
    )
    return (
        isinstance(node.this, exp.Anonymous) and node.this.name.lower() in LAGS and names == ["window_start"]
    )


def bind_lag_over(node: exp.Window, scope: Scope) -> Expr:
    """The same as without OVER."""
    inner = replace(scope, ranks=False)
    parts = {inner.bind(part) for part in node.args.get("partition_by") or []}
    plain = not node.args["order"].expressions[0].args.get("desc") and not node.args.get("spec")
    if parts != set(scope.keys or ()) or not plain:
        scope.fail(
            node,
            f"{node.this.name.upper()} over windows is of the same group: OVER (PARTITION BY all that is in "
            "GROUP BY ORDER BY window_start), or without OVER",
        )
    return bind_lag(node.this, scope)


def steps_of(nodes: list[exp.Expr], upper: str, scope: Scope) -> int:
    """How many windows, or rows: 1 where nothing is said."""
    if not nodes:
        return 1
    (node,) = nodes
    if not isinstance(node, exp.Literal) or not node.name.isdigit() or not 1 <= int(node.name) <= STEPS_MAX:
        scope.fail(node, f"{upper} takes a whole number from 1 to {STEPS_MAX:,} here")
    return int(node.name)
