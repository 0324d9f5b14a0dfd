"""Scalar expressions after binding: names resolved, types known, every coercion explicit.

They are values, compared by meaning: two queries that say the same thing hold equal expressions (``at``, the
place in the text, does not take part in equality). The constructors at the end bring the operands of
commutative operators into one order, so that equal fragments are equal texts. Nothing here knows an engine;
``elf.ql.render`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from elf.fields import replace
from elf.ql.fuel import burn
from elf.ql.own import OwnAggregate
from elf.schema import ColumnType

Kind = ColumnType | Literal["hugeint", "null"]
"""The types of a stream's columns; ``hugeint``, what summing bigints gives (38 digits); ``null``, the bare
NULL.
"""

NUMERIC: tuple[Kind, ...] = ("bigint", "hugeint", "double")
"""Narrowest first: the common type of two is the later one."""


@dataclass(frozen=True)
class Ref:
    """A column of ``rows``. ``table``: that of the table at this place of FROM (``t0``, ``t1`` …)."""

    name: str
    kind: Kind
    at: int = field(default=0, compare=False, repr=False)
    table: str = ""

    @property
    def column(self) -> str:
        """Its name in ``rows``, when tables are joined to these."""
        return f"{self.table}.{self.name}" if self.table else self.name


class Constant(Struct, frozen=True):
    """A constant; a timestamp is an int, µs since the epoch."""

    value: int | float | str | bool | None
    kind: Kind


class Spelled(Struct, frozen=True):
    """A constant that each engine writes in its own way (a regular expression, a LIKE pattern, a unit)."""

    duckdb: str
    spark: str
    kind: Kind = "text"


class _Compound:
    """An expression with others in it. ``size``: its parts, all counted; making one takes fuel."""

    args: tuple[Expr, ...]
    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(map(size_of, self.args)))
        burn(1 + len(self.args))


@dataclass(frozen=True)
class Call(_Compound):
    """An operator or function: ``op`` is a key of ``elf.ql.forms.FORMS``, or one of the few that render
    themselves.
    """

    op: str
    args: tuple[Expr, ...]
    kind: Kind


@dataclass(frozen=True)
class Aggregate(_Compound):
    """An aggregate over the rows of a group: ``name`` is a key of ``elf.paos.builtin.AGGREGATES`` or of
    ``elf.ql.cells.CELLED``. ``params`` are constants that its value, and nothing else, depends on.
    ``offset``: of the window so many before, or after if it is negative. ``own``: of somebody's own, whose
    name is ``OWN``.
    """

    name: str
    args: tuple[Expr, ...]
    kind: Kind
    at: int = field(default=0, compare=False, repr=False)
    params: tuple[int, ...] = ()
    offset: int = 0
    own: OwnAggregate | None = None


class Slot(Struct, frozen=True):
    """A column of ``groups``: a key (``k0``), a merged state (``s0``), whether a key is left out (``z0``)."""

    name: str
    kind: Kind


@dataclass(frozen=True)
class Over(_Compound):
    """A window function over the rows of one result window. ``args``: its ``arguments`` first, then what it
    is partitioned by, then what it is ordered by, each ``ways`` with (descending, nulls first). ``frame``:
    ROWS or RANGE BETWEEN …, as both engines write it.
    """

    name: str
    args: tuple[Expr, ...]
    kind: Kind
    arguments: int
    ways: tuple[tuple[bool, bool], ...]
    frame: str = ""

    @property
    def partition(self) -> tuple[Expr, ...]:
        return self.args[self.arguments : len(self.args) - len(self.ways)]


Expr = Ref | Constant | Spelled | Call | Aggregate | Slot | Over

TRUE = Constant(True, "boolean")
OWN = "own"
"""The name of all aggregates of people's own."""


def size_of(expr: Expr) -> int:
    """How many parts it has."""
    return expr.size if isinstance(expr, _Compound) else 1


def children(expr: Expr) -> tuple[Expr, ...]:
    return expr.args if isinstance(expr, Call | Aggregate | Over) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    burn(1)
    yield expr
    for child in children(expr):
        yield from walk(child)


def rewrite(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Top down: where ``change`` returns an expression it replaces the old one, otherwise the children are
    visited."""
    changed = change(expr)
    if changed is not None:
        return changed
    if isinstance(expr, Call | Aggregate | Over):
        return replace(expr, args=tuple(rewrite(arg, change) for arg in expr.args))
    return expr


def is_constant(expr: Expr) -> bool:
    return not any(isinstance(part, Ref | Aggregate | Slot | Over) for part in walk(expr))


_MIRROR = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMMUTATIVE = frozenset({"+", "*"})


def rank(expr: Expr) -> tuple[bool, str]:
    """The order of the operands of a commutative operator: constants last, otherwise by their text."""
    burn(size_of(expr))
    return isinstance(expr, Constant), repr(expr)


def comparison(op: str, left: Expr, right: Expr) -> Expr:
    """``left op right``, with the operands in canonical order."""
    if rank(right) < rank(left):
        op, left, right = _MIRROR[op], right, left
    return Call(op, (left, right), "boolean")


def arithmetic(op: str, left: Expr, right: Expr, kind: Kind) -> Expr:
    if op in _COMMUTATIVE and rank(right) < rank(left):
        left, right = right, left
    return Call(op, (left, right), kind)


def connect(op: Literal["and", "or"], parts: tuple[Expr, ...], whole: Container[Expr] = ()) -> Expr:
    """AND or OR of any number of conditions: flat (except those that are to stay ``whole``), without
    repetition, in canonical order.
    """
    flat: dict[Expr, None] = {}
    burn(sum(map(size_of, parts)))
    for part in parts:
        inner = part.args if isinstance(part, Call) and part.op == op and part not in whole else (part,)
        flat.update(dict.fromkeys(inner))
    ordered = tuple(sorted(flat, key=rank))
    return ordered[0] if len(ordered) == 1 else Call(op, ordered, "boolean")


def conjuncts(condition: Expr | None) -> tuple[Expr, ...]:
    if condition is None:
        return ()
    return condition.args if isinstance(condition, Call) and condition.op == "and" else (condition,)
