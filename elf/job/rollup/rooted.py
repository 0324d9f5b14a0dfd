"""A flow whose root is this node: the root, and its messages with members, readers, and agents that answer
for members that are dead or behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from elf.job.catalog.log import CatalogLog
from elf.job.contributions import to_bytes
from elf.job.effects import CommitPanes, Effect, Multicast, PrunePanes, SaveFlow, Send, Unusable
from elf.job.events import PanesCommitted
from elf.job.messages.groups import FunctionFailed
from elf.job.messages.inquiries import FlowReader, FlowStatus, TreeEdge
from elf.job.messages.rollup import (
    AskDecided,
    Began,
    Behind,
    Committed,
    Decided,
    FlowProgress,
    LeaveOut,
    Offer,
    Resend,
    RunSlice,
    Slice,
    Verdict,
)
from elf.job.openparts import is_open
from elf.job.rollup import decisions
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.panes import Segment
from elf.job.rollup.proxies import MIRROR_OF, PROXY_MS, Proxies, Runs
from elf.job.rollup.root import Root
from elf.job.rollup.serving import Readers
from elf.job.rollup.slices import piece_of
from elf.job.snapshots import Threshold
from elf.job.spec import Flow
from elf.job.stamps import is_stamped
from elf.job.thresholds import Asking
from overlay.regions import region_of

YEAR_1_US: Final = -62_135_596_800_000_000
YEAR_9999_US: Final = 253_402_300_799_000_000
"""What a calendar has."""
TOLD_MS: Final = 250
"""How long after a commit workers hear of it, where it only lets them forget: windows go out first."""
FAILED_MS: Final = 1_000
"""How often masters are told that a reduce function has failed, until they no longer read the flow."""


class RootedFlow:
    """See the module's docstring. ``since_ms``: when this node heard of the flow; ``seq``: number of its last
    commit; ``name``: what people call this agent."""

    def __init__(
        self, root: Root, settings: RootSettings, log: CatalogLog, *, since_ms: int, seq: int, name: str
    ) -> None:
        self.root = root
        self._settings = settings
        self._log = log
        self._since_ms = since_ms
        self._name = name
        fragment = root.flow.fragment
        self.readers = Readers(root, seq)
        self.proxies = Proxies(settings.limit_ms(fragment) // MIRROR_OF if fragment.mirror else PROXY_MS)
        self.runs = Runs()
        self.counts: Counter[str] = Counter()
        """The work of the root (``elf.job.work``)."""
        self._asking = Asking()
        self._parents: dict[int, str] = {}
        self._first: int | None = None
        """The first pane, from when it is about to be stored."""
        self._told_ms = self._asked_ms = 0
        self._words: list[Committed] = []
        """Commits of which workers hear later, at ``_words_ms``."""
        self._words_ms = 0

    # -- what members say ------------------------------------------------------------------------------------

    def heard(self, member: int, report: FlowProgress, now_ms: int) -> list[Effect]:
        """How far a member is; one that our log does not know says it again."""
        if self.root.member(member) is None:
            return []
        self._parents[member] = report.parent
        return self.advance(now_ms) if self.root.hear(member, report, now_ms) else []

    def behind(self, sender: str, message: Behind, now_ms: int) -> list[Effect]:
        """Members have fallen behind. That is believed of their parent, and of themselves."""
        told = dict(message.children)
        for member in self.root.roster.members:
            address = "" if member.address == sender else member.address
            below, known = told.get(address), self.root.stragglers.progress_of(member.number)
            if below is not None and known is not None and sender in (member.address, known.parent):
                self.root.stragglers.fall_behind(member.number, below)
        return self.advance(now_ms)

    def leads(self) -> list[Flow]:
        """The first key range, whose root decides for this one."""
        flow = self.root.flow
        others = decisions.ranges_of(self._log, flow) if decisions.follows(flow.fragment) else ()
        return [other for other in others if not other.fragment.range[0]]

    def decided(self, message: Decided, now_ms: int) -> list[Effect]:
        """Who is in panes, as the root of the first key range has it."""
        self.root.decided(message, now_ms)
        return self.advance(now_ms)

    def _ask_decided(self, now_ms: int) -> list[Effect]:
        """Ask for what is not known and may be wanted."""
        start = self.root.undecided_from()
        if start is None or now_ms - self._asked_ms < decisions.ASK_MS:
            return []
        self._asked_ms = now_ms
        return [
            Send(lead.leader, AskDecided(flow=lead.uid, follower=self.root.flow.uid, start=start))
            for lead in self.leads()
        ]

    def begun(self, members: Iterable[Began], now_ms: int) -> list[Effect]:
        """Members answer for the flow, which is new to them. A member that we have heard directly is known
        better: gathered messages are older than a beat, which repeats them."""
        known = [one for one in members if self.root.member(one.member) is not None]
        new = [one for one in known if self.root.stragglers.progress_of(one.member) is None]
        for one in new:
            progress = FlowProgress(self.root.flow.uid, one.live_from, one.sealed)
            self.root.hear(one.member, progress, now_ms)
        return self.advance(now_ms) if new else []

    def take(self, sender: str, message: Slice, now_ms: int) -> list[Effect]:
        """Take partial aggregates, or parts of late rows."""
        if isinstance(message, RunSlice) and not self.runs.take(self.root, sender, message, now_ms):
            return []
        piece = piece_of(message)
        if piece.members & ~self.root.roster.all or any(
            self.root.member(n) is None for n, _ in message.parts
        ):
            return []  # of members that our log does not know (yet): they offer it again
        if message.direct and not piece.offsets and self.root.flow.fragment.mirror:
            self.proxies.take(self.root, sender, piece, now_ms)
        for name in message.parts:
            self.root.take_part(name, piece)
        if piece.members:
            self.root.take(piece)
        return self.advance(now_ms)

    def offered(self, sender: str, offer: Offer, now_ms: int) -> list[Effect]:
        """Answer what becomes of snapshots that a member retains."""
        answers, flow = self.root.answers, offer.flow
        words: list[Verdict] = []
        for start, end in offer.panes:
            for first, last, verdict in answers.verdicts(offer.member, start, end, now_ms):
                offsets = answers.reexecuted_from(offer.member, first) if verdict == "answered" else 0
                words.append(Verdict(flow=flow, start=first, end=last, verdict=verdict, offsets=offsets))
        for start, end, part in offer.parts:
            if is_open(part) and start >= self.root.durable_to():
                continue  # its main snapshot may come
            verdict = answers.verdict_of_part((offer.member, part), start)
            words.append(Verdict(flow=flow, start=start, end=end, verdict=verdict, part=part))
        return [Send(sender, word) for word in words if word.verdict != "wait"]

    # -- commits ---------------------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> list[Effect]:
        """Begin, or commit, if it is time."""
        root, found = self.root, list[Effect]()
        if self._first is None and (first := root.prepare(now_ms, self._since_ms)) is not None:
            self._first = first
            found.append(SaveFlow(root.flow.uid, first))
            if not self._log.is_replicated(root.flow.uid):  # else the store does it before what follows
                return [*found, *self.kept(now_ms)]
        return [*found, *root.propose(now_ms)]

    def kept(self, now_ms: int) -> list[Effect]:
        """The first pane is stored, so the next root has it too: now readers may know it."""
        if self._first is None:
            return []
        self.root.begin(self._first, now_ms)
        return [*self.readers.begun(), *self.root.propose(now_ms)]

    def committed(self, event: PanesCommitted, now_ms: int) -> tuple[Segment | None, list[Effect]]:
        """A commit is durable, workers and readers are told: (what it is for masters here, effects)."""
        done = event.done
        if event.gone:
            self.root.give_up(done)
            return None, self.advance(now_ms)
        if event.unsure:
            return None, self._unsure(done, now_ms)
        if event.unusable:
            return None, self._unusable(event, now_ms)
        segment = self.root.committed(done, now_ms)
        self._count(event)
        self.root.failure = self.root.failure or event.failure
        word = Committed(
            flow=done.flow.uid,
            start=segment.start,
            end=segment.end,
            revision=segment.revision,
            members=to_bytes(segment.members),
            parts=done.new,
            reexecution=tuple(sorted((number, -offsets) for number, offsets in segment.parts if offsets < 0)),
        )
        sent = self.readers.committed(event.seq)
        failed = self._tell_failure(now_ms)
        failed += self._failed(event.unstaged, stage=True) if event.unstaged else []
        threshold = self._asking.committed(event.threshold)
        asked = [_leave_out(done.flow, threshold)] if threshold is not None else []
        self.root.told(self._asking.last)
        told = [
            *self._tell(word, now_ms),
            *decisions.told(self._log, done.flow, segment.start, segment.end, segment.members),
        ]
        return segment, [*told, *asked, *sent, *failed, *self.advance(now_ms)]

    def _tell(self, word: Committed, now_ms: int) -> list[Multicast]:
        """Tell workers of a commit: at once if there is more in it for them than that they may forget their
        snapshots, or if they measure what comes after their maps by it (``elf.planning.rests``)."""
        fragment = self.root.flow.fragment
        more = fragment.leap or fragment.mirror or word.revision or word.parts or word.reexecution
        if more or (is_stamped(word.end - 1, fragment.pane_us) and self._is_promised()):
            return [*self._tell_all(), Multicast(self.root.flow.topic, word)]
        last = self._words[-1] if self._words else None
        if last is not None and (last.end, last.members) == (word.start, word.members):
            self._words[-1] = msgspec.structs.replace(last, end=word.end)
        else:
            self._words.append(word)
        self._words_ms = self._words_ms if last is not None else now_ms + TOLD_MS
        return []

    def _is_promised(self) -> bool:
        return any(spec.plan.promise is not None for spec in self._log.readers(self.root.flow.uid))

    def _tell_all(self) -> list[Multicast]:
        words, self._words = self._words, []
        return [Multicast(self.root.flow.topic, word) for word in words]

    def _count(self, event: PanesCommitted) -> None:
        self.counts.update(
            commits=1,
            commit_keys=event.keys,
            commit_bytes=event.bytes,
            commit_us=event.cpu_us,
            commit_panes=event.panes,
            commit_rows=event.rows,
        )

    def _unsure(self, work: CommitPanes, now_ms: int) -> list[Effect]:
        """What agents left out of these panes may matter: ask them for all of it."""
        self.counts.update(unsure=1)
        told = [_leave_out(work.flow, None)] if self._asking.unsure() else []
        asked = self._ask(self.root.unsure(work, now_ms))
        return [*asked, *told, *self.advance(now_ms)]

    def _unusable(self, event: PanesCommitted, now_ms: int) -> list[Effect]:
        """Some pieces cannot be opened: the commit goes on with the others."""
        flow, work = self.root.flow, event.done
        whose = self.root.unusable(work, event.unusable)
        told = [Unusable(flow, members, work.start, work.end, why) for members, why in whose]
        return [*told, *self.advance(now_ms)]

    def _tell_failure(self, now_ms: int) -> list[Effect]:
        """Tell the masters of the flow's readers of a failed reduce function: they decide what follows."""
        root = self.root
        if not root.failure or now_ms - self._told_ms < FAILED_MS:
            return []
        self._told_ms = now_ms
        return self._failed(root.failure)

    def _failed(self, text: str, *, stage: bool = False) -> list[Effect]:
        uid = self.root.flow.uid
        word = FunctionFailed(flow=uid, agent=self._name, text=text, stage=stage)
        return [Send(to, word) for to in sorted({spec.leader for spec in self._log.readers(uid)})]

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self, now_ms: int) -> int | None:
        at_ms = self.root.deadline(now_ms)
        if not self._words:
            return at_ms
        return self._words_ms if at_ms is None else min(at_ms, self._words_ms)

    def tick(self, now_ms: int, wanted_from: Callable[[str, int], int]) -> list[Effect]:
        """``wanted_from`` as for ``FlowRoots``."""
        found = [*self.advance(now_ms), *self._ask(self.root.answers.missing(now_ms))]
        found += self._ask_decided(now_ms)
        self.runs.give_up(now_ms)
        found += self.runs.wanted(self.root, now_ms)
        if self._words and now_ms >= self._words_ms:
            found += self._tell_all()
        return [*found, *self._tell_failure(now_ms), *self._prune(now_ms, wanted_from)]

    def _ask(self, missing: Iterable[tuple[int, int, int]]) -> list[Effect]:
        return [
            Send(member.address, Resend(flow=self.root.flow.uid, start=start, end=end))
            for number, start, end in missing
            if (member := self.root.member(number)) is not None
        ]

    def _prune(self, now_ms: int, wanted_from: Callable[[str, int], int]) -> list[Effect]:
        """Forget panes that no revision, no master here, and no live reader can want any more."""
        settled = self.root.settled_to(now_ms, self._settings.revise_ms)
        if settled is None:
            return []
        there = self.readers.have(now_ms - self._settings.reader_ms)
        uid = self.root.flow.uid
        below = min([wanted_from(uid, settled), *there])
        self.root.forget(below)
        return [PrunePanes(uid, below)]

    # -- what it shows ---------------------------------------------------------------------------------------

    def why(self, now_ms: int) -> str:
        """Why it gives nothing."""
        pane_us = self.root.flow.fragment.pane_us
        return self.root.answers.why(lambda pane: event_time(pane, pane_us), now_ms)

    def facts(self) -> FlowStatus:
        """What people may know of it."""
        root, pane_us = self.root, self.root.flow.fragment.pane_us
        members = self._log.asked(root.flow.fragment)
        tree = tuple(
            TreeEdge(
                member.number,
                member.name,
                member.address,
                self._parents.get(member.number, ""),
                event_time(None if told is None else told.sealed, pane_us),
                region_of(member.place),
            )
            for member in members
            for told in (root.stragglers.progress_of(member.number),)
        )
        readers = tuple(FlowReader(s.name, s.creator, s.leader) for s in self._log.readers(root.flow.uid))
        times = (event_time(root.first_pane, pane_us), event_time(root.durable_to(), pane_us))
        answered = self.proxies.answered.items()
        mirrored = {member.name: sent for n, sent in answered if (member := root.member(n)) is not None}
        names = {member.number: member.name for member in members}
        runs = sorted(self.runs.by.items())
        reexecution = tuple((names.get(a, "?"), names.get(by, "?"), panes) for (a, by), panes in runs)
        not_run = {names.get(a, "?"): said for a, said in sorted(self.runs.failed.items())}
        unusable = root.answers.unusable()
        flow = (root.flow.uid, root.flow.fragment.stream, root.flow.leader)
        return FlowStatus(*flow, *times, readers, tree, mirrored, unusable, reexecution, not_run)


def _leave_out(flow: Flow, threshold: Threshold | None) -> Multicast:
    """Tell agents which groups of the next panes to send (None: all)."""
    least, watched = (0.0, b"") if threshold is None else (threshold.least, threshold.watched)
    return Multicast(flow.topic, LeaveOut(flow=flow.uid, least=least, watched=watched))


def event_time(pane: int | None, pane_us: int) -> int | None:
    """When a pane begins; None for one at the beginning or the end of all times, and beyond all years."""
    if pane is None or not pane_us or not YEAR_1_US <= pane * pane_us <= YEAR_9999_US:
        return None
    return pane * pane_us
