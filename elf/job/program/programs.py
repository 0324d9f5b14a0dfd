"""The jobs written in Python on one node: which run according to the catalog log, calls in, effects out.

    (log) ──▶ starting ──▶ running ◀──▶ failing ──▶ failed        (the job's own trouble, on this agent alone)

A job's tree is at its app id, and its root is the leader of the job group, which runs the master beside the
job of its own agent (``elf.job.program.masters``). A job may have several trees, each with a key, a job group
and a master of its own; requests go to the first. Submissions and drops are routed to the app id, since one
node lets one request for a name through; the entry of the catalog log decides. What a job sends is counted
against a rate, and dropped beyond it. This module never runs a line of a user's code:
``elf.job.program.port`` says what does. It trusts nothing that comes from there: a job sends to agents, and
replies to those who asked it; what is for others it drops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

import overlay as ring
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Identity
from elf.job.commands import SetTaps
from elf.job.effects import ForgetProgram, SaveMaster, Send, Work
from elf.job.program import calls
from elf.job.program import messages as note
from elf.job.program.asking import Asking, of_client, reply, token_of
from elf.job.program.calls import JobEffect
from elf.job.program.early import Early
from elf.job.program.feedback import Feedback, Given
from elf.job.program.gathering import Gathered, Gathering
from elf.job.program.keeping import Checkpoint, Keeping, read
from elf.job.program.keyed import asks_of
from elf.job.program.masters import Led, Masters
from elf.job.program.outgoing import Outgoing, Step
from elf.job.program.port import (
    AnswerProgram,
    ProgramActed,
    ProgramAsked,
    ProgramEvent,
    ProgramLost,
    ProgramSaved,
    ProgramState,
    StartProgram,
    State,
    StopProgram,
)
from elf.job.program.running import Running, remember
from elf.job.program.seats import MASTER, OWN, key_in, key_of, seat_of, tree_of
from elf.job.program.spec import ProgramSpec, Tapped
from elf.job.program.submitting import Submitting
from elf.job.spec import app_id, job_of, place_of
from elf.wire.base import Answer, Message

TROUBLE_MS: Final = 5_000
"""How often an agent tells the master that a job does not run well; the master forgets after three times
that."""
AGENT_MAX: Final = 255
GROUPLESS: Final = "an earlier release has sent it: submit it again with --replace"


class Programs:
    """See the module's docstring. Methods return effects for the node to perform."""

    def __init__(
        self,
        me: Identity,
        streams: frozenset[str],
        log: CatalogLog,
        overlay: ring.Overlay,
        kept: Mapping[str, Checkpoint] = {},
    ) -> None:
        """``kept``: the checkpoints of an earlier life, by uid."""
        self._address = me.address
        self._name = me.name
        self._kept = dict(kept)
        self._early = Early()
        self._streams = streams
        self._log = log
        self._overlay = overlay
        self._running: dict[str, Running] = {}
        """By key: jobs of this agent, and masters."""
        self.masters = Masters(me.address, log)
        self._on_ring = False
        self._topics: Counter[bytes] = Counter()
        self._asking = Asking(me.address)
        self.submitting = Submitting(log)
        self.counts: Counter[str] = Counter()
        """What was lost, by kind, for all jobs there ever were."""
        self._gathering = Gathering(me.address, self._asking)
        self._feedback = Feedback(self._topic_of, overlay.parent, log.leader, self._asks_of)
        self._outgoing = Outgoing(me, streams, log, overlay, self._feedback, self.counts)

    # -- what the log says -----------------------------------------------------------------------------------

    def begin(self, spec: ProgramSpec, now_ms: int) -> list[Step]:
        """Run a job of the log; do nothing when it runs, or is dropped."""
        if spec.uid in self._running or self._log.program(spec.uid) is None:
            return self.end(spec.uid, now_ms) if self._log.is_dropped(spec.uid) else []
        if not spec.master:
            self._running[spec.uid] = Running(
                spec, (), Keeping(None, now_ms), state="failed", reason=GROUPLESS
            )
            return []
        sql = {app_id(job.name, job.creator) for job in self._log.jobs()}  # whose trees we do not join
        topics = tuple(dict.fromkeys((*spec.topics, *(app for app in spec.apps if app not in sql))))
        keeping = Keeping(self._kept.pop(spec.uid, None), now_ms)
        running = Running(spec, topics, keeping, filled_ms=now_ms)
        self._running[spec.uid] = running
        found: list[Step] = []
        for topic in running.topics:
            self._topics[topic] += 1
            if self._topics[topic] == 1:
                found.extend(self._overlay.subscribe(topic, now_ms, host=self._hosts(topic)))
        for topic in spec.topics:  # others may have listened before
            found.extend(self._overlay.rehost(topic, self._hosts(topic) or "", now_ms))
        found.append(StartProgram(spec, self._place(running, now_ms), keeping.state))
        for stream, tapped in self._early.take(spec.uid):
            found.extend(self.tapped(stream, [tapped], now_ms))
        return [*found, *self._begin_masters(now_ms)]

    def end(self, uid: str, now_ms: int) -> list[Step]:
        """The log has dropped it."""
        running, early = self._running.pop(uid, None), self._early.take(uid)
        if running is None and (early or uid in self._kept):
            self._kept.pop(uid, None)
            over = [Work(stream, SetTaps(uid, ())) for stream in sorted(self._streams)]
            return [*over, ForgetProgram(uid)]
        if running is None:
            return []
        found = [step for group in running.spec.groups for step in self.release(group, now_ms)]
        found.append(StopProgram(uid))
        found += [*running.taps(self._streams, wanted=False), ForgetProgram(uid)]
        for topic in running.topics:
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
                found.extend(self._overlay.unsubscribe(topic, now_ms))
        self._asking.forget(uid)
        return found

    def began(self, now_ms: int) -> list[Step]:
        """This agent is on the ring, newly or again: run the jobs of the log, and forget those that are
        over."""
        self._on_ring = True
        masters = [running for running in self._running.values() if running.seat]
        hosted = [step for one in masters for step in self._overlay.host(one.topic, now_ms)]
        over = [uid for uid in (*self._kept, *self._early) if self._log.is_dropped(uid)]
        found = [step for uid in dict.fromkeys(over) for step in self.end(uid, now_ms)]
        begun = [step for spec in self._log.programs() for step in self.begin(spec, now_ms)]
        return [*hosted, *found, *begun, *self._begin_masters(now_ms)]

    def logged(self, uid: str) -> list[Step]:
        """The log has an entry of this job: answer those who wait for it."""
        return list(self.submitting.logged(uid, self._address))

    # -- masters ---------------------------------------------------------------------------------------------

    def take_up(
        self,
        spec: ProgramSpec,
        group: str,
        term: int,
        last: tuple[int, bytes],
        now_ms: int,
        voter: str | None,
    ) -> list[Step]:
        """We lead a job group of a job, and its ``last`` checkpoint is that (number, record)."""
        number, record = last
        checkpoint = read(record) if number else None
        self.masters.take_up(Led(spec, term, number, checkpoint, place_of(group)))
        return [*self._begin_masters(now_ms), *self.masters.tick(now_ms, voter)]

    def release(self, group: str, now_ms: int) -> list[Step]:
        """We do not lead it any more: another agent goes on from what is committed."""
        self.masters.release(group)
        running = self._running.pop(key_in(group), None)
        if running is None:
            return []
        self._asking.forget(running.key)
        leader = self._log.leader(group) or ""
        there = leader if leader != self._address else ""
        return [StopProgram(running.key), *self._overlay.unhost(running.topic, now_ms, there)]

    def moved(self, group: str, now_ms: int) -> list[Step]:
        """A master is elsewhere now: hang below it in its tree."""
        spec = self._log.program(job_of(group))
        self.masters.hurry()
        if spec is None or key_in(group) in self._running:
            return []
        topic = spec.topics[place_of(group)]
        return list(self._overlay.rehost(topic, self._hosts(topic) or "", now_ms))

    def planted(self, topic: bytes, now_ms: int) -> list[Step]:
        """We are in a tree in another way, or newly: see that it knows where its root is."""
        host = self._hosts(topic) if topic in self._topics else None
        return list(self._overlay.rehost(topic, host, now_ms)) if host else []

    def _hosts(self, topic: bytes) -> str | None:
        """Where the root of an application's tree is."""
        of = (spec.groups[spec.topics.index(topic)] for spec in self._log.programs() if topic in spec.topics)
        group = next(of, None)
        return None if group is None else self._log.leader(group)

    def _topic_of(self, group: str) -> bytes:
        """The tree of a job group's master."""
        spec, place = self._log.program(job_of(group)), place_of(group)
        if place and spec is not None and place < len(spec.topics):
            return spec.topics[place]
        return bytes.fromhex(group.partition(".")[0])

    def _asks_of(self, group: str) -> frozenset[bytes]:
        """The keys of which a job wants feedback here."""
        running = self._running.get(job_of(group))
        return frozenset() if running is None else asks_of(running.keeping.asks)

    def _begin_masters(self, now_ms: int) -> list[Step]:
        found: list[Step] = []
        for led in self.masters.begin() if self._on_ring else ():
            spec, keeping = led.spec, Keeping(led.checkpoint, now_ms, led.number)
            running = Running(spec, (), keeping, seat_of(led.tree), led.term, filled_ms=now_ms)
            self._running[running.key] = running
            found.extend(self._overlay.host(running.topic, now_ms))
            found.append(StartProgram(spec, self._place(running, now_ms), keeping.state, running.seat))
        return found

    def committed(self, save: SaveMaster, now_ms: int) -> list[Step]:
        """A job group has committed a checkpoint of its master."""
        running = self._running.get(key_in(save.uid))
        if running is None or running.term != save.term:
            return []
        return self._outgoing.saved(running, save.number, now_ms)

    def _place(self, running: Running, now_ms: int, tree: int = 0) -> calls.Place:
        roots = self._outgoing.roots(running.spec)
        return running.place(self._address, self._overlay, now_ms, tree if roots else 0, roots)

    def _call(
        self, running: Running, event: calls.Event, now_ms: int, payload: bytes = b"", tree: int = 0
    ) -> list[Step]:
        return [*running.call(event, self._place(running, now_ms, tree), payload)]

    # -- what the job wants ----------------------------------------------------------------------------------

    def said(self, event: ProgramEvent, now_ms: int) -> list[Step]:
        """A job here has acted."""
        running = self._running.get(event.uid)
        if running is None:
            return []
        match event:
            case ProgramActed():
                running.cpu_us += event.cpu_us
                return self._acted(running, event, now_ms)
            case ProgramAsked():
                return self._ask(running, event, now_ms)
            case ProgramState():
                return self._changed(running, event, now_ms)
            case ProgramLost():
                running.keeping.lost(event.numbers)
                running.counts["calls_dropped"] += len(event.numbers)
                self.counts["calls_dropped"] += len(event.numbers)
                return []
            case ProgramSaved():
                return self._outgoing.saved(running, event.number, now_ms)

    def spent(self) -> dict[str, int]:
        """CPU time of the jobs here so far, in µs, by uid."""
        found = Counter[str]()
        for running in self._running.values():
            found[running.spec.uid] += running.cpu_us
        return dict(found)

    # -- what the job has asked for --------------------------------------------------------------------------

    def _acted(self, running: Running, acted: ProgramActed, now_ms: int) -> list[Step]:
        if acted.state is not None:
            running.keeping.acted(acted.number, acted.state)
        found = [step for effect in acted.effects for step in self._perform(running, effect, now_ms)]
        return [*found, *self._outgoing.save(running, now_ms)]

    def _perform(self, running: Running, effect: JobEffect, now_ms: int) -> list[Step]:
        if not running.within_rate(len(effect.value), now_ms):
            return self._flooded(running, effect, now_ms)
        match effect:
            case calls.SendTo() | calls.RemarkTo() if why := self._outgoing.refusal(running, effect):
                self._outgoing.drop(running, why)
            case calls.RemarkTo():
                return [*self._outgoing.remark(running, effect)]
            case calls.RemarkOut():
                return self._outgoing.down(running, effect, now_ms)
            case calls.SendTo() | calls.MulticastOut() | calls.FeedOut() | calls.AskFor() | calls.RouteOut():
                if isinstance(effect, calls.SendTo):
                    effect = replace(effect, to=self._outgoing.receiver(running, effect.to, effect.tree))
                if not running.keeping.sends(effect, now_ms):
                    self._outgoing.drop(running, "too many wait for agents that are away")
                    running.clogged_ms = now_ms
            case calls.ReplyOut() if effect.query not in running.queries:
                self._outgoing.drop(running, "replies to nobody")
            case calls.ReplyOut():
                del running.queries[effect.query]
                return [reply(effect.query, effect.value, effect.error)]
        return []

    def _flooded(self, running: Running, effect: JobEffect | None, now_ms: int) -> list[Step]:
        """The job sends more than it may: drop this message."""
        self._outgoing.drop(running, "flooding")
        running.flooded_ms = now_ms
        found = [] if running.told[0] else self._tell(running, now_ms)
        if isinstance(effect, calls.ReplyOut) and effect.query in running.queries:
            del running.queries[effect.query]
            found.append(reply(effect.query, error=f"{running.spec.name} sends too much"))
        return found

    def _changed(self, running: Running, event: ProgramState, now_ms: int) -> list[Step]:
        """The runner tells how the job is doing."""
        before = running.state
        running.state, running.reason = event.state, event.reason
        found: list[Step] = []
        if event.query:
            running.queries.pop(event.query, None)
            found.append(reply(event.query, error=f"{running.spec.name}: {event.reason}"))
        if event.state == "running" and before != "running":
            if running.has_timer and running.timer_ms is None:
                running.timer_ms = now_ms + running.spec.every_ms
            if before == "starting":
                found.extend(running.taps(self._streams))
        if event.state in ("failing", "failed"):
            running.counts["failures"] += 1
        if event.state == "failed":
            running.timer_ms = None
            found.extend(running.taps(self._streams, wanted=False))
        if event.state != before:
            found.extend(self._tell(running, now_ms))
        return found

    def _tell(self, running: Running, now_ms: int) -> list[Step]:
        """Tell the first master of trouble, and of its end. Its own it knows."""
        if running.seat == MASTER:
            return []
        state, reason = running.shown(now_ms)
        trouble = (state, reason) if state in ("failing", "failed") else ("", "")
        if not trouble[0] and not running.told[0]:
            return []
        running.told, running.told_ms = trouble, now_ms
        tree = f" (tree {running.spec.trees[tree_of(running.seat)]})" if running.seat else ""
        word = note.ProgramTrouble(
            uid=running.spec.uid, agent=(self._name + tree)[-AGENT_MAX:], state=trouble[0], reason=trouble[1]
        )
        return [self._outgoing.to_master(running.spec, word)]

    # -- queries ---------------------------------------------------------------------------------------------

    def _ask(self, running: Running, asked: ProgramAsked, now_ms: int) -> list[Step]:
        if not running.within_rate(len(asked.value), now_ms):
            refusal = AnswerProgram(asked.uid, asked.number, error="refused: this job sends too much")
            return [*self._flooded(running, None, now_ms), refusal]
        step = self._asking.ask(asked, running.spec.app, now_ms)
        return [self._outgoing.to_app(step.app, step) if isinstance(step, note.Routed) else step]

    def _routed(self, routed: note.Routed, now_ms: int) -> list[Step]:
        """Where the master is, or at the node nearest to an app id: a message to the master."""
        of = [r for r in self._running.values() if r.spec.app == routed.app]
        running = next((r for r in of if r.seat == seat_of(routed.tree)), None)
        token = token_of(routed)
        if running is not None and running.state != "failed":
            if token and not routed.tree and len(running.spec.trees) > 1:
                return self._gather(running.spec, routed, now_ms)
            return self._deliver(running, routed, (), now_ms)
        if not token:
            self.counts["messages_dropped"] += 1
            return []
        if running is not None:
            return [reply(token, error=f"{running.spec.name} has failed at its master: {running.reason}")]
        if of:
            why = GROUPLESS if not of[0].spec.master else "its master is not at work here: ask again"
            return [reply(token, error=f"{of[0].spec.name}: {why}")]
        sql = next((s for s in self._log.jobs() if app_id(s.name, s.creator) == routed.app), None)
        if sql is not None:
            return [self._asking.inspect(sql, token, now_ms)]
        return [reply(token, error="there is no job with that app id")]

    def _deliver(
        self, running: Running, routed: note.Routed, parts: tuple[bytes, ...], now_ms: int
    ) -> list[Step]:
        if token := token_of(routed):
            remember(running.queries, token)
        event = calls.Delivered(routed.source, routed.value, routed.path, token, parts)
        return self._call(running, event, now_ms)

    def _gather(self, spec: ProgramSpec, routed: note.Routed, now_ms: int) -> list[Step]:
        """Ask the masters of the other trees, too."""
        roots = self._outgoing.roots(spec)
        if "" in roots:
            why = f"the master of tree {spec.trees[roots.index('')]} is not at work yet: ask again"
            return [reply(token_of(routed), error=f"{spec.name}: {why}")]
        asked = self._gathering.ask(routed, spec.trees, now_ms)
        if not asked:
            return [reply(token_of(routed), error=f"{spec.name}: refused: too many queries wait here")]
        return [Send(roots[one.tree], one) for one in asked]

    def _gathered(self, gathered: Gathered, now_ms: int) -> list[Step]:
        """All have answered, or one has not."""
        routed, error = gathered.routed, gathered.error
        running = next(
            (r for r in self._running.values() if r.spec.app == routed.app and r.seat == MASTER), None
        )
        if running is None or running.state == "failed":
            error = error or "its master is not at work here any more: ask again"
        if running is None or error:
            return [reply(token_of(routed), error=error)]
        return self._deliver(running, routed, gathered.parts, now_ms)

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
                running = self._running.get(key_of(message.uid, message.to))
                if running is None:
                    return []
                if message.tree >= len(running.spec.trees):
                    return []
                place = self._place(running, now_ms, message.tree)
                return self._outgoing.noted(running, sender, message, place)
            case note.Remark():
                running = self._running.get(key_of(message.uid, message.to))
                if running is None or running.state == "failed" or message.tree >= len(running.spec.trees):
                    return []
                remember(running.wrote, sender)
                return self._call(running, calls.Sent(sender, message.value), now_ms, tree=message.tree)
            case note.NotesKept():
                if (running := self._running.get(key_of(message.uid, message.of))) is not None:
                    self._outgoing.kept(running, sender, message)
                return []
            case note.Told():
                if not self._listens(message.uid):
                    return []
                given, sends = self._feedback.told(message, now_ms)
                return [*sends, *self._give(given, now_ms)]
            case note.AskPiece():
                return [*self._feedback.asked(sender, message, now_ms)]
            case note.Piece():
                given, sends = self._feedback.came(sender, message, now_ms)
                return [*sends, *self._give(given, now_ms)]
            case note.Routed():
                return self._routed(message, now_ms)
            case note.QueryProgram():
                return self._routed(of_client(message), now_ms)
            case note.Returned():
                gathered = self._gathering.returned(message)
                if gathered is not None:
                    return self._gathered(gathered, now_ms)
                return list(self._asking.returned(message))
            case note.ProgramTrouble():
                self._heard(message, now_ms)
                return []
            case note.SubmitProgram():
                return [*self.submitting.submitted(message, self._address, now_ms, voter)]
            case note.DropProgram():
                return list(self.submitting.asked_to_drop(message, now_ms, voter))
            case note.InspectProgram():
                body = msgspec.msgpack.encode(self._facts(message.uid, now_ms))
                return [Send(message.origin, Answer(id=message.id, body=body))]
        return []

    def _listens(self, uid: str) -> bool:
        """Whether a job here wants the multicasts of that one."""
        app = bytes.fromhex(uid.partition(".")[0])
        of = self._running.get(job_of(uid))
        if of is not None and place_of(uid) < len(of.spec.trees):
            return True
        return not place_of(uid) and any(app in one.spec.apps for one in self._running.values())

    def _give(self, given: Iterable[Given], now_ms: int) -> list[Step]:
        """Multicasts, and the loss of some, for the job that they are of and for those that subscribed to
        another application's."""
        found: list[Step] = []
        for topic, group, value in given:
            for running in list(self._running.values()):
                own = topic in running.spec.topics and job_of(group) in ("", running.spec.uid)
                if not own and topic not in running.spec.apps:
                    continue
                tree = running.spec.topics.index(topic) if own else 0
                app = running.spec.app if own else topic
                if isinstance(value, tuple) and (running.seat or not own or not value):
                    continue  # it is for agents that have asked
                match value:
                    case int():
                        event: calls.Event = calls.Missing(app, value)
                    case tuple():
                        event = calls.Fed(value)
                    case _:
                        event = calls.Cast(app, value)
                found.extend(self._call(running, event, now_ms, tree=tree))
        return found

    def missed(self, topic: bytes, count: int, now_ms: int) -> list[Step]:
        """Multicasts of an application are lost."""
        return self._give(self._feedback.missed(topic, count, now_ms), now_ms)

    def tapped(self, stream: str, tapped: Iterable[Tapped], now_ms: int) -> list[Step]:
        """A chunk of a stream of ours has rows or groups for a tap, or it has none."""
        found: list[Step] = []
        for tap in tapped:
            running = self._running.get(tap.uid)
            if running is None:
                found.extend(self._keep_early(stream, tap))
            elif not tap.name:
                for pane in running.passed(stream, tap.until_us, self._streams):
                    found.extend(self._call(running, pane, now_ms))
            elif not running.keeping.has_rows((tap.name, tap.source), tap.end):
                if tap.payload:
                    both = running.with_beside(found[-1], tap) if found else None
                    if both is not None:
                        found[-1] = both
                    else:
                        found.extend(self._call(running, calls.Rows(tap.name), now_ms, tap.payload))
                running.keeping.gave_rows((tap.name, tap.source), tap.end)
        return found

    def _keep_early(self, stream: str, tap: Tapped) -> list[Step]:
        if self._log.is_dropped(tap.uid):
            return [Work(stream, SetTaps(tap.uid, ()))]
        self.counts["calls_dropped"] += not self._early.keep(stream, tap)
        return []

    def _heard(self, trouble: note.ProgramTrouble, now_ms: int) -> None:
        running = self._running.get(key_of(trouble.uid, MASTER))
        if running is None:
            return
        if trouble.state:
            running.troubles[trouble.agent] = (trouble.state, trouble.reason, now_ms)
        else:
            running.troubles.pop(trouble.agent, None)

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        parts = (self._asking, self._gathering, self.submitting, self.masters, self._feedback)
        waits = [at for part in parts if (at := part.deadline()) is not None]
        for running in self._running.values():
            if running.timer_ms is not None:
                waits.append(running.timer_ms)
            if running.told[0]:
                waits.append(running.told_ms + TROUBLE_MS)
            asks_at = running.keeping.asks_at() if running.state != "failed" else None
            waits += [at for at in (asks_at, running.keeping.resends_at()) if at is not None]
        return min(waits, default=None)

    def tick(self, now_ms: int, voter: str | None) -> list[Step]:
        found: list[Step] = [*self.submitting.tick(now_ms, voter), *self._asking.tick(now_ms)]
        found += self.masters.tick(now_ms, voter)
        found += [step for one in self._gathering.tick(now_ms) for step in self._gathered(one, now_ms)]
        given, sends = self._feedback.tick(now_ms)
        found += [*sends, *self._give(given, now_ms)]
        for running in self._running.values():
            every = running.spec.every_ms
            if running.timer_ms is not None and now_ms >= running.timer_ms:
                running.timer_ms += every * (1 + (now_ms - running.timer_ms) // every)
                found.extend(self._call(running, calls.Timer(), now_ms))
            if running.told[0] and now_ms - running.told_ms >= TROUBLE_MS:
                found.extend(self._tell(running, now_ms))
            found.extend(self._keep(running, now_ms))
        return found

    def _keep(self, running: Running, now_ms: int) -> list[Step]:
        """Ask for a state that is due, and send slices again."""
        found: list[Step] = []
        asks_at, resends_at = running.keeping.asks_at(), running.keeping.resends_at()
        if asks_at is not None and now_ms >= asks_at and running.state != "failed":
            found.extend(self._call(running, calls.Keep(), now_ms))
            running.keeping.asked(now_ms)
        if resends_at is not None and now_ms >= resends_at:
            found.extend(self._outgoing.resend(running, now_ms))
        return found

    # -- what it shows ---------------------------------------------------------------------------------------

    def _facts(self, uid: str, now_ms: int) -> note.ProgramStatus:
        running = self._running.get(key_of(uid, MASTER))
        if running is None and (own := self._running.get(uid)) is not None and not own.spec.master:
            running = own
        if running is None:
            return note.ProgramStatus(self._address, "starting", "", (), {})
        lately = now_ms - 3 * TROUBLE_MS
        told = [(a, s, why) for a, (s, why, at) in sorted(running.troubles.items()) if at >= lately]
        state, reason = running.shown(now_ms)
        return note.ProgramStatus(self._address, state, reason, tuple(told), dict(running.counts))

    def shown(self, now_ms: int) -> dict[str, tuple[State, str]]:
        """Jobs here: state and reason by uid."""
        return {one.spec.uid: one.shown(now_ms) for one in self._running.values() if one.seat == OWN}
