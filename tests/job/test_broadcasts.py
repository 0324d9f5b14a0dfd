"""NOTIFY JOB: every agent that runs the job hears it, once and in order, on a network that loses."""

from __future__ import annotations

from elf.job.events import Arrived
from elf.job.messages.inquiries import NotifyJob
from elf.job.rollup.broadcasts import CHARS_MAX, KEPT_MAX
from elf.wire.clients import Failed, Reply
from lab.chaos.engine import plan
from lab.chaos.world import World
from tests.support.histories import said


def test_all_hear_every_notice_once_and_in_order_though_messages_are_lost() -> None:
    world = World(3, 8, loss=0.05, doubles=0.05)
    world.start_all()
    spec = world.create(1, plan(2))
    (flow,) = world.leader(spec).node.log.flows()
    root = world.leader(spec).node.job_groups.roots.get(flow.uid)
    assert root is not None
    world.run_until(lambda: len(root.answers.reached()) == len(world.agents))
    told = 0
    for number in range(20):
        reply = said(world, number % 8, f"NOTIFY JOB job 'it''s {number}'")
        told += isinstance(reply, Reply) and reply.text == "notice sent to the 8 agents of job job"
    world.run(5_000)
    sent = world.leader(spec).broadcasts
    assert told >= 10
    assert {("job", f"it's {number}") for number in range(20)} >= set(sent)
    assert len(sent) >= told
    for agent in world.agents:
        assert agent.broadcasts == sent
        kept = agent.node.broadcasts.of(spec.uid)
        assert [("job", heard.text) for heard in kept] == sent
        assert all(heard.sent_ms <= heard.heard_ms for heard in kept)


def test_what_is_kept_is_bounded_and_ends_with_the_job() -> None:
    world = World(4, 2)
    world.start_all()
    spec = world.create(0, plan(2))
    for number in range(KEPT_MAX + 1):
        said(world, 0, f"NOTIFY JOB job '{number}'")
        world.run(20)
    assert [heard.text for heard in world.agents[1].node.broadcasts.of(spec.uid)] == [
        str(number) for number in range(1, KEPT_MAX + 1)
    ]
    said(world, 1, "DROP JOB job")
    world.run_until(lambda: not any(agent.node.broadcasts.of(spec.uid) for agent in world.agents))


def test_a_burst_beyond_what_a_tree_keeps_is_missed_and_counted() -> None:
    world = World(4, 2)
    world.start_all()
    (flow,) = (spec := world.create(0, plan(2))).flows
    root, before = world.leader(spec), world.agents[1].node.multicasts_missed
    for number in range(KEPT_MAX + 1):
        notice = NotifyJob(
            id=number, origin=root.address, uid=spec.uid, text=str(number), flow=flow.uid, author=None
        )
        root.handle(Arrived(root.address, notice))
    world.run(15_000)
    missed = world.agents[1].node.multicasts_missed - before
    assert missed > 0
    assert len(world.agents[1].broadcasts) + missed == KEPT_MAX + 1


def test_what_cannot_be_sent_is_said() -> None:
    world = World(5, 2)
    world.start_all()
    reply = said(world, 1, "NOTIFY JOB nothing 'x'")
    assert isinstance(reply, Failed)
    assert reply.text == "there is no job nothing; there are none"
    spec = world.create(0, plan(2))
    reply = said(world, 1, f"NOTIFY JOB job '{'x' * (CHARS_MAX + 1)}'")
    assert isinstance(reply, Failed)
    assert "too long" in reply.text
    leader = world.leader(spec)
    leader.crash()
    reply = said(world, 1 - leader.index, "NOTIFY JOB job 'x'")
    assert isinstance(reply, Failed)
    assert reply.text.startswith("job job: the root of its flow, ")
    assert "is not heard of; another one goes on when most of those that keep the job are there" in reply.text
