"""From a parsed expression to a bound one: every name is a column, every value has a type, every function is
known.

Names: a column by its path (``user.location``, ``user['location']``, ``clicks.product``), without regard to
case where that is unambiguous; then an alias of the SELECT list (in ORDER BY, and where a column has no
value, the alias comes first). A back-quoted name that is neither is a text constant, so that the paper's
Figure 4 runs as printed.

One bound expression a call, no state: ``bind(node, scope)``. Anything that is not in the tables below is
refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NoReturn

from sqlglot import exp

from elf.ql.expressions import (
    Aggregate,
    Call,
    Constant,
    Expr,
    Kind,
    Ref,
    Spelled,
    arithmetic,
    comparison,
    connect,
    walk,
)
from elf.ql.functions import ALIASES, FUNCTIONS, PARTS, Misuse, as_text
from elf.ql.kinds import CAST_TYPES, INT64_MAX, INT64_MIN, become, cast, common, read_text
from elf.ql.patterns import like_for_spark
from elf.ql.render import text_literal
from elf.ql.source import Source, did_you_mean, start_of
from elf.schema import Schema

PSEUDO_COLUMNS: Final = ("_agent", "_source", "_line")


@dataclass(frozen=True)
class Scope:
    """What names mean, and what is allowed, in one clause of one query."""

    source: Source
    schema: Schema
    clause: str
    aggregates: bool
    streams: tuple[str, ...] = ()
    """Names that may stand before a column: the stream's, or its alias."""
    aliases: Mapping[str, exp.Expr] = field(default_factory=dict)
    """Expressions of the SELECT list by alias, in lower case."""
    aliases_first: bool = False
    keys: tuple[Expr, ...] | None = None
    """After grouping: the keys, the only columns that have a value outside of aggregates."""
    within: str | None = None
    """The aggregate that we are in the argument of."""

    def fail(self, node: exp.Expr, message: str) -> NoReturn:
        raise self.source.at(node, message)


def bind(node: exp.Expr, scope: Scope) -> Expr:
    """The bound expression. Raises ``QueryError`` at the place of what is wrong."""
    binder = _BINDERS.get(type(node))
    if binder is None:
        scope.fail(node, f"{_feature(node)} is not supported yet")
    known = _PARTS.get(type(node), _OPERANDS)
    for part, value in node.args.items():
        if isinstance(value, exp.Query):
            scope.fail(node, "a subquery is not supported yet")
        if value and part not in known:
            scope.fail(node, f"{_feature(node)} with {part.upper()} is not supported yet")
    return binder(node, scope)


def bind_condition(node: exp.Expr, scope: Scope) -> Expr:
    """A bound boolean."""
    expr = bind(node, scope)
    if common((expr.kind, "boolean")) != "boolean":
        scope.fail(node, f"{scope.clause} needs a condition, this is {expr.kind}")
    return become(expr, "boolean")


_FEATURES: dict[type[exp.Expr], str] = {
    exp.Window: "a window function (OVER)",
    exp.Filter: "FILTER on an aggregate",
    exp.Distinct: "DISTINCT in an aggregate",
    exp.Subquery: "a subquery",
    exp.Select: "a subquery",
    exp.Exists: "a subquery (EXISTS)",
    exp.Star: "* here",
    exp.Interval: "INTERVAL",
    exp.CurrentTimestamp: "CURRENT_TIMESTAMP",
    exp.IntDiv: "integer division",
    exp.Escape: "LIKE … ESCAPE",
    exp.Tuple: "a tuple",
    exp.Array: "an array",
    exp.Lambda: "a lambda",
    exp.WithinGroup: "WITHIN GROUP",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.Placeholder: "a placeholder",
    exp.JSONExtract: "->",
    exp.JSONExtractScalar: "->>",
    exp.Any: "ANY",
    exp.AtTimeZone: "AT TIME ZONE",
}


_OPERANDS: Final = frozenset({"this", "expression", "expressions"})
_PARTS: Final[Mapping[type[exp.Expr], frozenset[str]]] = {
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Literal: frozenset({"this", "is_string"}),
    exp.Like: frozenset({"this", "expression", "negate"}),
    exp.ILike: frozenset({"this", "expression", "negate"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.DPipe: frozenset({"this", "expression", "safe"}),
    exp.Case: frozenset({"this", "ifs", "default"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.Trim: frozenset({"this", "expression", "position"}),
    exp.Substring: frozenset({"this", "start", "length"}),
    exp.StrPosition: frozenset({"this", "substr"}),
}
"""What each node may consist of; anything else that the grammar found is refused, never overlooked."""


def _feature(node: exp.Expr) -> str:
    return _FEATURES.get(type(node), node.key.upper())


# ---- names


def _path(node: exp.Expr) -> list[str] | None:
    """The parts of a column's name; None when the node is no name."""
    if isinstance(node, exp.Column):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Parameter):
        return ["@" + node.name]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        parts = _path(node.this)
        return None if parts is None else [*parts, node.expression.name]
    if isinstance(node, exp.Bracket) and len(node.expressions) == 1:
        parts, key = _path(node.this), node.expressions[0]
        if parts is not None and isinstance(key, exp.Literal) and key.is_string:
            return [*parts, key.name]
    return None


def _bind_name(node: exp.Expr, scope: Scope) -> Expr:
    parts = _path(node)
    if parts is None:
        scope.fail(
            node, "only a name or a text may stand after a column, as in user.location or user['location']"
        )
    found = _resolve(node, parts, scope)
    if found is not None:
        return found
    quote = _quote(node, scope)
    if quote == "`":
        return Constant(parts[0], "text")
    hint = "; a text is written in single quotes" if quote == '"' else ""
    return scope.fail(node, _unknown(".".join(parts), scope) + hint)


def _resolve(node: exp.Expr, parts: list[str], scope: Scope) -> Expr | None:
    """Columns before aliases; but in ORDER BY, and where only an alias can be meant, aliases before columns."""
    column = _as_column(node, parts, scope)
    hidden = scope.keys is not None and scope.within is None and column not in scope.keys
    if column is None or scope.aliases_first or hidden:
        return _as_alias(node, parts, scope) or column
    return column


def _as_column(node: exp.Expr, parts: list[str], scope: Scope) -> Expr | None:
    names = [".".join(parts)]
    if len(parts) > 1 and parts[0].lower() in {stream.lower() for stream in scope.streams}:
        names.append(".".join(parts[1:]))
    for name in names:
        column = scope.schema.find(name)
        if column is not None:
            return Ref(column.name, column.type, start_of(node) or 0)
        if sum(other.lower() == name.lower() for other in scope.schema.names()) > 1:
            scope.fail(node, f'column "{name}" is ambiguous: columns differ only in case')
    return None


def _as_alias(node: exp.Expr, parts: list[str], scope: Scope) -> Expr | None:
    aliased = scope.aliases.get(parts[0].lower()) if len(parts) == 1 else None
    if aliased is None:
        return None
    if scope.within or not scope.aggregates:
        inner = bind(aliased, replace(scope, aliases={}, aliases_first=False, aggregates=True, within=None))
        if any(isinstance(part, Aggregate) for part in walk(inner)):
            scope.fail(node, f'"{parts[0]}" is an aggregate, which cannot be in {_where(scope)}')
        return inner
    return bind(aliased, replace(scope, aliases={}, aliases_first=False))


def _quote(node: exp.Expr, scope: Scope) -> str:
    """The quotation mark that a name of one part was written with, if any."""
    start = start_of(node)
    if not isinstance(node, exp.Column) or len(node.parts) > 1 or start is None:
        return ""
    first = scope.source.text[start : start + 1]
    return first if first in ("`", '"') else ""


def _unknown(name: str, scope: Scope) -> str:
    if name.lower() in PSEUDO_COLUMNS:
        return f"the pseudo column {name.lower()} is not supported yet"
    known = [*scope.schema.names(), *scope.aliases]
    return f'unknown column "{name}"{did_you_mean(name, known)}'


# ---- constants


def _bind_literal(node: exp.Literal, scope: Scope) -> Expr:
    if node.is_string:
        if "\0" in node.name:
            scope.fail(node, "a text constant cannot hold a NUL character")
        return Constant(node.name, "text")
    return _number(node, node.name, scope)


def _number(node: exp.Expr, digits: str, scope: Scope) -> Expr:
    value = read_text(digits, "hugeint") if digits.lstrip("-").isdigit() else read_text(digits, "double")
    if value is None or (isinstance(value.value, int) and abs(value.value) >= 10**38):
        scope.fail(node, f"{digits} is not a number that fits")
    if isinstance(value.value, int) and INT64_MIN <= value.value <= INT64_MAX:
        return Constant(value.value, "bigint")
    return value


def _bind_negation(node: exp.Neg, scope: Scope) -> Expr:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return _number(node, "-" + inner.name, scope)
    operand = _numeric(inner, bind(inner, scope), "-", scope)
    if isinstance(operand, Constant) and isinstance(operand.value, int | float):
        return _number(node, _negated(operand.value), scope)
    if operand.kind == "double":
        return Call("negate double", (operand,), "double")
    return Call("-", (become(Constant(0, "bigint"), operand.kind), operand), operand.kind)


def _negated(value: int | float) -> str:
    return str(-value) if isinstance(value, int) else repr(-value)


# ---- operators


def _numeric(node: exp.Expr, expr: Expr, op: str, scope: Scope) -> Expr:
    if common((expr.kind, "double")) != "double":
        hint = "; CAST it to a number" if expr.kind == "text" else ""
        scope.fail(node, f"{op} needs numbers, this is {expr.kind}{hint}")
    return become(expr, "double") if expr.kind == "null" else expr


_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


def _bind_arithmetic(node: exp.Binary, scope: Scope) -> Expr:
    op = _ARITHMETIC[type(node)]
    left, right = bind(node.left, scope), bind(node.right, scope)
    left, right = _numeric(node.left, left, op, scope), _numeric(node.right, right, op, scope)
    kind: Kind = "double" if op == "/" else common((left.kind, right.kind)) or "double"
    typed = "/" if op == "/" else f"{op} double" if kind == "double" else op
    return arithmetic(typed, become(left, kind), become(right, kind), kind)


_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is_not_distinct",
    exp.NullSafeNEQ: "is_distinct",
}


def _bind_comparison(node: exp.Binary, scope: Scope) -> Expr:
    left, right = _comparable(node.left, bind(node.left, scope), node.right, bind(node.right, scope), scope)
    op = _COMPARISONS[type(node)]
    return Call(op, (left, right), "boolean") if op.startswith("is_") else comparison(op, left, right)


def _comparable(
    left_node: exp.Expr, left: Expr, right_node: exp.Expr, right: Expr, scope: Scope
) -> tuple[Expr, Expr]:
    """Both sides in their common type; a text constant is read as the other side's type."""
    left = _read_as(left_node, left, right.kind, scope)
    right = _read_as(right_node, right, left.kind, scope)
    kind = common((left.kind, right.kind))
    if kind is None:
        scope.fail(right_node, f"cannot compare {left.kind} with {right.kind}{_cast_hint(left, right)}")
    return become(left, kind), become(right, kind)


def _read_as(node: exp.Expr, expr: Expr, kind: Kind, scope: Scope) -> Expr:
    if not (isinstance(expr, Constant) and isinstance(expr.value, str)) or kind in ("text", "null"):
        return expr
    value = read_text(expr.value, kind)
    if value is None:
        scope.fail(node, f"{text_literal(expr.value, 'duckdb')} is not a {kind}")
    return value


def _cast_hint(left: Expr, right: Expr) -> str:
    if left.kind == "text" and isinstance(right, Constant):
        return "; write the constant in quotes"
    return "; CAST one of them" if "text" in (left.kind, right.kind) else ""


def _bind_connective(node: exp.Connector, scope: Scope) -> Expr:
    op: Literal["and", "or"] = "and" if isinstance(node, exp.And) else "or"
    return connect(op, tuple(_boolean(part, op.upper(), scope) for part in node.flatten()))


def _boolean(node: exp.Expr, op: str, scope: Scope) -> Expr:
    expr = bind(node, scope)
    if common((expr.kind, "boolean")) != "boolean":
        scope.fail(node, f"{op} needs conditions, this is {expr.kind}")
    return become(expr, "boolean")


_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _bind_not(node: exp.Not, scope: Scope) -> Expr:
    inner = _boolean(node.this, "NOT", scope)
    if isinstance(inner, Call) and inner.op in _OPPOSITE:
        return Call(_OPPOSITE[inner.op], inner.args, "boolean")
    if isinstance(inner, Call) and inner.op == "not":
        return inner.args[0]
    return Call("not", (inner,), "boolean")


def _bind_between(node: exp.Between, scope: Scope) -> Expr:
    low_node, high_node = node.args["low"], node.args["high"]
    value = bind(node.this, scope)
    low = comparison(">=", *_comparable(node.this, value, low_node, bind(low_node, scope), scope))
    high = comparison("<=", *_comparable(node.this, value, high_node, bind(high_node, scope), scope))
    return connect("and", (low, high))


def _bind_in(node: exp.In, scope: Scope) -> Expr:
    value = bind(node.this, scope)
    pairs = [_comparable(node.this, value, item, bind(item, scope), scope) for item in node.expressions]
    kind = common([left.kind for left, _ in pairs] + [right.kind for _, right in pairs])
    if kind is None:
        scope.fail(node, "the values in IN have different types")
    items = dict.fromkeys(become(right, kind) for _, right in pairs)
    value = become(pairs[0][0], kind)
    if len(items) == 1:
        return comparison("=", value, next(iter(items)))
    return Call("in", (value, *sorted(items, key=repr)), "boolean")


def _bind_is(node: exp.Is, scope: Scope) -> Expr:
    if isinstance(node.expression, exp.Null):
        return Call("is_null", (bind(node.this, scope),), "boolean")
    if isinstance(node.expression, exp.Boolean):
        op = "is_true" if node.expression.this else "is_false"
        return Call(op, (_boolean(node.this, "IS", scope),), "boolean")
    return scope.fail(node.expression, "IS takes NULL, TRUE or FALSE")


def _bind_like(node: exp.Binary, scope: Scope) -> Expr:
    text, pattern = bind(node.left, scope), bind(node.right, scope)
    if common((text.kind, "text")) != "text":
        scope.fail(node.left, f"LIKE needs text, this is {text.kind}")
    if not (isinstance(pattern, Constant) and isinstance(pattern.value, str)):
        scope.fail(node.right, "a LIKE pattern that is no text constant is not supported yet")
    spelled = Spelled(
        text_literal(pattern.value, "duckdb"), text_literal(like_for_spark(pattern.value), "spark")
    )
    op = "ilike" if isinstance(node, exp.ILike) else "like"
    found = Call(op, (become(text, "text"), spelled), "boolean")
    return Call("not", (found,), "boolean") if node.args.get("negate") else found


def _bind_concatenation(node: exp.Binary, scope: Scope) -> Expr:
    parts = []
    for part in (node.left, node.right):
        expr = bind(part, scope)
        text = as_text(expr)
        if text is None:
            scope.fail(part, f"|| with {expr.kind} is not supported yet")
        parts.append(text)
    return Call("||", tuple(parts), "text")


def _bind_case(node: exp.Case, scope: Scope) -> Expr:
    conditions, nodes = [], []
    for branch in node.args["ifs"]:
        if node.this is None:
            conditions.append(_boolean(branch.this, "WHEN", scope))
        else:
            value = bind(node.this, scope)
            conditions.append(
                comparison("=", *_comparable(node.this, value, branch.this, bind(branch.this, scope), scope))
            )
        nodes.append(branch.args["true"])
    default = node.args.get("default")
    values = [bind(part, scope) for part in nodes]
    values.append(bind(default, scope) if default is not None else Constant(None, "null"))
    kind = common(value.kind for value in values)
    if kind is None:
        kinds = ", ".join(dict.fromkeys(value.kind for value in values if value.kind != "null"))
        scope.fail(node, f"the branches of CASE have different types: {kinds}")
    args = [
        part for pair in zip(conditions, values, strict=False) for part in (pair[0], become(pair[1], kind))
    ]
    return Call("case", (*args, become(values[-1], kind)), kind)


def _bind_cast(node: exp.Cast, scope: Scope) -> Expr:
    target = node.args["to"]
    kind = CAST_TYPES.get(target.this)
    if kind is None or target.expressions:
        known = ", ".join(sorted({name.upper() for name in CAST_TYPES.values()}))
        scope.fail(node, f"the type {target.sql()} is not supported yet; there are {known}")
    expr = bind(node.this, scope)
    if isinstance(expr, Constant) and isinstance(expr.value, str) and kind == "timestamp":
        return _read_as(node.this, expr, kind, scope)
    found = cast(expr, kind)
    if found is None:
        scope.fail(node, f"a CAST of {expr.kind} to {kind} is not supported yet")
    return found


# ---- functions and aggregates


def _bind_call(node: exp.Anonymous, scope: Scope) -> Expr:
    name = node.name.lower()
    if name in _AGGREGATES:
        return _bind_aggregate(name, node, scope)
    return _apply(name, node, list(node.expressions), scope)


def _apply(name: str, node: exp.Expr, arguments: list[exp.Expr], scope: Scope) -> Expr:
    function = FUNCTIONS.get(ALIASES.get(name, name))
    if function is None:
        known = [*FUNCTIONS, *ALIASES, *_AGGREGATES]
        scope.fail(node, f"function {name.upper()} is not supported yet{did_you_mean(name, known)}")
    args = [bind(argument, scope) for argument in arguments]
    try:
        return function.build(args)
    except Misuse as misuse:
        place = node if misuse.index is None else arguments[misuse.index]
        scope.fail(place, f"{function.usage}: {misuse}")


def _bind_trim(node: exp.Trim, scope: Scope) -> Expr:
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
    arguments = [node.this] + ([node.expression] if node.args.get("expression") else [])
    return _apply(name, node, arguments, scope)


def _bind_substring(node: exp.Substring, scope: Scope) -> Expr:
    start, length = node.args.get("start"), node.args.get("length")
    return _apply("substring", node, [part for part in (node.this, start, length) if part is not None], scope)


def _bind_extract(node: exp.Extract, scope: Scope) -> Expr:
    part = node.this.name.lower()
    if part not in PARTS:
        scope.fail(node, f"EXTRACT({part.upper()} …) is not supported yet; there are {', '.join(PARTS)}")
    return _apply(PARTS[part], node, [node.expression], scope)


def _bind_position(node: exp.StrPosition, scope: Scope) -> Expr:
    return _apply("strpos", node, [node.this, node.args["substr"]], scope)


def _where(scope: Scope) -> str:
    return f"the argument of {scope.within}" if scope.within else scope.clause


def _bind_aggregate(name: str, node: exp.Anonymous, scope: Scope) -> Expr:
    upper = name.upper()
    if scope.within:
        scope.fail(node, f"{upper} cannot be inside {scope.within}: both are aggregates")
    if not scope.aggregates:
        scope.fail(node, f"{upper} is an aggregate, which cannot be in {scope.clause}")
    arguments = node.expressions
    if len(arguments) != 1:
        scope.fail(node, f"{upper} takes 1 argument, not {len(arguments)}")
    if isinstance(arguments[0], exp.Star):
        if name != "count":
            scope.fail(arguments[0], f"{upper} takes a column or an expression, not *")
        return Aggregate("count", None, "bigint", start_of(node) or 0)
    if isinstance(arguments[0], exp.Distinct):
        scope.fail(node, f"{upper}(DISTINCT …) is not supported yet")
    arg = bind(arguments[0], replace(scope, within=upper, aliases={}))
    return _AGGREGATES[name](node, arg, start_of(node) or 0, scope)


def _count(_node: exp.Anonymous, arg: Expr, at: int, _scope: Scope) -> Expr:
    if isinstance(arg, Constant) and arg.value is not None:
        return Aggregate("count", None, "bigint", at)
    return Aggregate("count", arg, "bigint", at)


def _sum(node: exp.Anonymous, arg: Expr, at: int, scope: Scope) -> Expr:
    arg = _numeric(node.expressions[0], arg, node.name.upper(), scope)
    return Aggregate("sum", arg, "double" if arg.kind == "double" else "hugeint", at)


def _avg(node: exp.Anonymous, arg: Expr, at: int, scope: Scope) -> Expr:
    return Aggregate("avg", _numeric(node.expressions[0], arg, node.name.upper(), scope), "double", at)


def _min(_node: exp.Anonymous, arg: Expr, at: int, _scope: Scope) -> Expr:
    return Aggregate("min", arg, arg.kind, at)


def _max(_node: exp.Anonymous, arg: Expr, at: int, _scope: Scope) -> Expr:
    return Aggregate("max", arg, arg.kind, at)


_AGGREGATES: Final[Mapping[str, Callable[[exp.Anonymous, Expr, int, Scope], Expr]]] = {
    "count": _count,
    "sum": _sum,
    "min": _min,
    "max": _max,
    "avg": _avg,
}

_BINDERS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {
    exp.Column: _bind_name,
    exp.Dot: _bind_name,
    exp.Bracket: _bind_name,
    exp.Parameter: _bind_name,
    exp.Literal: _bind_literal,
    exp.Boolean: lambda node, scope: Constant(bool(node.this), "boolean"),
    exp.Null: lambda node, scope: Constant(None, "null"),
    exp.Paren: lambda node, scope: bind(node.this, scope),
    exp.Neg: _bind_negation,
    **dict.fromkeys(_ARITHMETIC, _bind_arithmetic),
    **dict.fromkeys(_COMPARISONS, _bind_comparison),
    exp.And: _bind_connective,
    exp.Or: _bind_connective,
    exp.Not: _bind_not,
    exp.Between: _bind_between,
    exp.In: _bind_in,
    exp.Is: _bind_is,
    exp.Like: _bind_like,
    exp.ILike: _bind_like,
    exp.DPipe: _bind_concatenation,
    exp.Case: _bind_case,
    exp.Cast: _bind_cast,
    exp.TryCast: _bind_cast,
    exp.Anonymous: _bind_call,
    exp.Trim: _bind_trim,
    exp.Substring: _bind_substring,
    exp.Extract: _bind_extract,
    exp.StrPosition: _bind_position,
}
