"""Who begins a flow is gathered on the way up its tree (``tests/sim`` counts what comes to many's job
group)."""

from __future__ import annotations

from collections import Counter

import pytest

from agents.codec import Message
from elf.fields import replace
from elf.job.events import Arrived
from elf.job.messages.rollup import Began, Begun, FlowBegun
from elf.job.rollup.combiner import FORGET_MS, GATHER_MS, Beginning
from elf.job.spec import Flow
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan
from lab.chaos.world import World

FLOW = Flow("uid", plan(2).fragment, b"t" * 16, "home")


def test_what_gets_lost_on_the_way_is_said_again_with_the_next_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(6, 20)
    world.start_all()
    send = World.send
    lost = Counter[str]()

    def sent(world: World, agent: SimAgent, to: str, message: Message) -> None:
        if isinstance(message, Begun):
            lost[to] += 1
        else:
            send(world, agent, to, message)

    monkeypatch.setattr(World, "send", sent)
    before = world.now
    spec = world.create(0, plan(2))
    assert lost
    assert world.now - before <= 2_000
    leader = world.leader(spec)
    root = leader.node.job_groups.roots.get(spec.flows[0].uid)
    assert root is not None
    assert root.answers.why(lambda pane: None, world.now).count("nothing is heard") == 0


def test_words_wait_for_their_flow_and_are_forgotten_when_they_were_said_again() -> None:
    flows: dict[str, Flow] = {}
    beginning = Beginning(flows.get, {FLOW.topic: "parent"}.get)
    beginning.add(FlowBegun("uid", (Began(3, 10, 10),)), 100)
    beginning.add(FlowBegun("never", (Began(4, 10, 10),)), 100)
    assert beginning.deadline() == 100 + FORGET_MS, "nobody looks every few ms for what is not here"
    assert beginning.tick(100 + GATHER_MS) == []
    flows["uid"] = FLOW
    assert beginning.deadline() == 100 + GATHER_MS, "now"
    beginning.add(FlowBegun("uid", (Began(3, 11, 11), Began(5, 10, 10))), 106)
    (sent,) = beginning.tick(100 + 2 * GATHER_MS)
    assert sent.to == "parent"
    assert sent.message == Begun(flows=(FlowBegun("uid", (Began(3, 11, 11), Began(5, 10, 10))),))
    assert beginning.deadline() is not None
    assert beginning.tick(100 + FORGET_MS) == []
    assert beginning.deadline() is None, "nothing waits"


def test_without_a_parent_they_go_to_the_master_and_many_flows_in_one_message() -> None:
    flows = {uid: replace(FLOW, uid=uid) for uid in ("one", "two")}
    beginning = Beginning(flows.get, lambda topic: None)
    for uid in flows:
        beginning.add(FlowBegun(uid, (Began(3, 10, 10),)), 100)
    (sent,) = beginning.tick(100 + GATHER_MS)
    assert sent.to == "home"
    assert isinstance(sent.message, Begun)
    assert [begun.flow for begun in sent.message.flows] == ["one", "two"]


def test_a_word_that_comes_after_a_later_one_says_nothing() -> None:
    """It waited for its flow on the way, and its member has told the job group more with a beat."""
    world = World(7, 4)
    world.start_all()
    until_ms = world.now + 6_000
    for agent in world.agents:
        world.write(agent, until_ms)
    spec = world.create(0, plan(2))
    world.run(6_000)
    uid, leader = spec.flows[0].uid, world.leader(spec)
    root = leader.node.job_groups.roots.get(uid)
    assert root is not None
    member = next(m for m in leader.node.log.members("clicks") if m.address != leader.address)
    told = root.stragglers.progress_of(member.number)
    assert told is not None
    late = Begun(flows=(FlowBegun(uid, (Began(member.number, told.sealed - 2, told.sealed - 2),)),))
    leader.handle(Arrived(member.address, late))
    assert root.stragglers.progress_of(member.number) == told
    root.down(member.address)
    leader.handle(Arrived(member.address, late))
    assert root.stragglers.is_silent(member.number, 10**9, world.now), "nor does it bring back the dead"
