"""``FROM JOB name``, ``JOIN JOB name``: a query over the rows of other jobs' windows.

The job's query stands in place of its name, as a subquery: its windows are that query's windows. The two read
one flow, so agents compute nothing twice, and the reader's windows are made from the same commits as the
job's own, revision by revision. While a job is read it is not altered or dropped
(``agents.answering.changes``), so a reader is never over another query than the job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from sqlglot import exp

from elf.errors import ElfBug, QueryError
from elf.fields import replace
from elf.ql.definition import Read
from elf.ql.fuel import PARTS_A_CHAR, burn, fuelled
from elf.ql.job_queries import JobQuery
from elf.ql.plan import Plan
from elf.ql.rules_joins import check_joins, is_comma
from elf.ql.source import JOB, Source
from elf.ql.statements import Query, parse_query

DEPTH_MAX: Final = 16


class Expanded(Struct, frozen=True):
    """A query with the queries of jobs in it."""

    query: Query
    reads: tuple[str, ...] = ()
    read_as: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    """What it reads, where it reads jobs."""
    jobs: tuple[Read, ...] = ()
    """The jobs that it reads, and those that these read."""

    def finish(self, plan: Plan) -> Plan:
        """The plan of the query, with what it reads."""
        return replace(plan, reads=self.reads, read_as=self.read_as)


def expand(query: Query, find: Callable[[str], Read], within: Sequence[str] = ()) -> Expanded:
    """``find`` gives a job by its name or raises ``UserError``; ``within``: the jobs whose queries contain
    this one, outermost first. Raises ``QueryError``."""
    source, places = query.source, _places(query.tree)
    if not places:
        return Expanded(query)
    check_joins(source, query.tree)
    _check_places(source, places)
    tree = query.tree.copy()
    with fuelled():
        read = [_put(place, source, find, within) for place in _places(tree)]
    reads = {job.uid: job.identity for job, _ in read}
    streams = dict.fromkeys(stream for job, _ in read for stream, _ in job.columns)
    jobs = {one.name: one for job, below in read for one in (job, *below)}
    return Expanded(
        replace(query, tree=tree),
        tuple(reads),
        tuple(reads.values()),
        tuple(streams),
        tuple(jobs.values()),
    )


def _places(tree: exp.Expr) -> list[exp.Table]:
    return [table for table in tree.find_all(exp.Table, bfs=False) if table.meta.get("job")]


def _check_places(source: Source, places: Sequence[exp.Table]) -> None:
    """One job after FROM, and others that are joined to it."""
    first = [place for place in places if not isinstance(place.parent, exp.Join)]
    after_comma = [place for place in places if isinstance(place.parent, exp.Join) and is_comma(place.parent)]
    others = [*first[1:], *after_comma, *(place for place in places if _in_a_list(place))]
    if others:
        raise source.at(
            others[0], "JOB stands alone in FROM: a query reads one job, and those that are joined to it"
        )


def _in_a_list(place: exp.Table) -> bool:
    select = place.parent_select
    return select is not None and any(is_comma(join) for join in select.args.get("joins") or [])


def _put(
    place: exp.Table, source: Source, find: Callable[[str], Read], within: Sequence[str]
) -> tuple[Read, tuple[Read, ...]]:
    """The job's query in the place of its name; (the job, those that it reads)."""
    name = place.name
    if name in within or len(within) > DEPTH_MAX:
        way = " → ".join([*within[within.index(name) if name in within else 0 :], name])
        raise source.at(place, f"jobs cannot read each other in a circle: {way}")
    job = find(name)
    if job.late:
        raise source.at(place, f"job {name} reads late rows; FROM LATE reads them here too")
    if job.final:
        raise source.at(
            place,
            f"job {name} has a final function, and the rows that it gives cannot be read yet; DROP FUNCTION "
            "final there",
        )
    burn(len(job.sql) * PARTS_A_CHAR)
    query = parse_query(job.sql)
    if query is None:
        raise ElfBug(f"job {name} has a query that is none")
    try:
        inner = expand(query, find, [*within, name])
    except QueryError as error:  # its place is in that job's text
        raise source.at(place, error.text) from None
    below = inner.query.tree
    below.meta[JOB] = JobQuery(
        name,
        inner.query.source,
        job.windows,
        dict(job.columns),
        {one.name.lower(): one.table for one in job.tables},
        job.functions,
        job.pane_us,
        job.owns,
    )
    alias = exp.TableAlias(this=exp.to_identifier(place.alias or name))
    subquery = exp.Subquery(this=below, alias=alias)
    subquery.meta.update(place.meta)
    place.replace(subquery)
    return job, inner.jobs
