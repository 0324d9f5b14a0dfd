"""What an agent owes its roots: a quota for each flow, held across restarts."""

from __future__ import annotations

import pytest

from elf.job.commands import Resume, Suspend
from elf.job.effects import Effect, Work
from elf.job.rollup.uplink import Uplink
from tests.job.test_copies import FLOW

QUOTA = 1_000
STREAM = FLOW.fragment.stream


@pytest.mark.parametrize(
    ("suspended", "owed", "wanted"),
    [
        (True, {}, [Work(STREAM, Resume(FLOW.uid))]),
        (True, {(0, 1, 0): QUOTA}, []),
        (False, {(0, 1, 0): QUOTA + 1}, [Work(STREAM, Suspend(FLOW.uid))]),
        (False, {(0, 1, 0): QUOTA}, []),
    ],
    ids=["all was answered", "not yet", "too much is owed", "neither"],
)
def test_a_flow_is_suspended_as_what_it_owes_says_and_not_as_the_last_cut_does(
    suspended: bool, owed: dict[tuple[int, int, int], int], wanted: list[Effect]
) -> None:
    """An agent died after its snapshots were forgotten and before the cut that says that their flow goes on:
    it stood still for ever (``elf sim chaos``, seed 1795401858 of 4 agents)."""
    uplink = Uplink(lambda _: None, lambda _: (), lambda _: 0, incarnation=2, retained_bytes_max=QUOTA)
    uplink.add(FLOW, owed, suspended=suspended)
    assert uplink.restored() == wanted
    assert uplink.restored() == []
