"""Later stages by key range (``TREES m``): what the roots do with the groups of a pane, each with its own.

A query has *levels*: a GROUP BY, those of the queries around it, and window functions between them. A root
has whole groups of its range. Which groups meet there is the hash of the *range keys*, a subset of the keys
of the innermost level. A level is *aligned* with the range keys if whatever it puts together (a group, the
rows of a PARTITION BY, equal rows of DISTINCT) agrees in all of them: then all of it is in one range, and
each root can do that level alone. So a query goes

    map at the agents → groups at the roots → aligned levels at the roots → the rest at the master

How many levels are the roots', and the range keys, says ``elf.ql.components``. From there on:

- if all levels are aligned, roots send rows of the result, of a LIMIT only as many as it has; the master puts
  them in order;
- else roots send partial aggregates of the first level that is not; the master merges them, and does what is
  left.

The roots' part is one statement over the groups of a pane (``RangeStage``), and a part of the flow: what it
makes is what a pane is, for windows and readers. It is made of what was committed *before* it, which is kept
with the commit, so a revision of a pane is made anew (protocol 6.8). Windows must be panes for that. Where a
query reads a job, the stage is that of the job, so that both read the same flows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from elf.fields import replace
from elf.ql.components import Fused, carried_to, fuse_levels, innermost, outputs_of, overs_of
from elf.ql.draft import Draft, Order, Output
from elf.ql.expressions import Aggregate, Expr, Over, Ref, Slot, walk
from elf.ql.fragments import after_grouping
from elf.ql.levels import Level, unordered
from elf.ql.plan import Component, RangeStage, Step, Where
from elf.ql.render import render
from elf.ql.render_final import render_final, render_lift, render_over
from elf.ql.source import JOB
from elf.ql.states import collect
from elf.windows import Sliding

_BY_ORDER: Final = ("sum", "avg", "stddev", "variance")
"""Aggregates of doubles that depend on the order of their rows, by the beginnings of their names."""


class Partition(Struct, frozen=True):
    """What roots make (``stage``), of groups in ranges of ``keys``, and the levels that the master does with
    it."""

    keys: tuple[str, ...]
    stage: RangeStage
    above: tuple[Level, ...]


class Planned(Struct, frozen=True):
    """``partition``: None if the roots do the innermost level alone, for which ``why`` is the reason.
    ``steps`` and ``components`` tell of each level; none where there is one that only groups."""

    partition: Partition | None
    why: str = ""
    steps: tuple[Step, ...] = ()
    components: tuple[Component, ...] = ()


def partitioned(levels: Sequence[Level], pane_us: int, trees: int, why_not: str) -> Planned:
    """``why_not``: why the root of a range has not the whole groups of a pane; empty: it has."""
    own = levels[: _read(levels) + 1]
    if not _has_later(levels):
        return Planned(None)
    fused = fuse_levels(own)
    if trees == 1:
        why = "one tree has one root, and what comes after it is the master's"
    else:
        why = why_not or _not_panes(own[0].draft, pane_us)
    if not why and not _has_later(own):
        why = "it shares the flows of the job that it reads, whose groups are in ranges of all keys"
    if not why:
        keys, aligned = fused.at_roots
        if aligned:
            found = _split(own, levels[len(own) :], keys, aligned, pane_us)
            return replace(found, components=_components(own, fused, acts=found.partition is not None))
        why = _why_first(own[0].draft)
    return replace(_at_the_master(levels, why), components=_components(own, fused, acts=False))


def _at_the_master(levels: Sequence[Level], why: str) -> Planned:
    """All but the groups themselves."""
    first, *others = (level.draft for level in levels)
    overs = [replace(_step(first, (), "master"), what=_told(first))] if overs_of(first) else []
    steps = (Step(_grouped(first), (), "roots"), *overs, *(_step(one, (), "master") for one in others))
    return Planned(None, why, steps)


def _read(levels: Sequence[Level]) -> int:
    """The place of the outermost level of the job that is read; the last one if none is."""
    places = (at for at, level in enumerate(levels) if JOB in level.draft.tree.meta)
    return next(places, len(levels) - 1)


def _has_later(levels: Sequence[Level]) -> bool:
    """Whether anything puts groups together again."""
    again = any(not level.draft.plain or level.draft.distinct for level in levels[1:])
    return again or any(overs_of(level.draft) for level in levels)


def _not_panes(draft: Draft, pane_us: int) -> str:
    """Why a pane is not a window; empty if it is."""
    if not draft.windows:
        return ""
    (window, *more) = draft.windows
    if more or not isinstance(window, Sliding) or not window.is_tumbling:
        return "only of tumbling windows a root has all in one pane"
    return "" if window.size_us == pane_us else "the panes are shorter than the windows"


def _why_first(draft: Draft) -> str:
    """Why not even the innermost level is aligned."""
    if draft.limit is not None or draft.offset:
        return "a LIMIT inside FROM is one of all groups"
    if draft.sets:
        return "no key is in all grouping sets"
    if not draft.keys:
        return "there is one group"
    return "window functions over all groups have no key in PARTITION BY"


# -- what roots and the master do ----------------------------------------------------------------------------


def _split(
    own: Sequence[Level], rest: Sequence[Level], keys: tuple[str, ...], aligned: int, pane_us: int
) -> Planned:
    """The first levels for the roots, the others for the master."""
    below, above = list(own[:aligned]), [*own[aligned:], *rest]
    if aligned == len(own):
        lower, upper = _in_rows(own[-1])
        below, above = [*own[: aligned - 1], lower], [upper, *rest]
    first = above[0]
    if first.draft.joins or first.draft.beside:
        return _at_the_master([*own, *rest], "rows are joined to those of other jobs")
    carried = innermost(own[0].draft)
    for at in range(1, aligned):
        carried = carried_to(own[at - 1].draft, own[at].draft, carried)
    disjoint = all(outputs_of(own[aligned - 1].draft, carried[key]) for key in keys) and (
        first.draft.plain and aligned == len(own)
    )
    named = tuple(_name_of(own[0].draft.keys[int(key[1:])]) for key in keys)
    stage = RangeStage(
        sql=render_lift(first.draft, first.states, _rows(below), pane_us),
        keys=(*(f"k{at}" for at in range(len(first.draft.keys))), *first.states.cells),
        states=first.states.kept,
        cells=tuple(first.states.cells),
        ordered=_depends_on_order([*below, first]),
        disjoint=disjoint,
        by=named,
    )
    steps = [_step(level.draft, named, "roots") for level in own[:aligned]]
    if aligned < len(own):
        steps.append(
            replace(_step(first.draft, named, "roots"), what=f"partial aggregates of {_grouped(first.draft)}")
        )
    steps += [_step(level.draft, (), "master") for level in [*own[aligned:], *rest]]
    if aligned == len(own) and not rest:
        steps.append(Step(_finish(own[-1].draft), (), "master"))
    return Planned(Partition(keys, stage, tuple(above)), "", tuple(steps))


def opened(level: Level) -> str:
    """``groups`` as the master reads them, where roots have made them for this level: sums of integers that
    were keys are what they were, and of rows that were alike each is there."""
    draft = level.draft
    wide = [
        f"CAST(g.k{at} AS HUGEINT) AS k{at}" for at, key in enumerate(draft.keys) if key.kind == "hugeint"
    ]
    items = [f"g.* REPLACE ({', '.join(wide)})" if wide else "g.*"]
    items += [f"UNNEST(range(g.{level.states.columns[0].state.name})) AS copy"] if draft.plain else []
    return f"(SELECT {', '.join(items)} FROM groups AS g)" if items != ["g.*"] else "groups"


def _rows(levels: Sequence[Level]) -> str:
    """The rows that levels make of ``groups``, in DuckDB."""
    first, *others = map(unordered, levels)
    sql = render_final(first.draft, first.states, "duckdb")
    for one in others:
        sql = render_over(one.draft, one.states, "duckdb", sql)
    return sql


def _in_rows(level: Level) -> tuple[Level, Level]:
    """A level as one that makes rows, of a LIMIT the first ones of each range, and one that puts rows in
    order and takes those that are wanted: with what they are ordered by among their columns."""
    draft = level.draft
    values = dict.fromkeys([*(one.value for one in draft.outputs), *(one.value for one in draft.order)])
    places = {value: place for place, value in enumerate(values)}

    def slot(value: Expr) -> Slot:
        return Slot(f"k{places[value]}", value.kind)

    limit = None if draft.limit is None else draft.offset + draft.limit
    lower = replace(
        draft,
        outputs=tuple(Output(f"c{place}", value) for value, place in places.items()),
        order=draft.order if limit is not None else (),
        limit=limit,
        offset=0,
    )
    upper = replace(
        draft,
        plain=True,
        joins=(),
        beside=(),
        branches=(),
        where=(),
        keys=tuple(Ref(f"c{place}", value.kind) for value, place in places.items()),
        sets=(),
        outputs=tuple(Output(one.name, slot(one.value)) for one in draft.outputs),
        having=None,
        qualify=None,
        distinct=False,
        order=tuple(Order(slot(one.value), one.descending, one.nulls_first) for one in draft.order),
    )
    return Level(lower, level.states), Level(upper, collect([]))


def _depends_on_order(levels: Sequence[Level]) -> bool:
    """Whether a sum of doubles among them would have other last bits if groups came in another order."""
    above = [one for level in levels[1:] for one in after_grouping(level.draft)]
    overs = [over for level in levels for over in overs_of(level.draft)]
    parts: Iterable[Expr] = (*(part for value in above for part in walk(value)), *overs)
    return any(
        isinstance(part, Aggregate | Over)
        and part.name.startswith(_BY_ORDER)
        and any(arg.kind == "double" for arg in part.args[:1])
        for part in parts
    )


# -- for people ----------------------------------------------------------------------------------------------


def _components(levels: Sequence[Level], fused: Fused, *, acts: bool) -> tuple[Component, ...]:
    """``acts``: the innermost one is at the roots."""
    names = [_step(level.draft, (), "master").what for level in levels]
    return tuple(
        Component(
            tuple(names[place] for place in one.places),
            tuple(_name_of(levels[0].draft.keys[int(key[1:])]) for key in one.keys),
            "roots" if acts and 0 in one.places else "master",
            one.score,
        )
        for one in (*fused.components, *fused.otherwise)
    )


def _step(draft: Draft, by: tuple[str, ...], at: Where) -> Step:
    told = _told(draft)
    said = [*([] if draft.plain else [_grouped(draft)]), *([told] if told else [])]
    return Step(", ".join(said or ["rows, one by one"]), by, at)


def _grouped(draft: Draft) -> str:
    keys = ", ".join(map(_name_of, draft.keys))
    return f"GROUP BY {keys}" if keys else "one group"


def _told(draft: Draft) -> str:
    """What a level does with its groups or rows, in the words of SQL."""
    said, names = list[str](), {f"k{at}": _name_of(key) for at, key in enumerate(draft.keys)}
    for over in dict.fromkeys(overs_of(draft)):
        by = [names[part.name] for part in over.partition if isinstance(part, Slot) and part.name in names]
        within = f"PARTITION BY {', '.join(by)}" if by else "all rows"
        said.append(f"{over.name.upper()} OVER ({within})")
    return ", ".join([*said, *(["DISTINCT"] if draft.distinct else [])])


def _finish(draft: Draft) -> str:
    said = ["ORDER BY"] if draft.order else []
    said += ["LIMIT"] if draft.limit is not None or draft.offset else []
    return ", ".join(["rows of all ranges together", *([" and ".join(said)] if said else [])])


def _name_of(key: Expr) -> str:
    return key.name if isinstance(key, Ref) else render(key, "duckdb")
