"""The levels of a query: each subquery with groups is read by the one around it.

Levels with the same windows are one text for the master's final fragment. A level with larger windows, over
the rows of a job's, has partial aggregates of its own: the master makes them from the rows of each smaller
window (a *stage*), and then makes its windows from them as from panes. So a row of the job is aggregated
once, however many of the larger windows contain it; it is in those that contain its whole window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct

from elf.errors import ElfBug
from elf.fields import replace
from elf.ql.draft import Draft, Output
from elf.ql.graphs import Graph, GraphStep, rows_of
from elf.ql.plan import Plan, Stage, side_groups
from elf.ql.render_final import render_final, render_lift, render_over
from elf.ql.render_spark import render_spark
from elf.ql.states import States
from elf.ql.unions import side_view, view_of
from elf.windows import Sliding


class Level(Struct, frozen=True):
    """A query with groups, and the states of its aggregates."""

    draft: Draft
    states: States


class Live(Struct, frozen=True):
    """What the master does: DuckDB over ``groups``."""

    final_sql: str
    stages: tuple[Stage, ...]
    graphs: tuple[GraphStep, ...] = ()


def storeys(levels: Sequence[Level]) -> list[list[Level]]:
    """Levels with the same windows together; innermost first."""
    found: list[list[Level]] = []
    for level in levels:
        if found and found[-1][0].draft.windows == level.draft.windows:
            found[-1].append(level)
        else:
            found.append([level])
    return found


def unordered(level: Level) -> Level:
    """As another level reads its rows: in any order, unless that decides which of them there are. (DuckDB
    would sort them: four fifths of what a GROUP BY over 120,000 groups takes.)"""
    draft = level.draft
    cut = draft.limit is not None or draft.offset > 0
    return level if cut else replace(level, draft=replace(draft, order=()))


def _ordered(levels: Sequence[Level], level: Level) -> bool:
    """Whether anybody wants its rows in order: a graph does not."""
    place = next(at for at, one in enumerate(levels) if one is level)
    return place + 1 == len(levels) or levels[place + 1].draft.graph is None


def for_master(
    levels: Sequence[Level], bound: Sequence[Output], pane_us: int, groups: str = "groups"
) -> Live:
    """``bound``: the parts of the innermost level besides its SELECT list; ``pane_us``: its fragment's panes;
    ``groups``: how it reads them."""
    sql, stages, graphs = "", list[Stage](), list[GraphStep]()
    levels = [*map(unordered, levels[:-1]), *levels[-1:]]
    for place, (first, *others) in enumerate(storeys(levels)):
        if place:
            stages.append(_stage(first, sql, pane_us, graphs))
            graphs = []
        draft = first.draft if place else _saying(first.draft, bound)
        sql = render_final(
            draft, first.states, "duckdb", "groups" if place else groups, ordered=_ordered(levels, first)
        )
        for over in others:
            if over.draft.graph is not None:
                graphs.append(GraphStep(over.draft.graph, sql, over.draft.bounds))
                sql = rows_of(graphs[-1])
            sql = render_over(over.draft, over.states, "duckdb", sql, ordered=_ordered(levels, over))
    return Live(sql, tuple(stages), tuple(graphs))


def _stage(level: Level, rows: str, pane_us: int, graphs: Sequence[GraphStep]) -> Stage:
    draft, states = level.draft, level.states
    below = draft.below
    window = below.windows[0] if below is not None and len(below.windows) == 1 else None
    if not isinstance(window, Sliding) or not window.is_tumbling:
        raise ElfBug("larger windows are not over tumbling ones")
    return Stage(
        window=Sliding(
            window.size_us, window.slide_us
        ),  # for windows of rows: those that are full in a second
        sql=render_lift(draft, states, rows, pane_us),
        keys=(*(f"k{index}" for index in range(len(draft.keys))), *states.cells),
        states=states.kept,
        cells=tuple(states.cells),
        graphs=tuple(graphs),
    )


class Offline(Struct, frozen=True):
    """The whole query for Spark, after its graphs."""

    sql: str
    graphs: tuple[GraphStep, ...] = ()


def for_spark(levels: Sequence[Level], bound: Sequence[Output], before: str = "") -> Offline:
    """The same for Spark. ``before``: views that all of it reads, in SQL."""
    sql, graphs = "", list[GraphStep]()
    for place, (first, *others) in enumerate(storeys(levels)):
        draft = first.draft if place else _saying(first.draft, bound)
        sql = render_spark(draft, first.states, sql, ordered=_ordered(levels, first))
        for over in others:
            if over.draft.graph is not None:
                graphs.append(spark_step(over.draft.graph, f"{before}{sql}", over.draft.bounds))
                sql = rows_of(graphs[-1])
            sql = render_over(over.draft, over.states, "spark", sql, ordered=_ordered(levels, over))
    return Offline(f"{before}{sql}", tuple(graphs))


def spark_step(graph: Graph, sql: str, bounds: tuple[str, ...]) -> GraphStep:
    """With a view whose name is that of its text."""
    name = hashlib.sha256(f"{graph}\0{sql}".encode()).hexdigest()[:12]
    return GraphStep(graph, sql, bounds, f"graph_{name}")


def render_side(plan: Plan, number: int) -> tuple[str, str, tuple[GraphStep, ...]]:
    """The rows of a job that is joined, for either engine: as of a query of its own, whose ``groups`` and
    ``rows`` are the ``number``-th; and what Spark makes of its graphs before.
    """
    views = [view_of(one.stream) for one in (plan.fragment, *plan.more)] if plan.apart else ["rows"]
    rows = ", ".join(f"{view} AS (SELECT * FROM {side_view(number, view)})" for view in views)

    def beside(sql: str) -> str:
        return f"WITH {rows}\nSELECT * FROM (\n{sql}\n)"

    spark, graphs = plan.spark_sql, list[GraphStep]()
    for step in plan.spark_graphs:
        made = step.sql
        for before, after in zip(plan.spark_graphs, graphs, strict=False):
            made = made.replace(before.view, after.view)
        graphs.append(spark_step(step.graph, beside(made), step.bounds))
        spark = spark.replace(step.view, graphs[-1].view)
    return (
        f"WITH groups AS (SELECT * FROM {side_groups(number)})\nSELECT * FROM (\n{plan.final_sql}\n)",
        beside(spark),
        tuple(graphs),
    )


def _saying(draft: Draft, bound: Sequence[Output]) -> Draft:
    return replace(draft, outputs=(*draft.outputs, *bound))
