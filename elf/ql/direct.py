"""Maps that need no SQL: plain columns in groups, counted, added up, or of which the least or greatest stays.

Most questions about logs are such, and an agent maps a few rows for each of them many times a second. To plan
a statement takes DuckDB a millisecond each time; to group as many rows takes Arrow a tenth of that.
``direct_of`` decides which maps are direct. The agents run these (``agents.tasks.direct``); the SQL of such a
fragment says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from elf.ql.expressions import TRUE, Call, Constant, Expr, Kind, Ref, is_constant
from elf.ql.plan import Condition, Direct
from elf.ql.states import StateColumn, States
from elf.schema import COLUMN_TYPES

if TYPE_CHECKING:
    from elf.ql.draft import Draft

_Part = TypeVar("_Part")

CONDITIONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "is_null", "and", "or", "not"})
"""The operations of WHERE that mean the same without SQL: NULL is what is not known."""
_GIVEN: Final[dict[str, tuple[Kind, ...]]] = {
    "COUNT({x})": COLUMN_TYPES,
    "SUM({x})": ("bigint", "double"),
    "MIN({x})": ("bigint", "double", "timestamp"),
    "MAX({x})": ("bigint", "double", "timestamp"),
}
"""The types over which Arrow makes the state of a rule of ``elf.paos``."""


def direct_of(draft: Draft, states: States) -> Direct | None:
    """None: the map needs SQL."""
    if draft.branches or draft.joins or draft.counts or states.cells:
        return None
    where = [None if is_constant(one) else _condition(one) for one in draft.where if one != TRUE]
    keys = [key.name if isinstance(key, Ref) else None for key in draft.keys]
    given = [_given(column) for column in states.columns]
    if None in where or None in keys or None in given:
        return None
    return Direct(_all(where), _all(keys), _all(given))


def conditions_of(where: Iterable[Expr]) -> tuple[Condition, ...]:
    """Those of these that need no SQL."""
    found = (None if is_constant(one) else _condition(one) for one in where if one != TRUE)
    return tuple(one for one in found if one is not None)


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


def _condition(expr: Expr) -> Condition | None:
    """It compares columns with constants or columns, or connects such; None: it does something else."""
    match expr:
        case Ref(name=name):
            return Condition("column", name=name)
        case Constant(value=value, kind=kind) if value is not None and kind in COLUMN_TYPES:
            return Condition("constant", value=value, kind=kind)
        case Call(op=op, args=args) if op in CONDITIONS and not is_constant(expr):
            parts = [_condition(arg) for arg in args]
            return None if None in parts else Condition(op, _all(parts))
    return None
