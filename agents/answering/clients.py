"""The clients of an agent: their requests as running procedures, and those who read the windows of a job.

A request asks other nodes through the node and waits for all the answers, or as long as it says. A reader
renews its subscription at the job group every ``RENEW_MS``, with the number of what it has heard, so that a
job group that was away sends what was missed; while results before the last one have not come it asks until
they have. A client that says nothing for ``CLIENT_SILENCE_MS`` is gone, and its one-shot job with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from agents.answering import audited
from agents.answering.asks import (
    SILENT,
    Offload,
    Procedure,
    Reading,
    Save,
    Say,
    Tell,
    ToAddress,
    ToKey,
    Until,
)
from agents.answering.quotas import OverQuota
from agents.answering.statements import Statements
from elf.errors import ElfError, UserError
from elf.fields import replace
from elf.job.effects import Effect, Faulted, Refused, Send, Undone
from elf.job.events import Offloaded
from elf.job.messages.groups import DropJob, JobFailed, SubscribeJob
from elf.job.messages.inquiries import AskWhy
from elf.job.messages.log import TreesDecided
from elf.job.spec import JobSpec
from elf.security.principals import Principal
from elf.wire.base import Answer
from elf.wire.clients import Call, Cancel, Execute, Failed, KeepAlive, Published, Reply, WindowResult
from elf.wire.heard import Heard

LOG_MS = 2_000
"""How long our own copy of the catalog log may take to come so far as somebody else's has."""
RENEW_MS = 2_000
LEASED_MS = 4_000
"""A reader to whom windows come all the time renews its lease so often, and asks for none."""
CLIENT_SILENCE_MS = 10_000
WHY_MS = 5_000
"""A client to whom nothing came for so long is told why."""
WATCHING = ("status", "tap")
"""Calls that who looks on asks again and again, and for which this agent alone does a little; all others are
statements to a quota: of ``fleet`` each asks all agents."""
BETWEEN_MS_MAX = 60_000
"""So much longer at most, where windows are to come less often."""

Step = ToAddress | ToKey | Until | Effect


@dataclass
class _Running:
    """A procedure and the answers that it waits for, by request id; or ``until`` our log says something, or
    until the work of ``offload`` is done. ``asked``: the request that began it, which is told to the audit
    when it ends; ``what`` it is, if nobody asked for it."""

    client: str
    request: int
    procedure: Procedure
    windows: int | None
    asked: Execute | Call | None = None
    waiting: dict[int, Answer | None] = field(default_factory=dict)
    until: Until | None = None
    offload: Offload | None = None
    deadline_ms: int = 0
    what: str = ""


@dataclass
class _Reader:
    """A client that reads the windows of a job. ``drops``: the job is its own one-shot SELECT. ``ended``: the
    result that none follows has come, perhaps before others.
    """

    client: str
    request: int
    spec: JobSpec
    left: int | None
    drops: bool
    heard_ms: int
    renewed_ms: int
    heard: Heard
    told_ms: int = 0
    then: Procedure | None = None
    leased_ms: int = 0
    ended: bool = False
    why_ms: int = WHY_MS
    """So long nothing may come before it is told why: more when windows have begun to come."""

    def came(self) -> None:
        """A committed window has: the next one is a step away."""
        step_us = min((kind.step_us for kind in self.spec.plan.windows), default=0)
        self.why_ms = WHY_MS + min(step_us // 1_000, BETWEEN_MS_MAX)


class Clients:
    """The clients of one agent. Methods return effects and asks for the node to perform."""

    def __init__(self, address: str, statements: Statements) -> None:
        self.statements = statements
        self._address = address
        self._next_id = 0
        self._running: dict[tuple[str, int], _Running] = {}
        self._by_id: dict[int, _Running] = {}
        self._readers: dict[tuple[str, int], _Reader] = {}
        self._whys: dict[int, tuple[str, int]] = {}

    # -- from clients ----------------------------------------------------------------------------------------

    def heard(
        self,
        client: str,
        message: Execute | Call | KeepAlive | Cancel,
        now_ms: int,
        who: Principal | None = None,
    ) -> list[Step]:
        """``who``: whose connection it came over; None: anybody's, who may do anything."""
        key = (client, message.request)
        match message:
            case KeepAlive():
                if key in self._readers:
                    self._readers[key].heard_ms = now_ms
                return []
            case Cancel():
                return self._close(key)
            case Execute():
                procedure, windows = self._execute(message, now_ms, who), message.windows
            case Call():
                procedure, windows = self._call(message, now_ms, who), None
        running = _Running(client, message.request, procedure, windows, message)
        self._running[key] = running
        return self._step(running, None, now_ms)

    def scale(self, entry: TreesDecided, now_ms: int) -> list[Step]:
        """The catalog log wants other trees of a job that is led here: that is nobody's request."""
        return self._begin("what was decided of a job", self.statements.scaling.decided(entry), now_ms)

    def learn(self, spec: JobSpec, now_ms: int) -> list[Step]:
        """It is time to learn what a job that is led here costs: nobody's request either."""
        return self._begin("learning what a job costs", self.statements.learning.keep(spec, now_ms), now_ms)

    def renew(self, spec: JobSpec, now_ms: int) -> list[Step]:
        """It is time to see whether tables that a job joins have other rows; likewise."""
        what = f"reading anew the rows of a table that job {spec.name} joins"
        return self._begin(what, self.statements.renewed(spec), now_ms)

    def _begin(self, what: str, procedure: Procedure, now_ms: int) -> list[Step]:
        """``what``: for people, where it comes to nothing."""
        self._next_id += 1
        running = _Running("", self._next_id, procedure, None, what=what)
        self._running["", self._next_id] = running
        return self._step(running, None, now_ms)

    def plan_routes(self, now_ms: int) -> list[Step]:
        """As the leader of the catalog log's voters: decide over which regions flows send, if that is due."""
        routing, key = self.statements.routing, ("", 0)
        if key in self._running or not routing.due(now_ms):
            return []
        running = self._running[key] = _Running(*key, routing.decided(now_ms), None, what="a plan of routes")
        return self._step(running, None, now_ms)

    def _execute(self, asked: Execute, now_ms: int, who: Principal | None) -> Procedure:
        self.statements.creators.statement(asked.creator, now_ms)
        return (yield from self.statements.execute(asked, now_ms, who))

    def _call(self, call: Call, now_ms: int, who: Principal | None) -> Procedure:
        if call.verb not in WATCHING:
            self.statements.creators.statement(call.creator, now_ms)
        return (yield from self.statements.call(call, now_ms, who))

    def _step(self, running: _Running, answers: list[Answer] | None, now_ms: int) -> list[Step]:
        """Run a procedure up to its next question, or to its end."""
        try:
            asks = next(running.procedure) if answers is None else running.procedure.send(answers)
        except StopIteration as done:
            return self._finish(running, done.value, now_ms)
        except ElfError as refused:
            told = [Refused(refused.what)] if isinstance(refused, OverQuota) else []
            return [*told, *self._finish(running, Failed(request=running.request, text=str(refused)), now_ms)]
        except msgspec.MsgspecError as error:
            text = f"what another agent answers cannot be read: {error}"
            return self._finish(running, Failed(request=running.request, text=text), now_ms)
        except Exception as bug:  # a procedure changes nothing of the node's: it alone has failed
            text = f"this agent has a bug, its log has more: {bug!r}"
            failed = Failed(request=running.request, text=text)
            return [Faulted(bug), *self._finish(running, failed, now_ms)]
        found: list[Step] = []
        running.waiting = {}
        running.deadline_ms = now_ms
        for ask in asks:
            if isinstance(ask, Until):
                return self._wait(running, ask, now_ms)
            if isinstance(ask, Offload):
                running.offload, running.deadline_ms = ask, now_ms + ask.within_ms
                self._next_id += 1
                self._by_id[self._next_id] = running
                return [ask.effect(self._next_id)]
            if isinstance(ask, Say):
                words = [Send(to or self._address, word) for to, word in ask.words]
                return [*words, *self._step(running, [], now_ms)]
            if isinstance(ask, Tell):
                return [Send(running.client, ask.reply), *self._step(running, [], now_ms)]
            if isinstance(ask, Save):
                return [ask.effect(), *self._step(running, [], now_ms)]
            running.deadline_ms = max(running.deadline_ms, now_ms + ask.within_ms)
            self._next_id += 1
            request = msgspec.structs.replace(ask.request, id=self._next_id, origin=self._address)
            running.waiting[self._next_id] = None
            self._by_id[self._next_id] = running
            found.append(replace(ask, request=request))
        return found if asks else self._step(running, [], now_ms)

    def _wait(self, running: _Running, until: Until, now_ms: int) -> list[Step]:
        if until.seen():
            return self._step(running, [], now_ms)
        running.until, running.deadline_ms = until, now_ms + LOG_MS
        return [until]

    def offloaded(self, done: Offloaded, now_ms: int) -> list[Step]:
        """What is read and planned of a text."""
        running = self._by_id.pop(done.id, None)
        if running is None or running.offload is None:
            return []
        running.offload.value, running.offload.error = done.value, done.error
        return self._go_on(running, now_ms)

    def log_grew(self, now_ms: int) -> list[Step]:
        """Our copy of the catalog log has new entries."""
        seen = [run for run in self._running.values() if run.until is not None and run.until.seen()]
        return [step for running in seen for step in self._go_on(running, now_ms)]

    def _finish(self, running: _Running, end: Reply | Failed | Reading, now_ms: int) -> list[Step]:
        key = (running.client, running.request)
        self._running.pop(key, None)
        found: list[Step] = []
        if running.asked is not None:
            found.extend(audited.request(running.client, running.asked, end))
        if not running.client:
            return [Undone(running.what, end.text)] if isinstance(end, Failed) else []
        if not isinstance(end, Reading):
            return [*found, Send(running.client, end)]
        left = running.windows or end.windows
        reader = _Reader(
            running.client,
            running.request,
            end.spec,
            left,
            end.drops,
            now_ms,
            now_ms,
            Heard(0 if end.drops else end.after),
            now_ms,
            end.then,
            now_ms,
        )
        self._readers[key] = reader
        patience = [Send(running.client, Reply(request=running.request, done=False))] if end.then else []
        return [*found, *patience, self._renewal(reader)]

    def answered(self, answer: Answer, now_ms: int) -> list[Step]:
        asker = self._whys.pop(answer.id, None)
        if asker in self._readers and asker is not None:
            text = answer.body.decode(errors="replace")
            if answer.error:
                spec = self.statements.masters.newest(self._readers[asker].spec)
                text = self.statements.masters.told_by_root(spec.flows[0], answer.error)
            return [Send(asker[0], Reply(request=asker[1], text=text, done=False))]
        running = self._by_id.pop(answer.id, None)
        if running is None or answer.id not in running.waiting:
            return []
        running.waiting[answer.id] = answer
        return self._go_on(running, now_ms) if all(running.waiting.values()) else []

    def _go_on(self, running: _Running, now_ms: int) -> list[Step]:
        answers = [answer or Answer(id=id_, error=SILENT) for id_, answer in running.waiting.items()]
        for id_ in running.waiting:
            self._by_id.pop(id_, None)
        running.until = running.offload = None
        return self._step(running, answers, now_ms)

    def deadline(self) -> int | None:
        waits = [running.deadline_ms for running in self._running.values()]
        readers = self._readers.values()
        waits += [
            min(r.renewed_ms + RENEW_MS, r.leased_ms + LEASED_MS, r.told_ms + r.why_ms) for r in readers
        ]
        return min(waits, default=None)

    def tick(self, now_ms: int) -> list[Step]:
        found: list[Step] = []
        for running in [r for r in self._running.values() if now_ms >= r.deadline_ms]:
            found.extend(self._overdue(running))
            found.extend(self._go_on(running, now_ms))
        for key, reader in list(self._readers.items()):
            if now_ms - reader.heard_ms > CLIENT_SILENCE_MS:
                found.extend(self._close(key))
            elif now_ms - reader.renewed_ms >= RENEW_MS:
                reader.renewed_ms = reader.leased_ms = now_ms
                found.append(self._renewal(reader))
            elif now_ms - reader.leased_ms >= LEASED_MS:
                reader.leased_ms = now_ms
                found.append(self._renewal(reader, lease_only=True))
            if key in self._readers and now_ms - reader.told_ms >= reader.why_ms:
                reader.told_ms = now_ms
                found.extend(self._why(key, reader))
        return found

    def _overdue(self, running: _Running) -> list[Step]:
        """It may wait for no longer: what comes to an ``Offload`` later comes to nobody."""
        if running.offload is None:
            return []
        self._by_id = {id_: one for id_, one in self._by_id.items() if one is not running}
        running.offload.error = UserError(running.offload.overdue)
        return [Refused("planning")]

    def _why(self, key: tuple[str, int], reader: _Reader) -> list[Step]:
        """Ask the root of the job's flow, or of the first of them, why nothing comes; if it was asked before,
        its silence is the answer. Of a paused job there is nothing to ask."""
        spec, found = self.statements.masters.newest(reader.spec), list[Step]()
        if self.statements.masters.is_paused(spec):
            text = f"the job is paused; RESUME JOB {spec.name} has it go on"
            return [Send(key[0], Reply(request=key[1], text=text, done=False))]
        self._next_id += 1
        flow = spec.flows[0]
        if key in self._whys.values():
            text = self.statements.masters.told_by_root(flow, SILENT)
            found.append(Send(key[0], Reply(request=key[1], text=text, done=False)))
        self._whys = {id_: asker for id_, asker in self._whys.items() if asker != key}
        self._whys[self._next_id] = key
        return [*found, Send(flow.leader, AskWhy(id=self._next_id, origin=self._address, uid=flow.uid))]

    # -- readers ---------------------------------------------------------------------------------------------

    def _renewal(self, reader: _Reader, *, lease_only: bool = False) -> Send:
        """``lease_only``: what we have not seen may be under way to us."""
        after = None if lease_only else reader.heard.upto
        request = SubscribeJob(id=0, origin=self._address, uid=reader.spec.uid, after=after)
        return Send(self.statements.masters.leader(reader.spec), request)

    def moved(self, uid: str, now_ms: int) -> list[Step]:
        """A job has another job group: subscribe there at once."""
        found: list[Step] = []
        for reader in self._readers.values():
            if reader.spec.uid == uid:
                reader.renewed_ms = reader.leased_ms = now_ms
                found.append(self._renewal(reader))
        return found

    def _close(self, key: tuple[str, int]) -> list[Step]:
        self._running.pop(key, None)
        reader = self._readers.pop(key, None)
        if reader is None or not reader.drops:
            return []
        drop = DropJob(id=0, origin=self._address, uid=reader.spec.uid)
        return [Send(self.statements.masters.leader(reader.spec), drop)]

    def published(self, result: WindowResult, now_ms: int) -> list[Step]:
        """Windows of a job that some of our clients read."""
        found: list[Step] = []
        for key, reader in list(self._readers.items()):
            if reader.spec.uid != result.job:
                continue
            lacked = reader.heard.lacks
            if not reader.heard.take(result.number, result.before):
                continue
            reader.told_ms = now_ms
            if reader.then is None:
                found.append(Send(reader.client, Published(request=reader.request, result=result)))
            if result.early:
                continue
            reader.came()
            if not reader.heard.lacks:
                reader.renewed_ms = now_ms
            elif not lacked:  # what came before it got lost on its way
                reader.renewed_ms = now_ms
                found.append(self._renewal(reader))
            if reader.left is not None:
                reader.left -= 1
            reader.ended |= result.final
            ended = reader.left == 0 or (reader.ended and not reader.heard.lacks)
            if ended and reader.then is not None:
                del self._readers[key]
                running = _Running(reader.client, reader.request, reader.then, None)
                self._running[key] = running
                found.extend(self._step(running, None, now_ms))
            elif ended:
                found.append(Send(reader.client, Reply(request=reader.request)))
                found.extend(self._close(key))
        return found

    def job_failed(self, failure: JobFailed) -> list[Step]:
        """Nothing more will come of this job's windows."""
        found: list[Step] = []
        for key, reader in list(self._readers.items()):
            if reader.spec.uid == failure.job:
                found.append(Send(reader.client, Failed(request=reader.request, text=failure.text)))
                found.extend(self._close(key))
        return found

    def job_ended(self, uid: str) -> list[Step]:
        found: list[Step] = []
        for key, reader in list(self._readers.items()):
            if reader.spec.uid == uid:
                del self._readers[key]
                found.append(Send(reader.client, Reply(request=reader.request, text="the job was dropped")))
        return found
