"""The final fragment: from merged groups to result rows, in DuckDB at the master, or in Spark.

LIMIT counts in each window. Rows are ordered in their window by the query's order, then by the group keys,
ascending, NULLs last; so the order is total, the LIMIT unambiguous and the result the same everywhere. Only a
LIMIT needs each row's rank. HAVING comes before window functions, QUALIFY after them, then DISTINCT, then
LIMIT, each in a SELECT of its own where there is one.
"""

from __future__ import annotations

from elf.ql.draft import Draft, Order
from elf.ql.expressions import Expr, Over, walk
from elf.ql.render import direction, render
from elf.ql.render_map import one_row_a_group, partial_rows, where_clause
from elf.ql.states import States
from elf.ql.tables import source_rows
from elf.ql.templates import Engine, name


def render_final(
    draft: Draft, states: States, engine: Engine, groups: str = "groups", *, ordered: bool = True
) -> str:
    """``window_start`` and ``window_end`` where there is a window, then the SELECT list; rows in order, if
    that is wanted (``ordered``)."""
    outer = [f"t.{bound} AS {bound}" for bound in draft.bounds]
    outer += [f"t.c{index} AS {name(output.name, engine)}" for index, output in enumerate(draft.outputs)]
    inner = [f"g.{bound}" for bound in draft.bounds]
    inner += [
        f"{render(states.resolve(output.value), engine)} AS c{index}"
        for index, output in enumerate(draft.outputs)
    ]
    ranked = any(isinstance(part, Over) for order in draft.order for part in walk(order.value))
    staged = draft.qualify is not None or draft.distinct or ranked
    limited = draft.limit is not None or draft.offset > 0
    if staged or not limited:
        inner += [
            f"{render(states.resolve(order.value), engine)} AS o{index}"
            for index, order in enumerate(draft.order)
        ]
    else:
        inner.append(f"{_rank(draft, states, engine)} AS r")
    if draft.qualify is not None:
        inner.append(f"{render(states.resolve(draft.qualify), engine)} AS q")
    having = [] if draft.having is None else [f"  WHERE {render(states.resolve(draft.having), engine)}"]
    rows = [
        f"  SELECT {', '.join(inner)}",
        f"  FROM {one_row_a_group(draft, states, engine, groups)} AS g",
        *having,
    ]
    if staged:
        rows = _stages(draft, rows, limited)
    place = (
        ["t.r"] if limited else [f"t.o{index} {_direction(order)}" for index, order in enumerate(draft.order)]
    )
    places = [*(f"t.{bound}" for bound in draft.bounds), *place]
    return "\n".join(
        [
            f"SELECT {', '.join(outer)}",
            "FROM (",
            *rows,
            ") AS t",
            *_limit(draft),
            *([f"ORDER BY {', '.join(places)}"] if places and ordered else []),
        ]
    )


def render_over(draft: Draft, states: States, engine: Engine, rows: str, *, ordered: bool = True) -> str:
    """A query over the result rows of another one, within each of its windows."""
    keys = [render(key, engine) for key in draft.keys]
    if draft.plain:
        items = [f"r.{bound}" for bound in draft.bounds]
        items += [f"{key} AS k{index}" for index, key in enumerate(keys)]
        plain = [f"SELECT {', '.join(items)}", _from(draft, engine, rows)]
        text = indented("\n".join([*plain, *where_clause(draft.where, engine)]))
        return render_final(draft, states, engine, f"(\n{text}\n  )", ordered=ordered)
    grouping = ", ".join([*(f"r.{bound}" for bound in draft.bounds), *keys])

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        return [_from(draft, engine, rows), *where_clause(conditions, engine)]

    partial = partial_rows(
        draft, states, engine, [f"r.{bound} AS {bound}" for bound in draft.bounds], scan, grouping
    )
    return render_final(draft, states, engine, f"(\n{indented(partial)}\n  )", ordered=ordered)


def _from(draft: Draft, engine: Engine, rows: str) -> str:
    """The rows of a query, and of the jobs that are joined to it."""
    return f"FROM {source_rows(draft.joins, engine, f'({chr(10)}{indented(rows)}{chr(10)}) AS r')}"


def render_lift(draft: Draft, states: States, rows: str, pane_us: int) -> str:
    """Partial aggregates from the rows of smaller windows, or of panes that are windows: ``_pane`` (the
    flow's, where a window begins), keys, cells, states, as of a map fragment. For masters and roots."""

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        return ["FROM (", indented(rows), ") AS r", *where_clause(conditions, "duckdb")]

    number = f"epoch_us(r.window_start) // {pane_us}" if pane_us else "0"
    pane = f"CAST({number} AS BIGINT) AS _pane"
    return partial_rows(draft, states, "duckdb", [pane], scan, "ALL")


def indented(text: str) -> str:
    """Every line a level deeper."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _stages(draft: Draft, rows: list[str], limited: bool) -> list[str]:
    """The rows that QUALIFY and DISTINCT leave, with their rank where there is a LIMIT."""
    names = [
        *draft.bounds,
        *(f"c{i}" for i in range(len(draft.outputs))),
        *(f"o{i}" for i in range(len(draft.order))),
    ]
    kept = ", ".join(f"t.{one}" for one in names)
    where = ["  WHERE t.q"] if draft.qualify is not None else []
    rows = [f"  SELECT {'DISTINCT ' if draft.distinct else ''}{kept}", "  FROM (", *rows, "  ) AS t", *where]
    if not limited:
        return rows
    partition = _partition(draft, "t")
    order = ", ".join(f"t.o{index} {_direction(one)}" for index, one in enumerate(draft.order))
    by = f"ORDER BY {order}" if order else "ORDER BY 1"
    return [f"  SELECT t.*, ROW_NUMBER() OVER ({partition}{by}) AS r", "  FROM (", *rows, "  ) AS t"]


def _limit(draft: Draft) -> list[str]:
    first = [f"t.r > {draft.offset}"] if draft.offset else []
    last = [] if draft.limit is None else [f"t.r <= {draft.offset + draft.limit}"]
    return [f"WHERE {' AND '.join([*first, *last])}"] if first or last else []


def _rank(draft: Draft, states: States, engine: Engine) -> str:
    """The row's place in its window. Without keys a window has one row."""
    if not draft.keys:
        return "1"
    partition = _partition(draft, "g")
    order = ", ".join(_item(order, states, engine) for order in draft.order)
    return f"ROW_NUMBER() OVER ({partition}ORDER BY {order})"


def _partition(draft: Draft, of: str) -> str:
    return f"PARTITION BY {', '.join(f'{of}.{bound}' for bound in draft.bounds)} " if draft.windows else ""


def _item(order: Order, states: States, engine: Engine) -> str:
    return f"{render(states.resolve(order.value), engine)} {_direction(order)}"


def _direction(order: Order) -> str:
    return direction(order.descending, order.nulls_first)
