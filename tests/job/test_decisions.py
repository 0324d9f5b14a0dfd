"""``TREES m STRAGGLERS LEAP``: the root of the first key range decides who is in a pane, for all of them
(``elf.job.rollup.decisions``)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elf.fields import replace
from elf.job.commands import DropStragglers
from elf.job.contributions import Piece, numbers, to_bytes
from elf.job.effects import Effect, Send, Work
from elf.job.messages.rollup import AskDecided, Committed, Decided, FlowProgress
from elf.job.rollup.decisions import ALL, Decisions, answer, follows, heard, siblings
from elf.job.rollup.panes import History
from elf.job.rollup.root import Root
from elf.job.rollup.sender import Sender
from elf.job.snapshots import Sealed
from elf.job.spec import Flow
from elf.ql.plan import Plan
from lab.chaos.engine import plan
from lab.chaos.jobs import query_of
from tests.support.stragglers import progress, rooted

LEAP = query_of("leap trees")
LEAD, SECOND, _ = LEAP.fragments
UID = "f" * 24


def ranged(place: int) -> Plan:
    return replace(LEAP, fragment=LEAP.fragments[place])


def begun(place: int, members: int = 3) -> Root:
    root = rooted(ranged(place), members=members)
    for member in range(members):
        root.hear(member, progress(10), 0)
    root.begin(10, 0)
    return root


def said(*spans: tuple[int, int, int], free: bool = False) -> Decided:
    return Decided(flow=UID, spans=tuple((a, b, to_bytes(members)) for a, b, members in spans), free=free)


def passed(root: Root, pane: int, members: int, now_ms: int) -> None:
    for member in numbers(members):
        root.hear(member, progress(pane), now_ms)


def test_which_ranges_follow() -> None:
    assert [follows(fragment) for fragment in LEAP.fragments] == [False, True, True]
    assert not any(follows(fragment) for fragment in replace(plan(2), trees=3).fragments)
    assert siblings(LEAD, SECOND)
    assert not siblings(LEAD, replace(SECOND, pane_us=1))
    assert not siblings(LEAD, replace(SECOND, range=(1, 2)))


spans_of = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([ALL, 0b000, 0b001, 0b011, 0b111])), max_size=5
)


@given(spans_of, st.integers(0, 12), st.integers(1, 6), st.integers(1, 7))
def test_what_may_be_held_of_a_piece(
    lengths: list[tuple[int, int]], start: int, length: int, members: int
) -> None:
    """Pane by pane: all of what is not decided, else what is of those alone who are in it."""
    decisions, at, decided = Decisions(), 2, dict[int, int]()
    for long, who in lengths:
        decisions.hear(at, at + long, who, 0)
        decided |= dict.fromkeys(range(at, at + long), who)
        at += long
    piece = Piece(start, start + length, members)
    held = [pane for one in decisions.usable(piece) for pane in range(one.start, one.end)]
    assert sorted(held) == [
        pane
        for pane in range(start, start + length)
        if decided.get(pane, ALL) == ALL or not members & ~decided[pane]
    ]
    assert all(decisions.members(pane) == decided.get(pane) for pane in range(16))


def test_a_hole_in_what_was_heard_is_asked_for() -> None:
    decisions = Decisions()
    heard(decisions, said((14, 15, 0b1)), 10, 0)
    assert decisions.members(14) is None, "it does not reach down to what is wanted"
    heard(decisions, said((0, 8, 0), (8, 12, 0b1), free=True), 10, 0)
    heard(decisions, said((14, 15, 0b1)), 10, 0)
    assert (decisions.members(3), decisions.members(11), decisions.end) == (ALL, 0b1, 12)
    heard(decisions, said((11, 15, 0b1)), 10, 0)
    assert (decisions.members(11), decisions.members(14)) == (0b1, 0b1)


def test_a_follower_commits_with_the_members_of_the_decision_and_no_others() -> None:
    root = begun(1)
    passed(root, 11, 0b111, 1_000)
    root.take(Piece(10, 11, 0b011))
    root.take(Piece(10, 11, 0b100))
    assert root.propose(60_000) == [], "nobody has decided"
    assert root.undecided_from() == 10
    root.decided(said((10, 11, 0b011)), 60_000)
    (commit,) = root.propose(60_000)
    assert commit.members == 0b011
    root.committed(commit, 60_000)
    root.take(Piece(10, 11, 0b100))
    assert root.propose(90_000) == []
    assert root.answers.verdicts(2, 10, 12, 90_000) == [(10, 11, "leapt"), (11, 12, "send")]
    assert root.answers.verdicts(1, 10, 11, 90_000) == [(10, 11, "included")]


def test_what_is_merged_with_others_is_dropped_and_asked_for() -> None:
    root = begun(1)
    passed(root, 11, 0b111, 1_000)
    root.take(Piece(10, 11, 0b111))
    root.decided(said((10, 11, 0b011)), 1_000)
    assert root.propose(1_000) == []
    assert {member for member, _, _ in root.answers.missing(2_000)} >= {0, 1}
    root.take(Piece(10, 11, 0b001))
    root.take(Piece(10, 11, 0b010))
    (commit,) = root.propose(2_000)
    assert commit.members == 0b011


def test_who_is_in_the_decision_and_has_nothing_in_this_range_holds_nobody_up() -> None:
    """It was over its quota here alone, and goes on with a later pane; the other one is leapt over."""
    root = begun(1, members=2)
    passed(root, 14, 0b10, 1_000)
    root.hear(0, FlowProgress("uid", 12, 14), 1_000)
    root.take(Piece(10, 12, 0b10))
    root.take(Piece(12, 14, 0b11))
    root.decided(said((10, 12, 0b01), (12, 14, 0b11)), 1_000)
    assert root.propose(3_900) == [], "it is waited for as any straggler"
    passed(root, 14, 0b10, 5_000)
    (empty,) = root.propose(5_100)
    assert (empty.start, empty.end, empty.members) == (10, 12, 0)
    root.committed(empty, 5_100)
    (both,) = root.propose(5_100)
    assert (both.start, both.end, both.members) == (12, 14, 0b11)


def test_who_is_in_the_decision_and_comes_late_is_a_revision() -> None:
    root = begun(1)
    passed(root, 11, 0b011, 1_000)
    root.take(Piece(10, 11, 0b001))
    root.decided(said((10, 11, 0b011)), 1_000)
    assert root.propose(3_900) == [], "it is waited for from when it is decided"
    (commit,) = root.propose(5_100)
    assert commit.members == 0b001
    root.committed(commit, 5_100)
    assert root.answers.verdicts(1, 10, 11, 6_000) == [(10, 11, "send")]
    root.take(Piece(10, 11, 0b010))
    (commit,) = root.propose(6_000)
    assert (commit.members, commit.revision) == (0b011, 1)


def test_a_root_that_is_new_revises_nothing_before_it_knows_who_is_in_it() -> None:
    """What it has committed in an earlier life it has with the decisions of then, and keeps none of these."""
    root = begun(1)
    passed(root, 12, 0b111, 1_000)
    root.take(Piece(10, 11, 0b001))
    root.take(Piece(11, 12, 0b011))
    root.decided(said((10, 11, 0b011), (11, 12, 0b011)), 1_000)
    while commits := root.propose(5_100):
        root.committed(commits[0], 5_100)
    assert [one.members for one in root.history] == [0b001, 0b011]
    new = rooted(ranged(1), members=3)
    new.history = History(root.segments())
    passed(new, 12, 0b111, 5_200)
    new.begin(10, 5_200)
    new.take(Piece(10, 11, 0b100))
    new.take(Piece(10, 11, 0b010))
    assert new.propose(5_200) == [], "nobody has said who is in pane 10"
    assert new.answers.verdicts(2, 10, 12, 5_200) == [(10, 12, "wait")]
    assert new.undecided_from() == 10
    new.decided(said((10, 11, 0b011)), 5_200)
    assert new.undecided_from() == 11, "it asks for the rest"
    new.decided(said((11, 12, 0b011)), 5_200)
    assert new.answers.verdicts(2, 10, 12, 5_200) == [(10, 11, "leapt"), (11, 12, "leapt")]
    assert new.answers.verdicts(1, 10, 12, 5_200) == [(10, 11, "send"), (11, 12, "included")]
    new.take(Piece(10, 11, 0b100))
    new.take(Piece(10, 11, 0b010))
    (commit,) = new.propose(5_200)
    assert (commit.revision, commit.members) == (1, 0b011)


def test_a_pane_that_nobody_is_in_is_so_in_all_ranges() -> None:
    root = begun(1)
    passed(root, 11, 0b111, 1_000)
    root.take(Piece(10, 11, 0b111))
    root.decided(said((10, 11, 0)), 1_000)
    root.take(Piece(11, 12, 0b001))
    (commit,) = root.propose(1_000)
    assert (commit.start, commit.members) == (10, 0)


def test_the_lead_answers_with_its_commits_and_what_it_has_not_is_free() -> None:
    root = begun(0)
    asked = AskDecided(flow=UID, follower=UID, start=7)
    assert answer(root, asked) == said((7, 10, 0), free=True)
    passed(root, 11, 0b111, 1_000)
    root.take(Piece(10, 11, 0b011))
    (commit,) = root.propose(60_000)
    root.committed(commit, 60_000)
    assert answer(root, asked) == said((7, 10, 0), (10, 11, 0b011), free=True)
    assert answer(root, replace(asked, start=10)) == said((10, 11, 0b011))
    assert answer(root, replace(asked, start=11)) is None


def test_a_member_leaps_over_a_pane_in_all_ranges_at_once() -> None:
    flows = [Flow(f"{n}" * 24, fragment, bytes(16), "root") for n, fragment in enumerate(LEAP.fragments)]

    def others(flow: Flow) -> list[Flow]:
        return [one for one in flows if one is not flow]

    sender = Sender(lambda _: "up", lambda _: (), lambda _: 1, incarnation=1, ranges_of=others)
    for flow in flows:
        sender.add(flow)
        sender.sealed(Sealed(flow.uid, 10, 11, b"", b""), 0)
    sender.progress(FlowProgress(flow.uid, 10, 11) for flow in flows)

    def dropped(found: list[Effect]) -> list[tuple[str, int]]:
        works = (one.command for one in found if isinstance(one, Work))
        return [(one.uid, len(one.names)) for one in works if isinstance(one, DropStragglers)]

    without = Committed(flow=flows[1].uid, start=10, end=11, revision=0, members=to_bytes(0b01))
    assert dropped(sender.committed(without, 0)) == [], "a range that follows does not decide"
    assert dropped(sender.committed(replace(without, flow=flows[0].uid), 0)) == [(f.uid, 1) for f in flows]
    assert not any(isinstance(one, Send) for one in sender.committed(without, 0))
