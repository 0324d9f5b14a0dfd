"""The plan of a query over streams of this fleet (``agents.answering.asks``), and what it rests on: columns
as members have seen them, jobs that it reads (FROM JOB, ``elf.ql.jobs``) and what may not happen to these
meanwhile, panes that it shares, and where its key ranges are to have their job groups.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from agents.answering.asks import Ask, ToKey, offload
from agents.answering.fleet import Fleet
from agents.answering.joining import Joining, check_windows
from agents.answering.masters import Masters
from agents.answering.promising import Promising
from agents.answering.sharing import Instead, Sharing
from agents.formats import nginx
from elf.errors import ColumnError, UserError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import FOREVER_US
from elf.job.catalog.readers import is_read, readable_as
from elf.job.messages.groups import WhoIsThere
from elf.job.messages.inquiries import StreamSeen
from elf.job.rollup.rooted import event_time
from elf.job.spec import JobSpec, range_topic
from elf.job.tables import is_table
from elf.ql.definition import Contents, Definition, Read, least
from elf.ql.graphs import ABLE
from elf.ql.graphs import NEEDS as GRAPH_NEEDS
from elf.ql.lookups import LOOKUPS, NEEDS, lookups_in
from elf.ql.own import OwnAggregate
from elf.ql.plan import Plan, Table
from elf.schema import is_open
from elf.windows import Landmark
from elf.wire.base import Answer
from elf.wire.clients import ONE_SHOT_PREFIX, Execute

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql import jobs, statements


class Planning:
    """At one agent."""

    def __init__(self, log: CatalogLog, fleet: Fleet, masters: Masters, joining: Joining) -> None:
        self._log = log
        self._fleet = fleet
        self._masters = masters
        self._joining = joining
        self._sharing = Sharing(log, fleet.sample)
        self._promising = Promising(log, fleet)
        self.finite = False
        """True for ``elf run``: inputs end, any name after FROM means the only stream, windows are optional.
        """

    def plan(
        self,
        asked: Execute,
        query: statements.Query,
        known: Mapping[str, Table] | None = None,
        within: Sequence[str] = (),
        instead: Instead | None = None,
        now_ms: int | None = None,
    ) -> Generator[list[Ask], list[Answer], Definition]:
        """What a query over a stream of this fleet comes to; its columns are what members have seen.
        ``known``: tables that it joins, where they do not come with the statement; ``within``: whose query it
        is; ``now_ms``: what its SINCE counts from (None: it begins now whatever it says)."""
        from elf.ql import planner, since, user_functions

        past_us = None if now_ms is None else since.moment_of(query, now_ms * 1000)
        if not self.finite:
            known = yield from self._joining.read(query, asked.creator, known)
        owns = self._owns(query, asked.creator)
        looked, jobs_read = None, dict[str, Read]()
        while looked is None:
            wanted = yield from offload(partial(_looked_at, query, jobs_read, asked, known, within))
            if isinstance(wanted, str):
                jobs_read[wanted] = self._read(wanted, asked.creator)
            else:
                looked = wanted
        expanded, tables, query = looked.expanded, looked.tables, looked.expanded.query
        late = {} if looked.late is None else self._late_flows(looked.late, asked.creator)
        views = {}
        for stream in late or expanded.streams or self.known_streams(looked.streams):
            views[stream] = yield from self._fleet.view(stream, finite=self.finite)
        if past_us is not None:
            self._must_be_archived(views)
        schemas = {stream: view.schema for stream, view in views.items()}
        functions = (instead.functions if instead is not None else None) or ()

        def make(pane_us: int | None) -> Plan:
            try:
                plan = expanded.finish(planner.plan_streams(query, schemas, tables, pane_us, owns))
            except ColumnError as error:
                raise _with_way_out(error, views, finite=self.finite) from None
            if late:
                plan = planner.over_late(query, plan, late)
            for function in functions:
                plan = user_functions.with_function(plan, function)
            return plan if past_us is None else since.begun_at(query, plan, past_us)

        alone = past_us is not None
        if self.finite or alone:  # what is late must not depend on how far an earlier job has read
            plan = yield from offload(partial(make, None))
        else:
            plan = yield from self._sharing.plan(make, instead)
        check_windows(plan, tables)
        _check_lookups(plan, views)
        _check_graphs(plan, views)
        self._must_be_asked(plan)
        landmark = yield from self._since(plan)
        if not plan.windows and not self.finite:
            raise UserError(
                "a query over live streams never ends, so it says at its end when there is a result: "
                "WINDOWING 30 SECONDS (of each 30 s), or WINDOWING LANDMARK EVERY 30 SECONDS "
                "(of all since it began, after each 30 s that brought a row)"
            )
        whole = Definition(
            query.sql,
            tuple(schemas.items()),
            tuple(map(Contents.of, tables.values())),
            expanded.jobs,
            tuple(functions),
            plan.fragment.pane_us if plan.choice is not None and plan.choice.is_shared else None,
            tuple(late.items()),
            landmark,
            plan.choice,
            past_us,
            tuple(owns.values()),
        )
        definition = yield from offload(partial(least, whole, plan))
        if plan.promise is None:
            return definition
        if self.finite:
            raise UserError("WITHIN is for the streams of a fleet: what is read here has no time of its own")
        lates = (view.lateness_us for view in views.values() if view.lateness_us is not None)
        chosen = yield from self._promising.chosen(plan, plan.promise, max(lates, default=None))
        return msgspec.structs.replace(definition, chosen=chosen)

    def _owns(self, query: statements.Query, creator: str) -> dict[str, OwnAggregate]:
        """The aggregates of people's own that a query calls, as they are now."""
        from sqlglot import exp

        names = sorted({call.name.lower() for call in query.tree.find_all(exp.Anonymous)})
        found = ((name, self._log.find_aggregate(name, creator)) for name in names)
        return {name: spec.own for name, spec in found if spec is not None}

    def _must_be_archived(self, views: Mapping[str, StreamSeen]) -> None:
        """Raises ``UserError`` where SINCE has no archive to read."""
        if self.finite:
            raise UserError("SINCE is for the streams of a fleet, which are archived; here all input is read")
        for stream, view in views.items():
            if not view.archive:
                raise UserError(f"stream {stream} is not archived: SINCE has nothing to read there")

    def _must_be_asked(self, plan: Plan) -> None:
        """Raises ``UserError`` where nobody can have a row: nobody would say that time goes on."""
        for fragment in plan.unranged:
            stream, asked = fragment.stream, self._log.asked(fragment)
            if self._log.members(stream) and all(one.until_us != FOREVER_US for one in asked):
                raise UserError(
                    f"no agent of stream {stream} has labels for which ON, and WHERE, may be true"
                )

    def _late_flows(self, name: str, creator: str) -> dict[str, str]:
        """Of ``FROM LATE name``: the flows (uids, by stream) whose late rows these are."""
        spec = self._masters.find(name, creator)
        if spec.plan.fragment.late_of:
            raise UserError(f"FROM LATE {name}: the job reads late rows itself, and none of these is late")
        if spec.plan.beside:
            raise UserError(
                f"FROM LATE {name}: the job joins jobs; FROM LATE of each of them has its late rows"
            )
        if spec.plan.trees > 1:
            raise UserError(f"FROM LATE {name}: a job with TREES keeps no late rows; make it one tree")
        return {flow.fragment.stream: flow.uid for flow in spec.flows}

    def known_streams(self, named: Sequence[str] | Literal["*"]) -> tuple[str, ...]:
        """The streams that a query names (``elf.ql.planner.streams_of``)."""
        streams = tuple(self._log.streams())
        if self.finite and len(streams) == 1:
            return streams
        if named == "*":
            if not streams:
                raise UserError("there is no stream yet")
            return streams
        for name in named:
            if name not in streams:
                if any(is_table(one) and one.name == name for one in self._log.outputs()):
                    raise UserError(
                        f"{name} is a table, no stream: JOIN TABLE {name} joins its rows to those of one"
                    )
                raise UserError(f"there is no stream {name}; streams: {', '.join(streams) or 'none'}")
        return tuple(named)

    def range_roots(
        self, name: str, creator: str, plan: Plan
    ) -> Generator[list[Ask], list[Answer], tuple[str, ...]]:
        """The nodes that are to found the job groups of the key ranges of a job after the first."""
        keys = [range_topic(name, creator, place) for place in range(1, max(s.trees for s in plan.sides))]
        answers = (yield [ToKey(key, WhoIsThere(id=0, origin="")) for key in keys]) if keys else []
        if any(answer.error for answer in answers):
            what = "the SELECT" if name.startswith(ONE_SHOT_PREFIX) else f"job {name}"
            raise UserError(f"{what}: a node that is to root a key range does not answer; try again")
        return tuple(msgspec.msgpack.decode(answer.body, type=str) for answer in answers)

    # -- jobs that a query reads -----------------------------------------------------------------------------

    def _read(self, name: str, creator: str) -> Read:
        """A job that a query reads. Raises ``UserError``."""
        spec = self._masters.find(name, creator)
        if readable_as(self._log, spec.uid) is None:
            raise UserError(
                f"job {name} is being changed: while the windows of two of its versions are made it can't be "
                f"read; DESCRIBE {name} tells until when"
            )
        return Read.of(spec.uid, spec.name, spec.plan)

    def unread(self, spec: JobSpec) -> None:
        """Raises ``UserError`` when other jobs read this one."""
        readers = self._log.read_by(spec.uid)
        if readers:
            raise UserError(is_read(spec.name, readers))

    def _since(self, plan: Plan) -> Generator[list[Ask], list[Answer], tuple[int, int] | None]:
        """``Plan.since``: the landmark of the job that it reads, if its windows are that job's. On finite
        input both begin with the first row. Raises ``UserError``.
        """
        if not plan.reads or plan.stages or not any(isinstance(kind, Landmark) for kind in plan.windows):
            return None
        spec = self._log.job(plan.reads[0])
        if spec is None:
            raise UserError("the job that is read has been dropped meanwhile")
        facts = yield from self._masters.inspect(spec, 0)
        made = next((one for one in facts.versions if one.spec.version == facts.spec.version), None)
        if made is None or made.first_pane is None or facts.state == "preparing":
            raise UserError(f"job {spec.name} is still being prepared; try again in a moment")
        first_us = event_time(made.first_pane, plan.fragment.pane_us)
        if first_us is None:
            return None
        landmark_us = (made.landmarks or (first_us,))[-1]
        return landmark_us, max(landmark_us, facts.committed_us or landmark_us)


def _check_lookups(plan: Plan, views: Mapping[str, StreamSeen]) -> None:
    """Raises ``UserError`` for a function that some agent has no table for."""
    for fragment in (one for one in plan.unranged if one.stream in views):
        for name in lookups_in(fragment.map_sql):
            if name not in views[fragment.stream].lookups:
                who = f"an agent of stream {fragment.stream}"
                raise UserError(f"{name.upper()}: {who} {NEEDS[LOOKUPS[name].table]}")


def _check_graphs(plan: Plan, views: Mapping[str, StreamSeen]) -> None:
    """Raises ``UserError`` for a graph where an agent could not make it, were it the master."""
    for stream, view in views.items() if plan.all_graphs else ():
        if ABLE not in view.lookups:
            raise UserError(f"an agent of stream {stream} {GRAPH_NEEDS}")


@dataclass(frozen=True)
class _Looked:
    """What a query says without the fleet: itself with the queries of jobs in it, the job of its FROM LATE,
    the tables that it joins, and the streams that it names, where these do not follow from jobs."""

    expanded: jobs.Expanded
    late: str | None
    tables: dict[str, Table]
    streams: Sequence[str] | Literal["*"]


class _Unknown(Exception):
    """A job is read of which nothing is known yet; its one argument is the name."""


def _looked_at(
    query: statements.Query,
    known_jobs: Mapping[str, Read],
    asked: Execute,
    known: Mapping[str, Table] | None,
    within: Sequence[str],
) -> _Looked | str:
    """Or the name of a job that has to be known first. Raises ``UserError``."""
    from elf.ql import files, jobs, planner

    def find(name: str) -> Read:
        if name not in known_jobs:
            raise _Unknown(name)
        return known_jobs[name]

    try:
        expanded = jobs.expand(query, find, within)
    except _Unknown as unknown:
        return str(unknown)
    late = planner.late_of(expanded.query)
    tables = files.tables_of(expanded.query, dict(asked.tables), known)
    follow = late is not None or expanded.streams
    return _Looked(expanded, late, tables, () if follow else planner.streams_of(expanded.query))


def _with_way_out(error: ColumnError, views: Mapping[str, StreamSeen], *, finite: bool) -> UserError:
    """What is wrong with a column, and where a person declares it, if its streams let them, or what they call
    it. ``finite``: in ``elf run``."""
    able = [stream for stream, view in views.items() if error.type or is_open(view.format)]
    if not able:
        return error if error.text.endswith("?") else error.with_way_out(_called(error.name, views))
    kind = error.type or "TYPE"
    where = (
        f"--column {shlex.quote(f'{error.name}={kind}')}"
        if finite
        else f"columns: {{{error.name}: {kind}}} of stream {able[0]} in the agents' settings"
    )
    return error.with_way_out(f"{'or' if error.type else 'if no sample shows it,'} declare it: {where}")


def _called(name: str, views: Mapping[str, StreamSeen]) -> str:
    """What streams have for a variable of nginx's, or where their columns are shown."""
    column, _ = nginx.NAMES.get(name.lower(), ("", ""))
    if any(column == one.name for view in views.values() for one in view.schema.columns):
        return f"nginx's ${name.lower()} is {column}"
    return "; ".join(f"DESCRIBE {stream} shows its columns" for stream in views)
