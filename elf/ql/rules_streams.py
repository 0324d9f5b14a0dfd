"""The columns of several streams: those whose rows are read as one, and one that is joined to another.
``elf.ql.join_conditions`` checks ON once the whole query is known."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from elf.ql.draft import Draft
from elf.ql.plan import Table
from elf.ql.source import Source
from elf.schema import Column, ColumnType, Schema, unify


def is_stream(table: exp.Expr, named: set[str]) -> bool:
    """Whether a name in JOIN stands for a stream; ``named``: those of WITH."""
    if not isinstance(table, exp.Table) or {"file", "job"} & table.meta.keys():
        return False
    return table.name.lower() not in named


def check_stream_join(source: Source, join: exp.Join) -> None:
    """The checks that need no columns. Raises ``QueryError``."""
    table, side = join.this, str(join.args.get("side") or "").upper()
    if isinstance(table.this, exp.Star) or table.meta.get("late"):
        raise source.at(table, "what is joined is one stream, by its name")
    if side == "RIGHT":
        raise source.at(
            table,
            "RIGHT JOIN of streams is not supported; write them the other way round, with LEFT JOIN (windows "
            "then go by the event time of the other stream)",
        )
    if side == "FULL":
        raise source.at(
            table, "FULL JOIN of streams is not supported: a row without a left one is in no window"
        )


def left_of(tree: exp.Expr) -> str | None:
    """The stream to which another one is joined in this query or one inside it."""
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for join in tree.find_all(exp.Join):
        if is_stream(join.this, named) and "comma" not in join.meta:
            first = join.parent.args.get("from_") if join.parent is not None else None
            return str(first.this.name) if first is not None else None
    return None


def other_stream(draft: Draft, join: exp.Join) -> tuple[tuple[str, str], Table]:
    """(the names of both streams, the columns of the joined one). Raises ``QueryError``."""
    table, source = join.this, draft.source
    first = draft.tree.args["from_"].this
    plain = (
        isinstance(first, exp.Table) and not isinstance(first.this, exp.Star) and not first.meta.get("late")
    )
    joins = draft.tree.args.get("joins") or []
    if not plain or draft.derived is not None or first.name.lower() in draft.ctes:
        raise source.at(table, "a stream is joined to one stream: FROM a JOIN b ON …")
    if len(joins) > 1:
        raise source.at(table, "two streams are joined, and nothing beside them yet")
    known = draft.schemas
    streams = (first.name, table.name) if len(known) > 1 else tuple(known) * 2
    if len(streams) != 2 or not set(streams) <= known.keys():
        raise source.at(table, "streams are joined in a fleet and in elf run, not here")
    for stream in streams:
        odd = next((one for one in known[stream].names() if one.lower().startswith("t0.")), None)
        if odd is not None:
            raise source.at(table, f"stream {stream} has a column {odd}; a join needs t0. for itself")
    return (streams[0], streams[1]), Table(known[streams[1]].columns, b"", table.name)


def together(schemas: Mapping[str, Schema], source: Source, tree: exp.Select) -> Schema:
    """The columns of all streams, with types that hold for all; of a join, those of its left stream. Without
    a stream none: the rules report where one is missing."""
    if not schemas:
        return Schema((), "ts")
    one, *more = schemas.values()
    if not more:
        return one
    left = left_of(tree)
    if left is not None:
        return schemas.get(left, one)
    if tree.find(exp.SetOperation) is not None:  # each SELECT of it has its own stream's
        timed = all(schema.event_time is not None for schema in schemas.values())
        return Schema((), one.event_time if timed else None)
    kinds: dict[str, ColumnType] = {}
    for stream, schema in schemas.items():
        for column in schema.columns:
            kind = unify(kinds.setdefault(column.name, column.type), column.type)
            if kind == "text" and (column.type, kinds[column.name]) != ("text", "text"):
                found = f"{kinds[column.name]} in one of the streams and {column.type} in {stream}"
                raise source.at(tree, f"column {column.name} is {found}; declare its type in their config")
            kinds[column.name] = kind
    if len({schema.event_time for schema in schemas.values()}) > 1:
        raise source.at(tree, "the streams have their event time in columns of different names")
    labels = tuple(dict.fromkeys(label for schema in schemas.values() for label in schema.labels))
    return Schema(tuple(Column(name, kind) for name, kind in kinds.items()), one.event_time, labels=labels)
