"""Two places a tree: which they are, and which is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.job.spec import app_id
from overlay.placement import CHOICES, candidates, choose


@given(st.text(), st.text())
def test_candidates_are_app_ids_of_a_job_with_salts(name: str, creator: str) -> None:
    """So the first is where every job is that has one id only."""
    named = f"{name}\0{creator}".encode()
    assert candidates(named) == tuple(app_id(name, creator, salt) for salt in range(CHOICES))


@given(st.binary(), st.integers(1, 6))
def test_candidates_differ_and_more_of_them_begin_with_fewer(name: bytes, choices: int) -> None:
    keys = candidates(name, choices)
    assert len(set(keys)) == choices
    assert all(len(key) == 16 for key in keys)
    assert candidates(name, choices + 1)[:choices] == keys


@given(st.lists(st.integers(0, 9), min_size=1))
def test_the_first_of_the_least_loaded_is_taken(loads: list[int]) -> None:
    taken = choose(loads)
    assert loads[taken] == min(loads)
    assert all(load > loads[taken] for load in loads[:taken])


def test_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="no candidates"):
        choose([])
    with pytest.raises(ValueError, match="at least one candidate"):
        candidates(b"busy", 0)
