"""The map fragment: DuckDB SQL from ``rows`` to partial aggregates. It runs on every chunk."""

from __future__ import annotations

from elf.ql.draft import Draft
from elf.ql.expressions import TRUE, Expr, connect
from elf.ql.render import render
from elf.ql.render_cells import partial_rows
from elf.ql.states import States
from elf.ql.templates import Engine
from elf.ql.unions import base_rows


def render_where(conditions: tuple[Expr, ...], engine: Engine) -> str:
    """The conditions as one; empty where there is none."""
    needed = tuple(condition for condition in conditions if condition != TRUE)
    return render(connect("and", needed), engine) if needed else ""


def where_clause(conditions: tuple[Expr, ...], engine: Engine) -> list[str]:
    """``WHERE …`` as a line, or none."""
    where = render_where(conditions, engine)
    return [f"WHERE {where}"] if where else []


def render_map(draft: Draft, states: States) -> str:
    """Columns ``_pane``, keys, cells, states; one row for each distinct (pane, keys, cells)."""

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        return [
            f"FROM {base_rows(draft.branches, draft.joins, 'duckdb')}",
            *where_clause(conditions, "duckdb"),
        ]

    return partial_rows(draft, states, "duckdb", ["r._pane AS _pane"], scan, "ALL")
