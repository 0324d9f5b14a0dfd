"""Ids: arithmetic on the ring against strings and brute force."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay import Peer, key_of, node_id
from overlay.ids import RING, clockwise, closeness, digit, distance, shared_digits, to_int, to_key

IDS = st.integers(0, RING - 1)


def test_a_node_id_is_the_start_of_sha1() -> None:
    assert node_id("10.0.0.1:7400") == int(hashlib.sha1(b"10.0.0.1:7400").hexdigest()[:32], 16)
    assert Peer("10.0.0.1:7400", 9).id == node_id("10.0.0.1:7400")
    assert key_of(b"x") == hashlib.sha1(b"x").digest()[:16]


@given(IDS)
def test_keys_and_numbers_are_the_same(number: int) -> None:
    assert to_int(to_key(number)) == number


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        to_int(bytes(size))


@given(IDS, IDS)
def test_shared_digits_are_those_of_the_text(one: int, other: int) -> None:
    left, right = f"{one:032x}", f"{other:032x}"
    shared = next((i for i in range(32) if left[i] != right[i]), 32)
    assert shared_digits(one, other, 4) == shared
    assert [digit(one, row, 4) for row in range(32)] == [int(character, 16) for character in left]


@given(IDS, IDS, IDS)
def test_distance_is_the_short_way_round(one: int, other: int, key: int) -> None:
    assert (one + clockwise(one, other)) % RING == other
    assert distance(one, other) == distance(other, one) == min(clockwise(one, other), clockwise(other, one))
    assert (closeness(key, one) == closeness(key, other)) == (one == other)
