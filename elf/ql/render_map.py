"""The map fragment: DuckDB SQL from ``rows`` to partial aggregates. It runs on every chunk."""

from __future__ import annotations

from elf.ql.draft import Draft
from elf.ql.expressions import TRUE, Expr, connect
from elf.ql.render import name, render
from elf.ql.render_cells import Scan, partial_rows
from elf.ql.states import States
from elf.ql.templates import Engine
from elf.ql.unions import base_rows

NUMBER = "r._number AS window_number"


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

    first = ["r._pane AS _pane"]
    if draft.counts:
        return partial_rows(draft, states, "duckdb", [*first, NUMBER], _numbered(draft), "ALL")

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        return [
            f"FROM {base_rows(draft.branches, draft.joins, 'duckdb')}",
            *where_clause(conditions, "duckdb"),
        ]

    return partial_rows(draft, states, "duckdb", first, scan, "ALL")


def _numbered(draft: Draft) -> Scan:
    """The rows of one source that WHERE lets through, with the number of their window. Rows that a join makes
    of one are in the order of what it adds.
    """
    columns = [f"{one.place}.{column.name}" for one in draft.joins for column in one.table.columns]
    added = [f"r.{name(column, 'duckdb')}" for column in columns]
    place = f"ROW_NUMBER() OVER (ORDER BY {', '.join(['r._place', *added])})"
    number = f"(r._seen + {place} - 1) // {draft.counts} + 1"
    base = base_rows(draft.branches, draft.joins, "duckdb")
    rows = " ".join([f"SELECT r.*, {number} AS _number FROM {base}", *where_clause(draft.where, "duckdb")])
    wanted = set(draft.where)

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        more = tuple(one for one in conditions if one not in wanted)
        return [f"FROM ({rows}) AS r", *where_clause(more, "duckdb")]

    return scan
