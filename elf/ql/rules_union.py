"""The rule about UNION ALL in FROM: its branches, and the columns that they make together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from elf.fields import replace
from elf.ql.draft import Draft
from elf.ql.expressions import Expr, Ref
from elf.ql.kinds import become, common
from elf.ql.rules_joins import is_file
from elf.ql.unions import EVENT_TIME, Branch, view_of
from elf.schema import Column, ColumnType, Schema

Raw = Callable[[Draft], tuple[dict[str, Expr], Draft]]
"""Binds a SELECT of raw rows: its columns, and its draft."""


def branches_of(draft: Draft, inner: exp.SetOperation, raw: Raw) -> tuple[Draft, dict[str, Expr]]:
    """The draft over a union's rows, and the union's columns. Raises ``QueryError``."""
    parts = list(_selects(draft, inner))
    made = [_branch(draft, select, raw) for select in parts]
    names = [name for name, _ in made[0].columns]
    for select, branch in zip(parts, made, strict=True):
        if len(branch.columns) != len(names):
            message = (
                f"this SELECT has {len(branch.columns)} columns, the first of the UNION ALL {len(names)}"
            )
            raise draft.source.at(select, message)
    columns: dict[str, Expr] = {}
    for place, name in enumerate(names):
        kinds = [branch.columns[place][1].kind for branch in made]
        kind = common(kinds)
        if kind is None:
            found = " and ".join(dict.fromkeys(kinds))
            raise draft.source.at(inner, f'column "{name}" of the UNION ALL is {found}; CAST one of them')
        columns[name] = Ref(name, kind)
    timed = all(schema.event_time is not None for schema in draft.schemas.values())
    unified = []
    for branch in made:
        own = [
            (name, become(value, columns[name].kind))
            for name, (_, value) in zip(names, branch.columns, strict=True)
        ]
        event_time = draft.schemas[branch.stream].event_time
        if timed and event_time is not None:
            own.append((EVENT_TIME, Ref(event_time, "timestamp")))
        unified.append(replace(branch, columns=tuple(own)))
    types: dict[str, ColumnType] = {EVENT_TIME: "timestamp"} if timed else {}
    schema = Schema(tuple(Column(*one) for one in types.items()), EVENT_TIME if timed else None)
    return replace(draft, schema=schema, branches=tuple(unified)), columns


def _selects(draft: Draft, inner: exp.Expr) -> Iterator[exp.Select]:
    """From left to right."""
    while isinstance(inner, exp.Subquery) and not inner.alias:
        inner = inner.this
    if isinstance(inner, exp.Select):
        yield inner
        return
    if not isinstance(inner, exp.Union):
        raise draft.source.at(inner, f"{inner.key.upper()} is not supported; write UNION ALL")
    if inner.args.get("distinct"):
        raise draft.source.at(
            inner,
            "UNION without ALL would have to remember all rows; write UNION ALL, and DISTINCT around it",
        )
    for part, value in inner.args.items():
        if value and part not in ("this", "expression", "distinct"):
            raise draft.source.at(inner, "what comes after UNION ALL belongs to the query around it")
    yield from _selects(draft, inner.this)
    yield from _selects(draft, inner.expression)


def _branch(draft: Draft, select: exp.Select, raw: Raw) -> Branch:
    tables = [table for table in select.find_all(exp.Table, bfs=False) if not is_file(table)]
    if len(tables) != 1 or isinstance(tables[0].this, exp.Star) or tables[0].meta.get("late"):
        raise draft.source.at(select, "each SELECT of a UNION ALL reads one stream")
    if len(draft.schemas) > 1 and tables[0].name not in draft.schemas:
        raise draft.source.at(tables[0], f"{tables[0].name} is no stream, which each SELECT here reads")
    stream = tables[0].name if len(draft.schemas) > 1 else next(iter(draft.schemas))
    grouped = any(select.args.get(part) for part in ("group", "distinct"))
    columns, below = raw(replace(draft, tree=select, schema=draft.schemas[stream], branches=()))
    if grouped or below.below is not None:
        raise draft.source.at(
            select, "UNION ALL is of rows here: GROUP BY, DISTINCT and aggregates stand around it"
        )
    view = view_of(stream) if len(draft.schemas) > 1 else "rows"
    return Branch(stream, tuple(columns.items()), below.where, below.joins, view)
