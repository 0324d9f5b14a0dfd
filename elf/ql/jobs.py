"""``FROM JOB name``: a query over the rows of another job's windows.

The job's query stands in the place of its name, as a subquery: its windows are that query's windows, and the
two read one flow, so that agents compute nothing twice and the reader's windows are made of the very commits
that the job's own are made of, revision by revision. While a job is read it is not altered or dropped
(``agents.steering``), so a reader never stands over another query than the job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from elf.errors import ElfBug
from elf.ql.plan import Function, Plan, Table
from elf.ql.rules import JOB
from elf.ql.rules_joins import check_joins, is_comma
from elf.ql.source import Source
from elf.ql.statements import Query, Select, parse
from elf.ql.user_functions import with_function
from elf.windows import Landmark

DEPTH_MAX: Final = 16


@dataclass(frozen=True)
class Read:
    """A job that is read."""

    uid: str
    name: str
    plan: Plan


@dataclass(frozen=True)
class Expanded:
    """A query with the queries of jobs in it, and what comes along with them."""

    query: Query
    reads: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    function: Function | None = None

    def finish(self, plan: Plan) -> Plan:
        """The plan of the query, with what it reads."""
        plan = replace(plan, reads=self.reads)
        return plan if self.function is None else with_function(plan, self.function)


def expand(query: Query, find: Callable[[str], Read], within: Sequence[str] = ()) -> Expanded:
    """``find`` gives a job by its name or raises ``UserError``; ``within``: the jobs whose queries this one
    is in, outermost first. Raises ``QueryError``.
    """
    source = Source(query.source)
    places = [table for table in query.tree.find_all(exp.Table, bfs=False) if table.meta.get("job")]
    if not places:
        return Expanded(query)
    check_joins(source, query.tree)
    others = places[1:] or [one for one in places if _beside_others(one)]
    if others:
        raise source.at(others[0], "JOB stands alone in FROM: a query reads one job, and nothing beside it")
    tree = query.tree.copy()
    (place,) = (table for table in tree.find_all(exp.Table, bfs=False) if table.meta.get("job"))
    name = place.name
    if name in within or len(within) > DEPTH_MAX:
        way = " → ".join([*within[within.index(name) if name in within else 0 :], name])
        raise source.at(place, f"jobs cannot read each other in a circle: {way}")
    job = find(name)
    if any(isinstance(kind, Landmark) for kind in job.plan.windows):
        raise source.at(
            place, f"the landmark windows of job {name} began with it, and those of a reader begin later"
        )
    if job.plan.fragment.late_of:
        raise source.at(place, f"job {name} reads late rows; FROM LATE reads them here too")
    (statement,) = parse(job.plan.sql)
    if not isinstance(statement, Select):
        raise ElfBug(f"job {name} has a query that is none")
    inner = expand(statement.query, find, [*within, name])
    below = inner.query.tree
    below.meta[JOB] = inner.query.source
    alias = exp.TableAlias(this=exp.to_identifier(place.alias or name))
    subquery = exp.Subquery(this=below, alias=alias)
    subquery.meta.update(place.meta)
    place.replace(subquery)
    fragment = job.plan.fragment
    return Expanded(replace(query, tree=tree), (job.uid,), fragment.tables, fragment.function)


def _beside_others(place: exp.Table) -> bool:
    select = place.parent_select
    return isinstance(place.parent, exp.Join) or (
        select is not None and any(is_comma(join) for join in select.args.get("joins") or [])
    )
