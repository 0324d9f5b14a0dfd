"""The map fragment: DuckDB SQL from ``rows`` to partial aggregates. It runs on every chunk."""

from __future__ import annotations

from elf.ql.expressions import TRUE, Expr, connect
from elf.ql.forms import Engine
from elf.ql.render import render
from elf.ql.rules import Draft
from elf.ql.states import States


def where_clause(conditions: tuple[Expr, ...], engine: Engine) -> list[str]:
    """``WHERE …`` as a line, or none."""
    needed = tuple(condition for condition in conditions if condition != TRUE)
    return [f"WHERE {render(connect('and', needed), engine)}"] if needed else []


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
