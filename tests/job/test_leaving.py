"""Who wants to leave is told no where something has no majority without it (``agents.node.leaving``)."""

from __future__ import annotations

import uuid

import pytest

from elf.job import events as was
from elf.job.group.records import group_key
from elf.job.spec import JobSpec
from elf.wire.clients import Call, Failed, Reply
from lab.chaos.agent import SimAgent
from lab.chaos.engine import BUYS, SECOND, STREAM, plan
from lab.chaos.world import World
from overlay.ids import closeness, node_id
from tests.support.histories import call, settled
from tests.support.jobgroups import agree, last_end, members, staffed


def fleet(agents: int, *, jobs: int = 1, members: int = 5) -> tuple[World, JobSpec, int]:
    """A fleet whose groups have as many members as they can have, job groups at most so many; (the world, a
    job, writing until when)."""
    world = World(61, agents, checking=False)
    world.group_members = members
    world.start_all()
    odd = agents - 1 + agents % 2
    world.run_until(lambda: voters(world) == min(odd, 5))
    until = world.now + 60_000
    for agent in world.agents:
        world.write(agent, until)
    spec = world.create(0, plan(2))
    for n in range(1, jobs):
        world.create(0, plan(2 + n), f"job{n}")
    staffed(world, spec, min(odd, members))
    world.run(4_000)
    return world, spec, until


def voters(world: World) -> int:
    return len(world.agents[0].node.membership.voters)


def ask(world: World, agent: SimAgent, argument: str = "") -> str:
    """Ask an agent to leave; why it stays, or nothing as soon as it has begun."""
    known = len(world.client_inbox)
    agent.handle(was.Arrived("client:7", Call(request=world.now, verb="leave", argument=argument)))

    def refused() -> list[str]:
        return [m.text for m in world.client_inbox[known:] if isinstance(m, Failed)]

    world.run_until(lambda: agent.node.leaving or bool(refused()), 6_000)
    return "".join(refused())


def gone(world: World, agent: SimAgent) -> str:
    """It leaves; what it says then."""
    world.run_until(lambda: not agent.up, 40_000)
    assert agent.ended == "left the cluster"
    return next(m.text for m in reversed(world.client_inbox) if isinstance(m, Reply))


def test_who_takes_a_stream_along_says_what_stands_still() -> None:
    """All that it had is in windows first; another agent that has the stream takes the job up again."""
    world = World(62, 5)
    *first, later = world.agents
    first[3].streams = later.streams = (STREAM, BUYS)
    world.start_all(first)
    for agent in first:
        world.write(agent, world.now + 20_000)
    spec = world.create(0, plan(2, streams=(STREAM, BUYS)))
    world.create(0, plan(2), "other")
    world.run(6_000)
    assert ask(world, first[3]) == ""
    at = world.now * 1_000
    assert gone(world, first[3]) == "a3 has left; job waits until an agent has buys"
    world.run(5_000)
    stood = last_end(world, spec)
    assert at < stood <= at + 2 * SECOND, "the window that was open is whole, too"
    later.start([first[0].address])
    world.write(later, world.now + 20_000)
    world.run(20_000)
    assert last_end(world, spec) > stood + 10 * SECOND


def test_two_that_leave_do_not_wait_for_each_other_while_a_member_is_dead() -> None:
    """Each is the nearest to come in the other's place: in two job groups at one agent, with the same dead
    one."""
    world, _, _ = fleet(8, members=3)
    leader = next(agent for agent in world.agents if world.name_at("job", agent) != "job")
    spec = world.create(0, plan(2), world.name_at("job", leader))
    other = world.create(0, plan(3), world.name_at("other", leader))
    dead, one = (agent for agent in staffed(world, spec, 3) if agent is not leader)
    assert {*staffed(world, other, 3)} == {leader, dead, one}
    mine = node_id(leader.address)
    rest = [agent for agent in world.agents if agent not in (leader, dead, one)]
    two = min(rest, key=lambda agent: closeness(mine, node_id(agent.address)))
    desk, key = leader.node.catalog.desk, group_key(other.uid)
    leader.perform(desk.invite(key, two.address, world.now))
    while two not in members(world, other):
        world.run(5)
    leader.perform(desk.remove(key, one.address, world.now))
    world.run_until(lambda: {*members(world, other)} == {leader, dead, two})
    killed(world, [dead])
    for agent in (one, two):
        agent.perform(agent.node.leave(world.now))
    world.run_until(lambda: not (one.up or two.up), 40_000)
    for job in (spec, other):
        at = last_end(world, job)
        assert not {one, two} & {*staffed(world, job, 3)}
        world.run(10_000)
        assert last_end(world, job) > at


def test_who_is_gone_for_good_is_taken_off_and_waited_for_no_more() -> None:
    """Also where another agent of its name is at its address by now, which stays."""
    world, spec, until = fleet(4)
    first = world.agents[0]
    lost = next(a for a in world.agents[1:] if a is not world.leader(spec))
    name = f"a{lost.index}"
    assert call(world, first, "take off", name).startswith(f"{name} lives, at {lost.address}: elf leave")
    assert call(world, first, "take off", "nobody").startswith("no agent nobody is expected; elf members")
    lost.crash()
    lost.store, lost.agent_id = lost.new_store(), str(uuid.UUID(int=77))
    lost.store.put("agent_id", lost.agent_id.encode())
    world.restart(lost)
    world.run_until(lambda: lost.up and lost.node.ready)
    world.run(8_000)
    states = [str(row["state"]) for row in first.node.fleet.members() if row["agent"] == name]
    assert sorted(states) == ["away", "live"]
    assert call(world, first, "take off", name) == f"{name} ({lost.address}) is expected no more"
    at = world.now * 1_000
    world.run(until - world.now + 5_000)
    later = [status for start, (_, _, status) in world.committed(spec).items() if start > at]
    assert len(later) > 5
    assert {(status["expected"], *status["missing"]) for status in later} == {(4,)}
    assert call(world, first, "take off", name).startswith(f"{name} lives")


def killed(world: World, agents: list[SimAgent]) -> None:
    for agent in agents:
        agent.crash()
    world.run(8_000)


def test_one_of_three_stays_while_another_is_dead() -> None:
    """In service: it is as if nobody had asked. When the dead one is back it may go."""
    world, spec, until = fleet(3)
    leader = world.leader(spec)
    dead, other = (agent for agent in world.agents if agent is not leader)
    killed(world, [dead])
    for agent in (leader, other):
        said = ask(world, agent)
        assert said.startswith(
            f"a{agent.index} stays: a{dead.index} does not answer, and without a{agent.index}"
        )
        assert "that keep the catalog log and job job; start a" in said
        assert not agent.node.leaving
    now_us = world.now * 1_000
    world.run_until(lambda: last_end(world, spec) > now_us + 4_000_000, 12_000)
    assert world.leader(spec) is leader
    world.restart(dead)
    world.run(6_000)
    assert ask(world, other) == ""
    assert gone(world, other) == f"a{other.index} has left"
    world.run(max(0, until - world.now) + 12_000)
    agree(world, spec)


def test_no_is_no_word_about_what_is_over() -> None:
    world, spec, _ = fleet(3, jobs=6)
    for number in range(1, 6):
        world.drop(world.active(f"job{number}"))
    world.run(16_000)
    leader = world.leader(spec)
    dead, agent = (agent for agent in world.agents if agent is not leader)
    killed(world, [dead])
    assert "left that keep the catalog log and job job; start" in ask(world, agent)


def test_one_that_is_asked_before_it_has_noticed_waits_until_it_has() -> None:
    world, spec, _ = fleet(3)
    leader = world.leader(spec)
    dead, agent = (agent for agent in world.agents if agent is not leader)
    dead.crash()
    assert ask(world, agent).startswith(f"a{agent.index} stays: a{dead.index} does not answer")
    world, _, _ = fleet(4)
    since = world.now
    assert ask(world, world.agents[3]) == ""
    assert world.now - since <= 100, "with one to spare nobody waits"


def test_where_one_more_death_would_leave_no_majority_it_waits_though_others_could_come() -> None:
    """Of the five that keep a job two are dead, and a third has just died: others can't enter any more."""
    world, spec, _ = fleet(7)
    leader = world.leader(spec)
    voters = leader.node.job_groups.voters(spec.uid)
    others = [agent for agent in world.agents if agent.address in voters and agent is not leader]
    killed(world, others[:2])
    assert set(voters) == set(leader.node.job_groups.voters(spec.uid)), "nobody has taken their place yet"
    others[2].crash()
    assert ask(world, leader).startswith(f"a{leader.index} stays: ")
    assert not leader.node.leaving


@pytest.mark.parametrize(
    ("agents", "dead", "refused"), [(3, 1, True), (4, 1, False), (5, 1, False), (5, 2, True), (6, 2, False)]
)
def test_who_is_told_no_is_who_could_not_hand_over(agents: int, dead: int, refused: bool) -> None:
    """With ``--force`` it leaves all the same, and those that stay go on without the dead."""
    world, spec, _ = fleet(agents)
    leader = world.leader(spec)
    killed(world, [agent for agent in world.agents if agent is not leader][:dead])
    assert bool(ask(world, leader)) is refused
    if not refused:
        assert gone(world, leader) == f"a{leader.index} has left"
        assert leader.groups() == ()
        now_us = world.now * 1_000
        world.run_until(lambda: last_end(world, spec) > now_us, 12_000)
        return
    assert ask(world, leader, "force") == ""
    since = world.now
    assert gone(world, leader) == f"a{leader.index} has left"
    assert world.now - since >= 6_000, "a dead one may come back"
    assert leader.groups() == ()
    now_us = world.now * 1_000
    world.run_until(lambda: last_end(world, spec) > now_us, 12_000)


def test_who_goes_by_force_where_most_are_dead_says_what_it_leaves_behind() -> None:
    """After 15 s: nobody can let it go."""
    world, spec, _ = fleet(3)
    leader = world.leader(spec)
    dead, other = (agent for agent in world.agents if agent is not leader)
    killed(world, [dead])
    assert ask(world, leader, "force") == ""
    world.run_until(leader.node.membership.left)
    other.crash()
    since = world.now
    assert "no majority of the catalog log's voters has let it go" in gone(world, leader)
    assert world.now - since >= 12_000
    assert leader.groups() != ()


def test_all_but_one_leave_at_once_while_one_is_dead() -> None:
    """The last of them could not go before the dead one came, and went: one was left of three (``elf sim
    chaos``, seeds 3000119 and 4000340)."""
    world, spec, _ = fleet(5)
    leader = world.leader(spec)
    dead, *going = (agent for agent in world.agents if agent is not leader)
    killed(world, [dead])
    for agent in going:
        agent.handle(was.Arrived("client:7", Call(request=world.now, verb="leave")))
    world.run_until(lambda: not any(agent.up for agent in going), 40_000)
    assert {agent.ended for agent in going} == {"left the cluster"}
    now_us = world.now * 1_000
    world.run_until(lambda: last_end(world, spec) > now_us, 12_000)
    assert world.leader(spec) is leader


def test_one_of_two_leaves_and_then_the_last_one() -> None:
    """But not the one that keeps everything alone while the other one is dead."""
    world = World(62, 2, checking=False)
    world.start_all()
    until = world.now + 30_000
    for agent in world.agents:
        world.write(agent, until)
    spec = world.create(0, plan(2))
    world.run(4_000)
    alone, other = world.agents
    assert alone.node.membership.voters == (alone.address,)
    killed(world, [other])
    assert ask(world, alone).startswith("a0 stays: a1 does not answer, and without a0 as well too few")
    world.restart(other)
    world.run(6_000)
    assert ask(world, alone) == ""
    assert gone(world, alone) == "a0 has left"
    now_us = world.now * 1_000
    world.run_until(lambda: world.leader(spec) is other and last_end(world, spec) > now_us, 20_000)
    assert ask(world, other) == ""
    assert gone(world, other) == "a1 has left"


def test_where_all_that_live_of_a_group_leave_at_once_their_leader_has_others_in_first() -> None:
    """There is none among them to hand it to; a job went with the last of them (chaos 342256)."""
    world, spec, until = fleet(8, members=3)
    leader = world.leader(spec)
    voters = {world.by_address[address] for address in leader.node.job_groups.voters(spec.uid)}
    dead, other = (agent for agent in world.agents if agent in voters - {leader})
    dead.crash()
    for agent in (leader, other):
        agent.handle(was.Arrived("client:7", Call(request=world.now, verb="leave")))
    for agent in (leader, other):
        gone(world, agent)
    world.restart(dead)
    world.run(max(0, until - world.now) + 12_000)
    assert world.leader(spec) not in voters - {dead}
    agree(world, spec)


def test_who_is_cut_off_while_it_hands_over_does_not_go_as_if_it_were_the_last() -> None:
    """It heard nobody for a few seconds and took its slots along: with another dead no majority was left of
    its job's group, for good (``elf sim chaos``, seed 349424)."""
    world, spec, until = fleet(4, members=3)
    leader = world.leader(spec)
    assert ask(world, leader) == ""
    world.run_until(leader.node.membership.left)
    world.isolated = {leader.address}
    world.run(8_000)
    assert leader.up
    world.isolated = set()
    assert gone(world, leader) == f"a{leader.index} has left"
    world.run(max(0, until - world.now) + 12_000)
    agree(world, spec)


def test_in_peace_everybody_may_leave_one_after_the_other() -> None:
    world, spec, until = fleet(5, jobs=3)
    for agent in world.agents[:4]:
        assert ask(world, agent) == ""
        assert gone(world, agent) == f"a{agent.index} has left"
    world.run(max(0, until - world.now) + 12_000)
    assert world.leader(spec) is world.agents[4]
    agree(world, spec)


@pytest.mark.parametrize("seed", [314, 327])
def test_so_few_stay_that_most_of_the_roster_has_left(seed: int) -> None:
    """Jobs with panes of many lengths: nobody is waited for in a pane that it left in, nor missed there."""
    world = World(seed, 3 + seed % 4, checking=False)
    world.start_all()
    world.run_until(lambda: voters(world) == min(len(world.agents) - 1 + len(world.agents) % 2, 5))
    until = world.now + 60_000
    for agent in world.agents:
        world.write(agent, until)
    specs = [world.create(k % len(world.agents), plan(2 + k), f"j{k}") for k in range(4)]
    world.run(6_000)
    *going, last = world.rng.sample(world.agents, len(world.agents))
    for agent in going:
        assert ask(world, agent) == ""
        assert gone(world, agent) == f"a{agent.index} has left"
    world.run(max(0, until - world.now) + 12_000)
    for spec in specs:
        assert world.leader(spec) is last
        agree(world, spec)
        windows = settled(world, spec, until)
        assert len(windows) >= 5
        assert all(status["missing"] == [] for _, _, status in windows.values())


def test_the_log_is_handed_to_an_agent_that_has_no_stream() -> None:
    """It is no member of any stream, so that only the ring knows it: the founder took the log along."""
    world = World(1, 2, checking=False)
    first, other = world.agents
    other.streams = ()
    world.start_all()
    world.run_until(lambda: first.node.ready and other.node.ready)
    assert ask(world, first) == ""
    gone(world, first)
    assert other.node.catalog.leads
    assert other.node.membership.voters == (other.address,)


@pytest.mark.parametrize("streamless", [False, True])
def test_a_dead_member_without_a_stream_has_not_left(streamless: bool) -> None:
    """Of three that keep the log one is dead: nobody else may go, whether or not that one had a stream."""
    world = World(1, 3, checking=False)
    if streamless:
        world.agents[2].streams = ()
    world.start_all()
    world.run_until(lambda: voters(world) == 3)
    killed(world, [world.agents[2]])
    world.run(6_000)
    leaving = next(agent for agent in world.agents[:2] if not agent.node.catalog.leads)
    assert "stays" in ask(world, leaving)
