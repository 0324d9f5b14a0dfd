"""Two values as one, which is ordered by one of them (``by``) and then by the other (``x``): what MAX_BY
keeps the greatest of, and what ARRAY_AGG lists in order.

States and cells are of plain types, so in DuckDB a pair is a text in the same order: ``by`` as digits or
hexadecimal, a space (which is less than either), ``x``. In Spark it is a struct, which compares its fields
in turn. A pair is NULL where ``x`` is; one whose ``by`` is NULL comes after all others, or before them
(``low``).
"""

from __future__ import annotations

from elf.ql.expressions import Call, Expr, Kind
from elf.ql.kinds import become
from elf.ql.render import TYPES
from elf.ql.templates import Engine

PACKED: frozenset[Kind] = frozenset({"double", "timestamp", "boolean"})
"""What ``pack …`` of ``elf.ql.forms`` makes a bigint of."""


def pair(x: Expr, by: Expr, *, low: bool = False) -> Expr:
    return Call("low pair" if low else "pair", (_ordered(by), _ordered(x) if x.kind != "text" else x), "text")


def _ordered(value: Expr) -> Expr:
    """A text in its order (in Spark: itself)."""
    kind = value.kind
    if kind == "null":
        return _ordered(become(value, "text"))
    if kind in PACKED:
        return Call("digits of bigint", (Call(f"pack {kind}", (value,), kind),), kind)
    return Call(f"digits of {kind}", (value,), kind)


def of_pair(both: Expr, kind: Kind) -> Expr:
    """The ``x``, which is of this type, of a pair."""
    x: Expr = Call("of pair", (both,), kind)
    if kind == "text":
        return x
    x = Call("number of digits", (x,), kind)
    return Call(f"unpack {kind}", (x,), kind) if kind in PACKED else x


def type_of(key: Expr, engine: Engine) -> str:
    """The type of an expression that may be a pair."""
    types = TYPES[engine]
    if engine == "spark" and isinstance(key, Call) and key.op in ("pair", "low pair"):
        by, x = key.args
        return f"STRUCT<n: BOOLEAN, t: {types[by.kind]}, x: {types[x.kind]}>"
    return types[key.kind]
