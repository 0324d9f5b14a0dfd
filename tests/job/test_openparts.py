"""Open parts: what each checkpoint adds to an open pane is copied, and is in a window once, whoever sends it
(``elf.job.openparts``)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.disk.store import Store
from agents.tasks.checkpoints import with_parts
from elf.batch import decode
from elf.errors import ElfBug
from elf.fields import replace
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import Feed, Finish, Idle, Install, Suspend
from elf.job.contributions import Piece
from elf.job.counters import COUNTER_COLUMNS
from elf.job.messages.rollup import OfferReplicas, ReplicaVerdict
from elf.job.openparts import OPEN, in_part, in_whole, is_copied_open, is_open, open_part
from elf.job.rollup.panes import History, Segment
from elf.job.rollup.proxies import Proxies
from elf.job.rollup.retained import Retained
from elf.job.rollup.root import Root
from elf.job.snapshots import Sealed
from elf.job.worker.openparts import PANES_MAX
from elf.job.worker.stream import StreamWorker, WorkerSettings
from elf.ql.plan import Plan
from lab.chaos.engine import SECOND, PyEngine, plan
from lab.chaos.jobs import behind
from lab.chaos.story import play
from tests.support import storms
from tests.support.chunks import FLOW, Rows, chunk
from tests.support.storms import schedule
from tests.support.stragglers import progress, rooted

EAGER = WorkerSettings(
    idle_ms=5_000, future_us=None, lateness_us=SECOND, checkpoint_ms=1_000, copies_ms=1_000
)
FIRST, SECOND_PART, LAST = open_part(1), open_part(2), open_part(3, last=True)


def contents(sealed: Sealed) -> dict[int, Counter[str]]:
    """Groups and counters by pane."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for row in decode(sealed.payload).to_pylist() if sealed.payload else ():
        found[row["_pane"]][row["k0"]] += int(row["s0"])
    for row in decode(sealed.counters).to_pylist() if sealed.counters else ():
        found[row["_pane"]].update({f".{name}": row[name] for name in COUNTER_COLUMNS})
    return found


def test_parts_say_whose_they_are_and_whether_they_are_all() -> None:
    late, ours = (0, 7), [(3, FIRST), (3, SECOND_PART)]
    assert [is_open(part) for part in (0, 7, OPEN, FIRST)] == [False, False, True, True]
    assert in_part([late, *ours]) == 1 << 3
    assert in_whole([late, *ours]) == 0
    assert in_whole([late, *ours, (3, LAST)]) == 1 << 3
    assert in_whole([(3, FIRST), (3, LAST)]) == 0, "one is not there"
    assert in_whole([(2, open_part(1, last=True)), *ours]) == 1 << 2


def test_what_takes_no_revision_and_what_has_no_panes_is_not_copied() -> None:
    assert is_copied_open(plan(2).fragment)
    assert not is_copied_open(behind(plan(2), leap=True).fragment)


# -- the worker ----------------------------------------------------------------------------------------------

moments = st.integers(0, 60).map(lambda t: t * SECOND // 4)


@settings(max_examples=25)
@given(st.lists(st.tuples(moments, st.sampled_from("abc")), max_size=60), st.integers(0, 2**32))
def test_the_parts_of_a_pane_are_its_main_snapshot(rows: Rows, seed: int) -> None:
    """Through crashes, which go back to the last checkpoint, and with copies that are switched off and on."""
    rng, settings = random.Random(seed), EAGER
    worker, now_ms = StreamWorker("s", settings, PyEngine()), 0
    worker.handle(Install(FLOW))
    durable: dict[tuple[int, int, int], Sealed] = {}
    store = Store(":memory:")
    saved, position = msgspec.msgpack.encode(worker.checkpoint()), 0

    def keep(sealed: tuple[Sealed, ...]) -> None:
        store.save_checkpoint("s", saved, sealed)
        for one in sealed:
            name = one.start, one.end, one.part
            assert durable.setdefault(name, one) == one, "another snapshot of that name"

    while position < len(rows):
        if rng.random() < 0.2:
            settings = replace(settings, copies_ms=rng.choice([1_000, 1_000, None]))
            checkpoint = with_parts(msgspec.msgpack.decode(saved, type=StreamCheckpoint), store)
            worker = StreamWorker("s", settings, PyEngine(), checkpoint)
            position = max((source.end for source in checkpoint.sources), default=0)
        size, now_ms = rng.randrange(1, 9), now_ms + rng.choice([0, 400, 1_000])
        some = rows[position : position + size]
        outcome = worker.handle(Feed(chunk(some, position), now_ms) if rng.random() < 0.8 else Idle(now_ms))
        position += size if outcome.accepted is not None else 0
        assert outcome.checkpoint is not None or not outcome.sealed
        if outcome.checkpoint is not None:
            saved = msgspec.msgpack.encode(outcome.checkpoint)
            keep(outcome.sealed)
    keep(worker.handle(Finish()).sealed)
    main: dict[int, Counter[str]] = defaultdict(Counter)
    parts: dict[int, Counter[str]] = defaultdict(Counter)
    for name, one in durable.items():
        for pane, counts in contents(one).items():
            (parts if is_open(name[2]) else main)[pane].update(counts)
    for pane, counts in parts.items():
        numbers = sorted(part for start, _, part in durable if start == pane and is_open(part))
        assert in_whole((0, part) for part in numbers) == 1
        assert +counts == +main[pane]


def test_a_checkpoint_is_as_large_as_what_came_since_the_last_one() -> None:
    """However many groups its open panes have; and a start has all of them."""
    store, worker, sizes = Store(":memory:"), StreamWorker("s", EAGER, PyEngine()), list[int]()
    worker.handle(Install(FLOW))
    for number in range(20):
        rows = [(0, f"{number} {one}") for one in range(100)]
        outcome = worker.handle(Feed(chunk(rows, 100 * number), 5_000 + 1_000 * number))
        assert outcome.checkpoint is not None
        store.save_checkpoint("s", b"", outcome.sealed)
        sizes.append(len(msgspec.msgpack.encode(outcome.checkpoint)))
        last = outcome.checkpoint
    assert max(sizes) < min(sizes) + 100
    for how in (EAGER, replace(EAGER, copies_ms=None)):
        one = StreamWorker("s", how, PyEngine(), with_parts(last, store))
        (main,) = (sealed for sealed in one.handle(Finish()).sealed if not sealed.part)
        counts = contents(main)[0]
        assert (counts[".rows_in"], sum(key[0] != "." for key in counts)) == (2_000, 2_000)


def test_of_very_many_open_panes_all_are_copied_in_turn() -> None:
    """And not the first ones alone."""
    flow = replace(FLOW, fragment=replace(FLOW.fragment, lateness_us=1_000 * SECOND))
    worker, copied = StreamWorker("s", EAGER, PyEngine()), list[int]()
    worker.handle(Install(flow))
    pane_us, panes = flow.fragment.pane_us, 2 * PANES_MAX + 9
    rows = [(pane * pane_us, "a") for pane in range(panes)]
    for number, some in enumerate((rows, rows[-1:], rows[-1:])):
        at = panes + number - 1 if number else 0
        outcome = worker.handle(Feed(chunk(some, at), 5_000 + 1_000 * number))
        there = [sealed.start for sealed in outcome.sealed if is_open(sealed.part)]
        assert len(there) <= PANES_MAX
        copied += there
    assert copied == list(range(panes))


def test_a_pane_that_was_open_before_copies_were_eager_has_no_parts() -> None:
    worker = StreamWorker("s", replace(EAGER, copies_ms=None), PyEngine())
    worker.handle(Install(FLOW))
    saved = worker.handle(Feed(chunk([(0, "a")], 0), 1_000)).checkpoint
    worker = StreamWorker("s", EAGER, PyEngine(), saved)
    outcome = worker.handle(Feed(chunk([(1, "b"), (2 * SECOND, "b")], 1), 5_000))
    parts = [(one.start, one.part) for one in outcome.sealed if one.part]
    assert parts == [(1, open_part(1))]


def test_what_is_in_parts_is_not_shed() -> None:
    """The open panes of a flow over its quota are dropped; their parts stay."""
    worker = StreamWorker("s", EAGER, PyEngine())
    worker.handle(Install(FLOW))
    fed = worker.handle(Feed(chunk([(0, "a"), (1, "b")], 0), 5_000)).sealed
    copied = [one for one in fed if is_open(one.part)]
    assert [contents(one)[0][".rows_in"] for one in copied] == [2]
    worker.handle(Feed(chunk([(2, "a")], 2), 5_100))
    worker.handle(Suspend(FLOW.uid))
    assert worker.states()[FLOW.uid].shed == 1


# -- what is owed --------------------------------------------------------------------------------------------


def retained() -> Retained:
    found = Retained()
    for part in (FIRST, SECOND_PART):
        found.reserve((5, 6, part), 10)
    found.sealed_to(6)
    found.add((4, 6, 0), 100, 1)
    return found


def test_parts_go_with_the_main_snapshot() -> None:
    owed = retained()
    assert (len(owed), owed.bytes) == (1, 100)
    assert owed.answered(4, 5, 0) == []
    assert set(owed.answered(5, 6, 0)) == {(4, 6, 0), (5, 6, FIRST), (5, 6, SECOND_PART)}
    assert not owed.is_kept()


def test_parts_are_owed_in_place_of_a_main_snapshot_that_is_covered() -> None:
    owed = retained()
    assert owed.covered(5, 6) == [], "its other pane has no answer yet"
    assert owed.to_offer(0) == ([], [(5, 6, FIRST), (5, 6, SECOND_PART)]), "at once"
    assert owed.answered(5, 6, FIRST) == [(5, 6, FIRST)]
    assert owed.answered(4, 5, 0) == [(4, 6, 0)]
    assert owed.answered(5, 6, SECOND_PART) == [(5, 6, SECOND_PART)]


def test_answered_parts_stay_until_their_pane_is_sealed() -> None:
    """A start makes the tree of them."""
    owed = Retained()
    owed.reserve((5, 6, FIRST), 10)
    owed.sealed_to(5)
    owed.release(5, 6)
    assert owed.answered(5, 6, FIRST) == []
    assert not owed.is_kept(), "it is not offered again"
    assert owed.sealed_to(5) == []
    assert owed.sealed_to(6) == [(5, 6, FIRST)]
    assert owed.sealed_to(7) == []
    owed.reserve((5, 6, LAST), 10)
    assert owed.answered(5, 6, 0) == [(5, 6, LAST)], "sealed"


# -- the root ------------------------------------------------------------------------------------------------


def begun(members: int = 2, query: Plan | None = None) -> Root:
    root = rooted(query or plan(2), members=members)
    for member in range(members):
        root.hear(member, progress(5), 0)
    root.begin(5, 0)
    return root


def without_the_second(root: Root, now_ms: int) -> None:
    """Pane 5 is committed with the first member alone; the other one is dead."""
    member = root.member(1)
    assert member is not None
    root.down(member.address)
    root.hear(0, progress(6), now_ms)
    root.take(Piece(5, 6, 0b01))
    (commit,) = root.propose(now_ms)
    root.committed(commit, now_ms)


def test_parts_of_the_dead_become_a_revision_and_then_nothing_but_parts_is_taken() -> None:
    root = begun()
    root.take_part((1, FIRST), Piece(5, 6, 0, b"1"))
    without_the_second(root, 1_000)
    (commit,) = root.propose(1_100)
    assert (commit.revision, commit.members, commit.parts) == (1, 0b01, frozenset({(1, FIRST)}))
    root.take(Piece(5, 6, 0b10, b"while it is made"))
    root.committed(commit, 1_100)
    root.take(Piece(5, 6, 0b10, b"the same and more"))
    assert root.propose(2_000) == []
    assert root.answers.verdicts(1, 5, 6, 2_000) == [(5, 6, "covered")]
    assert not root.answers.lacks(1, 5, 6, 2_000), "nor does another agent run it"
    (said,) = root.coverage(5, 6)
    assert said.reported == 0b01
    for part in (SECOND_PART, LAST):
        assert root.answers.verdict_of_part((1, part), 5) == "send"
        root.take_part((1, part), Piece(5, 6, 0, b"2"))
    (commit,) = root.propose(3_000)
    root.committed(commit, 3_000)
    (said,) = root.coverage(5, 6)
    assert said.reported == 0b11, "all of its parts are its main snapshot"
    root.check()


def test_parts_are_dropped_when_the_main_snapshot_comes() -> None:
    root = begun()
    root.take_part((1, FIRST), Piece(5, 6, 0, b"1"))
    for member in (0, 1):
        root.hear(member, progress(6), 1_000)
    root.take(Piece(5, 6, 0b11))
    (commit,) = root.propose(1_000)
    assert (commit.members, commit.parts) == (0b11, frozenset())
    root.committed(commit, 1_000)
    assert root.propose(1_100) == []
    assert root.answers.verdict_of_part((1, FIRST), 5) == "included"


def test_of_a_main_snapshot_and_parts_that_come_together_the_first_is_taken() -> None:
    root = begun()
    without_the_second(root, 1_000)
    root.take(Piece(5, 6, 0b10, b"its own"))
    assert root.answers.verdict_of_part((1, FIRST), 5) == "wait"
    root.take_part((1, FIRST), Piece(5, 6, 0, b"1"))
    (commit,) = root.propose(1_000)
    assert (commit.members, commit.parts) == (0b11, frozenset())
    root.committed(commit, 1_000)
    assert root.propose(1_100) == []


def test_a_pane_that_all_have_left_is_committed_with_what_neighbours_have() -> None:
    """Nobody's watermark will pass it."""
    root = begun(members=1)
    root.take_part((0, FIRST), Piece(6, 7, 0, b"1"))
    assert root.propose(1_000) == []
    empty = root.propose(60_000)
    assert [(one.start, one.end, one.members) for one in empty] == [(5, 7, 0)]
    root.committed(empty[0], 60_000)
    (commit,) = root.propose(60_000)
    assert (commit.start, commit.parts) == (6, frozenset({(0, FIRST)}))


def test_a_job_that_waits_for_the_dead_waits_also_where_nobody_is_left() -> None:
    root = begun(members=1, query=behind(plan(2), wait_us=6 * SECOND))
    member = root.member(0)
    assert member is not None
    root.down(member.address)
    root.take_part((0, FIRST), Piece(5, 6, 0, b"1"))
    assert root.propose(6_000) == []
    (empty,) = root.propose(6_001)
    assert (empty.start, empty.end, empty.members) == (5, 6, 0)


def test_nobody_is_asked_for_parts_where_the_main_snapshot_is() -> None:
    root, found = begun(), Proxies()
    without_the_second(root, 1_000)
    names = ((5, 6, 0), (5, 6, FIRST))
    offer = OfferReplicas(flow=root.flow.uid, member=1, names=names)
    words = [send.message for send in found.offered(root, "holder", offer, 9_000)]
    assert [(w.part, w.verdict) for w in words if isinstance(w, ReplicaVerdict)] == [(0, "send")]


def test_a_commit_with_both_is_refused() -> None:
    with pytest.raises(ElfBug, match="main snapshot and open parts"):
        History().add(Segment(5, 6, 0, 0b10, 0, parts=frozenset({(1, FIRST)})))


# -- a fleet -------------------------------------------------------------------------------------------------


def test_an_agent_that_is_gone_with_its_disk_is_in_the_windows_up_to_its_last_copy() -> None:
    """The judge of the storm says so, and that what was copied is there once."""
    verdict = play(schedule(storms.gone_eagerly, 1))
    assert not verdict.findings
