"""``x IN (SELECT column FROM 'file')`` in WHERE: whether a value is in a table that goes with the query.

It is a LEFT JOIN with the column's different values (``elf.ql.tables``): a row meets at most one of them, so
that it stays one row. As in SQL the answer is unknown where it is not found and x, or a value of the table,
is NULL; nothing is in an empty table.
"""

from __future__ import annotations

from sqlglot import exp

from elf.fields import replace
from elf.ql.bind_operators import comparable
from elf.ql.draft import Draft
from elf.ql.expressions import TRUE, Call, Constant, Ref
from elf.ql.kinds import become
from elf.ql.rules_joins import is_file, name_of, shown
from elf.ql.tables import Joined, distinct_of

_FALSE = Constant(False, "boolean")
_UNKNOWN = Constant(None, "boolean")


def read_members(draft: Draft) -> Draft:
    """The tables of IN (SELECT …), and what each IN then says. Raises ``QueryError``."""
    where = draft.tree.args.get("where")
    for node in where.find_all(exp.In, bfs=False) if where is not None else ():
        if node.args.get("query") is not None:
            draft = _read(draft, node)
    return draft


def _read(draft: Draft, node: exp.In) -> Draft:
    source = draft.source
    select = node.args["query"].this
    table, column = _asked(draft, node, select)
    if draft.below is not None or any(joined.streams for joined in draft.joins):
        what = "the rows of a stream: move it into the subquery" if draft.below is not None else "one stream"
        raise source.at(node, f"IN (SELECT …) is a condition on {what}")
    contents = draft.tables.get(name_of(source, table).lower())
    if contents is None:
        raise source.at(table, f"the contents of {shown(table)} are not here")
    joined = Joined("", f"t{len(draft.joins)}", contents)
    found = joined.find(column.name)
    if found is None:
        names = ", ".join(one.name for one in contents.columns)
        raise source.at(column, f'{table.name} has no column "{column.name}"; columns: {names}')
    scope = draft.scope("WHERE", aggregates=False)
    value = scope.bind(node.this)
    if not contents.rows and contents.moment is None:  # rows of a job's table come later
        return replace(draft, members={**draft.members, id(node): _FALSE})
    there = Ref(found.name, found.type, 0, joined.place)
    left, right = comparable(node.this, value, column, there, scope)
    values, has_null = distinct_of(contents, found, right.kind)
    there = replace(there, kind=values.columns[0].type)
    equal = Call("=", (left, become(there, right.kind)), "boolean")
    inside = Call("not", (Call("is_null", (there,), "boolean"),), "boolean")
    unknown = TRUE if has_null else Call("is_null", (value,), "boolean") if contents.rows else _FALSE
    told = Call("case", (inside, TRUE, unknown, _UNKNOWN, _FALSE), "boolean")
    new = replace(joined, table=values, left=True, on=(equal,))
    return replace(draft, joins=(*draft.joins, new), members={**draft.members, id(node): told})


def _asked(draft: Draft, node: exp.In, select: exp.Expr) -> tuple[exp.Table, exp.Column]:
    """The file, and its column."""
    source = draft.source
    table = select.args["from_"].this if isinstance(select, exp.Select) and select.args.get("from_") else None
    if not isinstance(table, exp.Table) or not is_file(table):
        raise source.at(
            node,
            "IN (SELECT …) of a stream would need all its rows: it takes a column of a file, as in "
            "IN (SELECT ip FROM 'blocked.csv'), or of a table (FROM TABLE blocked). For groups write HAVING "
            "COUNT(*) FILTER (WHERE …) > 0; for rows of two streams, JOIN",
        )
    said = {part for part, value in select.args.items() if value} - {"expressions", "from_", "distinct"}
    column = select.expressions[0] if len(select.expressions) == 1 else None
    if said or not isinstance(column, exp.Column):
        raise source.at(node, f"IN (SELECT …) takes one column of {shown(table)}, and no clause behind it")
    return table, column
