"""Expressions as SQL text for either engine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from elf.errors import ElfBug
from elf.paos.builtin import AGGREGATES
from elf.ql.expressions import Aggregate, Call, Constant, Expr, Kind, Over, Ref, Slot, Spelled
from elf.ql.forms import FORMS, INFIX
from elf.ql.fuel import CHARS_A_PART, burn
from elf.ql.templates import Engine, name, text_literal

TYPES: Final[Mapping[Engine, Mapping[Kind, str]]] = {
    "duckdb": {
        "bigint": "BIGINT",
        "hugeint": "HUGEINT",
        "double": "DOUBLE",
        "text": "VARCHAR",
        "boolean": "BOOLEAN",
        "timestamp": "TIMESTAMP",
        "null": "INTEGER",
    },
    "spark": {
        "bigint": "BIGINT",
        "hugeint": "DECIMAL(38, 0)",
        "double": "DOUBLE",
        "text": "STRING",
        "boolean": "BOOLEAN",
        "timestamp": "TIMESTAMP",
        "null": "INT",
    },
}
"""What each engine calls the types."""

_EPOCH = dt.datetime(1970, 1, 1)
_PLAIN_INTEGERS = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "is_distinct", "is_not_distinct"})


def constant(value: Constant, engine: Engine) -> str:
    """A constant that has the same type in any place."""
    kind, content = value.kind, value.value
    if content is None:
        return f"CAST(NULL AS {TYPES[engine][kind]})"
    if isinstance(content, bool):
        return "TRUE" if content else "FALSE"
    if isinstance(content, str):
        return text_literal(content, engine)
    if kind == "timestamp":
        return f"TIMESTAMP '{_EPOCH + dt.timedelta(microseconds=int(content))}'"
    if kind == "double":
        digits = repr(float(content))
        return digits if "e" in digits else f"{digits}e0"
    if kind == "bigint":
        return f"({content})::BIGINT" if engine == "duckdb" else f"{content}L"
    return f"CAST({content} AS {TYPES[engine][kind]})"


def render(expr: Expr, engine: Engine) -> str:
    """The SQL of an expression. Columns of ``rows`` are those of alias ``r``, slots those of alias ``g``."""
    text = _rendered(expr, engine)
    burn(1 + len(text) // CHARS_A_PART)
    return text


def _rendered(expr: Expr, engine: Engine) -> str:
    if isinstance(expr, Ref):
        return f"r.{name(expr.column, engine)}"
    if isinstance(expr, Constant):
        return constant(expr, engine)
    if isinstance(expr, Spelled):
        return expr.duckdb if engine == "duckdb" else expr.spark
    if isinstance(expr, Slot):
        return f"g.{expr.name}"
    if isinstance(expr, Aggregate):
        raise ElfBug(f"aggregate {expr.name} reached the rendering")
    if isinstance(expr, Over):
        return _over(expr, engine)
    return _call(expr, engine)


def direction(descending: bool, nulls_first: bool) -> str:
    """The direction of an item of ORDER BY."""
    return f"{'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def _over(over: Over, engine: Engine) -> str:
    """Its first partition is the result window, added by the binder."""
    args = [render(arg, engine) for arg in over.args]
    first, last = over.arguments, len(args) - len(over.ways)
    parts = [f"PARTITION BY {', '.join(args[first:last])}"] if first < last else []
    by = [f"{arg} {direction(*way)}" for arg, way in zip(args[last:], over.ways, strict=True)]
    parts += [f"ORDER BY {', '.join(by)}"] if by else []
    parts += [over.frame] if over.frame else []
    arg = ", ".join(args[:first]) or ("*" if over.name == "count" else "")
    text = f"{over.name.upper()}({arg}) OVER ({' '.join(parts)})"
    return f"CAST({text} AS {TYPES[engine][over.kind]})"


def _call(call: Call, engine: Engine) -> str:
    if call.op.startswith("final "):
        columns = [render(arg, engine) for arg in call.args]
        aggregate = AGGREGATES[call.op.removeprefix("final ")]
        return aggregate.final_sql(columns, TYPES[engine][call.kind], spark=engine == "spark")
    args = [_operand(arg, call.op, engine) for arg in call.args]
    if call.op in ("and", "or"):
        return f" {call.op.upper()} ".join(args)
    if call.op == "in":
        return f"{args[0]} IN ({', '.join(args[1:])})"
    if call.op == "case":
        pairs = " ".join(f"WHEN {args[i]} THEN {args[i + 1]}" for i in range(0, len(args) - 1, 2))
        return f"CASE {pairs} ELSE {args[-1]} END"
    return FORMS[call.op].template(engine).format(*args, args=", ".join(args))


def _operand(expr: Expr, op: str, engine: Engine) -> str:
    if (
        isinstance(expr, Constant)
        and expr.kind == "bigint"
        and expr.value is not None
        and op in _PLAIN_INTEGERS
    ):
        return str(expr.value)
    text = render(expr, engine)
    return f"({text})" if isinstance(expr, Call) and expr.op in INFIX else text
