"""The key ranges of a job: equal, without holes, each with a topic of its own."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay import key_of, range_of, range_starts, range_topics, topic_of


@given(st.integers(0, 2**64 - 1), st.integers(1, 300))
def test_ranges_are_equal_and_have_no_holes(hash64: int, ranges: int) -> None:
    starts = range_starts(ranges)
    assert range_of(hash64, ranges) == bisect_right(starts, hash64) - 1
    widths = [b - a for a, b in zip(starts, (*starts[1:], 2**64), strict=True)]
    assert max(widths) - min(widths) <= 1


@given(st.integers(1, 64))
def test_each_range_has_its_own_topic(ranges: int) -> None:
    topics = range_topics(b"busy", ranges)
    assert len(set(topics)) == ranges
    assert not set(topics) & set(range_topics(b"idle", ranges))
    assert topic_of(b"busy", 2**64 - 1, ranges) == topics[-1]


def test_one_range_is_the_job_itself() -> None:
    assert range_topics(b"busy", 1) == (key_of(b"busy"),)


@pytest.mark.parametrize(("hash64", "ranges"), [(-1, 1), (2**64, 1), (0, 0)])
def test_what_is_no_range_is_refused(hash64: int, ranges: int) -> None:
    with pytest.raises(ValueError, match=r"64 bits|at least one"):
        range_of(hash64, ranges)
