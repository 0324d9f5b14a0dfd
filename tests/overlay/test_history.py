"""What a node keeps of a topic, against the obvious: each number once, in order, or named as lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from overlay import Peer
from overlay.history import ROOTS_MAX, Histories, History, Word, mark
from overlay.tree import Flight
from overlay.treemessages import Head

ROOT, OTHER = Peer("root", 1), Peer("root", 2)


def told(words: list[Word]) -> list[tuple[int, int]]:
    """Numbers given out as (n, n); lost ones as (-first, -last)."""
    return [(w.first, w.last) if w.payload is not None else (-w.first, -w.last) for w in words]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("exists"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("lose"), st.integers(1, 30), st.integers(0, 9)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 12))
def test_all_numbers_are_given_out_or_lost_once_and_in_order(
    steps: list[tuple[str, int, int]], kept_max: int
) -> None:
    histories = Histories(kept_max, 1_000)
    given_out: list[Word] = []
    offered: set[int] = set()
    for now, (what, number, more) in enumerate(steps):
        if what == "take":
            offered.add(number)
            given_out += histories.take(ROOT, number, b"%d" % number, now) or []
        elif what == "exists":
            histories.of(ROOT).exists(number, now)
        else:
            given_out += histories.of(ROOT).lose(number, number + more, now)
        histories.check()
    tiles = [n for word in given_out for n in range(word.first, word.last + 1)]
    assert tiles == list(range(1, len(tiles) + 1))
    assert all(word.payload == b"%d" % word.first for word in given_out if word.payload is not None)
    assert {word.first for word in given_out if word.payload is not None} <= offered
    history = histories.of(ROOT)
    assert history.next == len(tiles) + 1
    kept = dict(history.kept(1, 99))
    assert len(kept) <= kept_max
    again = [n for word in history.again() for n in range(word.first, word.last + 1)]
    assert again == tiles
    missing = history.missing(99)
    assert missing is None or (missing[0] == history.next and missing[1] <= history.newest)


def test_a_gap_is_seen_and_what_waits_comes_in_its_turn() -> None:
    history = History(ROOT)
    assert told(history.take(1, b"a", 0)) == [(1, 1)]
    assert history.take(4, b"d", 5) == []
    assert (history.missing(9), history.missing(1), history.waits_since) == ((2, 3), (2, 2), 5)
    assert told(history.take(2, b"b", 6)) == [(2, 2)]
    assert told(history.lose(3, 3, 7)) == [(-3, -3), (4, 4)]
    assert (history.missing(9), history.waits_since) == (None, None)
    assert told(history.again()) == [(1, 1), (2, 2), (-3, -3), (4, 4)]


def test_who_begins_late_loses_what_is_kept_no_more() -> None:
    history = History(ROOT)
    history.exists(1 << 62, 0)
    assert history.missing(16) == (1, 16)
    assert told(history.lose(1, 1 << 62, 0)) == [(-1, -(1 << 62))]
    assert history.take((1 << 62) + 1, b"x", 0) == [Word(ROOT, (1 << 62) + 1, (1 << 62) + 1, b"x")]


def test_bytes_are_bounded_over_all_roots_and_the_silent_root_pays() -> None:
    histories = Histories(kept_max=100, bytes_max=10)
    histories.take(ROOT, 1, b"12345", 0)
    histories.take(OTHER, 1, b"12345", 0)
    histories.take(OTHER, 2, b"12345", 0)
    assert [len(histories.of(root)) for root in (ROOT, OTHER)] == [0, 2]
    histories.take(OTHER, 3, bytes(1_000), 0)
    assert [number for number, _ in histories.of(OTHER).kept(1, 9)] == [3]
    assert histories.heads() == (Head(ROOT, 1), Head(OTHER, 3))


def test_old_roots_are_forgotten_in_the_end() -> None:
    histories = Histories(4, 100)
    for number in range(ROOTS_MAX + 5):
        histories.take(Peer("root", number), 1, b"x", number)
        histories.check()
    assert len(histories.heads()) == ROOTS_MAX


def test_a_mark_tells_paths_and_heads_apart_and_knows_no_order() -> None:
    one, two = Head(ROOT, 1), Head(OTHER, 1)
    assert mark(("a",), (one, two)) == mark(("a",), (two, one))
    assert len({mark(("a",), (one,)), mark(("b",), (one,)), mark(("a",), (two,)), mark(("a",), ())}) == 4


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=40))
def test_a_flight_holds_what_was_sent_after_the_last_word(steps: list[tuple[int, int]]) -> None:
    flight, obvious = Flight(), []
    for round_, (what, number) in enumerate(steps):
        if what < 2:
            flight.add(round_, ROOT, number, number)
            obvious.append((round_, number))
        elif what == 2:
            flight.heard(ROOT, number)
            at = [n for _, n in obvious]
            obvious = obvious[at.index(number) + 1 :] if number in at else obvious
        else:
            flight.round_over(round_ - number)
            obvious = [(r, n) for r, n in obvious if r >= round_ - number]
        assert len(flight) == len(obvious)
        assert flight.room(5, 20) == (not obvious or (len(obvious) < 5 and sum(n for _, n in obvious) < 20))
