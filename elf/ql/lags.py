"""LAG and LEAD: the value of the same group in the window so many before, or after.

A window is the sum of its panes, and so is the one before it: the panes that lie a slide earlier. So a flow's
panes are put beside themselves. Each row of pane p says what its group is in p, and once more, as states of
other names, what it was for the window that begins n slides later::

    groups: pane, keys, s0 ─┬─▶ pane,            keys, s0, -  ─┬─▶ merged: pane, keys, s0, s0_b1 ─▶ windows
                            └─▶ pane + n slides, keys, -,  s0 ─┘

- *The flow is the same.* Agents and trees know nothing of it, and a job with LAG shares its flow with one
  without.
- *Windows are made as always*, from states that merge as always: sums, minima, maxima, cells. A window with
  LAG needs the panes of n slides before its start, one with LEAD those of n slides after its end:
  ``Plan.reach``, as for a join of streams (``elf.ql.streamjoins``). So it waits for them, a pane that is
  revised revises the windows after it too, and a job's first window is one that has others before it.
- *A window has the groups of its own rows.* Those which only the other window has are left out
  (``read_lags``); for a group that the other window lacks LAG is NULL, or what its third argument says.

Spark does the same to the groups of whole windows.
"""

from __future__ import annotations

from elf.ql.draft import Draft
from elf.ql.plan import StreamJoin
from elf.ql.states import States, beside_name
from elf.ql.templates import Engine
from elf.windows import Sliding


def slide_us(draft: Draft) -> int:
    """How far apart its windows are; they are of one kind."""
    (window,) = draft.windows
    assert isinstance(window, Sliding)
    return window.slide_us


def lag_of(draft: Draft, states: States, pane_us: int) -> StreamJoin | None:
    """How windows of a query with LAG or LEAD get panes of others beside theirs; None without either."""
    if not states.beside:
        return None
    whole, slide = states.whole, slide_us(draft)
    pane = f"CAST(g._pane + o.step * {slide // pane_us} AS BIGINT) AS _pane"
    return StreamJoin(
        sql="\n".join(_select(draft, states, "duckdb", [pane], "groups")),
        keys=(*(f"k{index}" for index in range(len(draft.keys))), *whole.cells),
        states=whole.kept,
        cells=tuple(whole.cells),
        side="",
        before_us=max(0, *states.beside) * slide,
        after_us=max(0, *(-step for step in states.beside)) * slide,
        about=f"the same group in the window {', '.join(map(_told, states.beside))}",
    )


def _told(step: int) -> str:
    """For people: which window."""
    way = "before" if step > 0 else "after"
    return way if abs(step) == 1 else f"{abs(step)} {way}"


def windows_beside(draft: Draft, states: States, groups: str) -> str:
    """For Spark: the groups of windows with those of others beside them."""
    if not states.beside:
        return groups
    slide = slide_us(draft)
    bounds = [
        f"timestamp_micros(unix_micros(g.{bound}) + o.step * {slide}L) AS {bound}" for bound in draft.bounds
    ]
    apart = "\n".join(_select(draft, states, "spark", bounds, f"(\n{groups}\n)"))
    whole = states.whole
    by = [*draft.bounds, *(f"k{index}" for index in range(len(draft.keys))), *whole.cells]
    kept = []
    for state in whole.kept:
        value = f"MAX({state.name})"  # of one row at most
        kept.append(f"{f'COALESCE({value}, 0)' if state.identity_zero else value} AS {state.name}")
    return f"SELECT {', '.join([*by, *kept])}\nFROM (\n{apart}\n)\nGROUP BY {', '.join(by)}"


def _select(draft: Draft, states: States, engine: Engine, first: list[str], groups: str) -> list[str]:
    """Each row of ``groups`` in its own place and, for each ``step``, as what it is to another window."""
    own = [column.state for column in states.columns]
    items = [*first, *(f"g.k{index}" for index in range(len(draft.keys)))]
    conditions = []
    for step, names in {0: (*states.cells, *(state.name for state in own)), **states.beside}.items():
        kept = [(cell, "NULL") for cell in states.cells]
        kept += [(state.name, "0" if state.identity_zero else "NULL") for state in own]
        items += [
            f"CASE WHEN o.step = {step} THEN g.{name} ELSE {none} END AS {beside_name(name, step)}"
            for name, none in kept
            if name in names
        ]
        without = " AND ".join(f"g.{cell} IS NULL" for cell in states.cells if cell not in names)
        conditions += [f"(o.step <> {step} OR {without})"] if without else []
    items += [f"g.{state.name}" for state in states.cell_states]
    steps = ", ".join(f"({step})" for step in (0, *states.beside))
    return [
        f"SELECT {', '.join(items)}",
        f"FROM {groups} AS g CROSS JOIN (VALUES {steps}) AS o(step)",
        *([f"WHERE {' AND '.join(conditions)}"] if conditions else []),
    ]
