"""The columns of several streams whose rows are read as one."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from elf.ql.rules_streams import left_of
from elf.ql.source import Source
from elf.schema import Column, ColumnType, Schema, unify


def together(schemas: Mapping[str, Schema], source: Source, tree: exp.Select) -> Schema:
    """The columns of all streams, with the types that go for all; of a join, those of its left one. Of no
    stream none: the rules say where one is missing.
    """
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
    return Schema(tuple(Column(name, kind) for name, kind in kinds.items()), one.event_time)
