"""The map fragment: DuckDB SQL from ``rows`` to partial aggregates. It runs on every chunk."""

from __future__ import annotations

from elf.ql.expressions import TRUE, Expr, connect
from elf.ql.forms import Engine
from elf.ql.render import render
from elf.ql.rules import Draft
from elf.ql.states import States


def render_where(conditions: tuple[Expr, ...], engine: Engine) -> str:
    """The conditions as one; empty where there is none."""
    needed = tuple(condition for condition in conditions if condition != TRUE)
    return render(connect("and", needed), engine) if needed else ""


def where_clause(conditions: tuple[Expr, ...], engine: Engine) -> list[str]:
    """``WHERE …`` as a line, or none."""
    where = render_where(conditions, engine)
    return [f"WHERE {where}"] if where else []


def render_map(draft: Draft, states: States) -> str:
    """Columns ``_pane``, keys, states; one row for each distinct (pane, keys)."""
    items = [
        "r._pane AS _pane",
        *(f"{render(key, 'duckdb')} AS k{index}" for index, key in enumerate(draft.keys)),
        *(f"{column.duckdb} AS {column.state.name}" for column in states.columns),
    ]
    lines = [
        f"SELECT {', '.join(items)}",
        "FROM rows AS r",
        *where_clause(draft.where, "duckdb"),
        "GROUP BY ALL",
    ]
    return "\n".join(lines)
