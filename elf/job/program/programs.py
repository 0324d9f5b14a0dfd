"""The jobs written in Python on one node: which run according to the catalog log, calls in, effects out.

    (log) ──▶ starting ──▶ running ◀──▶ failing ──▶ failed        (the job's own trouble, on this agent alone)

A job's tree is at its app id and has no job group: the node nearest to it is the root, which is the job's
master as long as it lives. Submissions and drops are routed there, since one node lets one request for a name
through; the entry of the catalog log decides. What a job sends is counted against a rate, and dropped beyond
it. This module never runs a line of a user's code: ``elf.job.program.port`` says what does. It trusts nothing
that comes from there: a job sends to agents, and replies to those who asked it; what is for others it drops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

import overlay as ring
from elf.job.catalog.log import CatalogLog
from elf.job.commands import SetTaps
from elf.job.effects import Effect, Multicast, Send, Work
from elf.job.program import calls
from elf.job.program import messages as note
from elf.job.program.asking import Asking, of_client, reply, token_of
from elf.job.program.calls import JobEffect, Place
from elf.job.program.port import (
    AnswerProgram,
    CallProgram,
    ProgramActed,
    ProgramAsked,
    ProgramEffect,
    ProgramEvent,
    ProgramLost,
    ProgramState,
    StartProgram,
    State,
    StopProgram,
)
from elf.job.program.spec import ProgramSpec, Tapped
from elf.job.program.submitting import Submitting
from elf.job.spec import app_id
from elf.wire.base import Answer, Message

SENDS_A_SEC: Final = 500
SENDS_MAX: Final = 2 * SENDS_A_SEC
BYTES_A_SEC: Final = 16 << 20
"""How much a job on one agent may send, in bytes a second; ``SENDS_MAX`` and as many bytes again at once."""
TROUBLE_MS: Final = 5_000
"""How often an agent tells the master that a job does not run well; the master forgets after three times
that."""
MULTICAST_BYTES_MAX: Final = 1 << 20
LONG_AGO_MS: Final = -(1 << 62)
REMEMBERED_MAX: Final = 1_000
"""Queries without a reply, and agents that have written, that are remembered of a job."""


class ToApp(msgspec.Struct, frozen=True):
    """Route a message to the node nearest to an app id."""

    app: bytes
    message: Message


Step = Effect | ring.Effect | ProgramEffect | ToApp


@dataclass
class _Running:
    """A job here. ``topics``: the trees that it takes part in, its own first. ``told``: the trouble last
    reported to the master, at ``told_ms``. ``flooded_ms``: when it last sent more than it may."""

    spec: ProgramSpec
    topics: tuple[bytes, ...]
    state: State = "starting"
    reason: str = ""
    timer_ms: int | None = None
    sends: float = SENDS_MAX
    bytes: float = BYTES_A_SEC
    filled_ms: int = 0
    told: tuple[str, str] = ("", "")
    told_ms: int = LONG_AGO_MS
    flooded_ms: int = LONG_AGO_MS
    queries: dict[str, None] = field(default_factory=dict)
    """Tokens of queries that were given to it and have no reply yet."""
    wrote: dict[str, None] = field(default_factory=dict)
    """Addresses of agents that have sent to it."""
    cpu_us: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    troubles: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    """At the master: state, reason, when, by agent."""

    def shown(self, now_ms: int) -> tuple[State, str]:
        """State and reason, for people: a flood is shown for a while."""
        if self.state == "running" and now_ms - self.flooded_ms < TROUBLE_MS:
            return "failing", "it floods: messages beyond its rate are dropped"
        return self.state, self.reason


class Programs:
    """See the module's docstring. Methods return effects for the node to perform."""

    def __init__(
        self, address: str, name: str, streams: frozenset[str], log: CatalogLog, overlay: ring.Overlay
    ) -> None:
        self._address = address
        self._name = name
        self._streams = streams
        self._log = log
        self._overlay = overlay
        self._running: dict[str, _Running] = {}
        self._topics: Counter[bytes] = Counter()
        self._asking = Asking(address)
        self.submitting = Submitting(log)
        self.counts: Counter[str] = Counter()
        """What was lost, by kind, for all jobs there ever were."""

    # -- what the log says -----------------------------------------------------------------------------------

    def begin(self, spec: ProgramSpec, now_ms: int) -> list[Step]:
        """Run a job of the log; do nothing when it runs, or is dropped."""
        if spec.uid in self._running or self._log.program(spec.uid) is None:
            return []
        sql = {app_id(job.name, job.creator) for job in self._log.jobs()}  # whose trees we do not join
        topics = tuple(dict.fromkeys((spec.app, *(app for app in spec.apps if app not in sql))))
        running = _Running(spec, topics, filled_ms=now_ms)
        self._running[spec.uid] = running
        found: list[Step] = []
        for topic in running.topics:
            self._topics[topic] += 1
            if self._topics[topic] == 1:
                found.extend(self._overlay.subscribe(topic, now_ms))
        return [*found, StartProgram(spec, self._place(spec, now_ms))]

    def end(self, uid: str, now_ms: int) -> list[Step]:
        """The log has dropped it."""
        running = self._running.pop(uid, None)
        if running is None:
            return []
        spec = running.spec
        found: list[Step] = [StopProgram(uid), *self._taps(spec, ())]
        for topic in running.topics:
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
                found.extend(self._overlay.unsubscribe(topic, now_ms))
        self._asking.forget(uid)
        return found

    def logged(self, uid: str) -> list[Step]:
        """The log has an entry of this job: answer those who wait for it."""
        return list(self.submitting.logged(uid, self._address))

    def _taps(self, spec: ProgramSpec, taps: Sequence[object]) -> list[Step]:
        """Make the stream tasks of its streams compute what it wants, or (no ``taps``) stop."""
        streams = {tap.fragment.stream for tap in spec.taps} & self._streams
        return [
            Work(
                stream, SetTaps(spec.uid, tuple(t for t in spec.taps if taps and t.fragment.stream == stream))
            )
            for stream in sorted(streams)
        ]

    def _place(self, spec: ProgramSpec, now_ms: int) -> Place:
        overlay, app = self._overlay, spec.app
        parent = overlay.parent(app) or ""
        return Place(self._address, now_ms, overlay.is_root(app), parent, overlay.children(app))

    def _call(self, running: _Running, event: calls.Event, now_ms: int, payload: bytes = b"") -> list[Step]:
        if running.state == "failed":
            return []
        return [CallProgram(running.spec.uid, event, self._place(running.spec, now_ms), payload)]

    # -- what the job wants ----------------------------------------------------------------------------------

    def said(self, event: ProgramEvent, now_ms: int) -> list[Step]:
        """A job here has acted."""
        running = self._running.get(event.uid)
        if running is None:
            return []
        match event:
            case ProgramActed():
                running.cpu_us += event.cpu_us
                return [step for effect in event.effects for step in self._perform(running, effect, now_ms)]
            case ProgramAsked():
                return self._ask(running, event, now_ms)
            case ProgramState():
                return self._changed(running, event, now_ms)
            case ProgramLost():
                running.counts["calls_dropped"] += event.calls
                self.counts["calls_dropped"] += event.calls
                return []

    def spent(self) -> dict[str, int]:
        """CPU time of the jobs here so far, in µs, by uid."""
        return {uid: running.cpu_us for uid, running in self._running.items()}

    def _perform(self, running: _Running, effect: JobEffect, now_ms: int) -> list[Step]:
        spec = running.spec
        if not self._within_rate(running, len(effect.value), now_ms):
            return self._flooded(running, effect, now_ms)
        match effect:
            case calls.SendTo() if not self._is_agent(running, effect.to):
                self._drop(running, "to no agent")
            case calls.SendTo():
                return [Send(effect.to, note.Note(uid=spec.uid, value=effect.value))]
            case calls.MulticastOut() if len(effect.value) > MULTICAST_BYTES_MAX:
                self._drop(running, "too large to multicast")
            case calls.MulticastOut() if not self._overlay.is_root(spec.app):
                self._drop(running, "not the master any more")
            case calls.MulticastOut():
                return [Multicast(spec.app, note.Told(uid=spec.uid, value=effect.value))]
            case calls.RouteOut():
                routed = note.Routed(
                    app=effect.app, source=spec.app, value=effect.value, origin=self._address
                )
                return [ToApp(routed.app, routed)]
            case calls.ReplyOut() if effect.query not in running.queries:
                self._drop(running, "replies to nobody")
            case calls.ReplyOut():
                del running.queries[effect.query]
                return [reply(effect.query, effect.value, effect.error)]
        return []

    def _is_agent(self, running: _Running, address: str) -> bool:
        """Whether a job may send there: nothing else hears what it has to say."""
        if address in running.wrote or self._log.there(address):
            return True
        return address == self._address or any(peer.address == address for peer in self._overlay.peers())

    def _within_rate(self, running: _Running, size: int, now_ms: int) -> bool:
        passed = max(0, now_ms - running.filled_ms) / 1000
        running.filled_ms = now_ms
        running.sends = min(SENDS_MAX, running.sends + passed * SENDS_A_SEC)
        running.bytes = min(BYTES_A_SEC, running.bytes + passed * BYTES_A_SEC)
        if running.sends < 1 or running.bytes < min(size, BYTES_A_SEC):
            return False
        running.sends -= 1
        running.bytes -= size
        return True

    def _drop(self, running: _Running, why: str) -> None:
        running.counts[f"messages dropped: {why}"] += 1
        self.counts["messages_dropped"] += 1

    def _flooded(self, running: _Running, effect: JobEffect | None, now_ms: int) -> list[Step]:
        """The job sends more than it may: drop this message."""
        self._drop(running, "flooding")
        running.flooded_ms = now_ms
        found = [] if running.told[0] else self._tell(running, now_ms)
        if isinstance(effect, calls.ReplyOut) and effect.query in running.queries:
            del running.queries[effect.query]
            found.append(reply(effect.query, error=f"{running.spec.name} sends too much"))
        return found

    def _changed(self, running: _Running, event: ProgramState, now_ms: int) -> list[Step]:
        """The runner tells how the job is doing."""
        before = running.state
        running.state, running.reason = event.state, event.reason
        found: list[Step] = []
        if event.query:
            running.queries.pop(event.query, None)
            found.append(reply(event.query, error=f"{running.spec.name}: {event.reason}"))
        if event.state == "running" and before != "running":
            if running.spec.every_ms and running.timer_ms is None:
                running.timer_ms = now_ms + running.spec.every_ms
            if before == "starting":
                found.extend(self._taps(running.spec, running.spec.taps))
        if event.state in ("failing", "failed"):
            running.counts["failures"] += 1
        if event.state == "failed":
            running.timer_ms = None
            found.extend(self._taps(running.spec, ()))
        if event.state != before:
            found.extend(self._tell(running, now_ms))
        return found

    def _tell(self, running: _Running, now_ms: int) -> list[Step]:
        """Tell the master of trouble, and of its end."""
        state, reason = running.shown(now_ms)
        trouble = (state, reason) if state in ("failing", "failed") else ("", "")
        if not trouble[0] and not running.told[0]:
            return []
        running.told, running.told_ms = trouble, now_ms
        word = note.ProgramTrouble(
            uid=running.spec.uid, agent=self._name, state=trouble[0], reason=trouble[1]
        )
        return [ToApp(running.spec.app, word)]

    # -- queries ---------------------------------------------------------------------------------------------

    def _ask(self, running: _Running, asked: ProgramAsked, now_ms: int) -> list[Step]:
        if not self._within_rate(running, len(asked.value), now_ms):
            refusal = AnswerProgram(asked.uid, asked.number, error="refused: this job sends too much")
            return [*self._flooded(running, None, now_ms), refusal]
        step = self._asking.ask(asked, running.spec.app, now_ms)
        return [ToApp(step.app, step) if isinstance(step, note.Routed) else step]

    def _routed(self, routed: note.Routed, now_ms: int) -> list[Step]:
        """At the node nearest to an app id: a message to the master."""
        running = next((r for r in self._running.values() if r.spec.app == routed.app), None)
        token = token_of(routed)
        if running is not None and running.state != "failed":
            if token:
                _remember(running.queries, token)
            event = calls.Delivered(routed.source, routed.value, routed.path, token)
            return self._call(running, event, now_ms)
        if not token:
            self.counts["messages_dropped"] += 1
            return []
        if running is not None:
            return [reply(token, error=f"{running.spec.name} has failed at its master: {running.reason}")]
        sql = next((s for s in self._log.jobs() if app_id(s.name, s.creator) == routed.app), None)
        if sql is not None:
            return [self._asking.inspect(sql, token, now_ms)]
        return [reply(token, error="there is no job with that app id")]

    def awaits(self, id_: int) -> bool:
        """Whether that answer is for this node."""
        return self._asking.awaits(id_)

    def answered(self, answer: Answer) -> list[Step]:
        return [self._asking.answered(answer)]

    # -- messages --------------------------------------------------------------------------------------------

    def arrived(self, sender: str, message: Message, now_ms: int, voter: str | None) -> list[Step]:
        """A message of ``elf.job.program.messages``."""
        match message:
            case note.Note():
                if message.uid in self._running:
                    _remember(self._running[message.uid].wrote, sender)
                return self._for(message.uid, calls.Sent(sender, message.value), now_ms)
            case note.Told():
                app = bytes.fromhex(message.uid.partition(".")[0])
                own = self._for(message.uid, calls.Cast(app, message.value), now_ms)
                return [*own, *self._listeners(app, calls.Cast(app, message.value), now_ms)]
            case note.Routed():
                return self._routed(message, now_ms)
            case note.QueryProgram():
                return self._routed(of_client(message), now_ms)
            case note.Returned():
                return list(self._asking.returned(message))
            case note.ProgramTrouble():
                self._heard(message, now_ms)
                return []
            case note.SubmitProgram():
                return list(self.submitting.submitted(message, now_ms, voter))
            case note.DropProgram():
                return list(self.submitting.asked_to_drop(message, now_ms, voter))
            case note.InspectProgram():
                body = msgspec.msgpack.encode(self._facts(message.uid, now_ms))
                return [Send(message.origin, Answer(id=message.id, body=body))]
        return []

    def _for(self, uid: str, event: calls.Event, now_ms: int) -> list[Step]:
        running = self._running.get(uid)
        return [] if running is None else self._call(running, event, now_ms)

    def _listeners(self, app: bytes, event: calls.Event, now_ms: int) -> list[Step]:
        """Jobs that subscribed to another application's multicasts."""
        return [
            step
            for running in self._running.values()
            if app in running.spec.apps
            for step in self._call(running, event, now_ms)
        ]

    def missed(self, topic: bytes, count: int, now_ms: int) -> list[Step]:
        """Multicasts of an application are lost."""
        event = calls.Missing(topic, count)
        own = [r for r in self._running.values() if r.spec.app == topic]
        found = [step for running in own for step in self._call(running, event, now_ms)]
        return [*found, *self._listeners(topic, event, now_ms)]

    def tapped(self, tapped: Iterable[Tapped], now_ms: int) -> list[Step]:
        """A chunk of ours has rows or groups for a tap."""
        found: list[Step] = []
        for tap in tapped:
            running = self._running.get(tap.uid)
            if running is not None:
                found.extend(self._call(running, calls.Rows(tap.name), now_ms, tap.payload))
        return found

    def _heard(self, trouble: note.ProgramTrouble, now_ms: int) -> None:
        running = self._running.get(trouble.uid)
        if running is None:
            return
        if trouble.state:
            running.troubles[trouble.agent] = (trouble.state, trouble.reason, now_ms)
        else:
            running.troubles.pop(trouble.agent, None)

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        waits = [at for part in (self._asking, self.submitting) if (at := part.deadline()) is not None]
        for running in self._running.values():
            if running.timer_ms is not None:
                waits.append(running.timer_ms)
            if running.told[0]:
                waits.append(running.told_ms + TROUBLE_MS)
        return min(waits, default=None)

    def tick(self, now_ms: int, voter: str | None) -> list[Step]:
        found: list[Step] = [*self.submitting.tick(now_ms, voter), *self._asking.tick(now_ms)]
        for running in self._running.values():
            every = running.spec.every_ms
            if running.timer_ms is not None and now_ms >= running.timer_ms:
                running.timer_ms += every * (1 + (now_ms - running.timer_ms) // every)
                found.extend(self._call(running, calls.Timer(), now_ms))
            if running.told[0] and now_ms - running.told_ms >= TROUBLE_MS:
                found.extend(self._tell(running, now_ms))
        return found

    # -- what it shows ---------------------------------------------------------------------------------------

    def _facts(self, uid: str, now_ms: int) -> note.ProgramStatus:
        running = self._running.get(uid)
        if running is None:
            return note.ProgramStatus(self._address, "starting", "", (), {})
        lately = now_ms - 3 * TROUBLE_MS
        told = [(a, s, why) for a, (s, why, at) in sorted(running.troubles.items()) if at >= lately]
        state, reason = running.shown(now_ms)
        return note.ProgramStatus(self._address, state, reason, tuple(told), dict(running.counts))

    def shown(self, now_ms: int) -> dict[str, tuple[State, str]]:
        """Jobs here: state and reason by uid."""
        return {uid: running.shown(now_ms) for uid, running in self._running.items()}


def _remember(known: dict[str, None], name: str) -> None:
    """The last ones."""
    known.pop(name, None)
    known[name] = None
    if len(known) > REMEMBERED_MAX:
        del known[next(iter(known))]
