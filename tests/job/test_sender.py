"""What an agent owes its roots: a quota for each flow, held across restarts, and a word now and then."""

from __future__ import annotations

import pytest

from elf.fields import replace
from elf.job.commands import Resume, Suspend
from elf.job.contributions import Piece
from elf.job.effects import Effect, Send, Work
from elf.job.messages.rollup import Committed, FlowProgress, Progress, Slice
from elf.job.rollup.border import HELD_BYTES_MAX
from elf.job.rollup.sender import SENT_ALL_BYTES_MAX, SENT_BYTES_MAX, SENT_MAX, Sender
from elf.job.snapshots import Sealed
from elf.job.spec import Flow
from elf.job.stamps import is_stamped
from overlay.turns import TURNS_MAX
from tests.support.flow_copies import FLOW

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
    """An agent died after its snapshots were forgotten and before the checkpoint that says that their flow
    goes on: it stood still for ever (``elf sim chaos``, seed 1795401858 of 4 agents)."""
    sender = Sender(lambda _: None, lambda _: (), lambda _: 0, incarnation=2, retained_bytes_max=QUOTA)
    sender.add(FLOW, owed, suspended=suspended)
    assert sender.restored() == wanted
    assert sender.restored() == []


def test_what_went_to_a_parent_that_dies_goes_to_the_root_once_until_it_is_committed() -> None:
    parents = ["relay"]
    sender = Sender(lambda _: parents[0], lambda _: (), lambda _: 3, incarnation=1)
    sender.add(FLOW)

    def sealed(pane: int) -> list[Effect]:
        return sender.sealed(Sealed(FLOW.uid, pane, pane + 1, b"counters", b"payload"), pane)

    first, second = (send for pane in (0, 1) for send in sealed(pane) if isinstance(send, Send))
    assert (first.to, second.to) == ("relay", "relay")
    assert sender.peer_down("another") == []
    sender.committed(Committed(flow=FLOW.uid, start=0, end=1, revision=0, members=b""), 0)
    assert sender.peer_down("relay") == [Send(FLOW.leader, second.message)]
    assert sender.peer_down("relay") == []


def test_what_comes_after_a_map_is_measured_by_stamped_panes() -> None:
    sender = Sender(lambda _: "relay", lambda _: (), lambda _: 3, incarnation=1)
    sender.add(FLOW)
    panes = [pane for pane in range(64) if is_stamped(pane, FLOW.fragment.pane_us)]
    for pane in (panes[0], panes[0] + 1):
        sender.mapped(Sealed(FLOW.uid, pane, pane + 1, b"", b""), 970, late_ms=0)
        word = Committed(flow=FLOW.uid, start=pane, end=pane + 1, revision=0, members=b"")
        assert not is_stamped(panes[0] + 1, FLOW.fragment.pane_us)
        sender.committed(word, 1_040 + 500 * (pane - panes[0]))
    assert (sender.rest(FLOW.uid).ms, sender.rested) == (105, 1)
    assert sender.rest("another").ms == 0


def test_what_went_up_is_kept_within_bounds_and_not_for_a_root_that_dies() -> None:
    sender = Sender(lambda _: "relay", lambda _: (), lambda _: 3, incarnation=1)
    sender.add(FLOW)
    for pane in range(SENT_MAX + 3):
        sender.send_up(FLOW, Piece(pane, pane + 1, 8, b"", b"x"))
    again = [one.message for one in sender.peer_down("relay") if isinstance(one, Send)]
    assert [one.start for one in again if isinstance(one, Slice)] == list(range(3, SENT_MAX + 3))
    sender.send_up(FLOW, Piece(0, 1, 8, b"", b"x" * (SENT_BYTES_MAX + 1)))
    assert sender.peer_down("relay") == []
    sender.send_up(replace(FLOW, leader="relay"), Piece(1, 2, 8))
    assert sender.peer_down("relay") == [], "it is the root: the next one is offered what it lacks"


def test_what_went_up_of_all_flows_together_is_bounded() -> None:
    sender = Sender(lambda _: "relay", lambda _: (), lambda _: 3, incarnation=1)
    flows = [replace(FLOW, uid=f"f{number}") for number in range(SENT_ALL_BYTES_MAX // SENT_BYTES_MAX + 3)]
    for flow in flows:
        sender.add(flow)
        sender.send_up(flow, Piece(0, 1, 8, b"", b"x" * SENT_BYTES_MAX))
    sender.remove(flows[0].uid)
    sender.send_up(flows[-1], Piece(0, 1, 8, b"", b"x" * SENT_BYTES_MAX))
    told = [one.message for one in sender.peer_down("relay") if isinstance(one, Send)]
    again = [one.flow for one in told if isinstance(one, Slice)]
    assert again == [flow.uid for flow in (*flows[1:-3], flows[-1])]
    sender.send_up(flows[1], Piece(1, 2, 8, b"", b"x"))
    assert len(sender.peer_down("relay")) == 1


def test_what_waits_at_the_border_of_all_flows_together_is_bounded() -> None:
    sender = Sender(
        lambda _: "relay",
        lambda _: (),
        lambda _: 3,
        incarnation=1,
        crosses=lambda _: True,
        unit_of=lambda _: 6,
    )
    flows = [replace(FLOW, uid=f"f{number}") for number in range(3)]

    def leaves(flow: Flow, pane: int) -> bool:
        found = sender.sealed(Sealed(flow.uid, pane, pane + 1, b"", b"x" * (HELD_BYTES_MAX * 2 // 5)), 0)
        return any(isinstance(one, Send) and isinstance(one.message, Slice) for one in found)

    for flow in flows:
        sender.add(flow)
    assert [leaves(flow, 0) for flow in flows] == [False, False, True]
    sender.remove(flows[0].uid)
    assert not leaves(flows[2], 1)
    assert leaves(flows[1], 1), "there is no room again"


def said(effects: list[Effect]) -> dict[str, int]:
    """To whom a word goes, and how much later the next one comes, in ms."""
    words = [(one.to, one.message) for one in effects if isinstance(one, Send)]
    return {to: word.flows[0].later_ms for to, word in words if isinstance(word, Progress)}


def test_of_many_masters_each_hears_in_its_turn_how_far_we_are_and_a_new_one_at_once() -> None:
    sender = Sender(lambda _: None, lambda _: (), lambda _: 0, incarnation=1, groups_at_once=2)
    flows = [replace(FLOW, uid=f"f{n}", leader=f"home{n}") for n in range(6)]
    for flow in flows:
        sender.add(flow)
        sender.progress([FlowProgress(flow.uid, 0, 5)])
    job_groups = {flow.leader for flow in flows}
    assert said(sender.beat(0)) == dict.fromkeys(job_groups, 2_000), "nobody has heard yet"
    for begin in (1, 4):
        words = [said(sender.beat(1_000 * now)) for now in range(begin, begin + 3)]
        assert [len(word) for word in words] == [2, 2, 2]
        assert {leader for word in words for leader in word} == job_groups
        assert all(later_ms == 2_000 for word in words for later_ms in word.values())
    sender.new_leader(replace(flows[0], leader="elsewhere"))
    assert sender.deadline() == 0
    assert said(sender.tick(7_000)).keys() >= {"elsewhere"}
    for flow in flows[1:]:
        sender.remove(flow.uid)
    assert said(sender.beat(8_000)) == {"elsewhere": 0}


def test_however_many_masters_there_are_each_hears_every_four_beats() -> None:
    sender = Sender(lambda _: None, lambda _: (), lambda _: 0, incarnation=1, groups_at_once=1)
    for n in range(40):
        sender.add(replace(FLOW, uid=f"f{n}", leader=f"home{n}"))
        sender.progress([FlowProgress(f"f{n}", 0, 5)])
    sender.beat(0)
    words = [said(sender.beat(1_000 * now)) for now in range(1, TURNS_MAX + 1)]
    assert len({leader for word in words for leader in word}) == 40
