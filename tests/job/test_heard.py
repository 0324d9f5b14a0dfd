"""What a reader knows of the results that have not come to it."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from elf.wire.heard import Heard


def test_a_reader_from_the_first_result_on() -> None:
    heard = Heard(0)
    assert heard.take(1, 0)
    assert heard.take(3, 2)
    assert (heard.upto, heard.lacks) == (1, True)
    assert not heard.take(3, 2), "it came twice"
    assert heard.take(2, 1)
    assert (heard.upto, heard.lacks) == (3, False)
    assert not heard.take(2, 1)


def test_a_reader_begins_with_the_next_result() -> None:
    heard = Heard(None)
    assert heard.take(0, 0), "early results have no number"
    assert (heard.upto, heard.lacks) == (None, False)
    assert heard.take(8, 7)
    assert not heard.take(5, 4), "that was before"
    assert (heard.upto, heard.lacks) == (8, False)


def test_what_is_kept_no_more_is_not_asked_for_ever() -> None:
    heard = Heard(3)
    heard.take(9, 8)
    assert heard.lacks
    assert not heard.take(9, 3), "asked for all above 3, the master has 9 only"
    assert (heard.upto, heard.lacks) == (9, False)


@given(st.integers(0, 1 << 32), st.integers(1, 20))
def test_in_any_order_and_any_number_of_times_each_is_new_once(seed: int, count: int) -> None:
    rng = random.Random(seed)
    come = rng.choices(range(1, count + 1), k=count) + list(range(1, count + 1))
    rng.shuffle(come)
    heard, new = Heard(0), []
    for at, number in enumerate(come, 1):
        new += [number] if heard.take(number, number - 1) else []
        there = set(come[:at])
        whole = next(n for n in range(count + 2) if n + 1 not in there)
        assert (heard.upto, heard.lacks) == (whole, max(there) > whole)
    assert sorted(new) == list(range(1, count + 1))
