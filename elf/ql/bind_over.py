"""Window functions: over the rows of one result window, after grouping (``ROW_NUMBER() OVER (…)``).

They rank groups or put them beside totals of their window: ``QUALIFY ROW_NUMBER() OVER (PARTITION BY host
ORDER BY hits DESC) <= 3``, ``hits / SUM(hits) OVER ()``. They never reach the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sqlglot import exp

from elf.ql.bind_operators import numeric
from elf.ql.expressions import Constant, Expr, Kind, Over
from elf.ql.kinds import become
from elf.ql.scope import Scope

RANKS: Final = ("row_number", "rank", "dense_rank")
TOTALS: Final = ("count", "sum", "avg", "min", "max")


def _bind_over(node: exp.Window, scope: Scope) -> Expr:
    call = node.this
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name not in (*RANKS, *TOTALS):
        known = ", ".join(one.upper() for one in (*RANKS, *TOTALS))
        scope.fail(node, f"OVER stands after one of {known}")
    if not scope.ranks or scope.within:
        scope.fail(
            node, f"{name.upper()} OVER cannot be in {scope.place}; it can in SELECT, QUALIFY and ORDER BY"
        )
    if node.args.get("spec"):
        scope.fail(node, "ROWS and RANGE in OVER are not supported: it is over all rows of the result window")
    order = node.args.get("order")
    inner = replace(scope, ranks=False)
    items = [] if order is None else list(order.expressions)
    if bool(items) != (name in RANKS):
        wanted = (
            "needs an ORDER BY" if name in RANKS else "takes no ORDER BY (running totals are not supported)"
        )
        scope.fail(node, f"{name.upper()} OVER {wanted}")
    args, kind = _argument(name, call, inner)
    parts = [inner.bind(part) for part in node.args.get("partition_by") or []]
    by = [inner.bind(item.this) for item in items]
    ways = tuple((bool(item.args.get("desc")), bool(item.args.get("nulls_first"))) for item in items)
    return Over(name, (*args, *parts, *by), kind, len(args), ways)


def _argument(name: str, call: exp.Anonymous, scope: Scope) -> tuple[list[Expr], Kind]:
    nodes = call.expressions
    if name in RANKS or (name == "count" and len(nodes) == 1 and isinstance(nodes[0], exp.Star)):
        if name in RANKS and nodes:
            scope.fail(call, f"{name.upper()} takes no arguments")
        return [], "bigint"
    if len(nodes) != 1:
        scope.fail(call, f"{name.upper()} takes 1 argument, not {len(nodes)}")
    arg = scope.bind(nodes[0])
    if name in ("min", "max"):
        return [arg], arg.kind
    if name == "count":
        return [arg], "bigint"
    arg = numeric(nodes[0], arg, name.upper(), scope)
    if name == "avg" or arg.kind == "double":
        return [become(arg, "double")], "double"
    return [become(arg, "hugeint")], "hugeint"


def ranked_before(rank: Over, keys: tuple[Expr, ...]) -> Over:
    """A ROW_NUMBER whose ties are ordered by these, so that it means the same everywhere."""
    if rank.name != "row_number":
        return rank
    said = rank.args[len(rank.args) - len(rank.ways) :]
    ties = tuple(key for key in keys if key not in said and not isinstance(key, Constant))
    return replace(rank, args=(*rank.args, *ties), ways=(*rank.ways, *((False, False) for _ in ties)))


OVERS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {exp.Window: _bind_over}
"""The node of OVER."""
