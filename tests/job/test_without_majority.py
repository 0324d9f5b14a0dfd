"""What people are told of a job while most of the agents that keep it are away."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from agents.answering.asks import Ask
from elf.batch import decode
from elf.job.events import Arrived
from elf.ql.definition import Definition
from elf.wire.base import Answer
from elf.wire.clients import Call, Execute, Failed, KeepAlive, Reply
from lab.chaos.engine import defined, plan
from lab.chaos.world import World
from tests.support.histories import said
from tests.support.jobgroups import staffed

NOT_HEARD = "is not heard of; another one goes on when most of those that keep the job are there"
NOT_LED = (
    "says: it is not up here yet, has just moved, or most of the agents that keep it are away; try again"
)


@pytest.mark.parametrize("leader_dies", [True, False])
def test_who_asks_is_told_that_the_job_is_not_led_and_why(leader_dies: bool) -> None:
    world = World(91, 6)
    world.start_all()
    spec = world.create(0, plan(2))
    staffed(world, spec, 5)
    world.run(3_000)
    leader = world.leader(spec)
    voters = [a for a in world.agents if a is not leader and a.node.job_groups.voters(spec.uid)]
    dying = [leader, *voters[:2]] if leader_dies else voters[:3]
    for agent in dying:
        agent.crash()
    world.run(15_000)
    asked = next(a.index for a in world.agents if a not in dying and a is not leader)
    why = NOT_HEARD if leader_dies else NOT_LED
    named = f"a{leader.index} ({leader.address}), {why}"

    reply = said(world, asked, "SHOW JOBS")
    assert isinstance(reply, Reply)
    (row,) = decode(reply.payload).to_pylist()
    assert row["reason"] == f"its master, {named}"
    for sql, who in (
        ("DESCRIBE JOB job", "its master"),
        ("NOTIFY JOB job 'x'", "the root of its flow"),
    ):
        reply = said(world, asked, sql)
        assert isinstance(reply, Failed)
        assert reply.text == f"job job: {who}, {named}"

    world.client_inbox.clear()
    tree = Call(request=1, verb="tree", argument="job", creator="me")
    world.agents[asked].handle(Arrived("client:1", tree))
    world.run_until(lambda: bool(world.client_inbox))
    (reply,) = world.client_inbox
    assert isinstance(reply, Failed)
    assert reply.text == f"job job: the root of its flow, {named}"
    world.client_inbox.clear()
    world.agents[asked].handle(Arrived("client:2", Execute(request=2, sql="SUBSCRIBE job", creator="me")))
    for _ in range(6):
        world.agents[asked].handle(Arrived("client:2", KeepAlive(request=2)))
        world.run(2_000)
    texts = {one.text for one in world.client_inbox if isinstance(one, Reply) and one.text}
    assert texts == {f"the root of its flow, {named}"}


def test_a_select_that_cannot_begin_does_not_show_its_inner_name(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(92, 3)
    world.start_all()
    world.run(3_000)
    for agent in world.agents[1:]:
        agent.crash()

    def planned(*_: object) -> Generator[list[Ask], list[Answer], Definition]:
        yield []
        return defined(plan(2))

    monkeypatch.setattr(world.agents[0].node.clients.statements.planning, "plan", planned)
    reply = said(world, 0, "SELECT COUNT(*) AS n FROM clicks WINDOWING 2 SECONDS")
    assert isinstance(reply, Failed)
    assert reply.text == (
        "the SELECT has not begun: its master or the voters of the catalog log do not answer; "
        "try again in a moment"
    )
