"""An agent that is started at another address with its data folder, on virtual time."""

from __future__ import annotations

from elf.job.catalog.voters import LOG_GROUP
from elf.job.rollup.decide import RootSettings
from lab.chaos.agent import SimAgent
from lab.chaos.engine import STREAM, plan
from lab.chaos.world import World
from tests.support.jobgroups import exact


def readdress(world: World, agent: SimAgent, address: str) -> None:
    """It dies, and will be started there."""
    agent.crash()
    del world.by_address[agent.address]
    agent.address = address
    world.by_address[address] = agent


def voters(agent: SimAgent) -> list[str]:
    standing = agent.node.catalog.standing
    return [voter.address for voter in standing.membership.voters] if standing is not None else []


def test_an_agent_alone_goes_on_at_another_address() -> None:
    world = World(31, 1)
    (agent,) = world.agents
    world.start_all()
    spec = world.create(0, plan(2))
    old = agent.address
    world.write(agent, world.now + 40_000)
    world.run(8_000)
    slot = agent.store.load_groups()[LOG_GROUP].slot
    readdress(world, agent, "10.9.9.9:7100")
    world.restart(agent)
    world.run_until(lambda: agent.node.ready, 20_000)
    assert list(agent.node.membership.voters) == voters(agent) == [agent.address]
    assert agent.store.load_groups()[LOG_GROUP].slot == slot
    (member,) = agent.node.log.members(STREAM)
    assert (member.number, member.address) == (0, agent.address)
    world.run_until(lambda: agent.node.log.leader(spec.uid) == agent.address, 20_000)
    world.run(50_000)
    exact(world, spec, world.now, 20)
    assert old not in {flow.leader for flow in agent.node.log.flows()}
    agent.crash()
    world.restart(agent)
    world.run_until(lambda: agent.node.ready, 20_000)


def test_the_only_keeper_of_two_is_found_at_its_new_address() -> None:
    world = World(32, 2)
    voter, other = world.agents
    world.start_all()
    world.run(5_000)
    assert voters(voter) == [voter.address]
    spec = world.create(0, plan(2))
    readdress(world, voter, "10.9.9.9:7100")
    world.run(5_000)
    world.restart(voter)
    world.run_until(lambda: voter.node.ready, 30_000)
    world.run_until(lambda: other.node.membership.voters == (voter.address,), 30_000)
    world.run_until(
        lambda: {m.address for m in other.node.log.members(STREAM)} == {*world.by_address}, 30_000
    )
    world.run_until(lambda: other.node.log.leader(spec.uid) in world.by_address, 30_000)
    assert world.leader(spec).up


def test_it_does_not_while_somebody_is_at_the_old_one() -> None:
    """Its data folder would be a copy of theirs."""
    world = World(33, 3)
    voter, other, third = world.agents
    old = voter.address
    world.start_all([voter, other])
    readdress(world, voter, "10.9.9.9:7100")
    del world.by_address[third.address]
    third.address = old
    world.by_address[old] = third
    third.start([other.address])
    world.run(5_000)
    world.restart(voter)
    world.run(30_000)
    assert not voter.node.ready
    assert voters(voter) == [old]
    third.crash()
    world.run_until(lambda: voter.node.ready, 30_000)
    assert voters(voter) == [voter.address]


def test_a_keeper_of_three_at_another_address_harms_no_group() -> None:
    """It was made a learner in the slot in which it has a vote: no member could read that, so nothing was
    decided any more."""
    world = World(34, 3, checking=False)
    world.root_settings = RootSettings(grace_ms=8_000)
    world.start_all()
    world.run_until(lambda: len(voters(world.agents[0])) == 3)
    world.create(0, plan(2))
    readdress(world, world.agents[0], "10.9.9.9:7100")
    world.run(2_000)
    world.restart(world.agents[0])
    world.run(40_000)
    assert world.agents[0].node.ready
    assert world.create(1, plan(4), "other").generation == 1
