"""Who keeps the catalog log, on virtual time: it goes on without its founder, through crashes, lost disks,
losses and doubles; and all logs are prefixes of one another at every moment (``World.check_log``)."""

from __future__ import annotations

import json

import pytest

from agents.codec import Message
from elf.job import events as was
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Cluster, Identity, Membership
from elf.job.catalog.voters import wanted
from elf.job.effects import Audited, Effect, SaveLog, Send
from elf.job.messages.groups import DropJob
from elf.job.messages.log import (
    DropJobEntry,
    FlowEnded,
    Follow,
    Hello,
    JoinStream,
    LogTail,
    LogVoters,
    Welcome,
)
from elf.job.rollup.decide import RootSettings
from elf.wire.clients import Call, Failed, Reply
from lab.chaos.agent import SimAgent
from lab.chaos.engine import STREAM, plan
from lab.chaos.world import World


def voters(world: World) -> set[str]:
    return {agent.address for agent in world.agents if agent.up and agent.node.catalog.keeps}


def kept(count: int, world: World) -> None:
    """Wait until so many keep the log, and all of them know who."""
    world.run_until(lambda: len(voters(world)) == count)
    world.run_until(
        lambda: all(set(agent.node.membership.voters) == voters(world) for agent in world.agents if agent.up)
    )


def drop(world: World, uid: str) -> None:
    leader = next(agent for agent in world.agents if agent.up and agent.node.job_groups.jobs())
    request = DropJob(id=1, origin="client:1", uid=uid)
    leader.perform(leader.node.settle(leader.node.requests.answer(request, world.now), world.now))
    live = [agent for agent in world.agents if agent.up]
    world.run_until(lambda: all(agent.node.log.is_dropped(uid) for agent in live))


def joined(world: World, agent: SimAgent) -> None:
    live = [agent for agent in world.agents if agent.up]
    world.run_until(
        lambda: all(a.node.log.member_of(STREAM, agent.agent_id) is not None for a in live), 30_000
    )
    world.run_until(lambda: agent.node.ready)


def ended(world: World, agent: SimAgent, limit_ms: int) -> str:
    """Wait until it stops; why it has."""
    world.run_until(lambda: bool(agent.ended), limit_ms)
    return agent.ended


def slots(agent: SimAgent) -> set[int]:
    return {stored.slot for stored in agent.store.load_groups().values()}


def test_two_of_five_keepers_die_for_good_and_joins_create_and_drop_go_on() -> None:
    world = World(21, 6, checking=False)
    late = world.agents.pop()
    world.start_all()
    kept(5, world)
    world.agents[0].crash()
    world.agents[3].crash()
    world.agents.append(late)
    late.start([world.agents[1].address])
    joined(world, late)
    spec = world.create(2, plan(2))
    drop(world, spec.uid)
    assert late.node.log.is_dropped(spec.uid)


def test_the_founder_of_three_is_replaced_when_it_has_been_dead_for_long() -> None:
    world = World(22, 4, checking=False)
    world.root_settings = RootSettings(grace_ms=8_000)
    world.start_all()
    kept(3, world)
    founder = world.agents[0]
    spare = next(agent for agent in world.agents if not agent.node.catalog.keeps)
    founder.crash()
    world.run_until(lambda: founder.address not in spare.node.membership.voters, 30_000)
    kept(3, world)
    assert spare.node.catalog.keeps
    world.restart(founder)
    world.run_until(lambda: founder.node.ready and founder.store.load_groups() == {}, 30_000)


def test_half_of_the_keepers_restart_again_and_again() -> None:
    world = World(23, 4, loss=0.03, doubles=0.03)
    world.start_all()
    kept(3, world)
    first = [a for a in world.agents if a.node.catalog.keeps][:2]
    for turn in range(4):
        victim = first[turn % 2]
        victim.crash()
        world.run(1_000)
        world.restart(victim)
        world.run(1_500)
    spec = world.create(3, plan(2))
    drop(world, spec.uid)


def test_a_keeper_that_lost_its_disk_comes_back_under_another_seat() -> None:
    world = World(24, 5, checking=False)
    world.start_all()
    kept(5, world)
    victim = world.agents[0]
    before = slots(victim)
    victim.crash()
    victim.store = victim.new_store()
    victim.agent_id = victim.store.agent_id()
    victim.start([world.agents[2].address])
    world.run_until(lambda: victim.node.ready and victim.node.catalog.keeps, 30_000)
    kept(5, world)
    assert not before & slots(victim)
    assert len(victim.node.log.members(STREAM)) == 6


def test_of_two_agents_the_founder_keeps_the_log_alone() -> None:
    world = World(25, 3, checking=False)
    founder, other, late = world.agents
    world.agents.remove(late)
    world.start_all()
    world.run(5_000)
    assert voters(world) == {founder.address}
    other.crash()
    world.agents.append(late)
    late.start([founder.address])
    joined(world, late)
    founder.crash()
    world.restart(other)
    world.run(8_000)
    assert not other.node.membership.joined()
    world.restart(founder)
    joined(world, other)
    kept(3, world)


def test_when_a_third_agent_has_come_log_and_job_are_kept_by_three_soon() -> None:
    """Whichever is killed two seconds later, the others go on."""
    world = World(26, 3)
    world.start_all(world.agents[:2])
    spec = world.create(0, plan(2))
    world.run(5_000)
    assert (len(voters(world)), len(world.leader(spec).node.job_groups.voters(spec.uid))) == (1, 1)
    world.agents[2].start([world.agents[0].address])
    world.run_until(lambda: world.agents[2].node.ready)
    world.run(2_000)
    assert voters(world) == {agent.address for agent in world.agents}
    assert {*world.leader(spec).node.job_groups.voters(spec.uid)} == voters(world)


def test_keepers_leave_and_the_last_one_hands_the_log_over() -> None:
    world = World(26, 4, checking=False)
    world.start_all()
    kept(3, world)
    for goes in world.agents[:3]:
        goes.perform(goes.node.leave(world.now))
        assert ended(world, goes, 30_000) == "left the cluster"
        assert goes.store.load_groups() == {}
    (last,) = world.agents[3:]
    world.run_until(lambda: last.node.catalog.leads and last.node.membership.voters == (last.address,))
    assert [member.until_us < 1 << 62 for member in last.node.log.members(STREAM)].count(True) == 3


def test_a_copied_data_folder_is_refused_whoever_is_asked() -> None:
    world = World(28, 4, checking=False)
    world.start_all()
    kept(3, world)
    twin = SimAgent(world, 9)
    twin.agent_id = world.agents[1].agent_id
    world.agents.append(twin)
    world.by_address[twin.address] = twin
    twin.store.put("incarnation", b"1")
    world.now, twin_now = 5_000, world.now
    twin.start([world.agents[2].address])
    world.now = twin_now
    assert "is its data folder a copy" in ended(world, twin, 20_000)
    assert all(agent.up for agent in world.agents[:4])


def test_a_wish_of_an_earlier_life_that_comes_late_stops_nobody() -> None:
    """An agent dies just after it has asked to be let in, and is in again before that is heard."""
    world = World(57, 3)
    world.start_all()
    agent, voter = world.agents[2], world.agents[0]
    before = agent.node.me
    agent.crash()
    world.run(1_500)
    world.restart(agent)
    world.run_until(lambda: agent.node.ready)
    proposal = JoinStream(
        stream=STREAM,
        agent_id=before.agent_id,
        name=before.name,
        incarnation=before.incarnation,
        address=before.address,
        since_us=0,
    )
    voter.handle(was.Arrived(agent.address, proposal))
    world.run(2_000)
    assert (agent.up, agent.ended) == (True, "")


def test_a_founder_that_lost_its_disk_and_has_no_bootstrap_stops_and_says_so() -> None:
    """It cannot know better than to found a cluster; when the rings find each other, the smaller one goes."""
    world = World(29, 4, checking=False)
    world.start_all()
    kept(3, world)
    founder = world.agents[0]
    founder.crash()
    world.run(6_000)
    founder.store = founder.new_store()
    founder.agent_id = founder.store.agent_id()
    world.by_address.pop(founder.address)
    elsewhere, world.entries = world.entries, []
    founder.start([])
    world.run(1_000)
    world.entries = elsewhere
    founder.checked = 1 << 30
    world.by_address[founder.address] = founder
    assert "another cluster of the same name" in ended(world, founder, 60_000)
    world.run(3_000)
    assert all(agent.up for agent in world.agents[1:])


@pytest.mark.parametrize("seed", range(3))
def test_crashes_losses_and_doubles_while_agents_come_and_go(
    seed: int, request: pytest.FixtureRequest
) -> None:
    world = World(300 + seed, 7, loss=0.05, doubles=0.05)
    late = [world.agents.pop(), world.agents.pop()]
    world.start_all()
    world.crash_share = 0.01
    for agent in late:
        world.run(4_000)
        world.agents.append(agent)
        live = [a.address for a in world.agents if a.up and a is not agent]
        agent.start(live[:3])
    world.run(15_000)
    world.crash_share, world.loss, world.doubles = 0.0, 0.0, 0.0
    world.run(10_000)
    for agent in world.agents:
        world.restart(agent)
    world.run_until(lambda: all(agent.node.ready for agent in world.agents), 60_000)
    kept(5, world)
    spec = world.create(3, plan(2))
    drop(world, spec.uid)
    world.run(3_000)
    assert {agent.node.log.last for agent in world.agents} == {len(world.entries)}


def test_any_agent_tells_who_keeps_the_log_and_draws_the_tree_of_a_stream() -> None:
    world = World(31, 4, checking=False)
    world.start_all()
    kept(3, world)
    world.run(3_000)
    asked = world.agents[3]
    leader = next(agent for agent in world.agents if agent.node.catalog.leads)
    told = {m["address"]: m["log"] for m in asked.node.fleet.members()}
    assert told == {
        a.address: "leads" if a is leader else "keeps" if a.node.catalog.keeps else "" for a in world.agents
    }
    assert asked.node.clients.statements.status()["log"] == {
        "entries": 4,
        "leader": leader.address,
        "keepers": asked.node.membership.voters,
    }
    call = Call(request=1, verb="tree", argument=f"stream:{STREAM}")
    asked.perform(asked.node.settle(asked.node.clients.heard("client:1", call, world.now), world.now))
    world.run_until(lambda: bool(world.client_inbox))
    (reply,) = world.client_inbox
    assert isinstance(reply, Reply)
    tree = json.loads(reply.body)
    (tree,) = tree["flows"]
    assert {edge["address"] for edge in tree["edges"]} == {agent.address for agent in world.agents}
    assert [edge["address"] for edge in tree["edges"] if not edge["parent"]] == [tree["root"]]
    call = Call(request=2, verb="tree", argument="stream:nothing")
    told_of, failed = asked.node.clients.heard("client:1", call, world.now)
    assert isinstance(told_of, Audited)
    assert isinstance(failed, Send)
    assert isinstance(failed.message, Failed)
    assert "there is no stream nothing; streams: clicks" in failed.message.text


def nowhere(address: str) -> str:
    return ""


@pytest.mark.parametrize(
    ("voters", "gone", "candidates", "chosen"),
    [
        ("a", "", "", "a"),
        ("a", "", "b", "a"),
        ("a", "", "bc", "abc"),
        ("abc", "", "d", "abc"),
        ("abc", "", "de", "abcde"),
        ("abcde", "", "fg", "abcde"),
        ("abc", "c", "", "abc"),
        ("abc", "c", "d", "abd"),
        ("abcd", "", "", "abc"),
        ("abcd", "d", "", "abc"),
        ("abcde", "de", "", "abc"),
        ("abcde", "e", "f", "abcdf"),
        ("ab", "", "", "a"),
        ("ab", "b", "", "ab"),
        ("a", "a", "bc", "b"),
        ("a", "a", "", "a"),
    ],
)
def test_who_should_keep_the_log(voters: str, gone: str, candidates: str, chosen: str) -> None:
    assert "".join(wanted(voters, gone, candidates, nowhere)) == chosen


def test_keepers_are_looked_for_in_other_racks_first() -> None:
    places = {"a": "eu/1", "b": "eu/1", "c": "eu/2", "d": "eu/1", "e": "us/1", "f": ""}
    assert wanted("a", "", "bcde", places.__getitem__, most=3) == ("a", "c", "e")
    assert wanted("a", "", "bcde", places.__getitem__) == ("a", "c", "e", "b", "d")


def test_entries_before_their_turn_wait_for_those_below_them() -> None:
    """The voter that is asked for what is missing may not have the newest itself."""
    voters = LogVoters(1, 1, "k:1", ("k:1", "k:2"))
    me = Identity("me", "me", 1, "me:1")
    membership = Membership(me, (), CatalogLog(), cluster=Cluster("c", voters))
    entries = tuple(FlowEnded(seq=seq, uid=str(seq)) for seq in range(1, 6))

    def tail(after: int, to: int) -> list[Effect]:
        told = LogTail(
            cluster_uid="c", voters=voters, after=after, entries=entries[after:to], last=len(entries)
        )
        return membership.hear("k:1", told, 0)

    for after, to in ((4, 5), (2, 4)):
        (asked,) = tail(after, to)
        assert isinstance(asked, Send)
        assert isinstance(asked.message, Follow)
    (saved,) = tail(0, 2)
    assert isinstance(saved, SaveLog)
    assert saved.entries == tuple(membership.take_fresh()) == entries


def test_who_comes_late_asks_for_more_of_the_log_as_soon_as_it_has_some() -> None:
    """It waited two seconds after each 500 entries."""
    world = World(29, 6, checking=False)
    late = world.agents.pop()
    world.start_all()
    kept(5, world)
    leader = next(agent for agent in world.agents if agent.node.catalog.leads)
    for n in range(6_200):
        leader.handle(was.Arrived("client:1", DropJobEntry(uid=f"{n:032x}.1")))
        world.run(200 if n % 100 == 99 else 0)
    world.run_until(lambda: all(agent.node.log.last > 6_200 for agent in world.agents))
    asked: list[int] = []
    send = world.send

    def counting(agent: SimAgent, to: str, message: Message) -> None:
        asked.extend([message.known] if agent is late and isinstance(message, Follow) else [])
        send(agent, to, message)

    world.send = counting  # type: ignore[method-assign]
    late.start([leader.address])
    began_ms = world.now
    world.run_until(lambda: late.node.log.last == leader.node.log.last)
    assert world.now - began_ms < 3_000
    assert len(asked) < 25
    asked.clear()
    world.run(10_000)
    assert len(asked) <= 6, "every two seconds from then on"


def test_a_tail_that_is_not_all_is_asked_on_from_once() -> None:
    """Whether the bytes of tables or the number of entries have cut it."""
    voters = LogVoters(1, 1, "k:1", ("k:1", "k:2"))
    entries = tuple(FlowEnded(seq=seq, uid=str(seq)) for seq in range(1, 1_001))

    def asks(last: int, *spans: tuple[int, int]) -> list[int]:
        me = Identity("me", "me", 1, "me:1")
        membership = Membership(me, (), CatalogLog(), cluster=Cluster("c", voters))
        told = [
            LogTail(cluster_uid="c", voters=voters, after=after, entries=entries[after:to], last=last)
            for after, to in spans
        ]
        found = [effect for tail in told for effect in membership.hear("k:1", tail, 0)]
        sent = [effect.message for effect in found if isinstance(effect, Send)]
        return [message.known for message in sent if isinstance(message, Follow)]

    assert asks(9, (0, 3)) == [3]
    assert asks(9, (0, 3), (0, 3), (3, 9)) == [3]
    assert asks(500, (0, 500)) == []
    assert asks(1_000, (0, 500), (500, 1_000), (500, 1_000)) == [500]


@pytest.mark.parametrize("knows", [0, 5, 19])
def test_where_all_start_at_once_all_learn_who_keeps_the_log(knows: int) -> None:
    """They all have the same neighbours in the same order, of which most know no more than they do: 64 agents
    that asked the first three of them stood still for ever."""
    names = [f"m:{number:02}" for number in range(20)]
    members = {
        name: Membership(Identity(name, name, 1, name), (), CatalogLog(), cluster=None) for name in names
    }
    voters = LogVoters(1, 1, names[knows], (names[knows],))
    members[names[knows]].kept_by("c", voters)
    for now_ms in range(0, 3_000, 50):
        waiting = [(name, effect) for name in names for effect in members[name].tick(now_ms, names)]
        while waiting:
            sender, effect = waiting.pop()
            if isinstance(effect, Send) and isinstance(effect.message, Hello | Welcome):
                told = members[effect.to].hear(sender, effect.message, now_ms)
                waiting += [(effect.to, answer) for answer in told]
    assert all(member.voters == voters.addresses for member in members.values())
