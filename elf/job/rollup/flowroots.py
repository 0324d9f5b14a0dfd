"""The flows whose root is this node: they commit panes, and serve the readers on other nodes.

A flow is here because the stream log says so, from the entry of the job that founded it to its ``FlowEnded``;
which jobs read it is what the log says, too (protocol 1.3). Masters on this node read the root's own commits.
Masters on others have a copy (``elf.job.rollup.mirrors``), and their nodes are sent each commit
(``elf.job.rollup.serving``).

    ATTACH             the job's entry in the log names the flow: from now on nothing is dropped that it wants
    RELEASED-UP-TO     here: what a master may want yet; from other nodes: what they say that they have
    DETACH             the job's tombstone
    END                ``FlowEnded``: root, workers and copies forget the flow

A reader that says nothing for ``reader_ms`` is waited for no more. When it is back it gets what is still here
and counts the rest as lost. A crash loses nothing of this: who reads is in the log, what is committed in the
store, and what a reader has it says again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from elf.job import parts
from elf.job.contributions import PartName, from_bytes, to_bytes
from elf.job.effects import (
    CommitPanes,
    Effect,
    Forget,
    Multicast,
    PrunePanes,
    SaveFlow,
    Send,
    Unusable,
)
from elf.job.events import CommitsRead, PanesCommitted
from elf.job.log.readers import not_led
from elf.job.log.streamlog import StreamLog
from elf.job.messages import (
    Answer,
    AskWhy,
    Begun,
    Committed,
    EarlyState,
    FlowFacts,
    FlowProgress,
    FlowReader,
    FunctionFailed,
    InspectFlow,
    LeaveOut,
    NotRun,
    Offer,
    OfferCopies,
    Progress,
    ReadPanes,
    RunSlice,
    SendAgain,
    Slice,
    TreeEdge,
    Verdict,
    Whereabouts,
)
from elf.job.rollup.again import Runs
from elf.job.rollup.asking import Asking
from elf.job.rollup.history import Segment
from elf.job.rollup.panes import disjoint
from elf.job.rollup.proxies import MIRROR_OF, PROXY_MS, Proxies
from elf.job.rollup.root import Root, RootSettings
from elf.job.rollup.serving import Readers
from elf.job.rollup.uplink import piece_of
from elf.job.snapshots import Threshold
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow

FAILED_MS = 1_000
"""So often masters are told that a reduce function has failed, until they read the flow no more."""


@dataclass(frozen=True)
class StoredPanes:
    """What the store has of a flow: the first pane of its root, if it is one, and the commits as (start, end,
    revision, members), the last of which is number ``seq``. ``parts``: (start, revision) → those of late
    rows.
    """

    first_pane: int | None = None
    commits: tuple[tuple[int, int, int, bytes], ...] = ()
    seq: int = 0
    parts: Mapping[tuple[int, int], bytes] = field(default_factory=dict)

    def segments(self, now_ms: int) -> list[Segment]:
        return [
            Segment(a, b, revision, from_bytes(m), now_ms, parts=self._parts(a, revision))
            for a, b, revision, m in disjoint(self.commits)
        ]

    def _parts(self, pane: int, revision: int) -> frozenset[PartName]:
        return parts.from_bytes(self.parts.get((pane, revision), b""))


@dataclass
class _Rooted:
    """A flow of ours."""

    root: Root
    since_ms: int
    readers: Readers
    proxies: Proxies
    first: int | None = None
    """The first pane, from when it is to be stored."""
    parents: dict[int, str] = field(default_factory=dict)
    told_ms: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    asking: Asking = field(default_factory=Asking)
    runs: Runs = field(default_factory=Runs)


class FlowRoots:
    """See the module's docstring. ``wanted_from(flow, pane)`` tells from which pane on masters of this node
    may want a flow of which nothing below ``pane`` can change; ``ours(flow)``, whether its root is here;
    ``name``: what people call this agent.
    """

    def __init__(
        self,
        address: str,
        log: StreamLog,
        settings: RootSettings,
        wanted_from: Callable[[str, int], int],
        ours: Callable[[Flow], bool],
        name: str,
    ) -> None:
        self._address = address
        self._ours = ours
        self._name = name
        self._stored: dict[str, StoredPanes] = {}
        self._log = log
        self._settings = settings
        self._wanted_from = wanted_from
        self._flows: dict[str, _Rooted] = {}
        self._down: set[str] = set()
        self.unusable = 0
        """Pieces that could not be opened, since the start."""

    # -- which flows -----------------------------------------------------------------------------------------

    def follow(self, now_ms: int, stored: Mapping[str, StoredPanes] | None = None) -> list[Effect]:
        """Do as the log says: begin and end flows, know their readers. ``stored``: of an earlier life."""
        self._stored.update(stored or {})
        ours = {flow.uid: flow for flow in self._log.flows() if self._ours(flow)}
        found: list[Effect] = []
        for uid in [uid for uid in self._flows if uid not in ours]:
            del self._flows[uid]
            if self._log.flow(uid) is None:
                found.append(Forget(uid, whole_flow=True))
        for uid, flow in ours.items():
            if uid not in self._flows:
                self._begin(flow, self._stored.pop(uid, StoredPanes()), now_ms)
            self._flows[uid].root.flow = flow
            self._know_readers(self._flows[uid], now_ms)
        return found

    def release(self, uids: Collection[str]) -> None:
        """The roots of these flows are elsewhere now."""
        for uid in uids:
            self._flows.pop(uid, None)
            self._stored.pop(uid, None)

    def _begin(self, flow: Flow, stored: StoredPanes, now_ms: int) -> None:
        root = Root(flow, self._settings, stored.segments(now_ms))
        root.set_roster(self._log.members(flow.fragment.stream), self._log.last)
        if stored.first_pane is not None:
            root.begin(stored.first_pane, now_ms)
        for address in self._down:
            root.down(address)
        mirror_ms = self._settings.limit_ms(flow.fragment) // MIRROR_OF
        proxies = Proxies(mirror_ms if flow.fragment.mirror else PROXY_MS)
        self._flows[flow.uid] = _Rooted(root, now_ms, Readers(root, stored.seq), proxies)

    def _know_readers(self, rooted: _Rooted, now_ms: int) -> None:
        named = {spec.home for spec in self._log.readers(rooted.root.flow.uid)} - {self._address}
        rooted.readers.named(named, now_ms)

    def roster_changed(self, stream: str) -> None:
        for rooted in self._flows.values():
            if rooted.root.flow.fragment.stream == stream:
                rooted.root.set_roster(self._log.members(stream), self._log.last)

    def get(self, uid: str) -> Root | None:
        rooted = self._flows.get(uid)
        return None if rooted is None else rooted.root

    def next_seq(self, uid: str) -> int:
        """Number of the next commit of a flow; there is only one under way."""
        return self._flows[uid].readers.seq + 1

    def topics(self) -> dict[str, bytes]:
        """The trees that this node is the root of, by flow."""
        return {uid: rooted.root.flow.topic for uid, rooted in self._flows.items()}

    # -- what members say ------------------------------------------------------------------------------------

    def heard(self, progress: Progress, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for report in progress.flows:
            rooted = self._flows.get(report.flow)
            if rooted is not None:
                rooted.parents[progress.member] = report.parent
                if rooted.root.hear(progress.member, report, now_ms):
                    found.extend(self._advance(rooted, now_ms))
        return found

    def begun(self, message: Begun, now_ms: int) -> list[Effect]:
        """Members answer for flows that are new to them. Of whom we have heard we know more: words that were
        gathered are older than a beat, which says all of it again."""
        found: list[Effect] = []
        for begun in message.flows:
            rooted = self._flows.get(begun.flow)
            if rooted is None:
                continue
            new = [one for one in begun.members if not rooted.root.has_heard(one.member)]
            for one in new:
                rooted.root.hear(one.member, FlowProgress(begun.flow, one.live_from, one.sealed), now_ms)
            found.extend(self._advance(rooted, now_ms) if new else ())
        return found

    def take(self, sender: str, message: Slice, now_ms: int) -> list[Effect]:
        rooted = self._flows.get(message.flow)
        if rooted is None:
            return []
        if isinstance(message, RunSlice) and not rooted.runs.take(rooted.root, sender, message, now_ms):
            return []
        piece = piece_of(message)
        if message.direct and not piece.mark and rooted.root.flow.fragment.mirror:
            rooted.proxies.take(rooted.root, sender, piece, now_ms)
        for name in message.parts:
            rooted.root.take_part(name, piece)
        if piece.members:
            rooted.root.take(piece)
        return self._advance(rooted, now_ms)

    def offered(self, sender: str, offer: Offer, now_ms: int) -> list[Effect]:
        rooted = self._flows.get(offer.flow)
        if rooted is None:
            return []
        found: list[Effect] = []
        for start, end in offer.panes:
            for first, last, verdict in rooted.root.verdicts(offer.member, start, end, now_ms):
                if verdict != "wait":
                    mark = rooted.root.run_by_mark(offer.member, first) if verdict == "answered" else 0
                    word = Verdict(flow=offer.flow, start=first, end=last, verdict=verdict, mark=mark)
                    found.append(Send(sender, word))
        for start, end, part in offer.parts:
            verdict = rooted.root.verdict_of_part((offer.member, part), start)
            if verdict != "wait":
                word = Verdict(flow=offer.flow, start=start, end=end, verdict=verdict, part=part)
                found.append(Send(sender, word))
        return found

    def whereabouts(self, message: Whereabouts) -> None:
        """A member whose files others see says where it is."""
        rooted = self._flows.get(message.where.flow)
        if rooted is not None:
            rooted.runs.hear(message)

    def not_run(self, sender: str, message: NotRun, now_ms: int) -> None:
        """Who was asked to run another's work cannot."""
        rooted = self._flows.get(message.flow)
        if rooted is not None:
            rooted.runs.not_run(rooted.root, sender, message, now_ms)

    def copies_offered(self, holder: str, offer: OfferCopies, now_ms: int) -> list[Effect]:
        """Copies of a member's snapshots."""
        rooted = self._flows.get(offer.flow)
        return [] if rooted is None else [*rooted.proxies.offered(rooted.root, holder, offer, now_ms)]

    def peer_down(self, address: str, now_ms: int) -> list[Effect]:
        """The overlay takes an agent for dead: no pane waits for it, of these flows and of those that begin
        here before ``peer_up``."""
        self._down.add(address)
        waiting = [rooted for rooted in self._flows.values() if rooted.root.down(address)]
        return [effect for rooted in waiting for effect in self._advance(rooted, now_ms)]

    def peer_up(self, address: str) -> None:
        """The overlay has heard of it (again)."""
        self._down.discard(address)

    def early(self, state: EarlyState) -> list[Effect]:
        """Open panes of a member, for the masters on other nodes."""
        rooted = self._flows.get(state.flow)
        return [Send(to, state) for to in rooted.readers] if rooted is not None else []

    # -- commits ---------------------------------------------------------------------------------------------

    def _advance(self, rooted: _Rooted, now_ms: int) -> list[Effect]:
        root, found = rooted.root, list[Effect]()
        if rooted.first is None and (first := root.prepare(now_ms, rooted.since_ms)) is not None:
            rooted.first = first
            found.append(SaveFlow(root.flow.uid, first))
            if not self._log.is_replicated(root.flow.uid):  # the store does it before anything that follows
                return [*found, *self.kept(root.flow.uid, now_ms)]
        return [*found, *root.propose(now_ms)]

    def kept(self, uid: str, now_ms: int) -> list[Effect]:
        """The first pane of a flow is stored, so that a root after us has it too: now readers may know."""
        rooted = self._flows.get(uid)
        if rooted is None or rooted.first is None:
            return []
        rooted.root.begin(rooted.first, now_ms)
        return [*rooted.readers.begun(), *rooted.root.propose(now_ms)]

    def committed(self, event: PanesCommitted, now_ms: int) -> tuple[Segment | None, list[Effect]]:
        """A commit is durable, workers and readers are told: (what it is for masters here, effects)."""
        done = event.done
        rooted = self._flows.get(done.flow.uid)
        if rooted is None:
            return None, []
        if event.gone:
            rooted.root.give_up(done)
            return None, self._advance(rooted, now_ms)
        if event.unsure:
            return None, self._unsure(rooted, done, now_ms)
        if event.unusable:
            return None, self._unusable(rooted, event, now_ms)
        segment = rooted.root.committed(done, now_ms)
        rooted.counts.update(
            commits=1,
            commit_keys=event.keys,
            commit_bytes=event.bytes,
            commit_us=event.cpu_us,
            commit_panes=event.panes,
            commit_rows=event.rows,
        )
        if event.failure and not rooted.root.failure:
            rooted.root.failure = event.failure
        word = Committed(
            flow=done.flow.uid,
            epoch=done.epoch,
            term=done.term,
            start=segment.start,
            end=segment.end,
            revision=segment.revision,
            members=to_bytes(segment.members),
            parts=done.new,
            again=tuple(sorted((number, -mark) for number, mark in segment.parts if mark < 0)),
        )
        sent = rooted.readers.committed(event.seq)
        failed = self._tell_failure(rooted, now_ms)
        threshold = rooted.asking.committed(event.threshold)
        asked = [_leave_out(done.flow, threshold)] if threshold is not None else []
        rooted.root.told = rooted.asking.last
        told = [Multicast(done.flow.topic, word), *asked]
        return segment, [*told, *sent, *failed, *self._advance(rooted, now_ms)]

    def _unsure(self, rooted: _Rooted, work: CommitPanes, now_ms: int) -> list[Effect]:
        """What agents left out of these panes may matter: they are asked for all of it."""
        rooted.counts.update(unsure=1)
        told = [_leave_out(work.flow, None)] if rooted.asking.unsure() else []
        asked = self._ask(rooted.root, rooted.root.unsure(work, now_ms))
        return [*asked, *told, *self._advance(rooted, now_ms)]

    def _unusable(self, rooted: _Rooted, event: PanesCommitted, now_ms: int) -> list[Effect]:
        """Some of it cannot be opened: the others go on."""
        self.unusable += len(event.unusable)
        flow, batch = rooted.root.flow, event.done.batch
        whose = rooted.root.unusable(event.done, event.unusable)
        told = [Unusable(flow, members, batch.start, batch.end, why) for members, why in whose]
        return [*told, *self._advance(rooted, now_ms)]

    def _tell_failure(self, rooted: _Rooted, now_ms: int) -> list[Effect]:
        """The masters of the flow's readers decide what becomes of a reduce function that has failed."""
        root = rooted.root
        if not root.failure or now_ms - rooted.told_ms < FAILED_MS:
            return []
        rooted.told_ms = now_ms
        word = FunctionFailed(flow=root.flow.uid, agent=self._name, text=root.failure)
        return [Send(to, word) for to in sorted({spec.home for spec in self._log.readers(root.flow.uid)})]

    # -- readers on other nodes ------------------------------------------------------------------------------

    def asked(self, sender: str, message: ReadPanes, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for wish in message.wishes:
            rooted = self._flows.get(wish.flow)
            if rooted is not None:
                found.extend(rooted.readers.asked(sender, wish, now_ms))
        return found

    def read(self, event: CommitsRead, now_ms: int) -> list[Effect]:
        """Commits for a reader."""
        rooted = self._flows.get(event.flow.uid)
        return [] if rooted is None else rooted.readers.read(event, now_ms)

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self, now_ms: int) -> int | None:
        waits = (rooted.root.deadline(now_ms) for rooted in self._flows.values())
        return min((at or now_ms + 1_000 for at in waits), default=None)

    def tick(self, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for rooted in self._flows.values():
            found.extend(self._advance(rooted, now_ms))
            found.extend(self._ask(rooted.root, rooted.root.missing(now_ms)))
            rooted.runs.give_up(now_ms)
            found.extend(rooted.runs.wanted(rooted.root, now_ms))
            found.extend(self._tell_failure(rooted, now_ms))
            found.extend(self._prune(rooted, now_ms))
        return found

    @staticmethod
    def _ask(root: Root, missing: Iterable[tuple[int, int, int]]) -> list[Effect]:
        return [
            Send(member.address, SendAgain(flow=root.flow.uid, start=start, end=end))
            for number, start, end in missing
            if (member := root.member(number)) is not None
        ]

    def _prune(self, rooted: _Rooted, now_ms: int) -> list[Effect]:
        """Forget panes that no revision, no master here, and no reader that is there can want any more."""
        settled = rooted.root.settled_to(now_ms, self._settings.revise_ms)
        if settled is None:
            return []
        there = rooted.readers.have(now_ms - self._settings.reader_ms)
        uid = rooted.root.flow.uid
        below = min([self._wanted_from(uid, settled), *there])
        rooted.root.forget(below)
        return [PrunePanes(uid, below)]

    @property
    def mirrored(self) -> int:
        """Snapshots that neighbours have sent of members that were behind, to the roots here."""
        return sum(rooted.proxies.answered.total() for rooted in self._flows.values())

    @property
    def run_again(self) -> int:
        """Panes of members that others have run, for the roots here."""
        return sum(rooted.runs.by.total() for rooted in self._flows.values())

    @property
    def not_run_again(self) -> int:
        """How often that did not come about."""
        return sum(count for rooted in self._flows.values() for count, _ in rooted.runs.failed.values())

    def told_unusable(self) -> dict[str, int]:
        """Of agents, how many of their pieces could not be opened by the roots here."""
        found: Counter[str] = Counter()
        for rooted in self._flows.values():
            found.update({name: pieces for name, (pieces, _) in rooted.root.told_unusable().items()})
        return dict(found)

    def counts(self, uid: str) -> Mapping[str, int] | None:
        """The work of a flow's root (``elf.job.work``)."""
        rooted = self._flows.get(uid)
        return None if rooted is None else rooted.counts

    # -- what it shows ---------------------------------------------------------------------------------------

    def inspected(self, request: InspectFlow) -> list[Effect]:
        facts = self.facts(request.uid)
        if facts is None:
            why = not_led(self._log, flow=request.uid)
            return [Send(request.origin, Answer(id=request.id, error=why))]
        return [Send(request.origin, Answer(id=request.id, body=msgspec.msgpack.encode(facts)))]

    def asked_why(self, request: AskWhy, now_ms: int) -> list[Effect]:
        """Why a flow gives nothing."""
        root = self.get(request.uid)
        if root is None:
            why = not_led(self._log, flow=request.uid)
            return [Send(request.origin, Answer(id=request.id, error=why))]
        pane_us = root.flow.fragment.pane_us
        text = root.why(lambda pane: event_time(pane, pane_us), now_ms)
        return [Send(request.origin, Answer(id=request.id, body=text.encode()))]

    def facts(self, uid: str) -> FlowFacts | None:
        rooted = self._flows.get(uid)
        if rooted is None:
            return None
        root = rooted.root
        pane_us = root.flow.fragment.pane_us
        tree = tuple(
            TreeEdge(
                member.number,
                member.name,
                member.address,
                rooted.parents.get(member.number, ""),
                event_time(root.sealed_of(member.number), pane_us),
            )
            for member in self._log.members(root.flow.fragment.stream)
        )
        readers = tuple(FlowReader(s.name, s.creator, s.home) for s in self._log.readers(uid))
        first, committed = root.first_pane, root.durable_to()
        times = (event_time(first, pane_us), event_time(committed, pane_us))
        answered = rooted.proxies.answered.items()
        mirrored = {member.name: sent for n, sent in answered if (member := root.member(n)) is not None}
        names = {member.number: member.name for member in self._log.members(root.flow.fragment.stream)}
        runs = sorted(rooted.runs.by.items())
        again = tuple((names.get(a, "?"), names.get(by, "?"), panes) for (a, by), panes in runs)
        not_run = {names.get(a, "?"): said for a, said in sorted(rooted.runs.failed.items())}
        unusable = root.told_unusable()
        return FlowFacts(root.flow, *times, readers, tree, mirrored, unusable, again, not_run)

    def check(self) -> None:
        for rooted in self._flows.values():
            rooted.root.check()


def _leave_out(flow: Flow, threshold: Threshold | None) -> Multicast:
    """Agents are told what groups to send of the next panes (None: all)."""
    least, watched = (0.0, b"") if threshold is None else (threshold.least, threshold.watched)
    return Multicast(flow.topic, LeaveOut(flow=flow.uid, least=least, watched=watched))


def event_time(pane: int | None, pane_us: int) -> int | None:
    """When a pane begins; None for one at the beginning or the end of all times."""
    if pane is None or not pane_us or not START_OF_TIME < pane < END_OF_TIME:
        return None
    return pane * pane_us
