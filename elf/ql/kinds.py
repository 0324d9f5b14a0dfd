"""Types: which are compatible, how one becomes another, and what a text constant means where another type is
expected.

Rules:

- bigint, hugeint and double are compatible; the common type is the widest;
- otherwise types do not mix without a CAST. A text *constant* beside a number, a boolean or a timestamp is
  read as one;
- a CAST that does not fit is NULL. Integers are 64 bits; there is no FLOAT and no DECIMAL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Final

from sqlglot import exp

from elf.ql.expressions import NUMERIC, Call, Constant, Expr, Kind
from elf.ql.timestamps import read_timestamp

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

CAST_TYPES: Final[dict[exp.DType, Kind]] = {
    exp.DType.BIGINT: "bigint",
    exp.DType.INT: "bigint",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "text",
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TIMESTAMP: "timestamp",
}
"""The types that CAST knows."""

_CASTS: Final[dict[tuple[Kind, Kind], str]] = {
    ("bigint", "hugeint"): "to hugeint",
    ("bigint", "double"): "to double",
    ("bigint", "text"): "to text",
    ("bigint", "boolean"): "number to boolean",
    ("hugeint", "bigint"): "hugeint to bigint",
    ("hugeint", "double"): "to double",
    ("hugeint", "text"): "to text",
    ("hugeint", "boolean"): "number to boolean",
    ("double", "bigint"): "double to bigint",
    ("double", "boolean"): "number to boolean",
    ("boolean", "bigint"): "boolean to bigint",
    ("boolean", "double"): "to double",
    ("boolean", "text"): "to text",
    ("text", "bigint"): "text to bigint",
    ("text", "double"): "text to double",
    ("text", "boolean"): "text to boolean",
    ("text", "timestamp"): "text to timestamp",
    ("timestamp", "text"): "to text",
}
"""The operation of ``elf.ql.forms`` for each cast; a pair that is not here is not supported yet."""

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_BOOLEANS = {"true": True, "t": True, "false": False, "f": False}


def common(kinds: Iterable[Kind]) -> Kind | None:
    """The type that all can become without a CAST; None when they are not compatible."""
    found = {kind for kind in kinds if kind != "null"}
    if not found:
        return "null"
    if len(found) == 1:
        return found.pop()
    if found <= set(NUMERIC):
        return max(found, key=NUMERIC.index)
    return None


def become(expr: Expr, kind: Kind) -> Expr:
    """``expr`` as ``kind``, which ``common`` allowed."""
    if expr.kind == kind:
        return expr
    if isinstance(expr, Constant):
        if expr.value is None:
            return Constant(None, kind)
        if kind == "double" and isinstance(expr.value, int):
            return Constant(float(expr.value), kind)
    return cast(expr, kind) or expr


def cast(expr: Expr, kind: Kind) -> Expr | None:
    """``CAST(expr AS kind)``; None when there is no such cast yet."""
    if expr.kind == kind:
        return expr
    if expr.kind == "null":
        return Constant(None, kind)
    op = _CASTS.get((expr.kind, kind))
    return None if op is None else Call(op, (expr,), kind)


def _read_integer(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\s*[+-]?\d+\s*", text, re.ASCII) else None


def _read_bigint(text: str) -> int | None:
    value = _read_integer(text)
    return value if value is not None and INT64_MIN <= value <= INT64_MAX else None


def _read_double(text: str) -> float | None:
    value = float(text) if _NUMBER.fullmatch(text) else None
    return value if value is not None and math.isfinite(value) else None


def _read_boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.lower())


_READERS: Final[dict[Kind, Callable[[str], int | float | bool | None]]] = {
    "bigint": _read_bigint,
    "hugeint": _read_integer,
    "double": _read_double,
    "boolean": _read_boolean,
    "timestamp": read_timestamp,
}


def read_text(text: str, kind: Kind) -> Constant | None:
    """A text constant read as a value of another type; None if it is not one."""
    if kind == "bigint" and _read_integer(text) is None:
        kind = "double"
    value = _READERS[kind](text)
    return None if value is None else Constant(value, kind)
