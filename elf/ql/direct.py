"""What needs no SQL: plain columns in groups, counted, added up, or of which the least or greatest stays; and
windows whose values are those of their groups, in their order.

Most questions about logs are such. An agent maps a few rows for each of them many times a second, and a
master finishes a few groups. To plan a statement takes DuckDB a millisecond each time; Arrow does as much in
a tenth of that. ``direct_of`` decides which maps are direct, ``direct_final_of`` which final fragments. The
agents run these (``agents.tasks.direct``, ``agents.tasks.finishing``); the SQL of such a fragment says the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from elf.ql.expressions import TRUE, Call, Constant, Expr, Kind, Ref, Slot, conjuncts, is_constant
from elf.ql.plan import Condition, Direct, DirectFinal, Sorted, Value, ValueType
from elf.ql.states import StateColumn, States
from elf.schema import COLUMN_TYPES

if TYPE_CHECKING:
    from elf.ql.draft import Draft, Order

_Part = TypeVar("_Part")
_Leaf = Callable[[Expr], str | None]
"""The column that an expression is; None: it is none."""

CONDITIONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "is_null", "and", "or", "not"})
"""The operations of WHERE and HAVING that mean the same without SQL: NULL is what is not known."""
_GIVEN: Final[dict[str, tuple[Kind, ...]]] = {
    "COUNT({x})": COLUMN_TYPES,
    "SUM({x})": ("bigint", "double"),
    "MIN({x})": ("bigint", "double", "timestamp"),
    "MAX({x})": ("bigint", "double", "timestamp"),
}
"""The types over which Arrow makes the state of a rule of ``elf.paos.builtin``."""
_ONE_STATE: Final = tuple(f"final {name}" for name in ("count_star", "count", "sum", "min", "max"))
"""Aggregates whose value is their one state."""


def direct_of(draft: Draft, states: States) -> Direct | None:
    """None: the map needs SQL."""
    if draft.branches or draft.joins or draft.counts or states.cells:
        return None
    where = [None if is_constant(one) else _condition(one, _named) for one in draft.where if one != TRUE]
    keys = [key.name if isinstance(key, Ref) else None for key in draft.keys]
    given = [_given(column) for column in states.columns]
    if None in where or None in keys or None in given:
        return None
    return Direct(_all(where), _all(keys), _all(given))


def conditions_of(where: Iterable[Expr]) -> tuple[Condition, ...]:
    """Those of these that need no SQL."""
    found = (None if is_constant(one) else _condition(one, _named) for one in where if one != TRUE)
    return tuple(one for one in found if one is not None)


def direct_final_of(draft: Draft, states: States) -> DirectFinal | None:
    """Of the outermost query over groups. None: the final fragment needs SQL."""
    if draft.sets or draft.qualify is not None or draft.distinct or draft.approximate or draft.counts:
        return None
    if states.whole.cells:
        return None
    tested: dict[str, Value] = {}

    def leaf(expr: Expr) -> str | None:
        value = _value(expr)
        if value is None:
            return None
        name = f"{value.name} {value.count}" if value.count else value.name
        tested[name] = value
        return name

    outputs = [_value(states.resolve(one.value)) for one in draft.outputs]
    order = [_sorted(one, states) for one in draft.order]
    having = [_condition(states.resolve(one), leaf) for one in conjuncts(draft.having)]
    if None in outputs or None in order or None in having:
        return None
    return DirectFinal(
        draft.bounds,
        _all(outputs),
        _all(order),
        _all(having),
        tuple(tested.items()),
        draft.limit,
        draft.offset,
    )


def _all(found: Sequence[_Part | None]) -> tuple[_Part, ...]:
    return tuple(one for one in found if one is not None)


def _given(column: StateColumn) -> str | None:
    """The column of which a state is made, "" of all rows; None: of something else."""
    match column.aggregate.args:
        case ():
            return "" if column.rule.partial == "COUNT(*)" else None
        case (Ref(name=name, kind=kind),) if kind in _GIVEN.get(column.rule.partial, ()):
            return name
    return None


def _value(expr: Expr) -> Value | None:
    """A key, a state by itself, or an average; None: something else."""
    match expr:
        case Slot(name=name, kind=kind) if name.startswith("k") and (known := _type(kind)):
            return Value(name, known)
        case Call(op=op, args=(Slot(name=name),), kind=kind) if op in _ONE_STATE and (known := _type(kind)):
            return Value(name, known)
        case Call(op="final avg", args=(Slot(name=name), Slot(name=count))):
            return Value(name, "double", count)
    return None


def _sorted(order: Order, states: States) -> Sorted | None:
    value = _value(states.resolve(order.value))
    return None if value is None else Sorted(value, order.descending, order.nulls_first)


def _type(kind: Kind) -> ValueType | None:
    return None if kind == "null" else kind


def _named(expr: Expr) -> str | None:
    return expr.name if isinstance(expr, Ref) else None


def _condition(expr: Expr, leaf: _Leaf) -> Condition | None:
    """It compares columns with constants or columns, or connects such; None: it does something else."""
    if (name := leaf(expr)) is not None:
        return Condition("column", name=name)
    match expr:
        case Constant(value=value, kind=kind) if value is not None and kind in COLUMN_TYPES:
            return Condition("constant", value=value, kind=kind)
        case Call(op="to hugeint", args=(Constant(value=int(value), kind="bigint"),)):
            return Condition("constant", value=value, kind="hugeint")
        case Call(op=op, args=args) if op in CONDITIONS and not is_constant(expr):
            parts = [_condition(arg, leaf) for arg in args]
            return None if None in parts else Condition(op, _all(parts))
    return None
