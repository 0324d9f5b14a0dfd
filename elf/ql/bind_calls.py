"""Calls: functions of the table ``elf.ql.functions``, also in their keyword forms, and aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from sqlglot import exp

from elf.ql.bind_operators import numeric
from elf.ql.expressions import Aggregate, Constant, Expr
from elf.ql.functions import ALIASES, FUNCTIONS, PARTS, Misuse
from elf.ql.scope import Scope
from elf.ql.source import did_you_mean, start_of


def _bind_call(node: exp.Anonymous, scope: Scope) -> Expr:
    name = node.name.lower()
    if name in AGGREGATES:
        return _bind_aggregate(name, node, scope)
    return _apply(name, node, list(node.expressions), scope)


def _apply(name: str, node: exp.Expr, arguments: list[exp.Expr], scope: Scope) -> Expr:
    function = FUNCTIONS.get(ALIASES.get(name, name))
    if function is None:
        known = [*FUNCTIONS, *ALIASES, *AGGREGATES]
        scope.fail(node, f"function {name.upper()} is not supported yet{did_you_mean(name, known)}")
    args = [scope.bind(argument) for argument in arguments]
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
    arg = replace(scope, within=upper, aliases={}).bind(arguments[0])
    return AGGREGATES[name](node, arg, start_of(node) or 0, scope)


def _count(_node: exp.Anonymous, arg: Expr, at: int, _scope: Scope) -> Expr:
    if isinstance(arg, Constant) and arg.value is not None:
        return Aggregate("count", None, "bigint", at)
    return Aggregate("count", arg, "bigint", at)


def _sum(node: exp.Anonymous, arg: Expr, at: int, scope: Scope) -> Expr:
    arg = numeric(node.expressions[0], arg, node.name.upper(), scope)
    return Aggregate("sum", arg, "double" if arg.kind == "double" else "hugeint", at)


def _avg(node: exp.Anonymous, arg: Expr, at: int, scope: Scope) -> Expr:
    return Aggregate("avg", numeric(node.expressions[0], arg, node.name.upper(), scope), "double", at)


def _min(_node: exp.Anonymous, arg: Expr, at: int, _scope: Scope) -> Expr:
    return Aggregate("min", arg, arg.kind, at)


def _max(_node: exp.Anonymous, arg: Expr, at: int, _scope: Scope) -> Expr:
    return Aggregate("max", arg, arg.kind, at)


AGGREGATES: Final[Mapping[str, Callable[[exp.Anonymous, Expr, int, Scope], Expr]]] = {
    "count": _count,
    "sum": _sum,
    "min": _min,
    "max": _max,
    "avg": _avg,
}
"""The aggregates, by name in lower case."""

CALLS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {
    exp.Anonymous: _bind_call,
    exp.Trim: _bind_trim,
    exp.Substring: _bind_substring,
    exp.Extract: _bind_extract,
    exp.StrPosition: _bind_position,
}
"""The nodes that are calls."""
