"""What people ask of an agent: statements and calls, each as a procedure (``agents.answering.asks``). Any
agent takes any of them.

What the stream log tells (jobs, members, streams) is answered from this node's copy of it; everything else is
asked of the members of a stream or of the job's home.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from agents.answering.about import current_only, describe, job_row, not_comparable, summary, trees
from agents.answering.answers import facts_of, table_of, with_way_out
from agents.answering.asks import SILENT, Ask, Procedure, Reading, ToKey, Until
from agents.answering.explain import Explanations
from agents.answering.fleet import Fleet
from agents.answering.jobreads import JobReads
from agents.answering.masters import Masters
from agents.answering.sharing import Instead, Sharing
from agents.answering.steering import Steering
from agents.answering.submissions import Submissions, described, program_row
from agents.answering.tapping import Tapping
from agents.answering.vitals import fleet_vitals
from elf.errors import ColumnError, UserError
from elf.job import messages as say
from elf.job.home.homes import Homes
from elf.job.log.membership import Identity
from elf.job.log.streamlog import StreamLog
from elf.job.rollup.notices import CHARS_MAX
from elf.job.spec import JobSpec, app_id, range_topic
from elf.ql.plan import Plan, Table
from elf.wire.clients import ONE_SHOT_PREFIX

if TYPE_CHECKING:  # sqlglot takes 10 MB: it is imported at the first statement, which most agents never see
    from elf.ql import statements

STREAM_PREFIX = "stream:"
"""What stands before a stream's name where a job's might stand."""
LEAPT_WINDOWS = 10
"""Of a job that leaps over stragglers: DESCRIBE JOB looks at so many."""
ANALYZED_WINDOWS = 3
"""For how many windows EXPLAIN ANALYZE runs a SELECT."""
COMPARED_WINDOWS = 1_000
"""The last commits of a job that are handed out for a comparison."""


class Statements:
    """The procedures of one agent."""

    def __init__(
        self,
        me: Identity,
        log: StreamLog,
        fleet: Fleet,
        homes: Homes,
        copies: Callable[[], Mapping[str, object]],
    ) -> None:
        self._me = me
        self._copies = copies
        self._log = log
        self._fleet = fleet
        self._homes = homes
        self.masters = Masters(log, fleet)
        self._reads = JobReads(log, self._find, self.masters.inspect)
        self._sharing = Sharing(log, fleet.sample)
        self._steering = Steering(
            log, self._find, self.masters.ask, self._planned, self._reads.unread, self._range_roots
        )
        self._submissions = Submissions(log, fleet.schema, self._streams_of)
        self._explanations = Explanations(log, fleet)
        self._tapping = Tapping(log, fleet)
        self._one_shots = 0
        self.finite = False
        """True for ``elf run``: inputs end, any name after FROM means the only stream, windows are optional.
        """

    # -- statements ------------------------------------------------------------------------------------------

    def execute(self, asked: say.Execute) -> Procedure:
        """All statements of a text, one after the other; the last one's reply is the reply."""
        from elf.ql import statements

        parsed = statements.parse(asked.sql)
        if not parsed:
            raise UserError("nothing to do: the statement is empty")
        for statement in parsed[:-1]:
            if isinstance(statement, statements.Select | statements.Subscribe):
                raise UserError("a SELECT or SUBSCRIBE can only be the last of several statements")
            yield from self._statement(asked, statement)
        return (yield from self._statement(asked, parsed[-1]))

    def _statement(self, asked: say.Execute, statement: statements.Statement) -> Procedure:
        from elf.ql import changes, statements

        match statement:
            case statements.CreateJob():
                return (yield from self._create(asked, statement))
            case changes.AlterJob():
                return (yield from self._steering.alter(asked, statement))
            case changes.SteerJob():
                return (yield from self._steering.steer(asked, statement))
            case statements.Select():
                return (yield from self._select(asked, statement))
            case statements.Subscribe():
                spec = self._find(statement.name, asked.creator)
                after = asked.after[1] if asked.after is not None and asked.after[0] == spec.uid else None
                return Reading(spec, drops=False, after=after)
            case statements.DropJob():
                return (yield from self._drop(asked, statement))
            case statements.NotifyJob():
                return (yield from self._notify(asked, statement))
            case statements.Show():
                return (yield from self._show(asked.request, statement.what))
            case statements.Describe():
                return (yield from self._describe(asked, statement.name))
            case statements.Explain():
                return (yield from self._explain(asked, statement))

    def _find(self, name: str, creator: str) -> JobSpec:
        spec = self._log.find_job(name, creator)
        if spec is None:
            specs = [s for s in self._log.jobs() if not s.name.startswith(ONE_SHOT_PREFIX)]
            if self._log.find_program(name, creator) is not None:
                raise UserError(
                    f"job {name} is written in Python, it has no windows: DESCRIBE {name} tells more"
                )
            names = sorted({*(s.name for s in specs), *(s.name for s in self._log.programs())})
            raise UserError(
                f"there is no job {name}; " + (f"jobs: {', '.join(names)}" if names else "there are none")
            )
        return spec

    def home(self, spec: JobSpec) -> str:
        """Where a job's home is now."""
        return self._log.home(spec.uid) or spec.home

    def newest(self, spec: JobSpec) -> JobSpec:
        """A job as the log has it by now: an ALTER gives it other flows."""
        return self._log.job(spec.uid) or spec

    def is_paused(self, spec: JobSpec) -> bool:
        return self._log.is_paused(spec.uid)

    def _planned(
        self,
        asked: say.Execute,
        query: statements.Query,
        known: Mapping[str, Table] | None = None,
        within: Sequence[str] = (),
        instead: Instead | None = None,
    ) -> Generator[list[Ask], list[say.Answer], Plan]:
        """The plan of a query over a stream of this fleet; its columns are what members have seen. ``known``:
        tables that it joins, where they do not come with the statement; ``within``: whose query it is."""
        from elf.ql import files, jobs, planner, user_functions

        expanded = jobs.expand(query, lambda name: self._reads.read(name, asked.creator), within)
        query = expanded.query
        late = self._late_flows(query, asked.creator)
        tables = files.tables_of(query, dict(asked.tables), known)
        views = {}
        for stream in late or expanded.streams or self._streams_of(query):
            views[stream] = yield from self._fleet.view(stream, finite=self.finite)
        schemas = {stream: view.schema for stream, view in views.items()}

        def make(pane_us: int | None) -> Plan:
            try:
                plan = expanded.finish(planner.plan_streams(query, schemas, tables, pane_us))
            except ColumnError as error:
                raise with_way_out(error, views, finite=self.finite) from None
            if late:
                plan = planner.over_late(query, plan, late)
            for function in (instead.functions if instead is not None else None) or ():
                plan = user_functions.with_function(plan, function)
            return plan

        if self.finite:  # what is late must not depend on how far an earlier job has read
            plan = make(None)
        else:
            plan = yield from self._sharing.plan(make, instead)
        plan = yield from self._reads.since(plan)
        if not plan.windows and not self.finite:
            raise UserError(
                "a query over live streams never ends, so it says at its end when there is a result: "
                "WINDOWING 30 SECONDS (of each 30 s), or WINDOWING LANDMARK EVERY 30 SECONDS "
                "(of all since it began, after each 30 s that brought a row)"
            )
        return plan

    def _late_flows(self, query: statements.Query, creator: str) -> dict[str, str]:
        """Of ``FROM LATE job``: the flows (uids, by stream) whose late rows these are, or none."""
        from elf.ql import planner

        name = planner.late_of(query)
        spec = None if name is None else self._find(name, creator)
        if spec is not None and spec.plan.fragment.late_of:
            raise UserError(f"FROM LATE {name}: the job reads late rows itself, and none of these is late")
        if spec is not None and spec.plan.beside:
            raise UserError(
                f"FROM LATE {name}: the job joins jobs; FROM LATE of each of them has its late rows"
            )
        if spec is not None and spec.plan.trees > 1:
            raise UserError(f"FROM LATE {name}: a job with TREES keeps no late rows; make it one tree")
        return {} if spec is None else {flow.fragment.stream: flow.uid for flow in spec.flows}

    def _streams_of(self, query: statements.Query) -> tuple[str, ...]:
        from elf.ql import planner

        named = planner.streams_of(query)
        streams = tuple(self._log.streams())
        if self.finite and len(streams) == 1:
            return streams
        if named == "*":
            if not streams:
                raise UserError("there is no stream yet")
            return streams
        for name in named:
            if name not in streams:
                raise UserError(f"there is no stream {name}; streams: {', '.join(streams) or 'none'}")
        return tuple(named)

    def _found_job(
        self, name: str, asked: say.Execute, query: statements.Query, *, replacing: bool
    ) -> Generator[list[Ask], list[say.Answer], say.JobFacts]:
        creator = asked.creator
        replaced = self._log.find_job(name, creator) if replacing else None
        if replaced is not None and replaced.creator != creator:
            replaced = None
        instead = None if replaced is None else Instead(replaced)
        plan = yield from self._planned(asked, query, None, [name], instead)
        if replaced is not None:
            self._reads.unread(replaced)
        if any((s.name, s.creator) == (name, creator) for s in self._log.programs()):
            raise UserError(f"job {name} exists already, written in Python; DROP JOB {name} first")
        spec = JobSpec(name, creator, 0, plan, ())
        if spec.replicated:  # else they are where the job is: it is asked again when that dies
            spec = replace(spec, roots=(yield from self._range_roots(name, creator, plan)))
        request = say.CreateJob(id=0, origin="", spec=spec, replace=replacing)
        (answer,) = yield [ToKey(app_id(name, creator), request)]
        if answer.error == SILENT:
            silent = "its master or the keepers of the stream log do not answer"
            if name.startswith(ONE_SHOT_PREFIX):
                raise UserError(f"the SELECT has not begun: {silent}; try again in a moment")
            raise UserError(f"job {name}: {silent}; SHOW JOBS tells if it exists")
        return facts_of(answer)

    def _range_roots(
        self, name: str, creator: str, plan: Plan
    ) -> Generator[list[Ask], list[say.Answer], tuple[str, ...]]:
        """The nodes that are to found the homes of the key ranges of a job after the first."""
        keys = [range_topic(name, creator, place) for place in range(1, max(s.trees for s in plan.sides))]
        answers = (yield [ToKey(key, say.WhoIsThere(id=0, origin="")) for key in keys]) if keys else []
        if any(answer.error for answer in answers):
            what = "the SELECT" if name.startswith(ONE_SHOT_PREFIX) else f"job {name}"
            raise UserError(f"{what}: a node that is to root a key range does not answer; try again")
        return tuple(msgspec.msgpack.decode(answer.body, type=str) for answer in answers)

    def _create(self, asked: say.Execute, statement: statements.CreateJob) -> Procedure:
        facts = yield from self._found_job(
            statement.name, asked, statement.query, replacing=statement.replace
        )
        yield [Until(lambda: self._log.has_version(facts.spec.uid, facts.spec.version))]
        text = f"job {statement.name} created; its master is {self._fleet.named(facts.master)}"
        text += self._unmirrored(facts.spec.plan)
        body = json.dumps({"job": statement.name, "master": facts.master, "uid": facts.spec.uid}).encode()
        return say.Reply(request=asked.request, text=text, body=body)

    def _unmirrored(self, plan: Plan) -> str:
        """What to add where a job wants mirrors, and this agent makes none."""
        if not plan.fragment.mirror or self._copies()["wanted"]:
            return ""
        return "; this agent makes no copies (protocol.copies is 0): when it is behind, nobody answers for it"

    def _select(self, asked: say.Execute, statement: statements.Select) -> Procedure:
        return Reading((yield from self._one_shot(asked, statement.query)), drops=True)

    def _one_shot(
        self, asked: say.Execute, query: statements.Query
    ) -> Generator[list[Ask], list[say.Answer], JobSpec]:
        """The job of a SELECT that somebody reads."""
        self._one_shots += 1
        name = f"{ONE_SHOT_PREFIX}{self._me.agent_id[:8]}_{self._me.incarnation}_{self._one_shots}"
        facts = yield from self._found_job(name, asked, query, replacing=False)
        spec = self._log.job(facts.spec.uid)
        return facts.spec if spec is None else spec

    def _drop(self, asked: say.Execute, statement: statements.DropJob) -> Procedure:
        program = self._log.find_program(statement.name, asked.creator)
        if program is not None and self._log.find_job(statement.name, asked.creator) is None:
            return (yield from self._submissions.drop(asked.request, program))
        spec = self._find(statement.name, asked.creator)
        self._reads.unread(spec)
        yield from self.masters.ask(spec, say.DropJob(id=0, origin="", uid=spec.uid))
        yield [Until(lambda: self._log.is_dropped(spec.uid))]
        return say.Reply(request=asked.request, text=f"job {spec.name} dropped")

    def _notify(self, asked: say.Execute, statement: statements.NotifyJob) -> Procedure:
        if len(statement.text) > CHARS_MAX:
            raise UserError(f"a notice of {len(statement.text)} characters is too long: {CHARS_MAX} at most")
        spec = self._find(statement.name, asked.creator)
        answers = yield from self.masters.ask_roots(
            spec,
            lambda flow: say.NotifyJob(id=0, origin="", uid=spec.uid, text=statement.text, flow=flow.uid),
            first_ranges=True,
        )
        reached = [msgspec.msgpack.decode(answer.body, type=list[str]) for answer in answers]
        text = f"notice sent to the {len(set().union(*reached))} agents of job {spec.name}"
        return say.Reply(request=asked.request, text=text)

    def _explain(self, asked: say.Execute, statement: statements.Explain) -> Procedure:
        if isinstance(statement.target, str):
            spec = self._find(statement.target, asked.creator)
            return (
                yield from self._explanations.of(asked.request, spec.plan, spec, analyze=statement.analyze)
            )
        if not statement.analyze:
            plan = yield from self._planned(asked, statement.target)
            return (yield from self._explanations.of(asked.request, plan, None))
        running = yield from self._one_shot(asked, statement.target)
        then = self._explanations.of_one_shot(asked.request, running.plan, running)
        return Reading(running, drops=True, then=then, windows=ANALYZED_WINDOWS)

    # -- what is there ---------------------------------------------------------------------------------------

    def _show(self, request: int, what: str) -> Procedure:
        rows: list[dict[str, object]]
        if what == "jobs":
            programs = yield from self._submissions.inspect()
            named = [spec for spec in self._log.jobs() if not spec.name.startswith(ONE_SHOT_PREFIX)]
            away = yield from self.masters.not_led(named)
            rows = [job_row(spec, self._log, away.get(spec.uid, "")) for spec in named]
            rows += [program_row(spec, facts) for spec, facts in programs]
        elif what == "streams":
            rows = self._fleet.streams()
        else:
            rows = yield from self._fleet.told_members()
        return table_of(request, rows, what)

    def _describe(self, asked: say.Execute, name: str) -> Procedure:
        if name in self._log.streams():
            schema = (yield from self._fleet.view(name, finite=self.finite)).schema
            columns: list[dict[str, object]] = [
                {"column": column.name, "type": column.type} for column in schema.columns
            ]
            return table_of(asked.request, columns, f"columns of {name}: no line has shown any")
        if self._log.find_job(name, asked.creator) is None:
            for program, known in (yield from self._submissions.inspect()):
                if program == self._log.find_program(name, asked.creator):
                    about = described(program, known).items()
                    return table_of(asked.request, [{"fact": k, "value": v} for k, v in about], name)
        spec = self._find(name, asked.creator)
        facts = yield from self.masters.inspect(spec, LEAPT_WINDOWS if spec.plan.fragment.leap else 1)
        roots = yield from self._explanations.roots(spec)
        told = describe(facts, self._log, self._fleet.named, roots)
        told["stragglers"] += self._unmirrored(spec.plan)
        return table_of(asked.request, [{"fact": k, "value": v} for k, v in told.items()], name)

    # -- calls -----------------------------------------------------------------------------------------------

    def call(self, call: say.Call) -> Procedure:
        """A client's other wishes."""
        match call.verb:
            case "status":
                return say.Reply(request=call.request, body=json.dumps(self.status()).encode())
            case "tree" if call.argument.startswith(STREAM_PREFIX):
                return (yield from self._fleet.tree(call.request, call.argument.removeprefix(STREAM_PREFIX)))
            case "tree":
                spec = self._find(call.argument, call.creator)
                flows = yield from self.masters.inspect_flows(spec)
                return say.Reply(request=call.request, body=json.dumps(trees(spec, flows)).encode())
            case "submit":
                return (yield from self._submissions.submit(call))
            case "query":
                return (yield from self._submissions.query(call))
            case "compare":
                return (yield from self._compare(call))
            case "take off":
                return (yield from self._fleet.take_off(call.request, call.argument))
            case "fleet":
                return (yield from fleet_vitals(call.request, self._fleet.agents(), self._jobs()))
            case "tap":
                return (yield from self._tapping.tap(call))
            case _:
                raise UserError(f"this agent does not know the call {call.verb}")

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
            "master_of": sorted(m.spec.name for m in self._homes.jobs()),
            "copies": self._copies(),
            "unusable": self._homes.roots.told_unusable(),
        }

    def _jobs(self) -> list[str]:
        """The names of all jobs, but not those of SELECTs."""
        names = (*(s.name for s in self._log.jobs()), *(s.name for s in self._log.programs()))
        return sorted(name for name in names if not name.startswith(ONE_SHOT_PREFIX))

    def _compare(self, call: say.Call) -> Procedure:
        """Close and ship the archives of the job's streams, then hand out what the job committed."""
        spec = self._find(call.argument, call.creator)
        if why := not_comparable(spec.plan):
            raise UserError(f"job {spec.name} {why}")
        sources: list[dict[str, object]] = []
        for stream in spec.plan.streams:
            sources += [(yield from self._fleet.shipped(stream))]
        facts = current_only((yield from self.masters.inspect(spec, COMPARED_WINDOWS)))
        members = {m.address for stream in spec.plan.streams for m in self._fleet.expected(stream)}
        body = {"job": spec.name, "streams": sources, **summary(facts, len(members))}
        payload = msgspec.msgpack.encode(facts)
        return say.Reply(request=call.request, body=json.dumps(body).encode(), payload=payload)
