"""The pile of pieces against a dictionary of panes: nobody is ever in a pane twice, and nothing that fits is
refused.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elf.job.contributions import Piece, Pieces, Pile, bitmap, from_bytes, members_of, numbers, to_bytes
from elf.job.rollup.combiner import FIRST_MS, SELF, WAIT_MS, WAIT_MS_MIN, Combiner, behind, wait_ms

PANES = 12


@st.composite
def pieces(draw: st.DrawFn) -> list[Piece]:
    found = []
    for tag in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, PANES - 1))
        end = draw(st.integers(start + 1, PANES))
        members = draw(st.integers(1, 31))
        found.append(Piece(start, end, members, payload=bytes([tag])))
    return found


class Panes:
    """The obvious way: for each pane the tags that are in it and whom they cover."""

    def __init__(self) -> None:
        self.covered = [0] * PANES
        self.tags: list[set[int]] = [set() for _ in range(PANES)]

    def add(self, piece: Piece) -> None:
        for pane in range(piece.start, piece.end):
            if not self.covered[pane] & piece.members:
                self.covered[pane] |= piece.members
                self.tags[pane].add(piece.payload[0])


@given(pieces(), st.integers(0, PANES), st.integers(0, PANES))
def test_pile_is_a_dictionary_of_panes(given_pieces: list[Piece], one: int, other: int) -> None:
    pile, panes = Pile(), Panes()
    for piece in given_pieces:
        pile.add(piece)
        panes.add(piece)
        pile.check()
    start, end = min(one, other), max(one, other)
    if start < end:
        spans = pile.spans(start, end)
        assert [span[0] for span in spans] == [start, *(span[1] for span in spans[:-1])]
        for left, right, members in spans:
            assert all(panes.covered[pane] == members for pane in range(left, right))
    seen: list[set[int]] = [set() for _ in range(PANES)]
    for pieces in pile.take(start, end):
        ((first, last),) = {(piece.start, piece.end) for piece in pieces}
        assert start <= first < last <= end
        for pane in range(first, last):
            assert panes.covered[pane] == members_of(pieces)
            seen[pane] |= {piece.payload[0] for piece in pieces}
    assert seen[start:end] == panes.tags[start:end]
    rest: list[set[int]] = [set() for _ in range(PANES)]
    for piece in pile:
        for pane in range(piece.start, piece.end):
            rest[pane].add(piece.payload[0])
    assert rest == [set() if start <= pane < end else tags for pane, tags in enumerate(panes.tags)]


def spanned(pieces: Pieces) -> tuple[int, int, int]:
    return pieces[0].start, pieces[0].end, members_of(pieces)


@given(st.sets(st.integers(0, 300)))
def test_bitmaps_come_back(members: set[int]) -> None:
    assert numbers(from_bytes(to_bytes(bitmap(members)))) == sorted(members)


def test_a_relay_waits_for_those_who_reported_and_not_for_ever() -> None:
    combiner = Combiner(wait_ms=1_000)
    combiner.add(SELF, Piece(0, 1, 1), 0)
    assert combiner.ready(("child",), 0) == []  # the child never reported: a moment
    assert combiner.deadline() == FIRST_MS
    assert [members_of(pieces) for pieces in combiner.ready(("child",), FIRST_MS)] == [1]
    combiner.add("child", Piece(0, 1, 2), 60)
    assert [members_of(pieces) for pieces in combiner.ready(("child",), 60)] == [2]
    combiner.add(SELF, Piece(1, 2, 1), 70)
    assert combiner.ready(("child",), 70) == []  # now it is waited for
    combiner.add("child", Piece(1, 3, 2), 80)
    assert [spanned(pieces) for pieces in combiner.ready(("child",), 80)] == [(1, 2, 3)]
    assert combiner.deadline() == 1_080
    assert [spanned(pieces) for pieces in combiner.ready(("child",), 1_080)] == [(2, 3, 2)]


def test_the_first_panes_of_all_children_go_up_as_one() -> None:
    combiner = Combiner()
    combiner.add("left", Piece(0, 1, 2), 0)
    assert combiner.ready(("left", "right"), 0) == []
    combiner.add(SELF, Piece(0, 2, 1), 5)
    assert combiner.ready(("left", "right"), 5) == []
    combiner.add("right", Piece(0, 1, 4), 10)
    assert [spanned(pieces) for pieces in combiner.ready(("left", "right"), 10)] == [(0, 1, 7)]
    assert combiner.deadline() == 1_010


def test_a_root_waits_for_nobody_below_its_own_relay() -> None:
    combiner = Combiner()
    combiner.add(SELF, Piece(0, 1, 1), 0)
    assert [members_of(pieces) for pieces in combiner.ready(("child",), 0, root=True)] == [1]


def test_a_relay_that_becomes_the_root_waits_for_no_child() -> None:
    combiner = Combiner()
    for source, member in ((SELF, 1), ("child", 2)):
        combiner.add(source, Piece(0, 1, member), 0)
    assert [spanned(pieces) for pieces in combiner.ready(("child",), 0)] == [(0, 1, 3)]
    combiner.add(SELF, Piece(1, 2, 1), 1_000)
    assert combiner.ready(("child",), 1_000) == []
    assert [spanned(pieces) for pieces in combiner.ready(("child",), 1_000, root=True)] == [(1, 2, 1)]


def test_who_is_two_intervals_behind_half_of_its_siblings_is_a_straggler() -> None:
    assert behind({}) == behind({"a": 5}) == behind({"a": 5, "b": 4, "c": 4}) == {}
    assert behind({"a": 5, "b": 5, "c": 3}) == {"c": 4}, "in pane 3"
    assert behind({"a": 9, "b": 5, "c": 5, "d": 3}) == {"d": 4}
    assert behind({"a": 9, "b": 3, "c": 3}) == {}, "one that is ahead is not half"


def test_a_relay_does_not_wait_for_a_straggler_and_says_so_once() -> None:
    combiner = Combiner(wait_ms=60_000)
    children = ("left", "right", "slow")
    for source in (SELF, *children):
        combiner.add(source, Piece(0, 1, 1 << len(source)), 0)
    assert len(combiner.ready(children, 0)) == 1
    for pane in (1, 2):
        for source in (SELF, *children[:2]):
            combiner.add(source, Piece(pane, pane + 1, 1 << len(source)), pane)
        gone_up = [spanned(pieces)[:2] for pieces in combiner.ready(children, pane)]
        assert gone_up == ([] if pane == 1 else [(1, 2), (2, 3)])
    assert combiner.stragglers() == (("slow", 2),)
    assert combiner.stragglers() == ()


@given(st.integers(0, 10_000_000), st.integers(1, 8))
def test_relays_wait_less_the_deeper_they_are(pane_us: int, depth: int) -> None:
    assert WAIT_MS_MIN <= wait_ms(pane_us, depth + 1) <= wait_ms(pane_us, depth) <= WAIT_MS
    assert wait_ms(pane_us, depth, 4_000) == max(WAIT_MS_MIN, 4_000 >> depth - 1)
    assert wait_ms(1_000_000, 1) == wait_ms(0, 0) == WAIT_MS


def test_a_relay_does_not_wait_for_a_child_that_went_away() -> None:
    combiner = Combiner()
    combiner.add("child", Piece(0, 1, 2), 0)
    combiner.ready(("child",), FIRST_MS)
    combiner.add(SELF, Piece(1, 2, 1), 60)
    assert combiner.ready(("child",), 60) == []
    assert [members_of(pieces) for pieces in combiner.ready((), 70)] == [1]
