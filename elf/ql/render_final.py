"""The final fragment: from merged groups to result rows, in DuckDB at the master, or in Spark.

LIMIT counts in each window. Rows are ordered in their window by the query's order, then by the group keys,
ascending, NULLs last; that makes the order total, the LIMIT unambiguous and the result the same everywhere.
Only a LIMIT needs each row's rank.
"""

from __future__ import annotations

from elf.ql.forms import Engine
from elf.ql.render import name, render
from elf.ql.render_cells import one_row_a_group
from elf.ql.rules import Draft, Order
from elf.ql.states import States


def render_final(draft: Draft, states: States, engine: Engine, groups: str = "groups") -> str:
    """``window_start`` and ``window_end`` where there is a window, then the SELECT list; rows in order."""
    bounds = ["window_start", "window_end"] if draft.windows else []
    outer = [f"t.{bound} AS {bound}" for bound in bounds]
    outer += [f"t.c{index} AS {name(output.name, engine)}" for index, output in enumerate(draft.outputs)]
    inner = [f"g.{bound}" for bound in bounds]
    inner += [
        f"{render(states.resolve(output.value), engine)} AS c{index}"
        for index, output in enumerate(draft.outputs)
    ]
    if draft.limit is None:
        place = [f"t.o{index} {_direction(order)}" for index, order in enumerate(draft.order)]
        inner += [
            f"{render(states.resolve(order.value), engine)} AS o{index}"
            for index, order in enumerate(draft.order)
        ]
    else:
        place = ["t.r"]
        inner.append(f"{_rank(draft, states, engine)} AS r")
    places = [*(f"t.{bound}" for bound in bounds), *place]
    having = [] if draft.having is None else [f"  WHERE {render(states.resolve(draft.having), engine)}"]
    limit = [] if draft.limit is None else [f"WHERE t.r <= {draft.limit}"]
    return "\n".join(
        [
            f"SELECT {', '.join(outer)}",
            "FROM (",
            f"  SELECT {', '.join(inner)}",
            f"  FROM {one_row_a_group(draft, states, engine, groups)} AS g",
            *having,
            ") AS t",
            *limit,
            *([f"ORDER BY {', '.join(places)}"] if places else []),
        ]
    )


def _rank(draft: Draft, states: States, engine: Engine) -> str:
    """The row's place in its window. Without keys a window has one row."""
    if not draft.keys:
        return "1"
    partition = "PARTITION BY g.window_start, g.window_end " if draft.windows else ""
    order = ", ".join(_item(order, states, engine) for order in draft.order)
    return f"ROW_NUMBER() OVER ({partition}ORDER BY {order})"


def _item(order: Order, states: States, engine: Engine) -> str:
    return f"{render(states.resolve(order.value), engine)} {_direction(order)}"


def _direction(order: Order) -> str:
    return f"{'DESC' if order.descending else 'ASC'} NULLS {'FIRST' if order.nulls_first else 'LAST'}"
