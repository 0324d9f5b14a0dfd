"""Procedures for jobs that are changed while they run (``agents.answering.asks``): ALTER, PAUSE, RESUME,
ROLLBACK and EMPTY.

The job's master decides (``elf.job.group.master``), and answers when it is decided: with the event time from
which windows are the new version's, or with why nothing is changed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agents.answering.asks import Ask, Procedure, Until, offload
from agents.answering.files import sent
from agents.answering.fleet import LOG_WAITS_MAX, Fleet
from agents.answering.masters import Masters
from agents.answering.moments import moment_of
from agents.answering.once import author_of, authors_of
from agents.answering.planning import Planning
from agents.answering.promising import check_promise
from agents.answering.quotas import Creators
from agents.answering.sharing import Instead
from elf.errors import QueryError, UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.group.versions import is_kept
from elf.job.messages.groups import HandOverJob, JobStatus, ReconfigureJob
from elf.job.messages.log import OffloadRows
from elf.job.offload import why_not
from elf.job.spec import JobSpec
from elf.job.tables import why_unfit
from elf.ql.definition import Definition
from elf.ql.plan import Function, Table
from elf.wire.base import Answer
from elf.wire.clients import Execute, Reply

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql import changes, statements


class Changes:
    """Of jobs, as people ask this agent for them."""

    def __init__(
        self, log: CatalogLog, masters: Masters, planning: Planning, creators: Creators, fleet: Fleet
    ) -> None:
        self._fleet = fleet
        self._creators = creators
        self._log = log
        self._masters = masters
        self._planning = planning

    def alter(self, asked: Execute, statement: changes.AlterJob) -> Procedure:
        spec = self._masters.own(statement.name, asked.creator)
        definition = yield from self.new_query(asked, statement, spec)
        check_promise(definition.plan)
        self._creators.plan(asked.creator, definition.plan, spec)
        self._planning.unread(spec)
        author = yield from offload(partial(author_of, asked, statement))
        request = ReconfigureJob(
            id=0,
            origin="",
            uid=spec.uid,
            verb="alter",
            definition=definition,
            reset=statement.reset,
            immediately=statement.immediately,
            note=statement.sql,
            roots=(yield from self._planning.range_roots(spec.name, spec.creator, definition.plan)),
            authors=(yield from offload(partial(authors_of, author, spec))),
            author=author,
            scale=spec.scale if statement.trees is None else None,
        )
        return (yield from self.ask(asked, spec, request))

    def previewed(
        self, asked: Execute, statement: changes.AlterJob
    ) -> Generator[list[Ask], list[Answer], tuple[JobSpec, Definition]]:
        """A job, and what the statement would make of it. Raises ``UserError`` where its master would refuse
        that."""
        from elf.ql.user_functions import functions_of

        spec = self._masters.own(statement.name, asked.creator)
        definition = yield from self.new_query(asked, statement, spec)
        if definition.plan.does_as(spec.plan):
            raise UserError(f"job {spec.name}: nothing changes: that is what version {spec.version} does")
        kept, why = is_kept(spec.plan, definition.plan)
        if kept and why and not statement.reset:
            raise UserError(f"job {spec.name}: {why}, which the new one can't go on with; say RESET")
        if self._log.roster is not None and functions_of(definition.plan):
            raise UserError(
                f"job {spec.name}: what runs beside it for a preview is a SELECT, and with keys none runs "
                "functions; ALTER it, and ROLLBACK if it is not what you meant"
            )
        return spec, definition

    def new_query(
        self, asked: Execute, statement: changes.AlterJob, spec: JobSpec
    ) -> Generator[list[Ask], list[Answer], Definition]:
        """What the job is to do. A function stays until it is dropped."""
        from elf.ql.files import with_file
        from elf.ql.user_functions import functions_of

        functions = {one.kind: one for one in functions_of(replace(spec.plan, beside=()))}
        query, known = statement.query, None
        if query is None:
            query, known = yield from offload(lambda: _as_it_is(spec, statement))
        if statement.function is not None:
            kind, file = statement.function
            changed = _read(asked, kind, file, had=functions.pop(kind, None) is not None)
            functions |= {} if changed is None else {kind: changed}
        if known is not None and statement.table is not None:
            name, file = statement.table
            if name.lower() not in known:
                raise UserError(_no_table(spec, name, known.values()))
            query = yield from offload(partial(with_file, query, name, file))
            del known[name.lower()]
        instead = Instead(spec, tuple(functions.values()))
        if statement.query is not None and spec.scale is not None:
            definition = yield from self._over_its_trees(asked, query, spec, instead)
        else:
            definition = yield from self._planning.plan(asked, query, known, [spec.name], instead)
        if why := why_unfit(self._log.outputs(spec.uid), spec.plan, definition.plan):
            raise UserError(f"job {spec.name}: {why}")
        return definition

    def _over_its_trees(
        self, asked: Execute, query: statements.Query, spec: JobSpec, instead: Instead
    ) -> Generator[list[Ask], list[Answer], Definition]:
        """Another query for a job that scales by itself, over the trees that there are. Raises ``UserError``
        where it could not have others."""

        def over(trees: int | None) -> Generator[list[Ask], list[Answer], Definition]:
            spread = query if trees is None else (yield from offload(partial(query.with_trees, trees)))
            return (yield from self._planning.plan(asked, spread, None, [spec.name], instead))

        now, (least, most) = spec.plan.trees, spec.scale or (1, 1)
        try:
            definition = yield from over(now)
            other = yield from over(most if most != now else least)
        except QueryError as error:
            yield from over(None)  # raises what is wrong with the query as it is written
            why = error.text
        else:
            kept, why = is_kept(definition.plan, other.plan)
            if not (kept and why):
                return definition
        raise UserError(
            f"job {spec.name} scales by itself (SCALE AUTO ({least}, {most})), and what it is to do can't "
            f"have other trees: {why}; ALTER JOB {spec.name} TREES {now} ends SCALE AUTO"
        )

    def reconfigure(self, asked: Execute, statement: changes.ReconfigureJob) -> Procedure:
        spec = self._masters.own(statement.name, asked.creator)
        if statement.verb in ("rollback", "empty"):
            self._planning.unread(spec)
        request = ReconfigureJob(
            id=0,
            origin="",
            uid=spec.uid,
            verb=statement.verb,
            version=statement.version,
            reset=statement.reset,
            immediately=statement.immediately,
            note=statement.sql,
            author=(yield from offload(partial(author_of, asked, statement))),
        )
        return (yield from self.ask(asked, spec, request))

    def move(self, asked: Execute, statement: changes.MoveJob) -> Procedure:
        """Another agent is to lead the job's group. What it had and what it does stays."""
        name = statement.name
        there = self._log.find_program(name, asked.creator) is not None
        if there and self._log.find_job(name, asked.creator) is None:
            raise UserError(
                f"job {name} is written in Python: its master goes elsewhere only when its agent leaves or "
                "dies"
            )
        spec = self._masters.own(name, asked.creator)
        at = self._address_of(statement.agent)
        author = yield from offload(partial(author_of, asked, statement))
        request = HandOverJob(id=0, origin="", uid=spec.uid, agent=statement.agent, address=at, author=author)

        def is_there() -> bool:
            return self._log.leader(spec.uid) == at

        if not is_there():
            yield from self._masters.ask(spec, request)
        for _ in range(LOG_WAITS_MAX):
            if is_there():
                return Reply(request=asked.request, text=f"job {spec.name} is led by {statement.agent} now")
            yield [Until(is_there)]
        raise UserError(
            f"job {spec.name} is not moved: {statement.agent} has not entered its group in time; it stays at "
            f"{self._masters.leader(spec)}"
        )

    def offload(self, asked: Execute, statement: changes.OffloadJob, now_ms: int) -> Procedure:
        """A helper is to map the rows of a job on an agent, or the agent itself again (protocol 13.8)."""
        name = statement.name
        program = self._log.find_program(name, asked.creator)
        if program is not None and self._log.find_job(name, asked.creator) is None:
            raise UserError(f"job {name} is written in Python: its rows are mapped where they are read")
        spec = self._masters.own(name, asked.creator)
        at = self._address_of(statement.agent)
        there = [one.agent_id for one in self._log.there(at)]
        ours = (one.agent_id for stream in spec.plan.streams for one in self._log.members(stream))
        agent_id = next((one for one in ours if one in there), None)
        if agent_id is None:
            raise UserError(f"{statement.agent} has no stream that job {name} reads")
        helper = self._helper(statement.helper) if statement.helper else ""
        if helper == at:
            raise UserError(f"{statement.agent} would be its own helper: ALTER JOB {name} OFFLOAD … BACK")
        if helper and (why := self._no_offload(spec)):
            raise UserError(f"the rows of job {name} cannot be mapped elsewhere: {why}")
        if self._log.offloads.helper(spec.uid, agent_id) == helper:
            who = statement.helper or f"{statement.agent} itself"
            raise UserError(f"job {name}: {who} maps its rows on {statement.agent} already")
        if helper and helper not in (yield from self._fleet.present([helper])):
            raise UserError(f"no agent answers at {helper}: start it first, or name another one")
        author = yield from offload(partial(author_of, asked, statement))
        proposal = OffloadRows(uid=spec.uid, agent_id=agent_id, helper=helper, at_ms=now_ms, author=author)

        def seen() -> bool:
            return self._log.offloads.helper(spec.uid, agent_id) == helper or self._log.is_dropped(spec.uid)

        yield from self._fleet.have_logged(proposal, seen)
        if self._log.offloads.helper(spec.uid, agent_id) != helper:
            raise UserError(f"job {name}: nothing is changed: another change came first, or no voter answers")
        if not helper:
            return Reply(
                request=asked.request, text=f"job {name}: {statement.agent} maps its rows itself again"
            )
        return Reply(
            request=asked.request,
            text=f"job {name}: {statement.helper} maps the rows of {statement.agent}, from its archive: "
            f"windows come later, by archive.roll_secs of {statement.agent}",
        )

    def _helper(self, agent: str) -> str:
        """The address of a helper. One without streams is in no list: it goes by its address alone."""
        known = self._fleet.agents()
        if agent in known or (":" in agent and not any(agent == name for name, _ in known.values())):
            return agent
        return self._address_of(agent)

    def _no_offload(self, spec: JobSpec) -> str:
        """Why nobody else can map the rows of a job; empty: others can."""
        if spec.plan.promise is not None:
            return "it promises when its windows come (WITHIN), and they would come later"
        return next((why for flow in spec.flows if (why := why_not(flow.fragment))), "")

    def _address_of(self, agent: str) -> str:
        """That of an agent that has not left, by its name or as it is."""
        known = {m.address: m.name for s in self._log.streams() for m in self._log.members(s)}
        found = [at for at in known if self._log.is_at(agent, at)]
        if len(found) != 1:
            many = "several agents have this name, at " + ", ".join(sorted(found)) if found else ""
            raise UserError(many or f"no agent {agent} is expected; elf members names those that are")
        return found[0]

    def ask(self, asked: Execute, spec: JobSpec, request: ReconfigureJob) -> Procedure:
        """Have its master change a job."""
        answer = yield from self._masters.ask(spec, request)
        facts = msgspec.msgpack.decode(answer.body, type=JobStatus)
        yield [Until(lambda: self._log.has_version(spec.uid, facts.spec.version))]
        return Reply(request=asked.request, text=f"job {spec.name} {_told(facts, request.verb)}")


def _as_it_is(spec: JobSpec, change: changes.AlterJob) -> tuple[statements.Query, dict[str, Table]]:
    """The query of a job, with other values of its parameters or over so many trees, and the tables that it
    joins."""
    from elf.ql.files import tables_in
    from elf.ql.statements import parse_query

    written = parse_query(spec.plan.sql)
    if written is None:
        raise UserError(f"job {spec.name}: its query can't be read again; use ALTER JOB … AS SELECT")
    query = written.with_values(change.settings)
    query = query if change.trees is None else query.with_trees(change.trees)
    return query, tables_in(query, spec.plan)


def _no_table(spec: JobSpec, name: str, own: Iterable[Table]) -> str:
    there = ", ".join(table.name for table in own) or "none"
    if spec.plan.reads and any(
        t.name.lower() == name.lower() for one in spec.plan.unranged for t in one.tables
    ):
        there += f"; {name} is a table of a job that it reads, which stays as it is while it is read"
    return f"job {spec.name} joins no table {name}; tables: {there}"


def _read(asked: Execute, kind: str, file: str, *, had: bool) -> Function | None:
    """The function of a statement; none when it is dropped."""
    if not file:
        if not had:
            raise UserError(f"the job has no function {kind}")
        return None
    return Function(kind, *sent(asked, file))


def _told(facts: JobStatus, verb: str) -> str:
    """What has become of it."""
    current = next(one for one in facts.versions if one.spec.version == facts.spec.version)
    if verb == "pause":
        return f"paused: its windows stop at {moment_of(current.ends_us)}"
    if verb == "empty":
        return f"emptied: its landmark windows begin again at {moment_of(current.landmarks[-1])}"
    which = f"start at {moment_of(facts.first_us)} or later"
    if current.after_us is not None:
        which = f"end after {moment_of(current.after_us)}"
    return f"is version {facts.spec.version} now: that makes the windows that {which}"
