"""From raw rows to partial aggregates, and back to one row a group.

``render_map`` is the map fragment, DuckDB SQL that runs on every chunk. ``partial_rows`` makes the same
columns for either engine, ``one_row_a_group`` the beginning of the final fragment.

A query without cells has one SELECT. With cells (``elf.ql.cells``) the rows are scanned once for the groups
and once for each cell column: GROUPING SETS took as long (58 and 60 ms, 200,000 rows, two cell columns), and
would compute every state for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from elf.aggregates import State
from elf.ql.cells import CELLED, RANK, Cell
from elf.ql.draft import Draft
from elf.ql.expressions import TRUE, Call, Expr, connect
from elf.ql.grouping import regrouped, repeated
from elf.ql.own import Wanted, struct, type_of_cell
from elf.ql.pairs import type_of
from elf.ql.render import TYPES, render
from elf.ql.states import States
from elf.ql.templates import Engine, name
from elf.ql.unions import base_rows

Scan = Callable[[tuple[Expr, ...]], list[str]]
"""The lines FROM and WHERE of a scan of the raw rows that meet these conditions."""
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
    """The rows of one source that WHERE accepts, with the number of their window. Rows that a join makes from
    one row are in the order of the joined columns."""
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


def partial_rows(
    draft: Draft,
    states: States,
    engine: Engine,
    first: Sequence[str],
    scan: Scan,
    grouping: str,
    wanted: Wanted = "value",
) -> str:
    """The columns ``first``, the keys, the cells, the states: one row for each group, then one for each cell.
    ``grouping`` is the list of GROUP BY for the ordinary rows (empty: they are one group), or ALL;
    ``wanted``: what Spark makes for aggregates of people's own. (DuckDB gives them a row for each row.)"""
    head = [*first, *(f"{render(key, engine)} AS k{index}" for index, key in enumerate(draft.keys))]
    plain = [
        f"{column.duckdb if engine == 'duckdb' else column.spark} AS {column.state.name}"
        for column in states.columns
    ]
    cells = [_null(name, cell, engine, wanted) for name, cell in states.cells.items()]
    none = [_unused(state) for state in states.cell_states]
    selects = [_select([*head, *cells, *plain, *none], scan(draft.where), grouping)]
    empty = [_unused(column.state) for column in states.columns]
    for column, cell in states.cells.items():
        key = _key(cell, engine, wanted)
        ours = [
            f"{key} AS {column}" if other == column else _null(other, one, engine, wanted)
            for other, one in states.cells.items()
        ]
        kept = [
            f"{_partial(cell, engine)} AS {state.name}" if state == cell.state else _unused(state)
            for state in states.cell_states
        ]
        lines = scan((*draft.where, Call("not", (Call("is_null", (cell.given,), "boolean"),), "boolean")))
        names, by = head, grouping
        if cell.own is not None:
            own = _select([*head, *ours, *empty, *kept], lines, "" if engine == "duckdb" else grouping)
            there = f"SELECT * FROM (\n{own}\n) WHERE {column} IS NOT NULL"
            selects.append(own if engine == "duckdb" else there)
            continue
        if cell.rank is not None:
            given = render(cell.given, engine)
            inner = _select([*head, f"{given} AS x"], lines, _and_by(grouping, given))
            names = [item.rpartition(" AS ")[2] for item in head]
            lines, by = [f"FROM ({inner}) AS r"], "ALL" if grouping == "ALL" else ", ".join(names)
        selects.append(_select([*names, *ours, *empty, *kept], lines, _and_by(by, key)))
    return "\nUNION ALL\n".join(selects)


def _and_by(grouping: str, key: str) -> str:
    return grouping if grouping == "ALL" else ", ".join(filter(None, [grouping, key]))


def _select(items: Sequence[str], scan: Sequence[str], grouping: str) -> str:
    return "\n".join([f"SELECT {', '.join(items)}", *scan, *([f"GROUP BY {grouping}"] if grouping else [])])


def _key(cell: Cell, engine: Engine, wanted: Wanted) -> str:
    if cell.own is None:
        return render(cell.key, engine)
    args = [render(arg, engine) for arg in cell.args]
    return struct(cell.own, args) if engine == "duckdb" else f"{cell.own.called(wanted)}({', '.join(args)})"


def _partial(cell: Cell, engine: Engine) -> str:
    if cell.own is not None:
        return "CAST(1 AS BIGINT)"
    return "COUNT(*)" if cell.rank is None else f"MAX({render(cell.rank, engine)})"


def _null(name: str, cell: Cell, engine: Engine, wanted: Wanted) -> str:
    kind = type_of(cell.key, engine) if cell.own is None else type_of_cell(cell.own, engine, wanted)
    return f"CAST(NULL AS {kind}) AS {name}"


def _unused(state: State) -> str:
    """The value of a row in a state that is not its own, which nobody reads. Merging is faster without
    NULLs."""
    return f"{'0' if state.merge == 'sum' or state == RANK else 'NULL'} AS {state.name}"


def one_row_a_group(draft: Draft, states: States, engine: Engine, groups: str) -> str:
    """A relation with the keys, the ordinary states and the values over cells (``v0`` …), from ``groups``."""
    states = states.whole
    if not draft.sets:
        return _without_cells(draft, states, engine, groups)
    merged = states.kept
    sets, keys = draft.sets, len(draft.keys)
    groups = regrouped(groups, draft.bounds, sets, keys, tuple(states.cells), merged)
    return repeated(_without_cells(draft, states, engine, groups), sets, keys)


def _without_cells(draft: Draft, states: States, engine: Engine, groups: str) -> str:
    if not states.cells:
        return groups
    by = [f"g.{name}" for name in draft.bounds]
    by += [f"g.k{index}" for index in range(len(draft.keys))]
    by += [f"g.z{index}" for index in range(len(draft.keys) if draft.sets else 0)]
    ordinary = " AND ".join(f"g.{name} IS NULL" for name in states.cells)
    items = list(by)
    for column in states.columns:
        kept = f"MAX(g.{column.state.name}) FILTER (WHERE {ordinary})"
        items.append(
            f"{f'COALESCE({kept}, 0)' if column.state.identity_zero else kept} AS {column.state.name}"
        )
    for value, (aggregate, cell) in states.celled.items():
        items.append(f"{CELLED[aggregate.name].value(aggregate, cell, engine)} AS {value}")
    needs = dict.fromkeys((CELLED[one.name].needs, cell) for one, cell in states.celled.values())
    over = list(chain.from_iterable(_running(need, cell, by, engine) for need, cell in needs))
    rows = f"(SELECT {', '.join(['g.*', *over])} FROM {groups} AS g)" if over else groups
    return "(" + _select(items, [f"FROM {rows} AS g"], ", ".join(by)) + ")"


def _running(need: str, cell: str, by: Sequence[str], engine: Engine) -> list[str]:
    """What ``Celled.needs`` says, over the rows of each group."""
    window = f"PARTITION BY {', '.join([*by, f'g.{cell} IS NOT NULL'])}"
    wide = TYPES[engine]["hugeint"]
    if need == "order":
        count = f"CAST(SUM(g.cell_count) OVER ({window}{{}}) AS {wide})"
        return [
            f"{count.format(f' ORDER BY g.{cell}')} AS upto_{cell}",
            f"{count.format('')} AS total_{cell}",
        ]
    places = {"place": f"g.cell_count DESC, g.{cell}", "first": f"g.{cell}", "last": f"g.{cell} DESC"}
    return [f"ROW_NUMBER() OVER ({window} ORDER BY {places[need]}) AS {need}_{cell}"] if need else []
