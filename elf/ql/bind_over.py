"""Window functions: over the rows of one result window, after grouping (``ROW_NUMBER() OVER (…)``).

They rank groups, put them beside totals of their window, or beside one another: ``QUALIFY ROW_NUMBER() OVER
(PARTITION BY host ORDER BY hits DESC) <= 3``, ``hits / SUM(hits) OVER ()``, ``SUM(hits) OVER (ORDER BY page
ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)``. They never reach the agents.

What depends on the order of equal rows is ordered by the keys behind what the query says
(``ordered_within``), so that it means the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from elf.fields import replace
from elf.ql.bind_lags import LAGS, bind_lag_over, is_over_windows, steps_of
from elf.ql.bind_operators import numeric
from elf.ql.expressions import Constant, Expr, Kind, Over
from elf.ql.kinds import become
from elf.ql.scope import Scope
from elf.ql.signatures import written

RANKS: Final = ("row_number", "rank", "dense_rank")
TOTALS: Final = ("count", "sum", "avg", "min", "max")
VALUES: Final = ("first_value", "last_value", *LAGS)
"""Of a row of the frame, or of the one so many before or after."""
_KNOWN: Final = (*RANKS, *TOTALS, *VALUES)
ROWS_MAX: Final = 1_000_000
"""How many rows a frame begins before its row, or ends after it, at most."""


def _bind_over(node: exp.Window, scope: Scope) -> Expr:
    if is_over_windows(node):
        return bind_lag_over(node, scope)
    call = node.this
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name not in _KNOWN:
        scope.fail(node, f"OVER stands after one of {', '.join(one.upper() for one in _KNOWN)}")
    if not scope.ranks or scope.within:
        scope.fail(
            node, f"{name.upper()} OVER cannot be in {scope.place}; it can in SELECT, QUALIFY and ORDER BY"
        )
    order = node.args.get("order")
    inner = replace(scope, ranks=False)
    items = [] if order is None else list(order.expressions)
    spec = node.args.get("spec")
    if not items and (name not in TOTALS or spec is not None):
        scope.fail(node, f"{name.upper()} OVER{' with a frame' if spec else ''} needs an ORDER BY")
    if spec is not None and name in (*RANKS, *LAGS):
        scope.fail(node, f"{name.upper()} OVER takes no frame: it is over all rows of the result window")
    frame = "" if spec is None else _frame(node, spec, scope)
    args, kind = _argument(name, call, inner)
    parts = [inner.bind(part) for part in node.args.get("partition_by") or []]
    by = [inner.bind(item.this) for item in items]
    ways = tuple((bool(item.args.get("desc")), bool(item.args.get("nulls_first"))) for item in items)
    return Over(name, (*args, *parts, *by), kind, len(args), ways, frame)


def _frame(node: exp.Window, spec: exp.WindowSpec, scope: Scope) -> str:
    """The frame in the words that both engines know."""
    kind = str(spec.args.get("kind"))
    ends = [_end(node, spec, side, kind, scope) for side in ("start", "end")]
    if kind not in ("ROWS", "RANGE") or spec.args.get("exclude"):
        scope.fail(node, "a frame is ROWS or RANGE BETWEEN … AND …, without EXCLUDE")
    if ends[0][0] > ends[1][0]:
        scope.fail(node, f"this frame ends ({ends[1][1]}) before it begins ({ends[0][1]})")
    return f"{kind} BETWEEN {ends[0][1]} AND {ends[1][1]}"


def _end(node: exp.Window, spec: exp.WindowSpec, end: str, kind: str, scope: Scope) -> tuple[int, str]:
    """Where a frame begins or ends: (rows after the row, its words)."""
    told, side = spec.args.get(end), str(spec.args.get(f"{end}_side") or "")
    sign = -1 if side == "PRECEDING" else 1
    if told is None or told == "CURRENT ROW":
        return 0, "CURRENT ROW"
    if told == "UNBOUNDED":
        if (sign < 0) != (end == "start"):
            scope.fail(node, f"a frame does not {'begin' if end == 'start' else 'end'} at UNBOUNDED {side}")
        return sign * (ROWS_MAX + 1), f"UNBOUNDED {side}"
    if kind == "RANGE":
        scope.fail(
            node, "RANGE takes UNBOUNDED PRECEDING, CURRENT ROW and UNBOUNDED FOLLOWING; ROWS takes numbers"
        )
    if not isinstance(told, exp.Literal) or not told.name.isdigit() or int(told.name) > ROWS_MAX:
        scope.fail(node, f"a frame takes whole numbers of rows, up to {ROWS_MAX:,}")
    return sign * int(told.name), f"{int(told.name)} {side}"


def _argument(name: str, call: exp.Anonymous, scope: Scope) -> tuple[list[Expr], Kind]:
    nodes = call.expressions
    if name in RANKS or (name == "count" and len(nodes) == 1 and isinstance(nodes[0], exp.Star)):
        if name in RANKS and nodes:
            scope.fail(call, f"{name.upper()} takes no arguments")
        return [], "bigint"
    if not 1 <= len(nodes) <= (2 if name in LAGS else 1):
        scope.fail(
            call, f"{name.upper()} takes 1 argument{', or 2' if name in LAGS else ''}, not {len(nodes)}"
        )
    arg = scope.bind(nodes[0])
    if name in LAGS:
        return [arg, written(steps_of(nodes[1:], name.upper(), scope))], arg.kind
    if name in ("min", "max", *VALUES):
        return [arg], arg.kind
    if name == "count":
        return [arg], "bigint"
    arg = numeric(nodes[0], arg, name.upper(), scope)
    if name == "avg" or arg.kind == "double":
        return [become(arg, "double")], "double"
    return [become(arg, "hugeint")], "hugeint"


def ordered_within(over: Over, keys: tuple[Expr, ...]) -> Over:
    """With ties ordered by these, where equal rows would get different values. (By default a frame ends with
    the last of the equal rows: a total over it needs no more order.)"""
    if over.name != "row_number" and over.name not in VALUES and not over.frame.startswith("ROWS"):
        return over
    said = over.args[len(over.args) - len(over.ways) :]
    ties = tuple(key for key in keys if key not in said and not isinstance(key, Constant))
    return replace(over, args=(*over.args, *ties), ways=(*over.ways, *((False, False) for _ in ties)))


OVERS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {exp.Window: _bind_over}
"""The node of OVER."""
