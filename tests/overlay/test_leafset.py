"""LeafSet against sorted lists."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay import OverlayBug, Peer
from overlay.ids import RING, clockwise, closeness
from overlay.leafset import LeafSet, gap


@cache
def peer(number: int) -> Peer:
    return Peer(f"peer-{number}", 1)


ME = peer(0)
SIZES = st.sampled_from([2, 4, 8])
NUMBERS = st.lists(st.integers(1, 40), unique=True, max_size=25)
KEYS = st.integers(0, RING - 1)


def nearest(numbers: list[int], size: int) -> list[Peer]:
    """The truth: the half of them that follow us and the half that precede us, clockwise."""
    ring = sorted((peer(n) for n in numbers), key=lambda p: clockwise(ME.id, p.id))
    return ring if len(ring) <= size else ring[: size // 2] + ring[-size // 2 :]


def filled(numbers: list[int], size: int) -> LeafSet:
    leaves = LeafSet(ME.id, size)
    for number in numbers:
        leaves.add(peer(number))
        leaves.check()
    return leaves


@given(NUMBERS, SIZES)
def test_whatever_the_order_the_nearest_are_in(numbers: list[int], size: int) -> None:
    leaves = filled(numbers, size)
    assert list(leaves) == nearest(numbers, size)
    assert leaves.full == (len(numbers) >= size)


@given(NUMBERS, st.integers(1, 40), SIZES)
def test_it_wants_just_those_that_it_takes(numbers: list[int], candidate: int, size: int) -> None:
    leaves = filled(numbers, size)
    already = peer(candidate).id in leaves
    wanted = leaves.wants(peer(candidate).id)
    assert wanted == (peer(candidate) in nearest([*numbers, candidate], size) and not already)
    assert leaves.add(peer(candidate)) == (wanted or already)


@given(NUMBERS, SIZES, st.data())
def test_removing(numbers: list[int], size: int, data: st.DataObject) -> None:
    leaves = filled(numbers, size)
    members = list(leaves)
    if not members:
        assert not leaves.remove(peer(1).id)
        return
    gone = data.draw(st.sampled_from(members))
    assert leaves.remove(gone.id)
    assert not leaves.remove(gone.id)
    assert list(leaves) == [member for member in members if member != gone]
    leaves.check()


@given(NUMBERS, SIZES, KEYS)
def test_closest_is_the_minimum(numbers: list[int], size: int, key: int) -> None:
    leaves = filled(numbers, size)
    best = min([*leaves, ME], key=lambda p: closeness(key, p.id))
    assert (leaves.closest(key) or ME) == best


@given(NUMBERS, SIZES, KEYS)
def test_what_a_set_covers_nobody_else_is_closer_to(numbers: list[int], size: int, key: int) -> None:
    leaves = filled(numbers, size)
    if leaves.covers(key):
        assert (leaves.closest(key) or ME) == min(
            [ME, *map(peer, numbers)], key=lambda p: closeness(key, p.id)
        )
    elif leaves.full:
        successor, predecessor = gap(list(leaves.offsets), size)
        assert successor < clockwise(ME.id, key) < predecessor


@given(NUMBERS, SIZES)
def test_neighbours_are_the_next_ones_and_farthest_the_last(numbers: list[int], size: int) -> None:
    leaves = filled(numbers, size)
    members = list(leaves)
    assert set(leaves.neighbours()) == set(members[:1] + members[-1:])
    half = RING // 2
    after = [p for p in members if clockwise(ME.id, p.id) < half]
    before = [p for p in members if clockwise(ME.id, p.id) >= half]
    assert leaves.farthest() == (*after[-1:], *before[:1])


def test_a_renewed_member_stands_in_its_new_incarnation() -> None:
    leaves = filled([1, 2, 3], 4)
    leaves.add(Peer("peer-2", 7))
    assert Peer("peer-2", 7) in list(leaves)
    assert len(leaves) == 3


def test_we_are_no_leaf_of_ours() -> None:
    leaves = LeafSet(ME.id, 4)
    assert not leaves.add(ME)
    assert len(leaves) == 0


def test_check_finds_a_wrong_place() -> None:
    leaves = filled([1, 2, 3], 4)
    leaves._members[peer(1).id] = peer(2)
    with pytest.raises(OverlayBug):
        leaves.check()
