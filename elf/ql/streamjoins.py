"""Two streams joined within an interval: ``clicks AS c JOIN buys AS b ON c.user = b.user AND b.ts BETWEEN
c.ts AND c.ts + INTERVAL 10 SECONDS``.

Requirements (``elf.ql.join_conditions``): equal keys, so that rows which may meet come to one place, and two
bounds on the time between two rows, so that a row is kept for that long and no longer. A joined row is in the
window of its *left* row: a LEFT JOIN has each left row as often as it has partners, or once, in the window in
which it would be alone. (For windows of the other stream's time, write the streams the other way round.)

    clicks ─ map: the left side's WHERE ─▶ groups = rows ─┐ a flow a stream           ┌▶ panes ─▶ windows
    buys ─── map: the right side's ──────▶ groups = rows ─┴ and key range ─ joining ──┘  as of any query
                                                                          at the master

- *The flows bring rows.* A group of a flow is a row as the query needs it, identified by its key, its side,
  its event time and its columns; equal rows are counted. The key of the join is the fragment's group key and
  all the rest are cells (``elf.ql.cells``), so a key range has all rows of its keys, of both sides: they are
  partitioned alike over the trees.
- *Panes are joined, not windows.* The joined rows of pane p are its left rows with partners of the panes from
  p - before to p + after. They become partial aggregates of pane p by the same SQL that an agent would run
  over joined rows: ``rows`` and ``partners`` are made from the groups again, each row as often as it was
  counted. So joined rows allow the same queries as rows, and a row of many windows is joined once.
- *A window waits for its partners.* It is complete when all flows have committed up to its end and ``after``;
  a revised pane affects windows up to ``before`` later and from ``after`` earlier; and a job begins
  ``before`` later than its flows, since partners of its first rows would be missing. ``Plan.reach`` gives
  both to ``elf.job.group.versions``, which is all that the protocol knows of it: which panes are in which
  commit is decided as always, so a join is as exactly-once as they are.
- *What is kept* are the rows of both streams for a pane and the interval around it, and the aggregates of
  open windows.

The agents check conditions on one side: in a LEFT JOIN those of ON for the right side and of WHERE for the
left; the others wait until the rows have met. Spark runs the join as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from elf.fields import replace
from elf.ql.draft import Draft
from elf.ql.expressions import TRUE, Call, Constant, Expr, Kind, Ref, connect, rewrite, walk
from elf.ql.join_conditions import Conditions, Pair, conditions_of, pane_us
from elf.ql.plan import Fragment, StreamJoin
from elf.ql.render_map import render_map, render_where
from elf.ql.render_spark import render_partials
from elf.ql.states import States, collect
from elf.ql.tables import Joined, needed
from elf.ql.templates import name
from elf.ql.unions import Branch, view_of
from elf.schema import Schema
from elf.windows import Cumulative, Sliding

RIGHT: Final = "partners"
"""The name of the right rows where they meet the left ones, which are ``rows``."""
Column = tuple[Kind, Pair]


def join_of(draft: Draft) -> Joined | None:
    """The stream that is joined to the draft's, if one is."""
    return next((joined for joined in draft.joins if joined.streams), None)


def offline(draft: Draft, joined: Joined, apart: bool) -> tuple[Draft, str]:
    """The draft over Spark's views, and what comes before its query; ``apart``: each stream has its own."""
    if not apart:
        return replace(draft, joins=(replace(joined, relation="rows"),)), ""
    left, right = (view_of(stream) for stream in joined.streams)
    view = replace(joined, relation=right)
    return replace(draft, joins=(view,)), f"WITH rows AS (SELECT * FROM {left})\n"


def join_plan(
    draft: Draft, joined: Joined, states: States, schemas: Mapping[str, Schema]
) -> tuple[tuple[Fragment, ...], StreamJoin]:
    """The fragments over the streams, and what the master makes from them. Raises ``QueryError``."""
    _refuse(draft, joined)
    said = conditions_of(draft, joined, schemas)
    met = replace(draft, joins=(replace(joined, on=said.on, relation=RIGHT),), where=said.where)
    columns = _columns(said, joined, met, states)
    met = replace(met, joins=needed(met.joins, _read(met, states)))
    made = [_branches(joined, said, columns, stream) for stream in schemas]
    fragments = tuple(
        _fragment(draft, stream, schema, branches, said)
        for (stream, schema), branches in zip(schemas.items(), made, strict=True)
    )
    place = joined.place
    names = [(Ref(f"{place}.key{i}", left.kind), place) for i, (left, _) in enumerate(said.keys)]
    equal = [Call("=", (ref, replace(ref, table=place)), "boolean") for ref, place in names]
    met = replace(met, joins=(replace(met.joins[0], on=(*equal, *said.on)),))
    (count,) = fragments[0].states
    rows, partners = (_rows_again(joined, said, columns, side, count.name) for side in (0, 1))
    before, after = said.between.reach(fragments[0].pane_us)
    kept = "; left rows without a partner stay" if joined.left else ""
    return fragments, StreamJoin(
        sql=f"WITH rows AS ({rows}),\n{RIGHT} AS ({partners})\n{render_map(met, states)}",
        keys=(*(f"k{index}" for index in range(len(draft.keys))), *states.cells),
        states=states.kept,
        cells=tuple(states.cells),
        side=f"k{len(said.keys)}",
        before_us=before,
        after_us=after,
        about=said.between.about(joined.streams) + kept,
    )


def _refuse(draft: Draft, joined: Joined) -> None:
    sized = all(isinstance(kind, Sliding | Cumulative) for kind in draft.windows)
    for there, what in (
        (not sized, "such windows: give them a size, as in WINDOWING 30 SECONDS (SLIDE and CUMULATE go too)"),
        (draft.changes_us is not None, "EMIT CHANGES"),
        (draft.approximate, "APPROXIMATE"),
    ):
        if there:
            raise draft.source.error(f"a join of two streams does not go with {what}", joined.at)


# -- the flows -----------------------------------------------------------------------------------------------


def _columns(said: Conditions, joined: Joined, met: Draft, states: States) -> tuple[Column, ...]:
    """The columns of the flows after keys and side: those that are read once the rows have met and are not
    keys. A left and a right one of one type share a place."""
    keys = {part for key in said.keys for part in key}
    read = [ref for ref in dict.fromkeys(_read(met, states)) if ref not in keys]
    found: list[Column] = []
    for kind in sorted({ref.kind for ref in read}):
        of_kind = sorted((ref for ref in read if ref.kind == kind), key=lambda ref: ref.name)
        left, right = ([ref for ref in of_kind if ref.table == place] for place in ("", joined.place))
        found += [(kind, pair) for pair in zip_longest(left, right)]
    return tuple(found)


def _read(met: Draft, states: States) -> Iterator[Ref]:
    """What is read of rows that have met."""
    on = [part for joined in met.joins for part in joined.on]
    aggregated = [arg for column in states.columns for arg in column.aggregate.args]
    cells = [cell.given for cell in states.cells.values()]
    for expr in (*met.where, *met.keys, *aggregated, *cells, *on):
        yield from (part for part in walk(expr) if isinstance(part, Ref))


def _branches(joined: Joined, said: Conditions, columns: Sequence[Column], stream: str) -> tuple[Branch, ...]:
    """What a stream's rows are in its flow: of a stream that is joined to itself, both sides."""
    found = []
    for side, where in enumerate((said.left, said.right)):
        if joined.streams[side] != stream:
            continue
        values: list[Expr] = [key[side] for key in said.keys]
        values.append(Constant(side, "bigint"))
        values += [pair[side] or Constant(None, kind) for kind, pair in columns]
        named = tuple((f"j{place}", _of_stream(value)) for place, value in enumerate(values))
        found.append(Branch(stream, named, tuple(map(_of_stream, where))))
    return tuple(found)


def _of_stream(expr: Expr) -> Expr:
    """The same where the rows are those of one stream."""
    return rewrite(expr, lambda part: replace(part, table="") if isinstance(part, Ref) else None)


def _fragment(
    draft: Draft, stream: str, schema: Schema, branches: Sequence[Branch], said: Conditions
) -> Fragment:
    counted = collect([])
    columns = tuple(Ref(column, value.kind) for column, value in branches[0].columns)
    rows = Draft(draft.source, draft.tree, schema, branches=tuple(branches), keys=columns)
    read = {ref.name for branch in branches for ref in branch.references()}
    names = tuple(f"k{place}" for place in range(len(columns)))
    length_us = draft.pane_us or pane_us(draft, said.between)
    return Fragment(
        stream=stream,
        columns=schema.chosen(read),
        map_sql=render_map(rows, counted),
        spark_sql=render_partials(rows, counted, length_us),
        keys=names,
        states=tuple(column.state for column in counted.columns),
        pane_us=length_us,
        lateness_us=draft.lateness_us,
        revise_us=draft.revise_us,
        wait_us=draft.wait_us,
        leap=draft.leap,
        mirror=draft.mirror,
        where_sql=render_where((_any(branches),), "duckdb"),
        cells=names[len(said.keys) :],
    )


def _any(branches: Sequence[Branch]) -> Expr:
    """A condition without which no branch has a row."""
    wheres = [connect("and", branch.where) if branch.where else TRUE for branch in branches]
    return TRUE if TRUE in wheres else connect("or", tuple(wheres))


def _rows_again(joined: Joined, said: Conditions, columns: Sequence[Column], side: int, count: str) -> str:
    """SQL: the rows of one side out of groups, each as often as it was counted."""
    keys, place = len(said.keys), joined.place
    items = ["g._pane AS _pane"] if side == 0 else []
    items += [f"g.k{i} AS {name(f'{place}.key{i}', 'duckdb')}" for i in range(keys)]
    found: dict[str, str] = {}
    pairs = [*said.keys, (None, None), *(pair for _, pair in columns)]
    for number, pair in enumerate(pairs):
        ref = pair[side]
        if isinstance(ref, Ref):
            found.setdefault(ref.name, f"g.k{number} AS {name(ref.name, 'duckdb')}")
    items += found.values()
    items.append(f"unnest(range(CAST(g.{count} AS BIGINT))) AS {name(f'{place}.again', 'duckdb')}")
    return f"SELECT {', '.join(items)} FROM groups AS g WHERE g.k{keys} = {side}"
