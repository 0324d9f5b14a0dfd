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

import overlay as ring
from agents.answering.about import current_only, describe, job_row, summary, trees
from agents.answering.answers import facts_of, place_of, state_of, stream_tree, table_of
from agents.answering.asks import SILENT, Ask, Procedure, Reading, ToAddress, ToKey, Until
from agents.answering.explain import Explanations
from agents.answering.jobreads import JobReads
from agents.answering.masters import Masters
from agents.answering.sharing import Instead, Sharing
from agents.answering.steering import Steering
from agents.answering.submissions import Submissions, described, program_row
from agents.answering.tapping import Tapping
from agents.answering.vitals import fleet_vitals
from elf.errors import UserError
from elf.job import messages as say
from elf.job.home.homes import Homes
from elf.job.log.membership import Identity, Membership
from elf.job.log.streamlog import FOREVER_US, Member, StreamLog
from elf.job.rollup.notices import CHARS_MAX
from elf.job.spec import ONE_SHOT_PREFIX, Flow, JobSpec, app_id, range_topic, stream_topic
from elf.ql.plan import Plan, Table
from elf.ql.user_functions import functions_of
from elf.schema import Schema, merge_schemas

if TYPE_CHECKING:  # sqlglot takes 10 MB: it is imported at the first statement, which most agents never see
    from elf.ql import statements

SAMPLE_MEMBERS = 5
"""Members that are asked which columns a stream has (DESIGN 4.5: three or more)."""
STREAM_PREFIX = "stream:"
"""What stands before a stream's name where a job's might stand."""
ROOTS_ASKED_MAX = 16
"""Roots of flows that are asked how far clocks are apart."""
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
        overlay: ring.Overlay,
        homes: Homes,
        membership: Membership,
        copies: Callable[[], Mapping[str, object]],
    ) -> None:
        self._me = me
        self._copies = copies
        self._membership = membership
        self._log = log
        self._overlay = overlay
        self._homes = homes
        self._reads = JobReads(log, self._find, self._inspect)
        self._sharing = Sharing(log, self._sample)
        self._steering = Steering(
            log, self._find, self._ask_home, self._planned, self._reads.unread, self._range_roots
        )
        self._submissions = Submissions(log, self._schema_of, self._streams_of)
        self._explanations = Explanations(log, self._named)
        self._tapping = Tapping(log, self._members, self._seen)
        self.masters = Masters(log, self._named, self._live)
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

    def _members(self, stream: str) -> list[Member]:
        return [member for member in self._log.members(stream) if member.until_us == FOREVER_US]

    def _live(self) -> set[str]:
        return {self._me.address, *(peer.address for peer in self._overlay.peers())}

    def _lives(self, member: Member) -> bool:
        """Whether we know it to: somebody is at its address, and it is nobody that was started there since,
        without its data folder."""
        return member.address in self._live() and self._log.agent_at(member.address) == member.agent_id

    def _sample(self, stream: str) -> list[Member]:
        """Some members of a stream to be asked: those that we know to live, if any."""
        members, live = self._members(stream), self._live()
        known = [member for member in members if member.address in live]
        return (known or members)[:SAMPLE_MEMBERS]

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
        schemas = {}
        for stream in late or expanded.streams or self._streams_of(query):
            schemas[stream] = yield from self._schema_of(stream)

        def make(pane_us: int | None) -> Plan:
            plan = expanded.finish(planner.plan_streams(query, schemas, tables, pane_us))
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
                "a query over live streams needs a window, for instance WINDOWING 30 SECONDS at its end "
                "(results over everything since the start are not supported yet)"
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

    def _seen(self, stream: str) -> Generator[list[Ask], list[say.Answer], list[say.StreamSeen]]:
        """What some members of a stream have seen of it."""
        members = self._sample(stream)
        answers = yield [
            ToAddress(member.address, say.DescribeStream(id=0, origin="", stream=stream))
            for member in members
        ]
        seen = [msgspec.msgpack.decode(a.body, type=say.StreamSeen) for a in answers if not a.error]
        if not seen:
            raise UserError(
                f"none of the {len(members)} members of stream {stream} that were asked answers; try again"
            )
        return seen

    def _schema_of(self, stream: str) -> Generator[list[Ask], list[say.Answer], Schema]:
        """The columns of a stream, as some of its members have seen them."""
        seen = yield from self._seen(stream)
        if not any(one.rows or one.schema.columns for one in seen):
            raise UserError(
                f"no agent that was asked has read a line of stream {stream} yet; try again later"
            )
        return merge_schemas([one.schema for one in seen])

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
        text = f"job {statement.name} created; its master is {self._named(facts.master)}"
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
        yield from self._ask_home(spec, say.DropJob(id=0, origin="", uid=spec.uid))
        yield [Until(lambda: self._log.is_dropped(spec.uid))]
        return say.Reply(request=asked.request, text=f"job {spec.name} dropped")

    def _notify(self, asked: say.Execute, statement: statements.NotifyJob) -> Procedure:
        if len(statement.text) > CHARS_MAX:
            raise UserError(f"a notice of {len(statement.text)} characters is too long: {CHARS_MAX} at most")
        spec = self._find(statement.name, asked.creator)
        answers = yield from self._ask_roots(
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

    def _named(self, address: str) -> str:
        names = {m.address: m.name for s in self._log.streams() for m in self._log.members(s)}
        return f"{names[address]} ({address})" if address in names else address

    def streams(self) -> list[dict[str, object]]:
        """The streams of the fleet."""
        return [{"stream": s, "members": len(self._members(s))} for s in self._log.streams()]

    def members(self) -> list[dict[str, object]]:
        """Every member of every stream: ``live``, ``away`` or ``left``; and whether it keeps the stream log,
        or leads those that do."""
        return [
            {
                "stream": s,
                "number": m.number,
                "agent": m.name,
                "address": m.address,
                "state": state_of(m, lives=self._lives(m)),
                "log": self._keeps(m),
            }
            for s in self._log.streams()
            for m in self._log.members(s)
        ]

    def _keeps(self, member: Member) -> str:
        cluster = self._membership.cluster
        there = self._log.agent_at(member.address)
        if cluster is None or member.until_us != FOREVER_US or member.agent_id != there:
            return ""
        if member.address == cluster.keepers.leader:
            return "leads"
        return "keeps" if member.address in cluster.keepers.addresses else ""

    def _show(self, request: int, what: str) -> Procedure:
        rows: list[dict[str, object]]
        if what == "jobs":
            programs = yield from self._submissions.inspect()
            named = [spec for spec in self._log.jobs() if not spec.name.startswith(ONE_SHOT_PREFIX)]
            away = yield from self.masters.not_led(named)
            rows = [job_row(spec, self._log, away.get(spec.uid, "")) for spec in named]
            rows += [program_row(spec, facts) for spec, facts in programs]
        elif what == "streams":
            rows = self.streams()
        else:
            skews = yield from self._skews()
            rows = [
                {**row, "skew": f"{skews[at]:+d} ms" if (at := str(row["address"])) in skews else ""}
                for row in self.members()
            ]
        return table_of(request, rows, what)

    def _skews(self) -> Generator[list[Ask], list[say.Answer], dict[str, int]]:
        """How far each agent's clock is ahead of the median (ms), as the roots of flows see it; an agent that
        several of them hear is told by the one that hears most."""
        roots = list(dict.fromkeys(flow.home for flow in self._log.flows()))[:ROOTS_ASKED_MAX]
        if not roots:
            return {}
        answers = yield [ToAddress(root, say.InspectClocks(id=0, origin="")) for root in roots]
        heard = [msgspec.msgpack.decode(a.body, type=dict[str, int]) for a in answers if not a.error]
        return {address: skew for one in sorted(heard, key=len) for address, skew in one.items()}

    def _describe(self, asked: say.Execute, name: str) -> Procedure:
        if name in self._log.streams():
            members = self._sample(name)
            answers = yield [
                ToAddress(m.address, say.DescribeStream(id=0, origin="", stream=name)) for m in members
            ]
            seen = [msgspec.msgpack.decode(a.body, type=say.StreamSeen) for a in answers if not a.error]
            schema = merge_schemas([one.schema for one in seen])
            return table_of(asked.request, [{"column": c.name, "type": c.type} for c in schema.columns], name)
        if self._log.find_job(name, asked.creator) is None:
            for program, known in (yield from self._submissions.inspect()):
                if program == self._log.find_program(name, asked.creator):
                    about = described(program, known).items()
                    return table_of(asked.request, [{"fact": k, "value": v} for k, v in about], name)
        spec = self._find(name, asked.creator)
        facts = yield from self._inspect(spec, LEAPT_WINDOWS if spec.plan.fragment.leap else 0)
        roots = yield from self._explanations.roots(spec)
        told = describe(facts, self._log, self._named, roots)
        told["stragglers"] += self._unmirrored(spec.plan)
        return table_of(asked.request, [{"fact": k, "value": v} for k, v in told.items()], name)

    # -- calls -----------------------------------------------------------------------------------------------

    def call(self, call: say.Call) -> Procedure:
        """A client's other wishes."""
        match call.verb:
            case "status":
                return say.Reply(request=call.request, body=json.dumps(self.status()).encode())
            case "tree" if call.argument.startswith(STREAM_PREFIX):
                return (yield from self._stream_tree(call))
            case "tree":
                spec = self._find(call.argument, call.creator)
                flows = yield from self._inspect_flows(spec)
                return say.Reply(request=call.request, body=json.dumps(trees(spec, flows)).encode())
            case "submit":
                return (yield from self._submissions.submit(call))
            case "query":
                return (yield from self._submissions.query(call))
            case "compare":
                return (yield from self._compare(call))
            case "take off":
                return (yield from self._take_off(call))
            case "fleet":
                return (yield from fleet_vitals(call.request, self._agents(), self._jobs()))
            case "tap":
                return (yield from self._tapping.tap(call))
            case _:
                raise UserError(f"this agent does not know the call {call.verb}")

    def _take_off(self, call: say.Call) -> Procedure:
        """An agent that is gone for good is expected no more; by its name, or where it was."""
        wanted = call.argument
        known = [m for s in self._log.streams() for m in self._members(s) if wanted in (m.name, m.address)]
        if not known:
            raise UserError(f"no agent {wanted} is expected; elf members names those that are")
        dead = {m.agent_id: m for m in known if not self._lives(m)}
        if not dead:
            raise UserError(
                f"{wanted} lives, at {known[0].address}: elf leave --connect {known[0].address} has it leave"
            )
        for agent_id in dead:
            self._membership.take_off(agent_id)
        yield [Until(lambda: not any(self._log.is_member(agent_id) for agent_id in dead))]
        if any(self._log.is_member(agent_id) for agent_id in dead):
            raise UserError(
                f"{wanted} is still expected: the agents that keep the log do not answer; try again"
            )
        (one, *_) = dead.values()
        return say.Reply(request=call.request, text=f"{one.name} ({one.address}) is expected no more")

    def _stream_tree(self, call: say.Call) -> Procedure:
        """Where every member of a stream hangs in the stream's tree; its root may be no member."""
        name = call.argument.removeprefix(STREAM_PREFIX)
        if name not in self._log.streams():
            raise UserError(f"there is no stream {name}; streams: {', '.join(self._log.streams()) or 'none'}")
        members, where = self._members(name), say.LocateInTree(id=0, origin="", stream=name)
        asks: list[Ask] = [ToKey(stream_topic(name), where)]
        top, *answers = yield [*asks, *(ToAddress(m.address, where) for m in members)]
        if top.error:
            raise UserError(f"the root of the tree of stream {name} does not answer; try again")
        tree = stream_tree(
            name, place_of(top).address, list(zip(members, map(place_of, answers), strict=True))
        )
        return say.Reply(request=call.request, body=json.dumps(tree).encode())

    def status(self) -> dict[str, object]:
        """This agent's view of itself and of the fleet."""
        cluster = self._membership.cluster
        leader = cluster.keepers.leader if cluster is not None else ""
        return {
            "agent": self._me.name,
            "agent_id": self._me.agent_id,
            "address": self._me.address,
            "incarnation": self._me.incarnation,
            "peers": len(self._overlay.peers()),
            "streams": {s: len(self._members(s)) for s in self._log.streams()},
            "flows": len(self._log.flows()),
            "jobs": self._jobs(),
            "log": {"entries": self._log.last, "leader": leader, "keepers": self._membership.keepers},
            "master_of": sorted(m.spec.name for m in self._homes.jobs()),
            "copies": self._copies(),
            "unusable": self._homes.roots.told_unusable(),
        }

    def _jobs(self) -> list[str]:
        """The names of all jobs, but not those of SELECTs."""
        names = (*(s.name for s in self._log.jobs()), *(s.name for s in self._log.programs()))
        return sorted(name for name in names if not name.startswith(ONE_SHOT_PREFIX))

    def _agents(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Address → name and streams of all agents that have not left; of one that has no stream, what is
        known of it is its address."""
        found: dict[str, tuple[str, tuple[str, ...]]] = dict.fromkeys(sorted(self._live()), ("", ()))
        found[self._me.address] = (self._me.name, ())
        for stream in self._log.streams():
            for member in self._members(stream):
                _, streams = found.get(member.address, ("", ()))
                found[member.address] = (member.name, (*streams, stream))
        return found

    def _inspect(self, spec: JobSpec, windows: int) -> Generator[list[Ask], list[say.Answer], say.JobFacts]:
        request = say.Inspect(id=0, origin="", uid=spec.uid, windows=windows)
        return facts_of((yield from self._ask_home(spec, request)))

    def _ask_home(
        self, spec: JobSpec, request: say.Request
    ) -> Generator[list[Ask], list[say.Answer], say.Answer]:
        """What a job's master answers. Raises ``UserError`` with what it says against it."""
        (answer,) = yield [ToAddress(spec.home, request)]
        if answer.error:
            said = answer.error.removeprefix(f"job {spec.name} ")
            raise UserError(f"job {spec.name}: {self.masters.said(spec.home, said)}")
        return answer

    def _inspect_flows(self, spec: JobSpec) -> Generator[list[Ask], list[say.Answer], list[say.FlowFacts]]:
        """What the roots of a job's flows know."""
        answers = yield from self._ask_roots(
            spec, lambda flow: say.InspectFlow(id=0, origin="", uid=flow.uid)
        )
        return [msgspec.msgpack.decode(answer.body, type=say.FlowFacts) for answer in answers]

    def _ask_roots(
        self, spec: JobSpec, request: Callable[[Flow], say.Request], *, first_ranges: bool = False
    ) -> Generator[list[Ask], list[say.Answer], list[say.Answer]]:
        """What the root of each of a job's flows answers (``first_ranges``: of those that all its agents have
        between them). Raises ``UserError`` with what one says against it."""
        flows = [flow for flow in spec.flows if not first_ranges or not flow.fragment.range[0]]
        answers = yield [ToAddress(flow.home, request(flow)) for flow in flows]
        for flow, answer in zip(flows, answers, strict=True):
            if answer.error:
                raise UserError(f"job {spec.name}: {self.masters.told_by_root(flow, answer.error)}")
        return answers

    def _compare(self, call: say.Call) -> Procedure:
        """Close and ship the archives of the job's streams, then hand out what the job committed."""
        spec = self._find(call.argument, call.creator)
        if spec.plan.fragment.late_of:
            raise UserError(f"job {spec.name} reads late rows, and which came late is not in the archive")
        if spec.plan.fragment.count is not None:
            raise UserError(
                f"job {spec.name} has windows of rows, and where it began to count is not in the archive"
            )
        if any(one.keep is not None for one in spec.plan.unranged):
            raise UserError(f"job {spec.name} is APPROXIMATE: its rows need not be those of Spark")
        if functions_of(spec.plan):
            raise UserError(f"job {spec.name} has a function of its own, which Spark does not run")
        sources: list[dict[str, object]] = []
        for stream in spec.plan.streams:
            sources += [(yield from self._shipped(stream))]
        facts = current_only((yield from self._inspect(spec, COMPARED_WINDOWS)))
        members = {m.address for stream in spec.plan.streams for m in self._members(stream)}
        body = {"job": spec.name, "streams": sources, **summary(facts, len(members))}
        payload = msgspec.msgpack.encode(facts)
        return say.Reply(request=call.request, body=json.dumps(body).encode(), payload=payload)

    def _shipped(self, stream: str) -> Generator[list[Ask], list[say.Answer], dict[str, object]]:
        """Where a stream's lines are, after its members have closed and shipped their archives."""
        members = self._members(stream)
        answers = yield [
            ToAddress(m.address, say.RollArchive(id=0, origin="", stream=stream)) for m in members
        ]
        seen = [msgspec.msgpack.decode(a.body, type=say.StreamSeen) for a in answers if not a.error]
        if not seen:
            raise UserError(
                f"no member of stream {stream} has shipped its archive: "
                + (answers[0].error if answers else "none is left")
            )
        return {
            "stream": stream,
            "format": seen[0].format,
            "timestamp": seen[0].timestamp,
            "archives": sorted({one.archive for one in seen}),
            "silent": [m.name for m, a in zip(members, answers, strict=True) if a.error],
        }
