"""What people ask of an agent: statements and calls, as procedures that ask other nodes and wait for their
answers.

A procedure is a generator: it yields what it asks (``ToAddress``, ``ToKey``, or a list of them) and is sent
the ``Answer``s; it returns the ``Reply``. So a statement that needs five nodes reads as one page from top to
bottom, and is still pure: no thread, no clock; silence comes back as an answer whose ``error`` says so. Any
agent takes any statement.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

import overlay as ring
from elf.batch import encode
from elf.errors import ElfError, UserError
from elf.job import messages as say
from elf.job.effects import Send
from elf.job.homes import ONE_SHOT_PREFIX, Homes
from elf.job.membership import Identity
from elf.job.spec import JobSpec, app_id
from elf.job.streamlog import FOREVER_US, Member, StreamLog
from elf.ql import planner, statements
from elf.schema import merge_schemas

ANSWER_MS = 8_000
"""How long a node may take to answer a request of ours."""
RENEW_MS = 2_000
CLIENT_SILENCE_MS = 10_000
SAMPLE_MEMBERS = 5
"""Members that are asked which columns a stream has (DESIGN 4.5: three or more)."""


@dataclass(frozen=True)
class ToAddress:
    """Ask a node, by address."""

    to: str
    request: say.Request


@dataclass(frozen=True)
class ToKey:
    """Ask the node nearest to a key."""

    key: bytes
    request: say.Request


Ask = ToAddress | ToKey
Procedure = Generator[list[Ask], list[say.Answer], say.Reply | None]


@dataclass
class _Running:
    """A procedure and the answers that it waits for, by request id."""

    client: str
    request: int
    procedure: Procedure
    waiting: dict[int, say.Answer | None] = field(default_factory=dict)
    deadline_ms: int = 0


@dataclass
class _Reader:
    """A client that reads the windows of a job. ``drops``: the job is its own one-shot SELECT."""

    client: str
    request: int
    spec: JobSpec
    left: int | None
    drops: bool
    heard_ms: int
    renewed_ms: int = 0
    seen_us: int | None = None


class Clients:
    """The clients of one agent. Methods return effects and asks for the node to perform."""

    def __init__(self, me: Identity, log: StreamLog, overlay: ring.Overlay, homes: Homes) -> None:
        self._me = me
        self._log = log
        self._overlay = overlay
        self._homes = homes
        self._next_id = 0
        self._running: dict[tuple[str, int], _Running] = {}
        self._by_id: dict[int, _Running] = {}
        self._readers: dict[tuple[str, int], _Reader] = {}

    # -- from clients ----------------------------------------------------------------------------------------

    def heard(
        self, client: str, message: say.Execute | say.Call | say.KeepAlive | say.Cancel, now_ms: int
    ) -> list[object]:
        key = (client, message.request)
        match message:
            case say.KeepAlive():
                if key in self._readers:
                    self._readers[key].heard_ms = now_ms
                return []
            case say.Cancel():
                return self._close(key)
            case say.Execute():
                return self._run(client, message.request, self._statements(client, message, now_ms), now_ms)
            case say.Call():
                return self._run(client, message.request, self._call(message), now_ms)

    def _run(self, client: str, request: int, procedure: Procedure, now_ms: int) -> list[object]:
        running = _Running(client, request, procedure)
        self._running[(client, request)] = running
        return self._step(running, None, now_ms)

    def _step(self, running: _Running, answers: list[say.Answer] | None, now_ms: int) -> list[object]:
        """Run a procedure up to its next question, or to its end."""
        try:
            asks = next(running.procedure) if answers is None else running.procedure.send(answers)
        except StopIteration as done:
            return self._finish(running, done.value)
        except ElfError as refused:
            return self._finish(running, say.Failed(request=running.request, text=str(refused)))
        found: list[object] = []
        running.waiting = {}
        running.deadline_ms = now_ms + ANSWER_MS
        for ask in asks:
            self._next_id += 1
            request = msgspec.structs.replace(ask.request, id=self._next_id, origin=self._me.address)
            running.waiting[self._next_id] = None
            self._by_id[self._next_id] = running
            found.append(replace(ask, request=request))
        return found if asks else self._step(running, [], now_ms)

    def _finish(self, running: _Running, reply: say.Reply | say.Failed | None) -> list[object]:
        self._running.pop((running.client, running.request), None)
        return [Send(running.client, reply)] if reply is not None else []

    def answered(self, answer: say.Answer, now_ms: int) -> list[object]:
        running = self._by_id.pop(answer.id, None)
        if running is None or answer.id not in running.waiting:
            return []
        running.waiting[answer.id] = answer
        return self._go_on(running, now_ms) if all(running.waiting.values()) else []

    def _go_on(self, running: _Running, now_ms: int) -> list[object]:
        silent = "no answer in time"
        answers = [answer or say.Answer(id=id_, error=silent) for id_, answer in running.waiting.items()]
        for id_ in running.waiting:
            self._by_id.pop(id_, None)
        return self._step(running, answers, now_ms)

    def deadline(self) -> int | None:
        waits = [running.deadline_ms for running in self._running.values()]
        waits += [reader.renewed_ms + RENEW_MS for reader in self._readers.values()]
        return min(waits, default=None)

    def tick(self, now_ms: int) -> list[object]:
        found: list[object] = []
        for running in [r for r in self._running.values() if now_ms >= r.deadline_ms]:
            found.extend(self._go_on(running, now_ms))
        for key, reader in list(self._readers.items()):
            if now_ms - reader.heard_ms > CLIENT_SILENCE_MS:
                found.extend(self._close(key))
            elif now_ms - reader.renewed_ms >= RENEW_MS:
                reader.renewed_ms = now_ms
                found.append(self._renewal(reader))
        return found

    # -- readers ---------------------------------------------------------------------------------------------

    def _renewal(self, reader: _Reader) -> Send:
        home = reader.spec.flows[0].home
        request = say.SubscribeJob(
            id=0, origin=self._me.address, uid=reader.spec.uid, after_us=reader.seen_us
        )
        return Send(home, request)

    def _close(self, key: tuple[str, int]) -> list[object]:
        self._running.pop(key, None)
        reader = self._readers.pop(key, None)
        if reader is None or not reader.drops:
            return []
        drop = say.DropJob(id=0, origin=self._me.address, uid=reader.spec.uid)
        return [Send(reader.spec.flows[0].home, drop)]

    def published(self, result: say.WindowResult, now_ms: int) -> list[object]:
        """Windows of a job that some of our clients read."""
        found: list[object] = []
        for key, reader in list(self._readers.items()):
            if reader.spec.uid != result.job:
                continue
            reader.seen_us = max(reader.seen_us or result.last_us, result.last_us)
            reader.renewed_ms = now_ms
            found.append(Send(reader.client, say.Published(request=reader.request, result=result)))
            if reader.left is not None:
                reader.left -= 1
            if reader.left == 0 or result.final:
                found.append(Send(reader.client, say.Reply(request=reader.request)))
                found.extend(self._close(key))
        return found

    def job_ended(self, uid: str) -> list[object]:
        found: list[object] = []
        for key, reader in list(self._readers.items()):
            if reader.spec.uid == uid:
                del self._readers[key]
                found.append(
                    Send(reader.client, say.Reply(request=reader.request, text="the job was dropped"))
                )
        return found

    # -- statements ------------------------------------------------------------------------------------------

    def _statements(self, client: str, asked: say.Execute, now_ms: int) -> Procedure:
        parsed = statements.parse(asked.sql)
        if not parsed:
            raise UserError("nothing to do: the statement is empty")
        reply: say.Reply | None = None
        for index, statement in enumerate(parsed):
            reply = yield from self._statement(client, asked, statement, now_ms)
            if reply is not None and index < len(parsed) - 1:
                reply = msgspec.structs.replace(reply, done=False)
        return reply

    def _statement(
        self, client: str, asked: say.Execute, statement: statements.Statement, now_ms: int
    ) -> Procedure:
        match statement:
            case statements.CreateJob():
                return (yield from self._create(asked, statement))
            case statements.Select():
                return (yield from self._select(client, asked, statement, now_ms))
            case statements.Subscribe():
                spec = self._find(statement.name, asked.creator)
                return self._read(client, asked, spec, now_ms, drops=False)
            case statements.DropJob():
                return (yield from self._drop(asked, statement))
            case statements.Show():
                return self._show(asked.request, statement.what)
            case statements.Describe():
                return (yield from self._describe(asked, statement.name))
            case statements.Explain():
                return (yield from self._explain(asked, statement))

    def _find(self, name: str, creator: str) -> JobSpec:
        spec = self._log.find_job(name, creator)
        if spec is None:
            names = sorted({s.name for s in self._log.jobs() if not s.name.startswith(ONE_SHOT_PREFIX)})
            raise UserError(
                f"there is no job {name}; " + (f"jobs: {', '.join(names)}" if names else "there are none")
            )
        return spec

    def _members(self, stream: str) -> list[Member]:
        return [member for member in self._log.members(stream) if member.until_us == FOREVER_US]

    def _planned(self, query: statements.Query) -> Generator[list[Ask], list[say.Answer], planner.Plan]:
        """The plan of a query over a stream of this fleet; its columns are what members have seen."""
        stream = self._stream_of(query)
        members = self._members(stream)[:SAMPLE_MEMBERS]
        answers = yield [
            ToAddress(member.address, say.DescribeStream(id=0, origin="", stream=stream))
            for member in members
        ]
        seen = [msgspec.msgpack.decode(a.body, type=say.StreamSeen) for a in answers if not a.error]
        if not seen:
            raise UserError(
                f"none of the {len(members)} members of stream {stream} that were asked has answered; try again"
            )
        plan = planner.plan(query, merge_schemas([one.schema for one in seen]), stream=stream)
        if plan.window is None:
            raise UserError(
                "a query over live streams needs a window, for instance WINDOWING 30 SECONDS at its end "
                "(results over everything since the start are not supported yet)"
            )
        return plan

    def _stream_of(self, query: statements.Query) -> str:
        named = planner.streams_of(query)
        streams = self._log.streams()
        if named == "*":
            if len(streams) == 1:
                return streams[0]
            raise UserError(
                f"FROM * over several streams is not supported yet in a fleet; name one of: {', '.join(streams) or '(none)'}"
            )
        if named[0] not in streams:
            raise UserError(f"there is no stream {named[0]}; streams: {', '.join(streams) or 'none'}")
        return named[0]

    def _found_job(
        self, name: str, creator: str, query: statements.Query, *, replacing: bool
    ) -> Generator[list[Ask], list[say.Answer], say.JobFacts]:
        plan = yield from self._planned(query)
        spec = JobSpec(name, creator, 0, plan, ())
        request = say.CreateJob(id=0, origin="", spec=spec, replace=replacing)
        (answer,) = yield [ToKey(app_id(name, creator), request)]
        if answer.error == "no answer in time":
            raise UserError(
                f"job {name}: its master or the founder of the stream log does not answer; SHOW JOBS tells if it exists"
            )
        return _facts(answer)

    def _create(self, asked: say.Execute, statement: statements.CreateJob) -> Procedure:
        facts = yield from self._found_job(
            statement.name, asked.creator, statement.query, replacing=statement.replace
        )
        text = f"job {statement.name} created; its master is {self._named(facts.master)}"
        body = json.dumps({"job": statement.name, "master": facts.master, "uid": facts.spec.uid}).encode()
        return say.Reply(request=asked.request, text=text, body=body)

    def _select(
        self, client: str, asked: say.Execute, statement: statements.Select, now_ms: int
    ) -> Procedure:
        name = f"{ONE_SHOT_PREFIX}{self._me.agent_id[:8]}_{self._me.incarnation}_{self._next_id}"
        facts = yield from self._found_job(name, asked.creator, statement.query, replacing=False)
        return self._read(client, asked, facts.spec, now_ms, drops=True)

    def _read(
        self, client: str, asked: say.Execute, spec: JobSpec, now_ms: int, *, drops: bool
    ) -> say.Reply | None:
        reader = _Reader(client, asked.request, spec, asked.windows, drops, now_ms)
        if drops:
            reader.seen_us = -(1 << 62)
        self._readers[(client, asked.request)] = reader
        return None

    def _drop(self, asked: say.Execute, statement: statements.DropJob) -> Procedure:
        spec = self._find(statement.name, asked.creator)
        (answer,) = yield [ToAddress(spec.flows[0].home, say.DropJob(id=0, origin="", uid=spec.uid))]
        if answer.error:
            raise UserError(
                f"job {spec.name}: its master {self._named(spec.flows[0].home)} says: {answer.error}"
            )
        return say.Reply(request=asked.request, text=f"job {spec.name} dropped")

    def _explain(self, asked: say.Execute, statement: statements.Explain) -> Procedure:
        plan = yield from self._planned(statement.query)
        lines = [
            f"stream   {plan.fragment.stream}",
            f"pane     {plan.fragment.pane_us / 1e6:g} s",
            f"columns  {', '.join(f'{c.name} {c.type}' for c in plan.fragment.columns)}",
            f"map      {plan.fragment.map_sql}",
            f"final    {plan.final_sql}",
            f"offline  {plan.spark_sql}",
        ]
        return say.Reply(request=asked.request, text="\n".join(lines))

    # -- what is there ---------------------------------------------------------------------------------------

    def _named(self, address: str) -> str:
        names = {m.address: m.name for s in self._log.streams() for m in self._log.members(s)}
        return f"{names[address]} ({address})" if address in names else address

    def _show(self, request: int, what: str) -> say.Reply:
        rows: list[dict[str, object]]
        if what == "jobs":
            rows = [
                {
                    "job": s.name,
                    "creator": s.creator,
                    "stream": s.plan.fragment.stream,
                    "master": s.flows[0].home,
                    "query": s.plan.sql,
                }
                for s in self._log.jobs()
                if not s.name.startswith(ONE_SHOT_PREFIX)
            ]
        elif what == "streams":
            rows = [{"stream": s, "members": len(self._members(s))} for s in self._log.streams()]
        else:
            live = {self._me.address, *(peer.address for peer in self._overlay.peers())}
            rows = [
                {
                    "stream": s,
                    "number": m.number,
                    "agent": m.name,
                    "address": m.address,
                    "state": _state(m, live),
                }
                for s in self._log.streams()
                for m in self._log.members(s)
            ]
        return _table(request, rows, what)

    def _describe(self, asked: say.Execute, name: str) -> Procedure:
        if name in self._log.streams():
            members = self._members(name)[:SAMPLE_MEMBERS]
            answers = yield [
                ToAddress(m.address, say.DescribeStream(id=0, origin="", stream=name)) for m in members
            ]
            seen = [msgspec.msgpack.decode(a.body, type=say.StreamSeen) for a in answers if not a.error]
            schema = merge_schemas([one.schema for one in seen])
            return _table(asked.request, [{"column": c.name, "type": c.type} for c in schema.columns], name)
        spec = self._find(name, asked.creator)
        facts = yield from self._inspect(spec, 0)
        return _table(asked.request, [{"fact": k, "value": v} for k, v in _summary(facts).items()], name)

    # -- calls -----------------------------------------------------------------------------------------------

    def _call(self, call: say.Call) -> Procedure:
        match call.verb:
            case "status":
                return say.Reply(request=call.request, body=json.dumps(self.status()).encode())
            case "tree":
                facts = yield from self._inspect(self._find(call.argument, call.creator), 0)
                return say.Reply(request=call.request, body=json.dumps(_tree(facts)).encode())
            case "compare":
                return (yield from self._compare(call))
            case _:
                raise UserError(f"this agent does not know the call {call.verb}")

    def status(self) -> dict[str, object]:
        """This agent's view of itself and of the fleet."""
        return {
            "agent": self._me.name,
            "agent_id": self._me.agent_id,
            "address": self._me.address,
            "incarnation": self._me.incarnation,
            "peers": len(self._overlay.peers()),
            "streams": {s: len(self._members(s)) for s in self._log.streams()},
            "jobs": sorted(s.name for s in self._log.jobs() if not s.name.startswith(ONE_SHOT_PREFIX)),
            "master_of": sorted(m.spec.name for m in self._homes.jobs()),
        }

    def _inspect(self, spec: JobSpec, windows: int) -> Generator[list[Ask], list[say.Answer], say.JobFacts]:
        (answer,) = yield [
            ToAddress(spec.flows[0].home, say.Inspect(id=0, origin="", uid=spec.uid, windows=windows))
        ]
        if answer.error:
            raise UserError(
                f"job {spec.name}: its master {self._named(spec.flows[0].home)} says: {answer.error}"
            )
        return _facts(answer)

    def _compare(self, call: say.Call) -> Procedure:
        """Close and ship the archives of the job's stream, then hand out what the job committed."""
        spec = self._find(call.argument, call.creator)
        stream = spec.plan.fragment.stream
        members = self._members(stream)
        answers = yield [
            ToAddress(m.address, say.RollArchive(id=0, origin="", stream=stream)) for m in members
        ]
        silent = [m.name for m, a in zip(members, answers, strict=True) if a.error]
        seen = [msgspec.msgpack.decode(a.body, type=say.StreamSeen) for a in answers if not a.error]
        if not seen:
            raise UserError(
                f"no member of stream {stream} has shipped its archive: {answers[0].error if answers else 'none is left'}"
            )
        facts = yield from self._inspect(spec, 1_000)
        body = {
            "job": spec.name,
            "stream": stream,
            "format": seen[0].format,
            "timestamp": seen[0].timestamp,
            "archives": sorted({one.archive for one in seen}),
            "silent": silent,
            **_summary(facts),
        }
        payload = msgspec.msgpack.encode(facts)
        return say.Reply(request=call.request, body=json.dumps(body).encode(), payload=payload)


def _facts(answer: say.Answer) -> say.JobFacts:
    if answer.error:
        raise UserError(answer.error)
    return msgspec.msgpack.decode(answer.body, type=say.JobFacts)


def _state(member: Member, live: Iterable[str]) -> str:
    if member.until_us != FOREVER_US:
        return "left"
    return "live" if member.address in live else "away"


def _summary(facts: say.JobFacts) -> dict[str, object]:
    plan = facts.spec.plan
    return {
        "uid": facts.spec.uid,
        "state": facts.state,
        "version": facts.spec.version,
        "creator": facts.spec.creator,
        "master": facts.master,
        "query": plan.sql,
        "window_us": plan.window.size_us if plan.window else None,
        "slide_us": plan.window.slide_us if plan.window else None,
        "pane_us": plan.fragment.pane_us,
        "first_us": facts.first_us,
        "committed_us": facts.committed_us,
        "members": len(facts.tree),
    }


def _tree(facts: say.JobFacts) -> dict[str, object]:
    edges: list[dict[str, object]] = [
        {"name": e.name, "address": e.address, "parent": e.parent, "sealed_us": e.sealed_us}
        for e in facts.tree
    ]
    return {"job": facts.spec.name, "master": facts.master, "edges": edges}


def _table(request: int, rows: Sequence[dict[str, object]], what: str) -> say.Reply:
    import pyarrow as pa

    if not rows:
        return say.Reply(request=request, text=f"no {what}")
    columns = {
        name: [row[name] if isinstance(row[name], int) else str(row[name]) for row in rows]
        for name in rows[0]
    }
    table = pa.table({name: _column(values) for name, values in columns.items()})
    return say.Reply(request=request, payload=encode(table))


def _column(values: Sequence[object]) -> Sequence[object]:
    return values if all(isinstance(v, int) for v in values) else [str(v) for v in values]
