"""SELECT of rows: ``SELECT * FROM access WHERE sc_status = 500 LIMIT 10`` is a look at some rows of a stream,
and no query.

It has no groups, so nobody could keep all that it asks for. It is answered at once, from what is at hand: in
a fleet the last lines that agents keep anyway, in ``elf run`` the first rows of the files. LIMIT is a must.
What goes beyond one stream, a condition, expressions and a number of rows is a query with groups, or an error
of it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlglot import exp

from elf.errors import QueryError
from elf.ql.draft import Draft
from elf.ql.expressions import Kind, Ref, walk
from elf.ql.fuel import fuelled
from elf.ql.functions import ALIASES, CHANGING, ELSEWHERE, FUNCTIONS
from elf.ql.render import render
from elf.ql.render_map import where_clause
from elf.ql.rules import raw_columns
from elf.ql.rules_joins import is_file
from elf.ql.statements import Query
from elf.ql.templates import name
from elf.schema import Column, Schema

ROWS_MAX: Final = 1_000
TIME: Final = "_ts"
"""The first column of a look's rows: event time in µs."""
_CLAUSES: Final = frozenset({"expressions", "from_", "places", "where", "limit"})
_SCALAR: Final = frozenset({*FUNCTIONS, *ALIASES, *CHANGING, *ELSEWHERE} - {"uniq", "topk"})


class Look(Struct, frozen=True):
    """``sql``: DuckDB, over ``rows`` with ``TIME`` and these columns. ``shown``: names and types of what it
    gives, after ``TIME``."""

    stream: str
    columns: tuple[Column, ...]
    sql: str
    rows: int
    shown: tuple[tuple[str, Kind], ...]


def is_look(query: Query) -> bool:
    """Whether a query is one."""
    tree = query.tree
    if not isinstance(tree, exp.Select) or {part for part, value in tree.args.items() if value} - _CLAUSES:
        return False
    table, limit = tree.args.get("from_"), tree.args.get("limit")
    if table is None or not isinstance(limit, exp.Limit) or limit.expressions:
        return False
    stream = table.this
    plain = (
        isinstance(stream, exp.Table)
        and isinstance(stream.this, exp.Identifier)
        and not stream.args.get("db")
    )
    if not plain or is_file(stream) or stream.meta.get("job") or stream.meta.get("late"):
        return False
    if tree.find(exp.Window, exp.Subquery) is not None:
        return False
    return all(call.name.lower() in _SCALAR for call in tree.find_all(exp.Anonymous))


def stream_of(query: Query) -> str:
    """The stream of a look."""
    return str(query.tree.args["from_"].this.name)


def look_of(query: Query, schema: Schema) -> Look:
    """Over a stream with these columns. Raises ``QueryError``."""
    tree, source = query.tree, query.source
    assert isinstance(tree, exp.Select)
    limit = tree.args["limit"].expression
    if not isinstance(limit, exp.Literal) or limit.is_string or not limit.name.isdigit():
        raise source.at(limit, "LIMIT takes a whole number")
    if int(limit.name) > ROWS_MAX:
        raise source.at(limit, f"a SELECT without groups shows {ROWS_MAX:,} rows at most; elf tap shows more")
    bare = tree.copy()
    bare.set("limit", None)
    try:
        with fuelled():
            values, draft = raw_columns(Draft(source, bare, schema))
            if TIME in map(str.lower, values):
                raise source.at(tree, f"{TIME} is the rows' event time: call this column otherwise")
            read = {
                part.name
                for value in (*values.values(), *draft.where)
                for part in walk(value)
                if isinstance(part, Ref)
            }
            items = [
                f"{render(value, 'duckdb')} AS {name(called, 'duckdb')}" for called, value in values.items()
            ]
            sql = [f"SELECT {', '.join([f'r.{TIME} AS {TIME}', *items])}", "FROM rows AS r"]
            sql += where_clause(draft.where, "duckdb")
    except RecursionError as error:
        raise QueryError("the query is nested too deeply") from error
    shown = tuple((called, value.kind) for called, value in values.items())
    return Look(stream_of(query), schema.chosen(read), "\n".join(sql), int(limit.name), shown)
