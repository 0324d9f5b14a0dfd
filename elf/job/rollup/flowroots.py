"""The flows whose root is this node: they commit panes, and serve the readers on other nodes.

A flow is here from the entry of the job that began it in the catalog log to its ``FlowEnded``. The log also
says which jobs read it (protocol 1.3). Masters on this node read the root's own commits. Masters elsewhere
have a copy (``elf.job.rollup.mirrors``), and their nodes are sent each commit (``elf.job.rollup.serving``).

    ATTACH             the job's entry in the log names the flow: from now on nothing is dropped that it wants
    RELEASED-UP-TO     here: what a master may yet want; from other nodes: what they say that they have
    DETACH             the job's tombstone
    END                ``FlowEnded``: root, workers and copies forget the flow

The root stops waiting for a reader that is silent for ``reader_ms``. When the reader is back it gets what is
still here and counts the rest as lost. A crash loses nothing of this: the log has the readers, the store has
the commits, and a reader repeats what it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

import msgspec

from elf.job import parts
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import not_led
from elf.job.contributions import PartName, from_bytes
from elf.job.effects import Effect, Forget, Send
from elf.job.events import CommitsRead, PanesCommitted
from elf.job.messages.inquiries import AskWhy, FlowStatus, InspectFlow
from elf.job.messages.rollup import (
    AskDecided,
    Begun,
    Behind,
    Decided,
    EarlyState,
    NotRun,
    Offer,
    OfferReplicas,
    Progress,
    ReadPanes,
    Slice,
    Whereabouts,
)
from elf.job.rollup import decisions
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.panes import Segment, disjoint
from elf.job.rollup.root import Root
from elf.job.rollup.rooted import RootedFlow
from elf.job.spec import Flow
from elf.job.units import unit_of
from elf.wire.base import Answer


class StoredPanes(msgspec.Struct, frozen=True):
    """What the store has of a flow: the first pane of its root, if it is one, and the commits as (start, end,
    revision, members), the last of which is number ``seq``. ``parts``: (start, revision) → those of late
    rows. ``known``: how far the log of a root had come that committed some of them.
    """

    first_pane: int | None = None
    commits: tuple[tuple[int, int, int, bytes], ...] = ()
    seq: int = 0
    parts: Mapping[tuple[int, int], bytes] = msgspec.field(default_factory=dict)
    known: int = 0

    def segments(self, now_ms: int) -> list[Segment]:
        return [
            Segment(a, b, revision, from_bytes(m), now_ms, parts=self._parts(a, revision))
            for a, b, revision, m in disjoint(self.commits)
        ]

    def _parts(self, pane: int, revision: int) -> frozenset[PartName]:
        return parts.from_bytes(self.parts.get((pane, revision), b""))


class FlowRoots:
    """See the module's docstring. ``wanted_from(flow, pane)``: from which pane on masters of this node may
    want a flow in which nothing below ``pane`` can change; ``ours(flow)``: whether its root is here;
    ``name``: what people call this agent."""

    def __init__(
        self,
        address: str,
        log: CatalogLog,
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
        self._flows: dict[str, RootedFlow] = {}
        self._down: set[str] = set()
        self.unusable = 0
        """Pieces that could not be opened, since the start."""

    # -- which flows -----------------------------------------------------------------------------------------

    def follow(self, now_ms: int, stored: Mapping[str, StoredPanes] | None = None) -> list[Effect]:
        """Follow the log: begin and end flows, know their readers. ``stored``: what an earlier life
        stored."""
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
            if self._log.spans_regions:
                self._flows[uid].root.set_units(unit_of(self._log, uid), self._log.last)
            named = {spec.leader for spec in self._log.readers(uid)} - {self._address}
            self._flows[uid].readers.named(named, now_ms)
        return found

    def release(self, uids: Collection[str]) -> None:
        """The roots of these flows are elsewhere now."""
        for uid in uids:
            self._flows.pop(uid, None)
            self._stored.pop(uid, None)

    def _begin(self, flow: Flow, stored: StoredPanes, now_ms: int) -> None:
        root = Root(flow, self._settings, stored.segments(now_ms))
        root.set_roster(self._log.asked(flow.fragment), self._log.last)
        if stored.first_pane is not None:
            root.begin(stored.first_pane, now_ms)
        root.note_known(stored.known, root.durable_to())
        for address in self._down:
            root.down(address)
        self._flows[flow.uid] = RootedFlow(
            root, self._settings, self._log, since_ms=now_ms, seq=stored.seq, name=self._name
        )

    def roster_changed(self, stream: str) -> None:
        for rooted in self._flows.values():
            if rooted.root.flow.fragment.stream == stream:
                rooted.root.set_roster(self._log.asked(rooted.root.flow.fragment), self._log.last)

    def get(self, uid: str) -> Root | None:
        rooted = self._flows.get(uid)
        return None if rooted is None else rooted.root

    def next_seq(self, uid: str) -> int:
        """The number of the next commit of a flow; only one is under way."""
        return self._flows[uid].readers.seq + 1

    def topics(self) -> dict[str, bytes]:
        """The trees that this node is the root of, by flow."""
        return {uid: rooted.root.flow.topic for uid, rooted in self._flows.items()}

    # -- what members say ------------------------------------------------------------------------------------

    def heard(self, progress: Progress, now_ms: int) -> list[Effect]:
        """How far a member is with flows."""
        found: list[Effect] = []
        for report in progress.flows:
            rooted = self._flows.get(report.flow)
            found += [] if rooted is None else rooted.heard(progress.member, report, now_ms)
        return found

    def begun(self, message: Begun, now_ms: int) -> list[Effect]:
        """Members answer for flows that are new to them."""
        found: list[Effect] = []
        for begun in message.flows:
            rooted = self._flows.get(begun.flow)
            found += [] if rooted is None else rooted.begun(begun.members, now_ms)
        return found

    def take(self, sender: str, message: Slice, now_ms: int) -> list[Effect]:
        rooted = self._flows.get(message.flow)
        return [] if rooted is None else rooted.take(sender, message, now_ms)

    def asked_decided(self, sender: str, message: AskDecided) -> list[Effect]:
        """The root of another key range asks who is in its panes."""
        rooted = self._flows.get(message.flow)
        found = None if rooted is None else decisions.answer(rooted.root, message)
        return [] if found is None else [Send(sender, found)]

    def decided(self, sender: str, message: Decided, now_ms: int) -> list[Effect]:
        """The root of the first key range says it."""
        rooted = self._flows.get(message.flow)
        if rooted is None or sender not in {one.leader for one in rooted.leads()}:
            return []
        return rooted.decided(message, now_ms)

    def behind(self, sender: str, message: Behind, now_ms: int) -> list[Effect]:
        rooted = self._flows.get(message.flow)
        return [] if rooted is None else rooted.behind(sender, message, now_ms)

    def offered(self, sender: str, offer: Offer, now_ms: int) -> list[Effect]:
        rooted = self._flows.get(offer.flow)
        return [] if rooted is None else rooted.offered(sender, offer, now_ms)

    def copies_offered(self, holder: str, offer: OfferReplicas, now_ms: int) -> list[Effect]:
        """Take copies of a member's snapshots."""
        rooted = self._flows.get(offer.flow)
        return [] if rooted is None else [*rooted.proxies.offered(rooted.root, holder, offer, now_ms)]

    def whereabouts(self, message: Whereabouts) -> None:
        """A member whose files are shared says where it is."""
        rooted = self._flows.get(message.where.flow)
        if rooted is not None and rooted.root.member(message.member) is not None:
            rooted.runs.hear(message)

    def not_run(self, sender: str, message: NotRun, now_ms: int) -> None:
        """An agent that was asked to run another's work cannot."""
        rooted = self._flows.get(message.flow)
        if rooted is not None:
            rooted.runs.not_run(rooted.root, sender, message, now_ms)

    def peer_down(self, address: str, now_ms: int) -> list[Effect]:
        """The overlay takes an agent for dead: no pane waits for it until ``peer_up``, in these flows and
        those that begin here later."""
        self._down.add(address)
        waiting = [rooted for rooted in self._flows.values() if rooted.root.down(address)]
        return [effect for rooted in waiting for effect in rooted.advance(now_ms)]

    def peer_up(self, address: str) -> None:
        """The overlay has heard of the agent (again)."""
        self._down.discard(address)

    def early(self, state: EarlyState) -> list[Effect]:
        """Open panes of a member, for the masters on other nodes."""
        rooted = self._flows.get(state.flow)
        return [Send(to, state) for to in rooted.readers] if rooted is not None else []

    # -- commits ---------------------------------------------------------------------------------------------

    def kept(self, uid: str, now_ms: int) -> list[Effect]:
        """The first pane of a flow is stored."""
        rooted = self._flows.get(uid)
        return [] if rooted is None else rooted.kept(now_ms)

    def committed(self, event: PanesCommitted, now_ms: int) -> tuple[Segment | None, list[Effect]]:
        """A commit is durable: (what it is for masters here, effects)."""
        rooted = self._flows.get(event.done.flow.uid)
        if rooted is None:
            return None, []
        self.unusable += len(event.unusable)
        return rooted.committed(event, now_ms)

    # -- readers on other nodes ------------------------------------------------------------------------------

    def asked(self, sender: str, message: ReadPanes, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for request in message.requests:
            rooted = self._flows.get(request.flow)
            found += [] if rooted is None else rooted.readers.asked(sender, request, now_ms)
        return found

    def read(self, event: CommitsRead, now_ms: int) -> list[Effect]:
        """Commits for a reader."""
        rooted = self._flows.get(event.flow.uid)
        return [] if rooted is None else rooted.readers.read(event, now_ms)

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self, now_ms: int) -> int | None:
        waits = (rooted.deadline(now_ms) for rooted in self._flows.values())
        return min((at or now_ms + 1_000 for at in waits), default=None)

    def tick(self, now_ms: int) -> list[Effect]:
        ticked = (rooted.tick(now_ms, self._wanted_from) for rooted in self._flows.values())
        return [effect for effects in ticked for effect in effects]

    # -- what it shows ---------------------------------------------------------------------------------------

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
        """How often such runs failed."""
        return sum(count for rooted in self._flows.values() for count, _ in rooted.runs.failed.values())

    def told_unusable(self) -> dict[str, int]:
        """For each agent, how many of its pieces the roots here could not open."""
        found: Counter[str] = Counter()
        for rooted in self._flows.values():
            found.update({name: pieces for name, (pieces, _) in rooted.root.answers.unusable().items()})
        return dict(found)

    def counts(self, uid: str) -> Mapping[str, int] | None:
        """The work of a flow's root (``elf.job.work``)."""
        rooted = self._flows.get(uid)
        return None if rooted is None else rooted.counts

    def inspected(self, request: InspectFlow) -> list[Effect]:
        """What people may know of a flow."""
        facts = self.facts(request.uid)
        return self._answer(request, None if facts is None else msgspec.msgpack.encode(facts))

    def asked_why(self, request: AskWhy, now_ms: int) -> list[Effect]:
        """Why a flow gives nothing."""
        rooted = self._flows.get(request.uid)
        return self._answer(request, None if rooted is None else rooted.why(now_ms).encode())

    def _answer(self, request: InspectFlow | AskWhy, body: bytes | None) -> list[Effect]:
        if body is None:
            why = not_led(self._log, flow=request.uid)
            return [Send(request.origin, Answer(id=request.id, error=why))]
        return [Send(request.origin, Answer(id=request.id, body=body))]

    def facts(self, uid: str) -> FlowStatus | None:
        rooted = self._flows.get(uid)
        return None if rooted is None else rooted.facts()

    def check(self) -> None:
        for rooted in self._flows.values():
            rooted.root.check()
