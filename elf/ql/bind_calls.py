"""Calls: functions of the table ``elf.ql.functions``, also in their keyword forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from elf.ql.bind_aggregates import AGGREGATES, bind_aggregate
from elf.ql.expressions import Expr
from elf.ql.functions import ALIASES, FUNCTIONS, PARTS, Misuse
from elf.ql.scope import Scope
from elf.ql.source import did_you_mean


def _bind_call(node: exp.Anonymous, scope: Scope) -> Expr:
    name = node.name.lower()
    if name in AGGREGATES:
        return bind_aggregate(name, node, scope)
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


CALLS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {
    exp.Anonymous: _bind_call,
    exp.Trim: _bind_trim,
    exp.Substring: _bind_substring,
    exp.Extract: _bind_extract,
    exp.StrPosition: _bind_position,
}
"""The nodes that are calls."""
