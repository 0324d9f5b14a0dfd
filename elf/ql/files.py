"""The files, and the tables of jobs, that a query names, and their contents."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from elf.errors import ElfBug, UserError
from elf.fields import replace
from elf.ql.fuel import fuelled
from elf.ql.plan import TABLE_OF, Plan, Table
from elf.ql.rules_joins import file_of, is_file, name_of, shown
from elf.ql.source import JOB
from elf.ql.statements import Query, parse_query
from elf.ql.tables import SENT_BYTES_MAX, table_of
from elf.ql.templates import text_literal


def files_of(query: Query) -> dict[str, str]:
    """The files and tables that a query joins (``file_of``), by their names in it, in lower case. Raises
    ``QueryError``."""
    tables = [
        one for one in query.tree.find_all(exp.Table, bfs=False) if _is_joined(one) and not _of_job(one)
    ]
    found: dict[str, exp.Table] = {}
    for table in tables:
        if table.name.startswith(TABLE_OF) and not table.meta.get("table"):
            raise query.source.at(table, f"write './{table.name}' for a file of this name")
        first = found.setdefault(name_of(query.source, table).lower(), table)
        if first is not table and (file_of(first) != file_of(table) or _is_asked(first) or _is_asked(table)):
            name = name_of(query.source, table)
            raise query.source.at(table, f"{name} stands for {shown(first)} already; name it with AS")
    return {name: file_of(table) for name, table in found.items()}


def tables_asked(query: Query) -> dict[str, str]:
    """The tables of jobs among these: their names, by those in the query. Raises ``QueryError``."""
    return {
        name: file.removeprefix(TABLE_OF)
        for name, file in files_of(query).items()
        if file.startswith(TABLE_OF)
    }


def _is_joined(table: exp.Table) -> bool:
    """Whether a file is joined, or asked for its values; the rules refuse one elsewhere."""
    join = table.parent
    if not is_file(table) or not isinstance(join, exp.Join):
        return is_file(table) and _is_asked(table)
    return bool(join.args.get("on") or join.args.get("using"))


def _is_asked(table: exp.Table) -> bool:
    """Whether it is in IN (SELECT column FROM 'file')."""
    query = table.parent_select
    if not isinstance(table.parent, exp.From) or query is None:
        return False
    return isinstance(query.find_ancestor(exp.In, exp.Select), exp.In)


def _of_job(table: exp.Expr | None) -> bool:
    """Whether it is in the query of a job that is read, which knows its tables."""
    while table is not None:
        if JOB in table.meta:
            return True
        table = table.parent
    return False


def tables_of(
    query: Query, contents: Mapping[str, bytes], known: Mapping[str, Table] | None = None
) -> dict[str, Table]:
    """The tables of a query by their names in it, in lower case: those that are ``known``, else from the
    ``contents`` of files that came with it. Raises ``UserError``."""
    found = dict(known or {})
    with fuelled():
        for name, file in files_of(query).items():
            if name not in found and file in contents:
                found[name] = table_of(file, contents[file])
            if name not in found and file.startswith(TABLE_OF):
                raise UserError(
                    f"JOIN {file} is for the streams of a fleet, which keeps the table: here a file is joined"
                )
            if name not in found:
                raise UserError(
                    f"the contents of '{file}' did not come with the statement: this client sends none"
                )
            found[name] = replace(found[name], name=name)
    return found


def tables_in(query: Query, plan: Plan) -> dict[str, Table]:
    """The query's own tables, of its plan, by what it calls them, in lower case; not those of jobs that it
    reads.
    """
    own = files_of(query)
    tables = (table for one in plan.unranged for table in one.tables)
    return {table.name.lower(): table for table in tables if table.name.lower() in own}


def with_file(query: Query, name: str, file: str) -> Query:
    """The query with another file, or table of a job, for the table of that name."""
    source = query.source
    table = next(
        table
        for table in query.tree.find_all(exp.Table, bfs=False)
        if is_file(table) and name_of(source, table).lower() == name.lower()
    )
    start, end = table.meta["file"]
    of_job = file.startswith(TABLE_OF)
    quoted = f'TABLE "{file.removeprefix(TABLE_OF)}"' if of_job else text_literal(file, "duckdb")
    named = "" if table.alias else f" AS {name_of(source, table)}"
    found = parse_query(source.text[:start] + quoted + named + source.text[end:])
    if found is None:
        raise ElfBug("a query that is none any more")
    return found


def check_size(query: Query, plan: Plan) -> None:
    """Raises ``QueryError`` where the tables are too large to go with a job."""
    size = sum(len(table.data) for fragment in plan.fragments for table in fragment.tables)
    if size <= SENT_BYTES_MAX:
        return
    file = next(table for table in query.tree.find_all(exp.Table, bfs=False) if is_file(table))
    fragments = f" in {len(plan.fragments)} fragments" if len(plan.fragments) > 1 else ""
    raise query.source.at(
        file,
        f"what this query needs of its tables comes to {size >> 10} KiB{fragments}, compressed, and at most "
        f"{SENT_BYTES_MAX >> 10} KiB goes with a job: leave out rows or columns",
    )
