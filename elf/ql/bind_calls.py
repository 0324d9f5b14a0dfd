"""Calls: functions of the table ``elf.ql.functions``, also in their keyword forms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from sqlglot import exp

from elf.ql.bind_aggregates import AGGREGATES, bind_aggregate, bind_own
from elf.ql.bind_lags import LAGS, bind_lag
from elf.ql.expressions import Call, Expr
from elf.ql.functions import ALIASES, CHANGING, ELSEWHERE, FUNCTIONS
from elf.ql.functions_time import PARTS
from elf.ql.functions_web import json_text
from elf.ql.kinds import become, common
from elf.ql.scope import Scope
from elf.ql.signatures import Misuse
from elf.ql.source import did_you_mean


def _bind_call(node: exp.Anonymous, scope: Scope) -> Expr:
    name = node.name.lower()
    if name == "grouping":
        return _bind_grouping(node, scope)
    if name in scope.owns:
        return bind_own(scope.owns[name], node, scope)
    if name in AGGREGATES:
        return bind_aggregate(name, node, scope)
    if name in LAGS:
        return bind_lag(node, scope)
    return _apply(name, node, list(node.expressions), scope)


def _bind_grouping(node: exp.Anonymous, scope: Scope) -> Expr:
    """GROUPING(key), which a rule turns into a column of the groups."""
    if not scope.aggregates or scope.within or len(node.expressions) != 1:
        scope.fail(
            node, "GROUPING takes one key of GROUP BY, and stands in SELECT, HAVING, QUALIFY or ORDER BY"
        )
    key = scope.bind(node.expressions[0])
    if scope.keys is not None and key not in scope.keys:
        scope.fail(node, "GROUPING takes what is in GROUP BY")
    return Call("grouping", (key,), "bigint")


def _apply(name: str, node: exp.Expr, arguments: list[exp.Expr], scope: Scope) -> Expr:
    function = FUNCTIONS.get(ALIASES.get(name, name))
    if function is None:
        scope.fail(node, _unknown(name, scope.owns))
    args = [scope.bind(argument) for argument in arguments]
    try:
        return function.build(args)
    except Misuse as misuse:
        place = node if misuse.index is None else arguments[misuse.index]
        scope.fail(place, f"{function.usage}: {misuse}")


def _unknown(name: str, owns: Collection[str] = ()) -> str:
    if name in CHANGING:
        return (
            f"{name.upper()} gives something else each time, so an answer could not be checked; rows have "
            "their event time, windows window_start and window_end"
        )
    if name in ELSEWHERE:
        return f"there is no function {name.upper()}; write {ELSEWHERE[name]}"
    known = [*owns, *FUNCTIONS, *ALIASES, *AGGREGATES, *LAGS]
    return f"function {name.upper()} is not supported yet{did_you_mean(name, known)}"


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


def _bind_json(node: exp.JSONExtractScalar, scope: Scope) -> Expr:
    """``document ->> path``"""
    document = scope.bind(node.this)
    if common((document.kind, "text")) != "text":
        scope.fail(node.this, f"->> needs JSON as text, this is {document.kind}")
    steps: list[str | int] = []
    for part in node.expression.expressions if isinstance(node.expression, exp.JSONPath) else [None]:
        step = part.this if isinstance(part, exp.JSONPathKey | exp.JSONPathSubscript) else None
        if isinstance(step, str | int) and not (isinstance(step, str) and set(step) & set("\"'\\[]")):
            steps.append(step)
        elif not isinstance(part, exp.JSONPathRoot):
            scope.fail(node, "->> takes a constant path such as '$.user.tags[0]'")
    return json_text(become(document, "text"), tuple(steps))


def _bind_now(node: exp.Expr, scope: Scope) -> Expr:
    return scope.fail(node, _unknown(node.key.replace("current", "current_")))


CALLS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {
    exp.Anonymous: _bind_call,
    exp.Trim: _bind_trim,
    exp.Substring: _bind_substring,
    exp.Extract: _bind_extract,
    exp.StrPosition: _bind_position,
    exp.JSONExtractScalar: _bind_json,
    exp.CurrentTimestamp: _bind_now,
    exp.CurrentDate: _bind_now,
}
"""The nodes that are calls."""
