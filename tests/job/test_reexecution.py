"""Work that is run again (``elf.job.reexecution``): whom a root asks, that it takes one of both, and what the
agent hears of it. That the answer has the right rows: ``tests/agents/test_running.py``."""

from __future__ import annotations

from typing import cast

from elf.fields import replace
from elf.job import parts
from elf.job.commands import Answered
from elf.job.contributions import Piece, to_bytes
from elf.job.effects import CommitPanes, Effect, Multicast, Send, Work
from elf.job.events import PanesCommitted
from elf.job.messages.rollup import (
    Committed,
    FlowProgress,
    NotRun,
    Offer,
    Progress,
    Reexecute,
    RunSlice,
    Slice,
    Verdict,
    Whereabouts,
)
from elf.job.reexecution import Reading, SourceOffsets, Where, can_run
from elf.job.rollup import proxies
from elf.job.rollup.decide import MIRROR_OF, RootSettings
from elf.job.rollup.flowroots import FlowRoots, StoredPanes
from elf.job.rollup.sender import Sender
from elf.job.snapshots import Sealed
from lab.chaos.engine import STREAM
from lab.chaos.jobs import query_of
from tests.support.flow_copies import HOLDER, OTHER, OWNER, ROOT, flow_of, log_of

FLOW = flow_of(query_of("mirror").fragment)
SETTINGS = RootSettings()
AFTER_MS = SETTINGS.limit_ms(FLOW.fragment) // MIRROR_OF
T0_MS = 100_000
READING = Reading("json", "ts", 60_000_000, 500_000, 0, 1 << 20, ("/logs/*.log",))
MARK = SourceOffsets(7, T0_MS, ())


class Fleet:
    """A flow's root, and three agents that see one another's files: OWNER stands still in pane 1, the others
    have sealed it at T0."""

    def __init__(self, stored: StoredPanes | None = None) -> None:
        log = log_of(FLOW, addresses=(OWNER, HOLDER, OTHER))
        self.roots = FlowRoots(ROOT, log, SETTINGS, lambda _, pane: pane, lambda _: True, "root")
        self.roots.follow(0, {FLOW.uid: stored or StoredPanes(first_pane=1)})
        for member in range(3):
            self.says(member, 1, T0_MS - 1_000)
            where = Where(FLOW.uid, 1, (), MARK, READING)
            self.roots.whereabouts(Whereabouts(member=member, where=where))

    def says(self, member: int, sealed: int, now_ms: int) -> None:
        flows = (FlowProgress(FLOW.uid, 1, sealed),)
        self.roots.heard(Progress(member=member, incarnation=1, flows=flows), now_ms)

    def others_seal(self, pane: int, now_ms: int = T0_MS) -> None:
        for member in (1, 2):
            self.says(member, pane + 1, now_ms)

    def others_send(self, pane: int, now_ms: int) -> list[Effect]:
        return [e for n in (1, 2) for e in self.roots.take("x", slice_of(pane, n), now_ms)]

    def alive(self, now_ms: int) -> None:
        """The owner, too: it is slow, not dead."""
        for uid in self.roots.topics():
            root = self.roots.get(uid)
            assert root is not None
            for member in range(3):
                told = root.stragglers.presence[member]
                self.says(member, told.progress.sealed, now_ms)

    def asked(self, now_ms: int) -> list[tuple[str, int, int]]:
        """Who is asked to run which member's pane."""
        sent = [e for e in self.roots.tick(now_ms) if isinstance(e, Send)]
        return [(e.to, e.message.member, e.message.pane) for e in sent if isinstance(e.message, Reexecute)]

    def committed(self, effects: list[Effect]) -> CommitPanes:
        (work,) = [one for one in effects if isinstance(one, CommitPanes)]
        return work

    def durable(self, work: CommitPanes, now_ms: int) -> Committed:
        _, effects = self.roots.committed(PanesCommitted(work, 1, 0, 0, 0), now_ms)
        (word,) = [e.message for e in effects if isinstance(e, Multicast)]
        return cast(Committed, word)

    def verdicts(self, start: int, end: int) -> list[tuple[int, int, str, int]]:
        """What the owner hears of a snapshot."""
        offer = Offer(flow=FLOW.uid, member=0, panes=((start, end),))
        said = self.roots.offered(OWNER, offer, T0_MS + 5_000)
        words = [e.message for e in said if isinstance(e, Send) and isinstance(e.message, Verdict)]
        return [(one.start, one.end, one.verdict, one.offsets) for one in words]


def slice_of(pane: int, member: int, end: int | None = None) -> Slice:
    return Slice(flow=FLOW.uid, start=pane, end=end or pane + 1, members=to_bytes(1 << member))


def answer(pane: int, offsets: int = 7) -> RunSlice:
    members = to_bytes(1)
    return RunSlice(flow=FLOW.uid, start=pane, end=pane + 1, members=members, direct=True, offsets=offsets)


def ready() -> Fleet:
    """The others are in, and HOLDER was asked."""
    fleet = Fleet()
    fleet.others_seal(1)
    assert fleet.others_send(1, T0_MS) == []
    fleet.alive(T0_MS + AFTER_MS - 1)
    assert fleet.asked(T0_MS + AFTER_MS - 1) == []
    assert fleet.asked(T0_MS + AFTER_MS) == [(HOLDER, 0, 1)]
    return fleet


# -- the root ------------------------------------------------------------------------------------------------


def test_a_pane_that_has_waited_is_run_by_one_other_and_committed_whole() -> None:
    fleet = ready()
    assert fleet.asked(T0_MS + AFTER_MS + 100) == [], "one at a time"
    work = fleet.committed(fleet.roots.take(HOLDER, answer(1), T0_MS + AFTER_MS + 200))
    assert (work.added, work.parts, work.new) == (0b111, frozenset({(0, -7)}), ())
    word = fleet.durable(work, T0_MS + AFTER_MS + 300)
    assert (word.members, word.reexecution) == (to_bytes(0b111), ((0, 7),))
    assert fleet.roots.run_again == 1
    facts = fleet.roots.facts(FLOW.uid)
    assert facts is not None
    assert facts.reexecution == (("a", "a", 1),)


def test_one_of_both_is_taken_whichever_comes_first() -> None:
    own_first = ready()
    own_first.says(0, 2, T0_MS + AFTER_MS + 1)
    work = own_first.committed(own_first.roots.take(OWNER, slice_of(1, 0), T0_MS + AFTER_MS + 1))
    assert own_first.roots.take(HOLDER, answer(1), T0_MS + AFTER_MS + 2) == []
    assert (work.parts, own_first.durable(work, T0_MS + AFTER_MS + 3).reexecution) == (frozenset(), ())
    assert own_first.verdicts(1, 2) == [(1, 2, "included", 0)]
    assert own_first.roots.run_again == 0
    other_first = ready()
    work = other_first.committed(other_first.roots.take(HOLDER, answer(1), T0_MS + AFTER_MS + 1))
    assert other_first.roots.take(OWNER, slice_of(1, 0), T0_MS + AFTER_MS + 2) == []
    other_first.durable(work, T0_MS + AFTER_MS + 3)
    assert other_first.roots.take(OWNER, slice_of(1, 0), T0_MS + AFTER_MS + 4) == []
    assert other_first.verdicts(1, 2) == [(1, 2, "answered", 7)]


def test_only_what_was_asked_for_is_taken_and_once() -> None:
    fleet = ready()
    for sender, wrong in ((OTHER, answer(1)), (HOLDER, answer(2)), (HOLDER, answer(1, offsets=6))):
        assert fleet.roots.take(sender, wrong, T0_MS + AFTER_MS + 1) == []
    fleet.committed(fleet.roots.take(HOLDER, answer(1), T0_MS + AFTER_MS + 2))
    assert fleet.roots.take(HOLDER, answer(1), T0_MS + AFTER_MS + 3) == []
    assert fleet.roots.run_again == 1


def test_another_is_asked_when_one_cannot_or_says_nothing() -> None:
    fleet, at_ms = ready(), T0_MS + AFTER_MS + 1
    fleet.roots.not_run(OTHER, NotRun(flow=FLOW.uid, member=0, pane=1, why="not asked"), at_ms)
    fleet.roots.not_run(HOLDER, NotRun(flow=FLOW.uid, member=0, pane=1, why="no such file"), at_ms)
    assert fleet.asked(at_ms + proxies.RETRY_MS - 1) == []
    assert fleet.asked(at_ms + proxies.RETRY_MS) == [(OTHER, 0, 1)]
    later_ms = at_ms + proxies.RETRY_MS + proxies.RUN_MS
    fleet.alive(later_ms)
    assert fleet.asked(later_ms) == []
    fleet.alive(later_ms + 2 * proxies.RETRY_MS)
    assert fleet.asked(later_ms + 2 * proxies.RETRY_MS) == [(HOLDER, 0, 1)]
    fleet.roots.not_run(HOLDER, NotRun(flow=FLOW.uid, member=0, pane=1, why="no"), later_ms + 2_000)
    fleet.alive(later_ms + 4_000)
    assert fleet.asked(later_ms + 2_000 + 4 * proxies.RETRY_MS - 1) == []
    assert fleet.asked(later_ms + 2_000 + 4 * proxies.RETRY_MS) == [(OTHER, 0, 1)]
    facts = fleet.roots.facts(FLOW.uid)
    assert facts is not None
    assert facts.not_run == {"a": (3, "no")}
    assert fleet.roots.not_run_again == 3


def test_who_has_sealed_it_or_has_not_said_where_it_is_is_not_run() -> None:
    fleet = Fleet()
    fleet.others_seal(1)
    fleet.says(0, 2, T0_MS)
    assert fleet.asked(T0_MS + AFTER_MS) == [], "its own is under way, or copied"
    unknown = Fleet()
    unknown.roots.whereabouts(Whereabouts(member=0, where=Where(FLOW.uid, 1, ((1, None),), MARK, READING)))
    unknown.others_seal(1)
    unknown.alive(T0_MS + AFTER_MS)
    assert unknown.asked(T0_MS + AFTER_MS) == []


def test_a_pane_that_cannot_be_run_holds_up_no_other() -> None:
    fleet = Fleet()
    fleet.roots.whereabouts(Whereabouts(member=0, where=Where(FLOW.uid, 1, ((1, None),), MARK, READING)))
    fleet.roots.peer_down(OWNER, T0_MS)
    for pane in (1, 2):
        fleet.others_seal(pane)
        fleet.durable(fleet.committed(fleet.others_send(pane, T0_MS)), T0_MS)
    assert fleet.asked(T0_MS + 1) == [(HOLDER, 0, 2)]


def test_the_panes_of_the_dead_are_run_and_revised() -> None:
    """Nobody waits for it: the pane is committed without."""
    fleet = Fleet()
    fleet.others_seal(1)
    fleet.roots.peer_down(OWNER, T0_MS)
    work = fleet.committed(fleet.others_send(1, T0_MS))
    assert work.added == 0b110
    fleet.durable(work, T0_MS)
    assert fleet.asked(T0_MS + 1) == [(HOLDER, 0, 1)]
    revision = fleet.committed(fleet.roots.take(HOLDER, answer(1), T0_MS + 100))
    assert (revision.revision, revision.members, revision.parts) == (1, 0b111, frozenset({(0, -7)}))
    assert fleet.durable(revision, T0_MS + 200).reexecution == ((0, 7),)


def test_the_next_root_knows_whose_piece_was_taken() -> None:
    """Of two such panes side by side, too; and what comes later does not make it forget."""
    fleet = Fleet()
    rows = []
    for pane in (1, 2):
        at_ms = T0_MS + pane * 10_000
        fleet.others_seal(pane, at_ms)
        fleet.others_send(pane, at_ms)
        fleet.alive(at_ms + AFTER_MS)
        assert fleet.asked(at_ms + AFTER_MS) == [(HOLDER, 0, pane)]
        work = fleet.committed(fleet.roots.take(HOLDER, answer(pane), at_ms + AFTER_MS))
        fleet.durable(work, at_ms + AFTER_MS)
        rows.append(work)
    commits = tuple((w.start, w.end, w.revision, to_bytes(w.members)) for w in rows)
    kept = {(w.start, w.revision): parts.to_bytes(w.parts) for w in rows}
    heir = Fleet(StoredPanes(1, commits, 2, kept))
    assert heir.verdicts(1, 4) == [(1, 2, "answered", 7), (2, 3, "answered", 7), (3, 4, "send", 0)]
    assert fleet.verdicts(1, 3) == heir.verdicts(1, 3)
    assert heir.roots.take(OWNER, slice_of(1, 0), T0_MS) == []


def test_an_answer_that_cannot_be_opened_bars_nobody() -> None:
    fleet = ready()
    work = fleet.committed(fleet.roots.take(HOLDER, answer(1), T0_MS + AFTER_MS + 1))
    (bad,) = [piece for piece in work.pieces if piece.offsets]
    event = PanesCommitted(work, 1, 0, 0, 0, unusable=((bad, "no table"),))
    fleet.roots.committed(event, T0_MS + AFTER_MS + 2)
    again_ = fleet.committed(fleet.roots.take(OWNER, slice_of(1, 0), T0_MS + AFTER_MS + 3))
    assert (again_.added, again_.parts) == (0b111, frozenset())


# -- the agent that was behind -------------------------------------------------------------------------------


def owing(*names: tuple[int, int]) -> Sender:
    """a sender that owes these snapshots."""
    sender = Sender(lambda _: ROOT, lambda _: (), lambda _: 0, incarnation=1)
    sender.add(FLOW)
    for start, end in names:
        sender.sealed(Sealed(FLOW.uid, start, end, b"t", b"p"), 0)
    return sender


def test_it_counts_what_the_answer_had_not_when_every_pane_of_a_snapshot_has_its_word() -> None:
    sender = owing((1, 4))
    both = {"members": to_bytes(0b111), "flow": FLOW.uid, "revision": 0}
    assert sender.committed(Committed(start=1, end=2, reexecution=((0, 7), (2, 9)), **both), 0) == []  # type: ignore[arg-type]
    assert sender.committed(Committed(start=2, end=3, reexecution=((2, 9),), **both), 0) == []  # type: ignore[arg-type]
    (work,) = sender.verdict(Verdict(flow=FLOW.uid, start=3, end=4, verdict="answered", offsets=8), 0)
    spans = ((1, 2, 7), (3, 4, 8))
    assert work == Work(STREAM, Answered(FLOW.uid, (((1, 4, 0), spans),)))
    assert sender.retained() == 0
    assert sender.owes(FLOW.uid), "until the lane has counted"
    sender.counted([(FLOW.uid, (1, 4, 0))])
    assert not sender.owes(FLOW.uid)


def test_where_it_is_goes_to_the_root() -> None:
    where = Where(FLOW.uid, 3, ((3, None), (4, MARK)), MARK, READING)
    assert owing().where([where]) == [Send(ROOT, Whereabouts(member=0, where=where))]
    assert [where.offsets(pane) for pane in (2, 3, 4, 5)] == [None, None, MARK, MARK]


def test_what_may_be_run_again() -> None:
    assert can_run(FLOW.fragment)
    assert not can_run(query_of("slide").fragment), "nobody asked for mirrors"
    for place in (0, 1):
        assert not can_run(replace(FLOW.fragment, range=(place, 2))), "only the first range counts the rows"


def test_a_piece_keeps_its_mark() -> None:
    assert Piece(1, 3, 1, offsets=7).clip(1, 2).offsets == 7
