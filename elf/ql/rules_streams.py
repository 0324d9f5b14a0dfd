"""The rule about a stream that is joined to a stream: which there are, and the columns of the other one. What
ON must say of both is seen to when the whole query is known (``elf.ql.join_conditions``).
"""

from __future__ import annotations

from sqlglot import exp

from elf.ql.draft import Draft
from elf.ql.plan import Table
from elf.ql.source import Source


def is_stream(table: exp.Expr, named: set[str]) -> bool:
    """A name in JOIN that stands for a stream; ``named``: those of WITH."""
    if not isinstance(table, exp.Table) or {"file", "job"} & table.meta.keys():
        return False
    return table.name.lower() not in named


def check_stream_join(source: Source, join: exp.Join) -> None:
    """What can be said without columns. Raises ``QueryError``."""
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
