"""Aggregates: their arguments, DISTINCT and FILTER, and which they are of ``elf.paos.builtin`` and
``elf.ql.cells``, or of somebody's own.

Every aggregate ignores NULLs, so ``a(x) FILTER (WHERE c)`` is ``a(CASE WHEN c THEN x END)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, Literal

from msgspec import Struct
from sqlglot import exp

from elf.fields import replace
from elf.ql.bind_operators import numeric
from elf.ql.expressions import OWN, TRUE, Aggregate, Call, Constant, Expr, Kind, Ref
from elf.ql.kinds import become, cast, common
from elf.ql.own import OwnAggregate
from elf.ql.scope import Scope
from elf.ql.source import start_of

TOP_MAX: Final = 1000
"""The largest k of APPROX_TOP_K, and the most values that HISTOGRAM and ARRAY_AGG show."""
WIDTH_MAX: Final = 10**12
"""The greatest width of a bucket of HISTOGRAM."""
DECIMALS_MAX: Final = 9
"""The most decimals of the p of a percentile."""


class Asked(Struct, frozen=True):
    """A call of an aggregate. ``plain`` is the bound first argument, ``arg`` the same with FILTER in it."""

    name: str
    node: exp.Anonymous
    nodes: tuple[exp.Expr, ...]
    plain: Expr
    arg: Expr
    distinct: bool
    scope: Scope
    order: exp.Ordered | None = None
    limit: int = 0
    """What ORDER BY and LIMIT in the call say."""

    @property
    def upper(self) -> str:
        return self.name.upper()

    @property
    def number(self) -> Expr:
        """The argument, which must be a number."""
        return numeric(self.nodes[0], self.arg, self.upper, self.scope)

    def narrow(self, arg: Expr) -> Expr:
        """``arg``, which must not be wider than 64 bits."""
        if arg.kind == "hugeint":
            self.scope.fail(self.nodes[0], f"{self.upper} of integers beyond 64 bits is not supported yet")
        return arg

    def aggregate(self, name: str, kind: Kind, *args: Expr, params: tuple[int, ...] = ()) -> Aggregate:
        return Aggregate(name, args, kind, start_of(self.node) or 0, params)


class Rule(Struct, frozen=True):
    """``arguments``: how many, and ``optional`` ones. ``distinct``: whether DISTINCT may stand before the
    first; ``listed``: whether ORDER BY and LIMIT may stand behind. ``usage``, ``about`` and ``example`` (over
    the sample of the reference) are for people.
    """

    build: Callable[[Asked], Expr]
    usage: str
    about: str
    example: str
    arguments: int = 1
    optional: int = 0
    distinct: bool = False
    listed: bool = False


def bind_aggregate(name: str, node: exp.Anonymous, scope: Scope, condition: exp.Expr | None = None) -> Expr:
    """``name(…)``, and the condition of its FILTER."""
    upper, rule = name.upper(), AGGREGATES[name]
    if scope.within:
        scope.fail(node, f"{upper} cannot be inside {scope.within}: both are aggregates")
    if not scope.aggregates:
        scope.fail(node, f"{upper} is an aggregate, which cannot be in {scope.clause}")
    nodes, order, limit = _listing(node, rule, scope)
    distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
    if distinct:
        if not rule.distinct:
            scope.fail(node, f"{upper}(DISTINCT …) is not supported yet; there are {_DISTINCT}")
        nodes = list(nodes[0].expressions)
    if not rule.arguments <= len(nodes) <= rule.arguments + rule.optional:
        wanted = "1 argument" if rule.arguments == 1 else f"{rule.arguments} arguments"
        more = f", or {rule.arguments + rule.optional}" if rule.optional else ""
        scope.fail(node, f"{upper} takes {wanted}{more}, not {len(nodes)}")
    inner = replace(scope, within=upper, aliases={})
    if isinstance(nodes[0], exp.Star):
        if name != "count" or distinct:
            scope.fail(nodes[0], f"{upper} takes a column or an expression, not *")
        arg: Expr = TRUE
    else:
        arg = inner.bind(nodes[0])
    plain = arg
    if condition is not None:
        given = replace(inner, within="FILTER").condition(condition, "FILTER")
        arg = Call("case", (given, arg, Constant(None, arg.kind)), arg.kind)
    return rule.build(Asked(name, node, tuple(nodes), plain, arg, distinct, inner, order, limit))


def bind_own(own: OwnAggregate, node: exp.Anonymous, scope: Scope, condition: exp.Expr | None = None) -> Expr:
    """A call of an aggregate of one's own, and the condition of its FILTER."""
    upper, wanted = own.name.upper(), own.signature.arguments
    if scope.within:
        scope.fail(node, f"{upper} cannot be inside {scope.within}: both are aggregates")
    if not scope.aggregates:
        scope.fail(node, f"{upper} is an aggregate, which cannot be in {scope.clause}")
    nodes = list(node.expressions)
    if nodes and isinstance(nodes[0], exp.Distinct):
        scope.fail(node, f"{upper}(DISTINCT …) is not supported: {upper} is an aggregate of one's own")
    if nodes and isinstance(nodes[-1], exp.Limit | exp.Order):
        scope.fail(node, f"{upper} takes neither ORDER BY nor LIMIT: its rows come in no order")
    if len(nodes) != len(wanted):
        takes = "1 argument" if len(wanted) == 1 else f"{len(wanted)} arguments"
        scope.fail(node, f"{upper} takes {takes} ({', '.join(wanted)}), not {len(nodes)}")
    inner, args = replace(scope, within=upper, aliases={}), list[Expr]()
    for given, kind in zip(nodes, wanted, strict=True):
        if isinstance(given, exp.Star):
            scope.fail(given, f"{upper} takes a column or an expression, not *")
        arg = inner.bind(given)
        if common((arg.kind, kind)) != kind:
            scope.fail(given, f"{upper} takes a {kind} here, and this is {arg.kind}; CAST it")
        args.append(become(arg, kind))
    if condition is not None:
        wanting = replace(inner, within="FILTER").condition(condition, "FILTER")
        args[0] = Call("case", (wanting, args[0], Constant(None, wanted[0])), wanted[0])
    return Aggregate(OWN, tuple(args), own.signature.returns, start_of(node) or 0, own=own)


def _listing(node: exp.Anonymous, rule: Rule, scope: Scope) -> tuple[list[exp.Expr], exp.Ordered | None, int]:
    """The arguments, and what ORDER BY and LIMIT behind them say."""
    nodes, order, limit = list(node.expressions), None, 0
    last = nodes[-1] if nodes else None
    if isinstance(last, exp.Limit | exp.Order) and not rule.listed:
        scope.fail(node, f"{node.name.upper()} takes neither ORDER BY nor LIMIT")
    if isinstance(last, exp.Limit):
        told = last.expression
        if not isinstance(told, exp.Literal) or not told.name.isdigit() or not 1 <= int(told.name) <= TOP_MAX:
            scope.fail(told, f"LIMIT in {node.name.upper()} takes a whole number from 1 to {TOP_MAX}")
        limit, last = int(told.name), last.this
    if isinstance(last, exp.Order):
        if len(last.expressions) > 1:
            scope.fail(
                last.expressions[1], f"{node.name.upper()} is ordered by one value, then by what it lists"
            )
        order, last = last.expressions[0], last.this
    return [*nodes[:-1], *([] if last is None else [last])], order, limit


def _bind_filter(node: exp.Filter, scope: Scope) -> Expr:
    call, clause = node.this, node.expression
    name = call.name.lower() if isinstance(call, exp.Anonymous) else ""
    if name in scope.owns:
        return bind_own(scope.owns[name], call, scope, clause.this)
    if name not in AGGREGATES:
        scope.fail(node, "FILTER stands after an aggregate")
    return bind_aggregate(name, call, scope, clause.this)


def _count(asked: Asked) -> Expr:
    if asked.distinct:
        return asked.aggregate("count distinct", "bigint", asked.arg)
    if isinstance(asked.arg, Constant) and asked.arg.value is not None:
        return asked.aggregate("count_star", "bigint")
    return asked.aggregate("count", "bigint", asked.arg)


def _over(asked: Asked, name: str, kind: Kind) -> Expr:
    """An aggregate of numbers that has one form for integers and one for doubles."""
    arg = asked.narrow(asked.number)
    if arg.kind == "double":
        return asked.aggregate(f"{name} of doubles", "double", arg)
    return asked.aggregate(name, kind, arg)


def _sum(asked: Asked) -> Expr:
    if asked.distinct:
        return _over(asked, "sum distinct", "hugeint")
    arg = asked.number
    return asked.aggregate("sum", "double" if arg.kind == "double" else "hugeint", arg)


def _avg(asked: Asked) -> Expr:
    if asked.distinct:
        return _over(asked, "avg distinct", "double")
    return asked.aggregate("avg", "double", asked.number)


def _extreme(name: Literal["min", "max"]) -> Callable[[Asked], Expr]:
    return lambda asked: asked.aggregate(name, asked.arg.kind, asked.arg)


def _all_or_any(name: Literal["min", "max"]) -> Callable[[Asked], Expr]:
    """False is less than true: all are true when the least is."""

    def build(asked: Asked) -> Expr:
        if common((asked.arg.kind, "boolean")) != "boolean":
            asked.scope.fail(asked.nodes[0], f"{asked.upper} needs a condition, this is {asked.arg.kind}")
        return asked.aggregate(name, "boolean", become(asked.arg, "boolean"))

    return build


def _variance(name: str) -> Callable[[Asked], Expr]:
    return lambda asked: _over(asked, name, "double")


def _end(asked: Asked) -> Expr:
    """FIRST and LAST: what does not fit 64 bits is text."""
    event_time = asked.scope.schema.event_time
    if event_time is None:
        asked.scope.fail(asked.node, f"{asked.upper} goes by event time, and there is none here")
    time, arg = Ref(event_time, "timestamp", start_of(asked.node) or 0), asked.narrow(asked.arg)
    if arg.kind in ("text", "null"):
        return asked.aggregate(
            "min_by" if asked.name == "first" else "max_by", "text", become(arg, "text"), time
        )
    if arg.kind == "bigint":
        return asked.aggregate(asked.name, "bigint", arg, time)
    packed = Call(f"pack {arg.kind}", (arg,), "bigint")
    return Call(f"unpack {arg.kind}", (asked.aggregate(asked.name, "bigint", packed, time),), arg.kind)


def _approx_distinct(asked: Asked) -> Expr:
    """Over text, which all engines write alike; except doubles, which are counted exactly."""
    text = cast(asked.arg, "text")
    if text is None:
        return asked.aggregate("count distinct", "bigint", asked.arg)
    return asked.aggregate("approx_count_distinct", "bigint", text)


def _percentile(asked: Asked) -> Expr:
    """MEDIAN(x), PERCENTILE(x, p), APPROX_PERCENTILE(x, p): p is a fraction in lowest terms."""
    name = "percentile" if asked.name == "median" else asked.name
    fraction = Decimal("0.5") if len(asked.nodes) == 1 else _fraction(asked)
    arg = asked.number
    if name == "approx_percentile":
        arg = become(arg, "double")
    return asked.aggregate(name, "double", arg, params=fraction.as_integer_ratio())


def _fraction(asked: Asked) -> Decimal:
    match asked.scope.bind(asked.nodes[1]):
        case Constant(value=int() | float() as value, kind="bigint" | "double") if 0 <= value <= 1:
            found = Decimal(repr(float(value)))
            if found == round(found, DECIMALS_MAX):
                return found
    wanted = f"a constant from 0 to 1, of at most {DECIMALS_MAX} decimals"
    return asked.scope.fail(asked.nodes[1], f"{asked.upper} wants {wanted}, here")


def _by(name: Literal["min_by", "max_by"]) -> Callable[[Asked], Expr]:
    """The first argument where the second is the least or the greatest."""

    def build(asked: Asked) -> Expr:
        arg, by = asked.narrow(asked.arg), asked.scope.bind(asked.nodes[1])
        arg = become(arg, "text") if arg.kind == "null" else arg
        return asked.aggregate(name, arg.kind, arg, by)

    return build


def _whole(asked: Asked, most: int) -> int:
    """The second argument, a whole constant."""
    match asked.scope.bind(asked.nodes[1]):
        case Constant(value=int() as value, kind="bigint") if 1 <= value <= most:
            return value
    return asked.scope.fail(asked.nodes[1], f"{asked.upper} wants a whole constant from 1 to {most} here")


def _written(asked: Asked, way: str = "") -> Expr:
    """The first argument, which both engines write alike."""
    if cast(asked.arg, "text") is None:
        what = f"{asked.upper} of {asked.arg.kind} is not supported"
        asked.scope.fail(asked.nodes[0], f"{what}: the engines write it differently; CAST it to bigint{way}")
    return become(asked.arg, "text") if asked.arg.kind == "null" else asked.arg


def _top(asked: Asked) -> Expr:
    most = _whole(asked, TOP_MAX)
    return asked.aggregate("approx_top_k", "text", _written(asked), params=(most,))


def _histogram(asked: Asked) -> Expr:
    """With a width: of numbers, rounded down to a multiple of it."""
    if len(asked.nodes) == 1:
        return asked.aggregate("histogram", "text", _written(asked, ", or give a width"), params=(TOP_MAX,))
    width, number = Constant(_whole(asked, WIDTH_MAX), "bigint"), asked.narrow(asked.number)
    if number.kind == "double":
        number = cast(Call("floor", (number,), "double"), "bigint") or number
    over = Call("%", (Call("+", (Call("%", (number, width), "bigint"), width), "bigint"), width), "bigint")
    start = Call("-", (number, over), "bigint")
    return asked.aggregate("histogram", "text", start, params=(TOP_MAX,))


def _array(asked: Asked) -> Expr:
    """In the order of event time, or of the values where there is none or with DISTINCT."""
    arg, order, event_time = _written(asked), asked.order, asked.scope.schema.event_time
    by = asked.plain
    if order is not None:
        by = asked.scope.bind(order.this)
    elif event_time is not None and not asked.distinct:
        by = Ref(event_time, "timestamp", start_of(asked.node) or 0)
    desc = order is not None and bool(order.args.get("desc"))
    low = desc != (order is not None and bool(order.args.get("nulls_first")))
    of_itself = by == asked.plain
    if asked.distinct and not of_itself:
        asked.scope.fail(order or asked.node, f"{asked.upper}(DISTINCT x) is ordered by x itself")
    name = f"array_agg{' distinct' if asked.distinct else ''}{' desc' if desc else ''}"
    args = (arg,) if of_itself else (asked.narrow(arg), by)
    return asked.aggregate(name, "text", *args, params=(asked.limit or TOP_MAX, int(low)))


AGGREGATES: Final[Mapping[str, Rule]] = {
    "count": Rule(_count, "COUNT(*), COUNT([DISTINCT] x)",
                  "rows; rows where x is not NULL; different values, exactly (memory for each of them)",
                  "COUNT(DISTINCT host)",
                  distinct=True),
    "sum": Rule(_sum, "SUM([DISTINCT] x)", "the sum; of integers exact, of 38 digits",
                "SUM(status)", distinct=True),
    "avg": Rule(_avg, "AVG([DISTINCT] x)", "the mean, a double",
                "AVG(ms)", distinct=True),
    "min": Rule(_extreme("min"), "MIN(x)", "the least, of any type",
                "MIN(page)", distinct=True),
    "max": Rule(_extreme("max"), "MAX(x)", "the greatest, of any type",
                "MAX(ms)", distinct=True),
    "bool_and": Rule(_all_or_any("min"), "BOOL_AND(condition)", "whether the condition holds for all rows",
                     "BOOL_AND(ms > 2)"),
    "every": Rule(_all_or_any("min"), "EVERY(condition)", "the same as BOOL_AND",
                  "EVERY(status >= 200)"),
    "bool_or": Rule(_all_or_any("max"), "BOOL_OR(condition)", "whether the condition holds for any row",
                    "BOOL_OR(status >= 500)"),
    "stddev": Rule(_variance("stddev_samp"), "STDDEV(x)", "the same as STDDEV_SAMP",
                   "STDDEV(status)"),
    "stddev_samp": Rule(_variance("stddev_samp"), "STDDEV_SAMP(x)",
                        "the standard deviation of a sample; of integers exact",
                        "STDDEV_SAMP(status)"),
    "stddev_pop": Rule(_variance("stddev_pop"), "STDDEV_POP(x)",
                       "the standard deviation of the whole; of integers exact",
                       "STDDEV_POP(status)"),
    "variance": Rule(_variance("var_samp"), "VARIANCE(x)", "the same as VAR_SAMP",
                     "VARIANCE(status)"),
    "var_samp": Rule(_variance("var_samp"), "VAR_SAMP(x)", "the variance of a sample; of integers exact",
                     "VAR_SAMP(status)"),
    "var_pop": Rule(_variance("var_pop"), "VAR_POP(x)", "the variance of the whole; of integers exact",
                    "VAR_POP(status)"),
    "first": Rule(_end, "FIRST(x)", "the first by event time; of several at one time, the least",
                  "FIRST(page)"),
    "last": Rule(_end, "LAST(x)", "the last by event time; of several at one time, the greatest",
                 "LAST(page)"),
    "max_by": Rule(_by("max_by"), "MAX_BY(x, y)",
                   "the x where y is greatest; of several the greatest x; rows with a NULL in either are "
                   "passed over",
                   "MAX_BY(page, ms)", 2),
    "min_by": Rule(_by("min_by"), "MIN_BY(x, y)", "the x where y is least; of several the least x",
                   "MIN_BY(page, ms)", 2),
    "arg_max": Rule(_by("max_by"), "ARG_MAX(x, y)", "the same as MAX_BY",
                    "ARG_MAX(host, status)", 2),
    "arg_min": Rule(_by("min_by"), "ARG_MIN(x, y)", "the same as MIN_BY",
                    "ARG_MIN(host, status)", 2),
    "approx_count_distinct": Rule(_approx_distinct, "APPROX_COUNT_DISTINCT(x)",
                                  "different values by HyperLogLog: standard error 1.6 %, memory for at most "
                                  "4,096 registers a group; of doubles exact",
                                  "APPROX_COUNT_DISTINCT(page)"),
    "median": Rule(_percentile, "MEDIAN(x)", "the same as PERCENTILE(x, 0.5)",
                   "MEDIAN(ms)"),
    "percentile": Rule(_percentile, "PERCENTILE(x, p)",
                       "exact, between two values where need be; memory for each value of each group",
                       "PERCENTILE(ms, 0.9)", 2),
    "approx_percentile": Rule(_percentile, "APPROX_PERCENTILE(x, p)",
                              "the value of that rank to 0.79 %; memory for 64 numbers a doubling of x",
                              "APPROX_PERCENTILE(ms, 0.9)", 2),
    "approx_top_k": Rule(_top, "APPROX_TOP_K(x, k)",
                         "the k most frequent values with counts, as JSON; exact, memory for each value",
                         "APPROX_TOP_K(status, 1)", 2),
    "histogram": Rule(_histogram, "HISTOGRAM(x[, width])",
                      "the values in their order with counts, as JSON; with a width, a whole constant, "
                      "numbers rounded down to a multiple of it. "
                      f"Behind {TOP_MAX:,} of them \"…\" counts all others. Memory for each",
                      "HISTOGRAM(ms, 25)", optional=1),
    "array_agg": Rule(_array, "ARRAY_AGG([DISTINCT] x [ORDER BY y [DESC]] [LIMIT n])",
                      "the values as JSON, in the order of y and then of x; without ORDER BY, of event time "
                      "and then of x; with DISTINCT, or over groups, of x alone. "
                      f"The first {TOP_MAX:,}, or n; memory for each pair (y, x)",
                      "ARRAY_AGG(page ORDER BY ms DESC LIMIT 2)", distinct=True, listed=True),
}  # fmt: skip
"""The aggregates, by name in lower case."""

_DISTINCT: Final = ", ".join(
    f"{name.upper()}(DISTINCT …)" for name, rule in AGGREGATES.items() if rule.distinct
)

FILTERS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {exp.Filter: _bind_filter}
"""The node of FILTER."""
