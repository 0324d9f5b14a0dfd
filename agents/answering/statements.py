"""What people ask of an agent: statements and calls, each as a procedure (``agents.answering.asks``). Any
agent takes any of them.

What the catalog log tells (jobs, members, streams) is answered from this node's copy of it; everything else
is asked of the members of a stream or of the job group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from agents.answering.about import (
    current_only,
    describe,
    job_row,
    not_comparable,
    priority_of,
    promise_of,
    summary,
    trees,
)
from agents.answering.aggregates import Aggregates
from agents.answering.asks import SILENT, Ask, Procedure, Reading, Tell, ToKey, Until, offload
from agents.answering.changes import Changes
from agents.answering.costs import Costs
from agents.answering.decided import decisions
from agents.answering.explain import Explanations
from agents.answering.filling import fill
from agents.answering.fleet import Fleet
from agents.answering.joining import Joining
from agents.answering.keys import KeyRequests
from agents.answering.latency import Latencies
from agents.answering.learning import Learning
from agents.answering.looking import MEMBERS_MAX, look
from agents.answering.masters import Masters, check_owner, facts_of
from agents.answering.once import Once, author_of, authors_of
from agents.answering.outputs import Outputs
from agents.answering.past import Past
from agents.answering.planning import Planning
from agents.answering.promising import check_promise, promise_worked_out
from agents.answering.quotas import Creators, Quotas
from agents.answering.routes import Routes, Stated
from agents.answering.routing import Mode, Routing
from agents.answering.scaling import Scaling
from agents.answering.sharing import Instead
from agents.answering.submissions import Submissions, described, program_row
from agents.answering.tablereads import TableReads
from agents.answering.tables import Tables
from agents.answering.tapping import Tapping
from agents.answering.tracing import Tracing
from elf.batch import encode
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Identity
from elf.job.group.groups import JobGroups
from elf.job.messages.groups import CreateJob, DropJob, JobStatus
from elf.job.messages.inquiries import NotifyJob
from elf.job.output import OutputSpec
from elf.job.own import OwnSpec
from elf.job.program.spec import ProgramSpec
from elf.job.rollup.broadcasts import CHARS_MAX
from elf.job.spec import JobSpec, app_id
from elf.planning.budgets import BudgetKeeper
from elf.planning.lent import Budgets
from elf.ql.definition import Definition
from elf.ql.plan import Plan
from elf.security.authored import Authorship
from elf.security.principals import Principal
from elf.security.roles import CALLS, RAW_COLUMN, Role, is_change, role_of_statement
from elf.wire.base import Answer
from elf.wire.clients import (
    ONE_SHOT_PREFIX,
    Call,
    CompareOptions,
    Execute,
    Preview,
    Reply,
    authorship_of,
)

if TYPE_CHECKING:  # sqlglot takes 10 MB: it is imported at the first statement, which most agents never see
    from elf.ql import changes, statements
    from elf.ql.prepared import Prepared

STREAM_PREFIX = "stream:"
"""What stands before a stream's name where a job's might stand."""
LEAPT_WINDOWS = 10
"""Of a job that drops stragglers: DESCRIBE JOB looks at so many."""
ANALYZED_WINDOWS = 3
"""For how many windows EXPLAIN ANALYZE runs a SELECT."""
COMPARED_WINDOWS = 1_000
"""The last commits of a job that are handed out for a comparison."""


SHORT_CHARS: Final = 128
"""A text of so many takes a millisecond or two to read, whatever is in it."""


class Statements:
    """The procedures of one agent."""

    def __init__(
        self,
        me: Identity,
        log: CatalogLog,
        fleet: Fleet,
        job_groups: JobGroups,
        copies: Callable[[], Mapping[str, object]],
        keys: KeyRequests,
        holds: Callable[[str], bool],
        quotas: Quotas = Quotas(),  # noqa: B008 (it is a value)
        budgets: BudgetKeeper | None = None,
        links: Stated = MappingProxyType({}),
        hold_us: int | None = None,
        routes: Mode = "off",
    ) -> None:
        """``holds``: whether this agent is a member of the group of a job, by its uid. ``links`` and
        ``hold_us``: as in ``Routes``; ``routes``: as in ``Routing``."""
        self.budgets = budgets or BudgetKeeper(Budgets())
        self._keys = keys
        self._me = me
        self._copies = copies
        self._log = log
        self._fleet = fleet
        self._job_groups = job_groups
        self.masters = Masters(log, fleet)
        self._table_reads = TableReads(log, fleet, self.masters, me.address, holds)
        self._tables = Tables(log, fleet, self.masters, self._table_reads)
        self.joining = Joining(self._table_reads)
        self.planning = Planning(log, fleet, self.masters, self.joining)
        self.creators = Creators(log, quotas, self.budgets)
        self._changes = Changes(log, self.masters, self.planning, self.creators, fleet)
        self.scaling = Scaling(log, fleet, self.masters, self.planning, self.creators, self._changes)
        self._submissions = Submissions(log, fleet, self.planning, self.creators)
        self._explanations = Explanations(log, fleet)
        self._costs = Costs(log, fleet, me.address, self.budgets)
        self._latencies = Latencies(log, fleet)
        self.learning = Learning(log, fleet)
        self._routes = Routes(log, fleet, links, hold_us)
        self.routing = Routing(log, self._routes, routes)
        self._tapping = Tapping(log, fleet)
        self._tracing = Tracing(log, fleet, self.masters)
        self._outputs = Outputs(log, fleet, self.masters)
        self._aggregates = Aggregates(log, fleet, self.creators)
        self._once = Once(log)
        self._one_shots = 0
        self._forms: Prepared | None = None
        """None: the parser is not loaded yet."""

    # -- statements ------------------------------------------------------------------------------------------

    def execute(self, asked: Execute, now_ms: int, who: Principal | None = None) -> Procedure:
        """All statements of a text, one after the other; the last one's reply is the reply. ``who`` asks must
        have the roles for all of them."""
        _must_have("read", "a statement", who)  # before anything is read
        parsed = yield from self._read(asked.sql, who)
        changes = any(is_change(role_of_statement(type(one).__name__)) for one in parsed)
        asked = self._once.taken(asked, who, now_ms, changes=changes)
        from elf.ql import changes as changed
        from elf.ql import keyed, past, statements

        for statement in parsed[:-1]:
            if isinstance(
                statement,
                statements.Select
                | statements.Subscribe
                | past.PastSelect
                | past.RowsOf
                | keyed.TableSelect
                | changed.PreviewJob,
            ):
                raise UserError(
                    "a SELECT, SUBSCRIBE, ROWS OF or PREVIEW can only be the last of several statements"
                )
            yield from self._statement(asked, statement, now_ms, who)
        return (yield from self._statement(asked, parsed[-1], now_ms, who))

    def _read(
        self, text: str, who: Principal | None
    ) -> Generator[list[Ask], list[Answer], list[statements.Statement]]:
        """The statements of a text. One that asks for rows of a table as another one did, with other values,
        is not parsed again; a short one is read at once: beside the loop it would wait for plans. The first
        one loads the parser, there."""
        names = self._table_reads.names()
        read = partial(_parsed, who=who, tables=names)
        if self._forms is not None and (known := self._forms.known(text, names)) is not None:
            _allow(known, who)
            return [known]
        if self._forms is not None and len(text) <= SHORT_CHARS:
            parsed = read(text)
        else:
            parsed = yield from offload(partial(read, text))
        if self._forms is None:
            from elf.ql.prepared import Prepared

            self._forms = Prepared()
        self._forms.learn(text, parsed, read)
        return parsed

    def _for_owner(self, asked: Execute, statement: statements.Statement, who: Principal | None) -> Execute:
        """An admin changes jobs of others as if they were their owners."""
        if who is None or who.kind != "person" or not who.may("admin"):
            return asked
        from elf.ql import aggregates, changes, keyed, outputs, statements

        kinds = (
            changes.AlterJob
            | changes.PreviewJob
            | changes.MoveJob
            | changes.OffloadJob
            | changes.ScaleJob
            | changes.ReconfigureJob
            | statements.DropJob
            | statements.NotifyJob
        )
        spec: JobSpec | ProgramSpec | OutputSpec | OwnSpec | None = None
        match statement:
            case outputs.CreateOutput():
                spec = self._log.find_job(statement.job, asked.creator)
            case outputs.DropOutput() | keyed.AlterTable() | keyed.PauseTable():
                spec = self._log.find_output(statement.name, asked.creator)
            case aggregates.DropAggregate():
                spec = self._log.find_aggregate(statement.name, asked.creator)
            case _ if isinstance(statement, kinds):
                named = (statement.name, asked.creator)
                spec = self._log.find_job(*named) or self._log.find_program(*named)
        return asked if spec is None else msgspec.structs.replace(asked, creator=spec.creator)

    def _statement(
        self, asked: Execute, statement: statements.Statement, now_ms: int, who: Principal | None
    ) -> Procedure:
        from elf.ql import aggregates, changes, keyed, outputs, past, statements

        asked = self._for_owner(asked, statement, who)
        match statement:
            case statements.CreateJob():
                return (yield from self._create(asked, statement, now_ms))
            case changes.AlterJob():
                return (yield from self._changes.alter(asked, statement))
            case keyed.AlterTable():
                return (yield from self._tables.alter(asked, statement))
            case keyed.PauseTable():
                return (yield from self._tables.pause(asked, statement))
            case keyed.ExplainAlterTable():
                told = yield from self._tables.explain(asked, statement.alter)
                return _table_of(asked.request, told, f"another key for {statement.alter.name}")
            case changes.PreviewJob():
                return (yield from self._preview(asked, statement))
            case changes.MoveJob():
                return (yield from self._changes.move(asked, statement))
            case changes.OffloadJob():
                return (yield from self._changes.offload(asked, statement, now_ms))
            case changes.ScaleJob():
                program = self._log.find_program(statement.name, asked.creator)
                if program is not None and self._log.find_job(statement.name, asked.creator) is None:
                    check_owner(program, asked.creator)
                    return (yield from self._submissions.scale(asked.request, program, statement.by))
                return (yield from self.scaling.scale(asked, statement))
            case changes.ReconfigureJob():
                return (yield from self._changes.reconfigure(asked, statement))
            case statements.Select():
                return (yield from self._select(asked, statement, now_ms))
            case statements.Subscribe():
                spec = self.masters.find(statement.name, asked.creator)
                after = asked.after[1] if asked.after is not None and asked.after[0] == spec.uid else None
                return Reading(spec, drops=False, after=after)
            case statements.DropJob():
                return (yield from self._drop(asked, statement))
            case outputs.CreateOutput():
                return (yield from self._outputs.create(asked, statement))
            case outputs.DropOutput():
                return (yield from self._outputs.drop(asked, statement))
            case aggregates.CreateAggregate():
                finite = self.planning.finite
                return (yield from self._aggregates.create(asked, statement, who, finite=finite))
            case aggregates.DropAggregate():
                return (yield from self._aggregates.drop(asked, statement))
            case statements.NotifyJob():
                return (yield from self._notify(asked, statement))
            case statements.Show(what="scale in"):
                return _table_of(asked.request, (yield from self.scaling.leaving(statement.count)), "agents")
            case statements.Show():
                return (yield from self._show(asked.request, statement.what, now_ms))
            case statements.Describe():
                return (yield from self._describe(asked, statement))
            case statements.Explain():
                return (yield from self._explain(asked, statement, now_ms))
            case statements.ExplainRoutes():
                return (yield from self._routes.of(asked.request, self.routing.mode))
            case past.PastSelect():
                return (yield from Past(self.masters).select(asked, statement, now_ms))
            case keyed.TableSelect():
                return (yield from self._tables.select(asked, statement))
            case past.RowsOf():
                return (yield from self._tracing.rows_of(asked, statement, now_ms))

    def renewed(self, spec: JobSpec) -> Procedure:
        """Of a job that is led here: the rows that it joins may be others now."""
        wanted = yield from self.joining.renewed(spec)
        asked = Execute(request=0, sql="", creator=spec.creator)
        return Reply(request=0) if wanted is None else (yield from self._changes.ask(asked, spec, wanted))

    def _found_job(
        self,
        name: str,
        asked: Execute,
        query: statements.Query,
        now_ms: int,
        *,
        replacing: bool,
        authors: tuple[Authorship, ...] = (),
    ) -> Generator[list[Ask], list[Answer], JobStatus]:
        creator = asked.creator
        replaced = self._log.find_job(name, creator) if replacing else None
        if replaced is not None and replaced.creator != creator:
            replaced = None
        self.creators.job(name, creator)
        instead = None if replaced is None else Instead(replaced)
        definition = yield from self.planning.plan(asked, query, None, [name], instead, now_ms)
        if replaced is not None:
            self.planning.unread(replaced)
        return (yield from self._begun(name, creator, definition, replaced, replacing, authors))

    def _begun(
        self,
        name: str,
        creator: str,
        definition: Definition,
        replaced: JobSpec | None = None,
        replacing: bool = False,
        authors: tuple[Authorship, ...] = (),
    ) -> Generator[list[Ask], list[Answer], JobStatus]:
        """A job that is planned is made."""
        check_promise(definition.plan)
        self.creators.plan(creator, definition.plan, replaced)
        yield from self._costs.refuse(name, creator, definition.plan)
        if any((s.name, s.creator) == (name, creator) for s in self._log.programs()):
            raise UserError(f"job {name} exists already, written in Python; DROP JOB {name} first")
        spec = JobSpec(name, creator, 0, definition, authors=authors)
        if spec.replicated:  # else they are where the job is: it is asked again when that dies
            spec = replace(spec, roots=(yield from self.planning.range_roots(name, creator, spec.plan)))
        request = CreateJob(id=0, origin="", spec=spec, replace=replacing)
        (answer,) = yield [ToKey(app_id(name, creator), request)]
        if answer.error == SILENT:
            silent = "its master or the voters of the catalog log do not answer"
            if name.startswith(ONE_SHOT_PREFIX):
                raise UserError(f"the SELECT has not begun: {silent}; try again in a moment")
            raise UserError(f"job {name}: {silent}; SHOW JOBS tells if it exists")
        return facts_of(answer)

    def _create(self, asked: Execute, statement: statements.CreateJob, now_ms: int) -> Procedure:
        before = self._log.find_job(statement.name, asked.creator) if statement.replace else None
        over = self._outputs.ending(before if before is None or before.creator == asked.creator else None)
        facts = yield from self._found_job(
            statement.name,
            asked,
            statement.query,
            now_ms,
            replacing=statement.replace,
            authors=authors_of((yield from offload(partial(author_of, asked, statement)))),
        )
        yield [Until(lambda: self._log.has_version(facts.spec.uid, facts.spec.version))]
        text = f"job {statement.name} created; its master is {self._fleet.named(facts.master)}"
        text += over
        text += self._unmirrored(facts.spec.plan)
        text += promise_worked_out(facts.spec.plan)
        body = json.dumps({"job": statement.name, "master": facts.master, "uid": facts.spec.uid}).encode()
        return Reply(request=asked.request, text=text, body=body)

    def _unmirrored(self, plan: Plan) -> str:
        """What to add where a job wants mirrors, and this agent makes none."""
        if not plan.fragment.mirror or self._copies()["wanted"]:
            return ""
        return "; this agent makes no copies (protocol.copies is 0): when it is behind, nobody answers for it"

    def _select(self, asked: Execute, statement: statements.Select, now_ms: int) -> Procedure:
        from elf.ql.looks import is_look

        if is_look(statement.query):
            return (yield from look(asked, statement.query, self._log, self._fleet))
        return Reading((yield from self._one_shot(asked, statement.query, now_ms)), drops=True)

    def _one_shot(
        self, asked: Execute, query: statements.Query, now_ms: int
    ) -> Generator[list[Ask], list[Answer], JobSpec]:
        """The job of a SELECT that somebody reads."""
        facts = yield from self._found_job(self._name_once(), asked, query, now_ms, replacing=False)
        spec = self._log.job(facts.spec.uid)
        return facts.spec if spec is None else spec

    def _name_once(self) -> str:
        """For a job that ends with who reads it."""
        self._one_shots += 1
        return f"{ONE_SHOT_PREFIX}{self._me.agent_id[:8]}_{self._me.incarnation}_{self._one_shots}"

    def _preview(self, asked: Execute, statement: changes.PreviewJob) -> Procedure:
        """What a job would be runs beside it, as a SELECT that ends with who reads it; the job knows nothing
        of it. Who reads is told first which windows to put beside these."""
        name = self._name_once()
        self.creators.job(name, asked.creator)
        job, definition = yield from self._changes.previewed(asked, statement.change)
        facts = yield from self._begun(name, asked.creator, definition)
        readers = self._log.read_by(job.uid)
        beside = Preview(job.name, name, job.version, statement.windows, statement.change.sql, tuple(readers))
        text = f"the new version of job {job.name} runs beside version {job.version}; nothing is changed"
        body = msgspec.json.encode({"preview": beside})
        yield [Tell(Reply(request=asked.request, text=text, body=body, done=False))]
        spec = self._log.job(facts.spec.uid)
        return Reading(facts.spec if spec is None else spec, drops=True)

    def _drop(self, asked: Execute, statement: statements.DropJob) -> Procedure:
        program = self._log.find_program(statement.name, asked.creator)
        sql = self._log.find_job(statement.name, asked.creator)
        author = yield from offload(partial(author_of, asked, statement))
        if program is not None and (sql is None or program.creator == asked.creator):
            check_owner(program, asked.creator)
            return (yield from self._submissions.drop(asked.request, program, author))
        spec = self.masters.own(statement.name, asked.creator)
        self.planning.unread(spec)
        over = self._outputs.ending(spec)
        yield from self.masters.ask(spec, DropJob(id=0, origin="", uid=spec.uid, author=author))
        yield [Until(lambda: self._log.is_dropped(spec.uid))]
        return Reply(request=asked.request, text=f"job {spec.name} dropped{over}")

    def _notify(self, asked: Execute, statement: statements.NotifyJob) -> Procedure:
        if len(statement.text) > CHARS_MAX:
            raise UserError(f"a notice of {len(statement.text)} characters is too long: {CHARS_MAX} at most")
        spec = self.masters.own(statement.name, asked.creator)
        author = yield from offload(partial(author_of, asked, statement))
        answers = yield from self.masters.ask_roots(
            spec,
            lambda flow: NotifyJob(
                id=0, origin="", uid=spec.uid, text=statement.text, flow=flow.uid, author=author
            ),
            first_ranges=True,
        )
        reached = [msgspec.msgpack.decode(answer.body, type=list[str]) for answer in answers]
        text = f"notice sent to the {len(set().union(*reached))} agents of job {spec.name}"
        return Reply(request=asked.request, text=text)

    def _explain(self, asked: Execute, statement: statements.Explain, now_ms: int) -> Procedure:
        from elf.ql.looks import is_look

        if isinstance(statement.target, str):
            spec = self.masters.find(statement.target, asked.creator)
            if statement.offline:
                return self._explanations.offline(asked.request, spec.plan)
            if statement.latency:
                return (yield from self._latencies.of(asked.request, spec))
            return (
                yield from self._explanations.of(asked.request, spec.plan, spec, analyze=statement.analyze)
            )
        if is_look(statement.target):
            raise UserError(
                "a SELECT without groups has no plan and makes no job: it looks at once at lines that agents "
                f"keep, of {MEMBERS_MAX} agents at most"
            )
        if not statement.analyze:
            definition = yield from self.planning.plan(asked, statement.target, now_ms=now_ms)
            if statement.offline:
                return self._explanations.offline(asked.request, definition.plan)
            cost = yield from self._costs.of(definition.plan)
            return (yield from self._explanations.of(asked.request, definition.plan, None, cost=cost))
        running = yield from self._one_shot(asked, statement.target, now_ms)
        then = self._explanations.of_one_shot(asked.request, running.plan, running)
        return Reading(running, drops=True, then=then, windows=ANALYZED_WINDOWS)

    # -- what is there ---------------------------------------------------------------------------------------

    def _show(self, request: int, what: str, now_ms: int) -> Procedure:
        rows: list[dict[str, object]]
        if what == "jobs":
            programs = yield from self._submissions.inspect()
            named = [spec for spec in self._log.jobs() if not spec.name.startswith(ONE_SHOT_PREFIX)]
            away, works = yield from self.masters.led(named)
            rows = [job_row(spec, self._log, away.get(spec.uid, ""), works.get(spec.uid)) for spec in named]
            rows += [program_row(spec, facts) for spec, facts in programs]
        elif what in ("outputs", "alerts"):
            rows = yield from self._outputs.rows(alerts=what == "alerts")
        elif what == "tables":
            rows = yield from self._tables.rows()
        elif what == "aggregates":
            rows = self._aggregates.rows()
        elif what == "streams":
            rows = self._fleet.streams()
        elif what == "archives":
            rows = yield from self._fleet.archives()
        elif what == "decisions":
            rows = decisions(self._log, self._fleet.named, now_ms)
        else:
            rows = yield from self._fleet.told_members()
        return _table_of(request, rows, what)

    def _described(self, asked: Execute, statement: statements.Describe) -> str:
        """What kind of thing is described: without a word a stream, one's own job, a table, any job."""
        name = statement.name
        if statement.kind or name in self._log.streams():
            return statement.kind or "stream"
        found = (self._log.find_job(name, asked.creator), self._log.find_program(name, asked.creator))
        own = any(one is not None and one.creator == asked.creator for one in found)
        return "table" if name in self._table_reads.names() and not own else "job"

    def _describe(self, asked: Execute, statement: statements.Describe) -> Procedure:
        name, kind = statement.name, self._described(asked, statement)
        if kind == "stream":
            if name not in (streams := self._log.streams()):
                raise UserError(f"there is no stream {name}; streams: {', '.join(streams) or 'none'}")
            schema = (yield from self._fleet.view(name, finite=self.planning.finite)).schema
            columns: list[dict[str, object]] = [
                {"column": column.name, "type": column.type} for column in schema.columns
            ]
            return _table_of(asked.request, columns, f"columns of {name}: no line has shown any")
        if kind == "table":
            return _table_of(asked.request, (yield from self._tables.describe(asked, name)), name)
        if self._log.find_job(name, asked.creator) is None:
            for program, known in (yield from self._submissions.inspect()):
                if program == self._log.find_program(name, asked.creator):
                    about = described(program, known, self._log).items()
                    return _table_of(asked.request, [{"fact": k, "value": v} for k, v in about], name)
        spec = self.masters.find(name, asked.creator)
        facts = yield from self.masters.inspect(spec, LEAPT_WINDOWS if spec.plan.fragment.leap else 1)
        roots = yield from self._explanations.roots(spec)
        told = describe(facts, self._log, self._fleet.named, roots)
        told["stragglers"] += self._unmirrored(spec.plan)
        told |= {"budgets": text} if (text := (yield from self._costs.within(spec))) else {}
        if spec.plan.promise is not None:
            _, works = yield from self.masters.led([spec])
            told["promise"] = promise_of(spec, works.get(spec.uid))
        told["priority"] = priority_of(spec)
        return _table_of(asked.request, [{"fact": k, "value": v} for k, v in told.items()], name)

    # -- calls -----------------------------------------------------------------------------------------------

    def call(self, call: Call, now_ms: int, who: Principal | None = None) -> Procedure:
        """A client's other subscriptions."""
        if refused := self.refused_call(call, now_ms, who):
            raise UserError(refused)
        match call.verb:
            case "status":
                told = {**self.status(), "clock_us": now_ms * 1_000}
                return Reply(request=call.request, body=json.dumps(told).encode())
            case "tree" if call.argument.startswith(STREAM_PREFIX):
                return (yield from self._fleet.tree(call.request, call.argument.removeprefix(STREAM_PREFIX)))
            case "tree":
                spec = self.masters.find(call.argument, call.creator)
                flows = yield from self.masters.inspect_flows(spec)
                return Reply(request=call.request, body=json.dumps(trees(spec, flows)).encode())
            case "submit":
                return (yield from self._submissions.submit(call, who))
            case "query":
                return (yield from self._submissions.query(call))
            case "compare":
                return (yield from self._compare(call))
            case "past":
                return (yield from Past(self.masters).portion(call, now_ms))
            case "fill":
                return (yield from fill(self.masters, call))
            case "take off":
                return (yield from self._fleet.take_off(call.request, call.argument, authorship_of(call)))
            case "fleet":
                return (yield from self._fleet.stats(call.request, len(self._jobs())))
            case "tap":
                return (yield from self._tapping.tap(call))
            case "enrol":
                return (yield from self._keys.enrol(call, now_ms))
            case "keys":
                return self._keys.list(call, now_ms)
            case _:
                raise UserError(f"this agent does not know the call {call.verb}")

    def refused_call(self, call: Call, now_ms: int, who: Principal | None) -> str:
        """Why somebody may not make a call, which counts as made; empty: he may."""
        if who is not None and (why := who.refused_call(call.verb)):
            return why
        try:
            self._once.taken(call, who, now_ms, changes=is_change(CALLS.get(call.verb, "read")))
        except UserError as error:
            return str(error)
        return ""

    def status(self) -> dict[str, object]:
        """This agent's view of itself and of the fleet."""
        return {
            "agent": self._me.name,
            "agent_id": self._me.agent_id,
            "address": self._me.address,
            "incarnation": self._me.incarnation,
            "peers": self._fleet.peers,
            "streams": {s: len(self._fleet.expected(s)) for s in self._log.streams()},
            "flows": len(self._log.flows()),
            "jobs": self._jobs(),
            "log": self._fleet.log_kept(),
            "master_of": sorted(m.spec.name for m in self._job_groups.jobs()),
            "copies": self._copies(),
            "cpu_shares": {who: round(share, 3) for who, share in self.creators.shares().items() if share},
            "budgets": [one.shown() for one in self.budgets.told()],
            "unusable": self._job_groups.roots.told_unusable(),
            "fleet_key": self._keys.newest(),
        }

    def _jobs(self) -> list[str]:
        """The names of all jobs, but not those of SELECTs."""
        names = (*(s.name for s in self._log.jobs()), *(s.name for s in self._log.programs()))
        return sorted(name for name in names if not name.startswith(ONE_SHOT_PREFIX))

    def _compare(self, call: Call) -> Procedure:
        """Hand out what the job committed, and then close and ship the archives of its streams: so they have
        every row of these windows."""
        options = _compare_options(call.argument)
        spec = self.masters.find(options.job, call.creator)
        if why := not_comparable(spec.plan):
            raise UserError(f"job {spec.name} {why}")
        facts = yield from self.masters.inspect(spec, COMPARED_WINDOWS)
        facts = facts if options.versions else current_only(facts)
        sources: list[dict[str, object]] = []
        for stream in spec.plan.streams:
            sources += [(yield from self._fleet.shipped(stream))]
        members = {m.address for stream in spec.plan.streams for m in self._fleet.expected(stream)}
        body = {"job": spec.name, "streams": sources, **summary(facts, len(members))}
        payload = msgspec.msgpack.encode(facts)
        return Reply(request=call.request, body=json.dumps(body).encode(), payload=payload)


def _compare_options(argument: str) -> CompareOptions:
    if not argument.startswith("{"):
        return CompareOptions(argument)
    try:
        return msgspec.json.decode(argument, type=CompareOptions)
    except msgspec.MsgspecError as error:
        raise UserError(f"compare cannot be read: {error}") from None


def _parsed(text: str, who: Principal | None, tables: frozenset[str]) -> list[statements.Statement]:
    """The statements of a text; ``tables``: names that are of tables. Raises ``UserError`` where they are not
    ``who``'s to say."""
    from elf.ql import statements
    from elf.ql.keyed import over_table

    parsed = [
        (over_table(one.sql, one.query, tables) or one) if isinstance(one, statements.Select) else one
        for one in statements.parse(text)
    ]
    if not parsed:
        raise UserError("nothing to do: the statement is empty")
    for statement in parsed:
        _allow(statement, who)
    return parsed


def _allow(statement: statements.Statement, who: Principal | None) -> None:
    """Raises ``UserError`` where somebody has not all the roles that a statement needs."""
    from elf.ql import changes, statements
    from elf.ql.looks import is_look

    if isinstance(statement, changes.PreviewJob):
        statement = statement.change
    kind = type(statement).__name__
    what = " ".join(statement.sql.split(maxsplit=2)[:2]).upper()
    _must_have(role_of_statement(kind), what, who)
    if getattr(statement, "function", None) is not None:
        _must_have("code", f"{what} … SET FUNCTION", who)
    query = getattr(statement, "query", None) or getattr(statement, "target", None)
    if isinstance(statement, statements.Select) and is_look(statement.query):
        _must_have("tap", "a SELECT without groups", who)
    if query is not None and not isinstance(query, str) and query.reads_raw_lines:
        _must_have("tap", f"{RAW_COLUMN}, the raw line,", who)


def _must_have(role: Role, what: str, who: Principal | None) -> None:
    if who is not None and (why := who.lacks(role, what)):
        raise UserError(why)


def _table_of(request: int, rows: Sequence[dict[str, object]], what: str) -> Reply:
    if not rows:
        return Reply(request=request, text=f"no {what}")
    columns = {
        name: [row[name] if isinstance(row[name], int) else str(row[name]) for row in rows]
        for name in rows[0]
    }
    table = pa.table({name: _column(values) for name, values in columns.items()})
    return Reply(request=request, payload=encode(table))


def _column(values: Sequence[object]) -> Sequence[object]:
    return values if all(isinstance(v, int) for v in values) else [str(v) for v in values]
