"""How far an estimate of a sample (``elf.ql.sampling``) may be off: a node of its own in the query's tree,
since nobody writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from sqlglot import exp

from elf.fields import replace
from elf.ql.bind_operators import numeric
from elf.ql.expressions import Aggregate, Call, Constant, Expr
from elf.ql.kinds import become
from elf.ql.scope import Scope
from elf.ql.source import start_of


class Interval(exp.Expression):
    """Half the width of an interval. ``expressions``: the argument of the aggregate, which part of the sample
    a row is in (a hexadecimal digit), and perhaps the condition of FILTER. ``meta``: the ``name`` of what it
    is bound as (``elf.paos.builtin``), and the ``scale`` that this is multiplied by."""

    arg_types: ClassVar[dict[str, bool]] = {"expressions": True}


def _bind_interval(node: Interval, scope: Scope) -> Expr:
    inner = replace(scope, within="SAMPLE", aliases={})
    given, part, *condition = node.expressions
    value = become(numeric(given, inner.bind(given), "SAMPLE", inner), "double")
    if condition:
        chosen = inner.condition(condition[0], "FILTER")
        value = Call("case", (chosen, value, Constant(None, "double")), "double")
    at = start_of(given) or 0
    found = Aggregate(node.meta["name"], (value, inner.bind(part)), "double", at)
    return Call("*", (Constant(node.meta["scale"], "double"), found), "double")


INTERVALS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {Interval: _bind_interval}
