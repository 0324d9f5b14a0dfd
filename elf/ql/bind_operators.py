"""Constants and operators: arithmetic, comparisons, conditions, CASE, CAST, LIKE, ``||``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal, NoReturn

from sqlglot import exp

from elf.errors import ColumnError
from elf.ql.bind_times import TIMES, shift
from elf.ql.expressions import Call, Constant, Expr, Kind, Ref, Spelled, arithmetic, comparison, connect
from elf.ql.functions_number import quotient
from elf.ql.functions_text import as_text, regexp_matches
from elf.ql.kinds import CAST_TYPES, INT64_MAX, INT64_MIN, become, cast, common, read_text
from elf.ql.patterns import like_for_spark
from elf.ql.scope import Scope
from elf.ql.signatures import Misuse, spelled
from elf.ql.templates import text_literal
from elf.schema import COLUMN_TYPES


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
    operand = numeric(inner, scope.bind(inner), "-", scope)
    if isinstance(operand, Constant) and isinstance(operand.value, int | float):
        return _number(node, _negated(operand.value), scope)
    if operand.kind == "double":
        return Call("negate double", (operand,), "double")
    return Call("-", (become(Constant(0, "bigint"), operand.kind), operand), operand.kind)


def _negated(value: int | float) -> str:
    return str(-value) if isinstance(value, int) else repr(-value)


def numeric(node: exp.Expr, expr: Expr, op: str, scope: Scope) -> Expr:
    """``expr``, the meaning of ``node``, if it is a number (NULL as a double); else an error."""
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
    moved = shift(node, op, scope)
    if moved is not None:
        return moved
    left, right = scope.bind(node.left), scope.bind(node.right)
    if {left.kind, right.kind} == {"timestamp"}:
        scope.fail(node, "the difference of two timestamps is date_diff('second', from, to)")
    if "timestamp" in (left.kind, right.kind):
        scope.fail(node, f"{op} of a timestamp takes an interval, as in ts {op} INTERVAL 5 MINUTES")
    left, right = numeric(node.left, left, op, scope), numeric(node.right, right, op, scope)
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
    left, right = comparable(node.left, scope.bind(node.left), node.right, scope.bind(node.right), scope)
    op = _COMPARISONS[type(node)]
    return Call(op, (left, right), "boolean") if op.startswith("is_") else comparison(op, left, right)


def comparable(
    left_node: exp.Expr, left: Expr, right_node: exp.Expr, right: Expr, scope: Scope
) -> tuple[Expr, Expr]:
    """Both sides in their common type; a text constant is read as the other side's type."""
    left = read_as(left_node, left, right.kind, scope)
    right = read_as(right_node, right, left.kind, scope)
    kind = common((left.kind, right.kind))
    if kind is None:
        _refuse_comparison(left_node, left, right_node, right, scope)
    return become(left, kind), become(right, kind)


def read_as(node: exp.Expr, expr: Expr, kind: Kind, scope: Scope) -> Expr:
    if not (isinstance(expr, Constant) and isinstance(expr.value, str)) or kind in ("text", "null"):
        return expr
    value = read_text(expr.value, kind)
    if value is None:
        scope.fail(node, f"{text_literal(expr.value, 'duckdb')} is not a {kind}")
    return value


def _refuse_comparison(
    left_node: exp.Expr, left: Expr, right_node: exp.Expr, right: Expr, scope: Scope
) -> NoReturn:
    """A text may be read as the other side's type: by CAST, or for the whole stream where it is its
    column."""
    error = scope.source.at(right_node, f"cannot compare {left.kind} with {right.kind}")
    node, text, other = (left_node, left, right) if left.kind == "text" else (right_node, right, left)
    if text.kind != "text" or other.kind not in COLUMN_TYPES:
        raise error
    what = node.sql() if isinstance(node, exp.Column | exp.Dot) else "…"
    way = f"write CAST({what} AS {other.kind.upper()})"
    if isinstance(other, Constant) and other.kind != "timestamp":
        way += ", or the constant in quotes to compare texts"
    error = scope.source.at(right_node, f"{error.text}; {way}")
    raise ColumnError(error, text.name, other.kind) if isinstance(text, Ref) and not text.table else error


def _bind_connective(node: exp.Connector, scope: Scope) -> Expr:
    op: Literal["and", "or"] = "and" if isinstance(node, exp.And) else "or"
    # Keys are known by their own form only.
    return connect(op, tuple(scope.condition(part, op.upper()) for part in node.flatten()), scope.keys or ())


_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _bind_not(node: exp.Not, scope: Scope) -> Expr:
    inner = scope.condition(node.this, "NOT")
    if inner in (scope.keys or ()):
        return Call("not", (inner,), "boolean")
    if isinstance(inner, Call) and inner.op in _OPPOSITE:
        return Call(_OPPOSITE[inner.op], inner.args, "boolean")
    if isinstance(inner, Call) and inner.op == "not":
        return inner.args[0]
    return Call("not", (inner,), "boolean")


def _bind_between(node: exp.Between, scope: Scope) -> Expr:
    low_node, high_node = node.args["low"], node.args["high"]
    value = scope.bind(node.this)
    low = comparison(">=", *comparable(node.this, value, low_node, scope.bind(low_node), scope))
    high = comparison("<=", *comparable(node.this, value, high_node, scope.bind(high_node), scope))
    return connect("and", (low, high))


def _bind_in(node: exp.In, scope: Scope) -> Expr:
    if node.args.get("query") is not None:
        return scope.members.get(id(node)) or scope.fail(node, "IN (SELECT …) stands in WHERE")
    if not node.expressions:
        scope.fail(node, "IN takes at least one value, as in IN (1, 2)")
    value = scope.bind(node.this)
    pairs = [comparable(node.this, value, item, scope.bind(item), scope) for item in node.expressions]
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
        return Call("is_null", (scope.bind(node.this),), "boolean")
    if isinstance(node.expression, exp.Boolean):
        op = "is_true" if node.expression.this else "is_false"
        return Call(op, (scope.condition(node.this, "IS"),), "boolean")
    return scope.fail(node.expression, "IS takes NULL, TRUE or FALSE")


def _bind_like(node: exp.Binary, scope: Scope, escape: str = "") -> Expr:
    """In ELF-QL, as in DuckDB, a backslash means itself; Spark must be told."""
    text, pattern = scope.bind(node.left), scope.bind(node.right)
    for part, expr in ((node.left, text), (node.right, pattern)):
        if common((expr.kind, "text")) != "text":
            scope.fail(part, f"LIKE needs text, this is {expr.kind}; CAST it to text")
    op = "ilike" if isinstance(node, exp.ILike) else "like"
    args: tuple[Expr, ...] = (become(text, "text"),)
    if escape:
        if not (isinstance(pattern, Constant) and isinstance(pattern.value, str)):
            scope.fail(node.right, "LIKE … ESCAPE takes a text constant as its pattern")
        if not re.fullmatch(
            rf"(?:[^{re.escape(escape)}]|{re.escape(escape)}[%_{re.escape(escape)}])*",
            pattern.value,
            re.DOTALL,
        ):
            scope.fail(node.right, f"after {escape} in this pattern there must be %, _ or {escape}")
        op, args = f"{op} escape", (*args, spelled(pattern.value), spelled(escape))
    elif isinstance(pattern, Constant) and isinstance(pattern.value, str):
        like = Spelled(
            text_literal(pattern.value, "duckdb"), text_literal(like_for_spark(pattern.value), "spark")
        )
        args = (*args, like)
    else:
        args = (*args, Call("like for spark", (become(pattern, "text"),), "text"))
    found = Call(op, args, "boolean")
    return Call("not", (found,), "boolean") if node.args.get("negate") else found


def _bind_escape(node: exp.Escape, scope: Scope) -> Expr:
    escape = node.expression
    if not (isinstance(escape, exp.Literal) and escape.is_string and len(escape.name) == 1):
        scope.fail(escape, "ESCAPE takes one character in quotes")
    if not isinstance(node.this, exp.Like | exp.ILike):
        scope.fail(node, "ESCAPE stands after LIKE or ILIKE")
    return _bind_like(node.this, scope, escape.name)


def _bind_quotient(node: exp.IntDiv, scope: Scope) -> Expr:
    args = [numeric(part, scope.bind(part), "//", scope) for part in (node.left, node.right)]
    for part, arg in zip((node.left, node.right), args, strict=True):
        if arg.kind != "bigint":
            scope.fail(part, f"// needs integers of 64 bits, this is {arg.kind}; / divides doubles")
    return quotient(args)


def _bind_regexp(node: exp.Binary, scope: Scope) -> Expr:
    """``~`` and RLIKE; ``~*`` is the same without regard to case."""
    text, pattern = scope.bind(node.left), scope.bind(node.right)
    if isinstance(node, exp.RegexpILike) and isinstance(pattern, Constant) and isinstance(pattern.value, str):
        pattern = Constant(f"(?i){pattern.value}", "text")
    try:
        return regexp_matches((text, pattern))
    except Misuse as misuse:
        return scope.fail(node.right if misuse.index else node.left, f"text ~ pattern: {misuse}")


def _bind_concatenation(node: exp.Binary, scope: Scope) -> Expr:
    parts = []
    for part in (node.left, node.right):
        expr = scope.bind(part)
        text = as_text(expr)
        if text is None:
            scope.fail(
                part, f"|| with {expr.kind} is not supported: the engines write it differently; CAST it"
            )
        parts.append(text)
    return Call("||", tuple(parts), "text")


def _bind_case(node: exp.Case, scope: Scope) -> Expr:
    conditions, nodes = [], []
    for branch in node.args["ifs"]:
        if node.this is None:
            conditions.append(scope.condition(branch.this, "WHEN"))
        else:
            value = scope.bind(node.this)
            conditions.append(
                comparison("=", *comparable(node.this, value, branch.this, scope.bind(branch.this), scope))
            )
        nodes.append(branch.args["true"])
    default = node.args.get("default")
    values = [scope.bind(part) for part in nodes]
    values.append(scope.bind(default) if default is not None else Constant(None, "null"))
    kind = common(value.kind for value in values)
    if kind is None:
        kinds = ", ".join(dict.fromkeys(value.kind for value in values if value.kind != "null"))
        scope.fail(node, f"the branches of CASE have different types: {kinds}")
    args = [
        part for pair in zip(conditions, values, strict=False) for part in (pair[0], become(pair[1], kind))
    ]
    return Call("case", (*args, become(values[-1], kind)), kind)


_CAST_HINTS: Final[Mapping[tuple[Kind, Kind], str]] = {
    ("double", "text"): ": the engines write doubles differently; CAST it to bigint first",
    ("timestamp", "bigint"): "; epoch_us(ts), epoch_ms(ts) and epoch(ts) give its number",
    ("timestamp", "double"): "; epoch(ts) gives its seconds",
    (
        "bigint",
        "timestamp",
    ): "; to_timestamp(seconds), make_timestamp_ms(…) and make_timestamp(µs) read numbers",
    ("double", "timestamp"): "; to_timestamp(seconds) reads numbers",
}


def _bind_cast(node: exp.Cast, scope: Scope) -> Expr:
    target = node.args["to"]
    kind = CAST_TYPES.get(target.this)
    if kind is None or target.expressions:
        known = ", ".join(sorted({name.upper() for name in CAST_TYPES.values()}))
        hint = "; date_trunc('day', ts) is the day of a timestamp" if target.this == exp.DType.DATE else ""
        scope.fail(node, f"the type {target.sql()} is not supported yet; there are {known}{hint}")
    expr = scope.bind(node.this)
    if isinstance(expr, Constant) and isinstance(expr.value, str) and kind == "timestamp":
        return read_as(node.this, expr, kind, scope)
    found = cast(expr, kind)
    if found is None:
        hint = _CAST_HINTS.get((expr.kind, kind), "")
        scope.fail(node, f"a CAST of {expr.kind} to {kind} is not supported{hint or ' yet'}")
    return found


OPERATORS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {
    exp.Literal: _bind_literal,
    exp.Boolean: lambda node, scope: Constant(bool(node.this), "boolean"),
    exp.Null: lambda node, scope: Constant(None, "null"),
    exp.Paren: lambda node, scope: scope.bind(node.this),
    exp.Neg: _bind_negation,
    **dict.fromkeys(_ARITHMETIC, _bind_arithmetic),
    **dict.fromkeys(_COMPARISONS, _bind_comparison),
    exp.And: _bind_connective,
    exp.Or: _bind_connective,
    exp.Not: _bind_not,
    exp.Between: _bind_between,
    exp.In: _bind_in,
    exp.Is: _bind_is,
    **TIMES,
    exp.IntDiv: _bind_quotient,
    exp.Escape: _bind_escape,
    exp.RegexpLike: _bind_regexp,
    exp.RegexpILike: _bind_regexp,
    exp.Like: _bind_like,
    exp.ILike: _bind_like,
    exp.DPipe: _bind_concatenation,
    exp.Case: _bind_case,
    exp.Cast: _bind_cast,
    exp.TryCast: _bind_cast,
}
"""The nodes that are constants and operators."""
