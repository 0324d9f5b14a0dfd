"""Joining: fast, in parallel, through late and dead contacts; and the life cycle."""

from __future__ import annotations

import random

import pytest

from lab.overlay.oracles import tree_faults, wrong_leaf_sets
from lab.overlay.world import Simulator, constant, plane
from overlay import (
    JoinFailed,
    Overlay,
    OverlayConfig,
    OverlayError,
    Peer,
    PeerDown,
    Ready,
    Received,
    State,
    Tick,
    key_of,
)
from overlay.joining import TRANSITIONS, Step
from overlay.messages import Ping
from tests.support.worlds import SIZE, names, ring, ring_rests


def test_alone_a_node_is_ready_at_once() -> None:
    overlay = Overlay(Peer("a", 1), OverlayConfig(), random.Random(1))
    assert Ready() in overlay.start(["a"], 0)  # our own address is no contact
    assert overlay.ready
    assert overlay.peers() == overlay.leaf_set() == ()
    assert overlay.next_hop(key_of(b"x")) == Peer("a", 1)


@pytest.mark.parametrize("latency_ms", [0, 1])
def test_sixteen_in_one_process_are_ready_in_a_few_rounds(latency_ms: int) -> None:
    world = Simulator(random.Random(1), latency=constant(latency_ms), check=True)
    world.add("n0")
    for number in range(1, 16):
        world.add(f"n{number}", ["n0"])
    assert world.run_until(world.all_ready, 100, every_ms=1)
    assert max(node.ready_at or 0 for node in world.nodes.values()) <= 6 * latency_ms
    assert wrong_leaf_sets(world, SIZE) == []
    assert sum(world.messages.values()) < 16 * 16 * 4


def test_eighty_at_once_through_one_contact() -> None:
    world = Simulator(random.Random(2), latency=plane(20), check=True)
    world.add("n0")
    for number in range(1, 80):
        world.add(f"n{number}", ["n0"])
    assert world.run_until(world.all_ready, 2_000)
    assert ring_rests(world, 6_000)


def test_joining_while_a_tenth_of_all_messages_is_lost() -> None:
    world = ring(20, latency=plane(10), loss=0.1, doubling=0.1, seed=3)
    assert ring_rests(world, 20_000)


def test_a_chain_of_contacts_that_are_not_ready_themselves() -> None:
    world = Simulator(random.Random(1), latency=constant(5), check=True)
    world.add("n0")
    for number in range(1, 6):
        world.add(f"n{number}", [f"n{number - 1}"])
    assert world.run_until(world.all_ready, 2_000)
    assert ring_rests(world, 5_000)


def test_a_contact_that_starts_later() -> None:
    world = Simulator(random.Random(1), check=True)
    world.add("b", ["a"])
    world.run(3_000)
    assert not world.nodes["b"].overlay.ready
    world.add("a")
    assert world.run_until(world.all_ready, 700)
    assert ring_rests(world, 100)


def test_a_dead_contact_costs_one_retry() -> None:
    world = ring(5)
    world.add("late", ["nobody", "n3"])
    assert world.run_until(world.all_ready, 700)


def test_a_dead_leaf_delays_a_join_no_longer_than_its_probes() -> None:
    world = ring(8)
    world.crash("n4")
    world.add("late", ["n0"])
    assert world.run_until(world.all_ready, 4_000)
    assert ring_rests(world, 2_500)


def test_no_contact_answers() -> None:
    world = Simulator(random.Random(1), OverlayConfig(join_timeout_ms=2_000), check=True)
    overlay = world.add("b", ["a", "c"])
    world.run(1_900)
    assert not any(isinstance(effect, JoinFailed) for effect in world.nodes["b"].effects)
    world.run(200)
    assert overlay.state is State.FAILED
    assert [e for e in world.nodes["b"].effects if isinstance(e, JoinFailed)] == [
        JoinFailed(("a", "c"), "no contact answers")
    ]
    assert overlay.deadline() is None
    sent = sum(world.messages.values())
    world.run(5_000)
    assert sum(world.messages.values()) == sent


def test_after_a_failure_a_node_may_found_its_own_ring_or_try_again() -> None:
    world = Simulator(random.Random(1), OverlayConfig(join_timeout_ms=2_000), check=True)
    founder, other = world.add("a", ["b"]), world.add("c", ["gone"])
    other.subscribe(key_of(b"t"), 0)
    world.run(2_100)
    assert [founder.state, other.state] == [State.FAILED, State.FAILED]
    world.perform("a", founder.start([], world.now))
    world.perform("c", other.start(["a"], world.now))
    assert founder.ready
    assert world.run_until(world.all_ready, 100)
    world.run(1_000)
    assert tree_faults(world, key_of(b"t"), ["c"]) == []


def test_a_second_start_is_refused() -> None:
    overlay = Overlay(Peer("a", 1), OverlayConfig(), random.Random(1))
    overlay.start([], 0)
    with pytest.raises(OverlayError, match="READY"):
        overlay.start([], 0)


def test_every_state_can_be_left_for_good_and_none_returns() -> None:
    for state in State:
        allowed = {step for (start, step) in TRANSITIONS if start is state}
        assert (Step.LEAVE in allowed) == (state is not State.LEFT)
    assert State.IDLE not in TRANSITIONS.values()


def test_one_that_has_left_is_silent() -> None:
    world = ring(3)
    world.leave("n1")
    gone = world.nodes["n1"].overlay
    assert gone.state is State.LEFT
    assert gone.deadline() is None
    assert gone.leave(world.now) == []
    assert gone.handle(Tick(), world.now) == []
    assert gone.route(key_of(b"x"), b"", world.now) == gone.subscribe(key_of(b"x"), world.now) == []
    world.run(100)
    assert names(world) == ["n0", "n2"]
    assert {p.address for p in world.nodes["n0"].overlay.peers()} == {"n2"}


def test_before_start_messages_are_ignored() -> None:
    overlay = Overlay(Peer("a", 1), OverlayConfig(), random.Random(1))
    assert overlay.handle(Received(Ping(Peer("b", 1), 1)), 5) == []
    assert overlay.deadline() is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_bits", 3),
        ("leaf_set_size", 7),
        ("probe_ms", 0),
        ("suspect_ms", 400),
        ("tree_refresh_ms", 2_000),
    ],
)
def test_a_config_that_cannot_work_is_refused(field: str, value: int) -> None:
    with pytest.raises(ValueError, match="must"):
        OverlayConfig(**{field: value})


@pytest.mark.parametrize("service_ms", [20, 60])
def test_many_join_at_once_where_each_message_takes_long(service_ms: int) -> None:
    """Late answers are no deaths: nobody is buried, and what is sent again does not feed itself."""
    world = Simulator(random.Random(3), latency=constant(1), service_ms=service_ms)
    world.add("node-0")
    for number in range(1, 24):
        world.add(f"node-{number}", ["node-0"])
    assert world.run_until(world.all_ready, 30_000)
    down = [
        effect for node in world.nodes.values() for effect in node.effects if isinstance(effect, PeerDown)
    ]
    assert not down
    assert sum(world.messages.values()) < 24 * 150


def test_contacts_that_did_not_answer_are_not_asked_first_the_next_time() -> None:
    """Each try asks some four of its contacts: where more of the first ones are dead nobody else ever was."""
    world = Simulator(random.Random(3), OverlayConfig(join_retry_ms=2_000), constant(1))
    world.add("n0")
    contacts = [*(f"dead-{number}" for number in range(9)), "n0"]
    world.add("n1", contacts)
    joining = world.nodes["n1"].overlay
    for _ in range(3):
        world.run(31_000)
        if joining.state is State.FAILED:
            world.perform("n1", joining.start(contacts, world.now))
    assert world.all_ready()
