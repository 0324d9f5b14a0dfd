"""The rules about joins: which kinds there are, what they need, and why others are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from elf.fields import replace
from elf.ql.draft import Draft
from elf.ql.expressions import Ref, conjuncts, walk
from elf.ql.plan import TABLE_OF
from elf.ql.rules_streams import check_stream_join, is_stream, other_stream
from elf.ql.source import Source, did_you_mean, start_of
from elf.ql.tables import Joined

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OUTER: Final = ("RIGHT", "FULL")


def is_comma(join: exp.Join) -> bool:
    """Whether it is a comma between streams: the rows of both, one after the other (no product)."""
    return "comma" in join.meta and isinstance(join.this, exp.Table) and not is_file(join.this)


def is_file(table: exp.Expr) -> bool:
    """Whether a file, or a table of a job, stands where a stream's name might: its rows go with the query."""
    return isinstance(table, exp.Table) and "file" in table.meta


def file_of(table: exp.Table) -> str:
    """The file; of a table of a job ``TABLE`` and its name, which no file has."""
    return f"{TABLE_OF}{table.name}" if table.meta.get("table") else str(table.name)


def shown(table: exp.Table) -> str:
    """A file or table as it stands in a query."""
    return file_of(table) if table.meta.get("table") else f"'{table.name}'"


def name_of(source: Source, table: exp.Table) -> str:
    """What a query calls a file. Raises ``QueryError`` where it has to say."""
    if table.alias:
        return str(table.alias)
    stem = table.name.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    if not _NAME.fullmatch(stem):
        raise source.at(table, f"give this table a name: '{table.name}' AS products")
    return stem


def check_joins(source: Source, tree: exp.Expr) -> None:
    """Raises ``QueryError`` for the first join that is not one of a stream with a file or a stream."""
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for join in tree.find_all(exp.Join, bfs=False):
        if not is_comma(join):
            _check(source, join, named)


def _check(source: Source, join: exp.Join, named: set[str]) -> None:
    table, side = join.this, str(join.args.get("side") or "").upper()
    kind = str(join.args.get("kind") or "").upper()
    if table.meta.get("job"):
        _check_job(source, join, side)
    elif is_stream(table, named):
        check_stream_join(source, join)
    elif not is_file(table):
        raise source.at(table, "a subquery cannot be joined yet; a file can: JOIN 'products.csv' AS p ON …")
    elif side in _OUTER:
        raise source.at(
            table,
            f"a {side} JOIN gives the rows of the table that no row of the stream has, which is known at the "
            "end of the stream only; write JOIN or LEFT JOIN",
        )
    if kind not in ("", "INNER", "OUTER") or join.args.get("method"):
        word = join.args.get("method") or kind
        raise source.at(table, f"{word} JOIN is not supported; write JOIN … ON, JOIN … USING or LEFT JOIN")
    if not (join.args.get("on") or join.args.get("using")):
        raise source.at(table, "JOIN needs ON condition, or USING (column)")


def _check_job(source: Source, join: exp.Join, side: str) -> None:
    """The windows of jobs are joined once they are complete; all rows of the first job may be kept."""
    select = join.parent_select
    first = None if select is None else select.args.get("from_")
    if first is None or not first.this.meta.get("job"):
        raise source.at(join.this, "JOIN JOB joins the windows of jobs: FROM JOB a JOIN JOB b ON …")
    if side in _OUTER:
        raise source.at(join.this, f"{side} JOIN of jobs is not supported; write JOIN or LEFT JOIN")


def read_joins(draft: Draft) -> Draft:
    """JOIN and LEFT JOIN: tables beside the stream's rows."""
    joins = [join for join in draft.tree.args.get("joins") or [] if not is_comma(join)]
    check_joins(draft.source, draft.tree)
    files = [join.this for join in joins if not join.this.meta.get("job")]
    if files and draft.below is not None:
        raise draft.source.at(
            files[0], "a table is joined to the rows of a stream: move the JOIN into the subquery"
        )
    for join in joins:
        if not join.this.meta.get("job"):
            draft = join_table(draft, join, _beside(draft, join))
    return draft


def _beside(draft: Draft, join: exp.Join) -> Joined:
    table, source = join.this, draft.source
    if is_stream(table, set(draft.ctes)):
        streams, contents = other_stream(draft, join)
        return Joined(str(table.alias or table.name), "", contents, streams=streams, at=start_of(table))
    name = name_of(source, table)
    found = draft.tables.get(name.lower())
    if found is None:
        raise source.at(table, f"the contents of {shown(table)} are not here: a table cannot be joined here")
    return Joined(name, "", found)


def join_table(draft: Draft, join: exp.Join, new: Joined) -> Draft:
    """The rows beside those of ``new``, which is a name and columns."""
    table, source = join.this, draft.source
    name, contents = new.name, new.table
    taken = {*(one.name.lower() for one in draft.joins), *(one.lower() for one in draft.streams)}
    if name.lower() in taken:
        raise source.at(table, f"{name} stands for something else in FROM already; name it with AS")
    if table.alias_column_names:
        raise source.at(table, "names for columns in FROM are not supported yet")
    using = join.args.get("using") or []
    merged = frozenset(one.name.lower() for one in using)
    place = f"t{len(draft.joins)}"
    if any(column.name.lower().startswith(f"{place}.") for column in draft.schema.columns):
        raise source.at(
            table, f"the stream has a column that begins with {place}., as a join needs for itself"
        )
    new = replace(new, place=place, left=join.args.get("side") == "LEFT", merged=merged)
    for column in using:
        if new.find(column.name) is None:
            near = did_you_mean(column.name, [one.name for one in contents.columns])
            raise source.at(column, f'{name} has no column "{column.name}"{near}')
        own = draft.schema.names() if draft.derived is None else draft.derived
        there = [*own, *(one.name for joined in draft.joins if joined.name for one in joined.table.columns)]
        if column.name.lower() not in [one.lower() for one in there]:
            near = did_you_mean(column.name, there)
            raise source.at(column, f'what {name} is joined to has no column "{column.name}"{near}; write ON')
    draft = replace(draft, joins=(*draft.joins, new))
    scope = draft.scope("ON", aggregates=False, aliased=False)
    on = [part for node in _conditions(join, name) for part in conjuncts(scope.condition(node, "ON"))]
    if new.streams:
        return replace(draft, joins=(*draft.joins[:-1], replace(new, on=tuple(on))))
    for part in on:
        places = {ref.table for ref in walk(part) if isinstance(ref, Ref)}
        if place in places and len(places) > 1:
            return replace(draft, joins=(*draft.joins[:-1], replace(new, on=tuple(on))))
    left = "the stream" if draft.below is None else next(iter(draft.streams), "the job")
    raise source.at(
        table,
        f"ON joins every row with every row of {name}: compare a column of {left} with one of {name}",
    )


def _conditions(join: exp.Join, name: str) -> Iterator[exp.Expr]:
    if join.args.get("on"):
        yield join.args["on"]
    for column in join.args.get("using") or []:
        left = exp.Column(this=column.copy())
        right = exp.Column(this=column.copy(), table=exp.to_identifier(name))
        yield exp.EQ(this=left, expression=right)
