"""The job group of a key range is bootstrapped once, by somebody, whoever dies meanwhile
(``elf.job.catalog.bootstrap``)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from elf.fields import replace
from elf.job import events as was
from elf.job.catalog.admission import grow
from elf.job.catalog.bootstrap import Bootstrap, bootstrap_of
from elf.job.catalog.log import CatalogLog
from elf.job.group.records import group_key
from elf.job.messages.groups import Inspect, JobStatus
from elf.job.messages.log import DropJobEntry, JobAdded, JobDropped
from elf.job.rollup.decide import RootSettings
from elf.job.spec import JobSpec, group_uid
from elf.wire.base import Answer
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan
from lab.chaos.ledger import Ledger
from lab.chaos.world import World
from tests.support.histories import lacking_alone, settled
from tests.support.jobgroups import exact

GRACE_MS = 9_000


def fleet(seed: int, agents: int = 5, writing_ms: int = 44_000) -> tuple[World, int]:
    """A fleet that replaces who is silent for a while, writing; (the world, until when)."""
    world = World(seed, agents, checking=False, ledger=Ledger())
    world.root_settings = RootSettings(grace_ms=GRACE_MS)
    world.start_all()
    world.run_until(lambda: voters(world) == 5)
    until = world.now + writing_ms
    for agent in world.agents:
        world.write(agent, until)
    return world, until


def voters(world: World) -> int:
    """How many keep the catalog log: one of two would take it along when it dies."""
    standing = world.agents[0].node.catalog.standing
    return len(standing.membership.voters) if standing is not None else 0


def the_log(world: World) -> CatalogLog:
    return max((a.node.log for a in world.agents if a.up), key=lambda log: log.last)


def step(world: World, condition: Callable[[], bool]) -> None:
    """Run until that is so, to the millisecond."""
    for _ in range(20_000):
        if condition():
            return
        world.run(1)
    raise AssertionError("it did not come to that in time")


def submitted(world: World) -> tuple[str, SimAgent]:
    """A job of three trees is created: (uid of the job group of a key range, its founder), as the log has
    it."""
    roots = tuple(agent.address for agent in world.agents[2:4])
    world.submit(1, replace(plan(2), trees=3), "job", client="client:2", roots=roots)
    spec = named(world)
    flow = next(flow for flow in spec.flows if flow.leader != spec.master)
    return group_uid(spec.uid, flow.fragment.range[0]), world.by_address[flow.leader]


def created(world: World, moment: str) -> tuple[str, SimAgent]:
    """The same, and the founder dies at that moment."""
    uid, founder = submitted(world)
    if moment == "founded":
        step(world, lambda: group_key(uid) in founder.store.load_groups())
    assert any(known == uid for known, _ in the_log(world).unbegun())
    founder.crash()
    assert (group_key(uid) in founder.store.load_groups()) is (moment == "founded")
    return uid, founder


def named(world: World) -> JobSpec:
    """The job, as soon as the log has it."""
    step(world, lambda: any(isinstance(e, JobAdded) and e.spec.name == "job" for e in world.entries))
    return next(e.spec for e in world.entries if isinstance(e, JobAdded) and e.spec.name == "job")


def waits_for(world: World) -> str:
    """What its job group says to who inspects the job."""
    leader, uid = world.leader(named(world)), named(world).uid
    leader.handle(was.Arrived("client:3", Inspect(id=world.now, origin="client:3", uid=uid, windows=1)))
    world.run(300)
    answer = [m for m in world.client_inbox if isinstance(m, Answer) and m.body][-1]
    return msgspec.msgpack.decode(answer.body, type=JobStatus).waiting


def right(world: World, until: int, least: int, dead: tuple[SimAgent, ...] = ()) -> None:
    """No window is lost, doubled or wrong, as its job group has them and as the ledger heard of them."""
    world.run(max(0, until - world.now) + 12_000)
    assert world.ledger is not None
    assert world.ledger.findings == []
    job = world.active("job")
    exact(world, job, until, least, dead)


def flow_of(world: World, uid: str) -> str:
    """The flow of a key range."""
    (flow,) = the_log(world).job_groups.flows(uid)
    return flow


def groups(world: World, uid: str) -> set[bytes]:
    """The groups of the job group of a key range that anybody has a voter slot in."""
    keys = {group_key(uid), group_key(the_log(world).job_groups.group(uid))}
    return {key for a in world.agents if a.up for key in keys & {*a.groups()}}


@pytest.mark.parametrize("moment", ["named", "founded"])
def test_a_founder_that_comes_back_founds_the_range_that_it_was_named_for(moment: str) -> None:
    world, until = fleet(51)
    uid, founder = created(world, moment)
    world.run(3_000)
    assert settled(world, named(world), until) == {}
    world.restart(founder)
    world.run_until(lambda: not the_log(world).unbegun(), 6_000)
    assert (the_log(world).leader(uid), the_log(world).job_groups.founders(uid)) == (
        founder.address,
        (founder.agent_id,),
    )
    right(world, until, 12)


@pytest.mark.parametrize("moment", ["named", "founded"])
def test_a_founder_that_stays_away_is_replaced(moment: str) -> None:
    """By the leader of the job group, after a while; meanwhile the job says for what it waits."""
    world, until = fleet(52)
    uid, founder = created(world, moment)
    world.run(GRACE_MS - 1_500)
    leader = world.leader(named(world))
    assert f"of 3 has no root yet: a{founder.index} was to bootstrap its group" in waits_for(world)
    told = next(m for m in world.client_inbox if isinstance(m, Answer) and m.id == 999_999)
    assert f"job job is created, but {waits_for(world)[:20]}" in told.error
    world.run_until(lambda: not the_log(world).unbegun(), 4_000)
    assert the_log(world).job_groups.founders(uid) == (founder.agent_id, leader.agent_id)
    world.run_until(lambda: the_log(world).leader(uid) == leader.address, 2_000)
    right(world, until, 8, (founder,))
    assert waits_for(world) == ""


@pytest.mark.parametrize("moment", ["named", "founded"])
def test_a_founder_that_comes_back_too_late_founds_nothing(moment: str) -> None:
    """Its group, if it had one, ends, also with the log of before; those of the other one stay."""
    world, until = fleet(53)
    uid, founder = created(world, moment)
    world.run_until(lambda: not the_log(world).unbegun(), GRACE_MS + 4_000)
    world.run(4_000)
    world.restart(founder)
    for _ in range(2_000):
        world.run(1)
        assert not founder.node.job_groups.roots.get(flow_of(world, uid)), "it is never the root"
    world.run_until(lambda: groups(world, uid) == {group_key(the_log(world).job_groups.group(uid))}, 6_000)
    assert not founder.node.job_groups.roots.get(flow_of(world, uid))
    world.run(until - world.now + 12_000)
    lacking_alone(world, world.active("job"), founder, until)  # it has begun with some of the flows, and late
    assert world.ledger is not None
    assert world.ledger.findings == []


def test_a_founder_that_is_cut_off_takes_nothing_while_another_is_named() -> None:
    """It lives, and leads its group: but the log does not have it as begun."""
    world, until = fleet(54)
    uid, founder = submitted(world)
    spec = named(world)
    step(world, lambda: founder.node.log.job_groups.founders(uid) != ())
    world.network.sides = {founder.address: 1}
    world.run_until(lambda: not the_log(world).unbegun(), GRACE_MS + 4_000)
    assert group_key(uid) in founder.groups()
    assert not any(founder.node.job_groups.roots.get(flow.uid) for flow in spec.flows)
    world.network.sides = {}
    world.run_until(lambda: group_key(uid) not in founder.groups(), 8_000)
    right(world, until, 8)


def test_who_is_named_instead_may_die_too() -> None:
    world, until = fleet(55, agents=6, writing_ms=60_000)
    uid, founder = created(world, "named")
    step(world, lambda: len(the_log(world).job_groups.founders(uid)) == 2)
    second = world.leader(named(world))
    second.crash()
    world.run_until(lambda: not the_log(world).unbegun(), 2 * GRACE_MS + 6_000)
    first_two = (founder.agent_id, second.agent_id)
    assert the_log(world).job_groups.founders(uid)[:2] == first_two
    assert len(the_log(world).job_groups.founders(uid)) == 3
    right(world, until, 8, (founder, second))


def test_whichever_entry_comes_first_counts() -> None:
    world, _ = fleet(56, writing_ms=1_000)
    roots = tuple(agent.address for agent in world.agents[3:5])
    job = world.create(1, replace(plan(2), trees=3), "job", roots)
    assert job.leader not in roots, "the seed puts it elsewhere"
    second, third = group_uid(job.uid, 1), group_uid(job.uid, 2)
    agents = [agent.agent_id for agent in world.agents]
    before = [e for e in world.entries if not (isinstance(e, JobDropped) and bootstrap_of(e.uid))]
    entries = [msgspec.structs.replace(e, seq=n) for n, e in enumerate(before, 1)]
    log = CatalogLog(entries)
    assert [uid for uid, _ in log.unbegun()] == [second, third]

    def said(leader: str, founder: int, *instead: int) -> None:
        mark = Bootstrap(leader, agents[founder], *(agents[n] for n in instead))
        assert bootstrap_of(mark.uid) == mark
        assert grow(log, DropJobEntry(uid=mark.uid))
        assert grow(log, DropJobEntry(uid=mark.uid)) == (), "it stands there"

    said(second, 3)
    said(second, 3, 0)
    assert (log.job_groups.founders(second), log.job_groups.group(second)) == ((agents[3],), second)
    assert log.job_groups.has_begun(second, agents[3])
    said(third, 4, 0)
    said(third, 4)
    assert log.job_groups.founders(third) == (agents[4], agents[0])
    assert (log.job_groups.has_begun(third, agents[0]), log.job_groups.has_begun(third, agents[4])) == (
        None,
        False,
    )
    assert log.job_groups.group(third) not in (third, log.job_groups.group(second))
    said(third, 0, 4)
    assert log.job_groups.founders(third)[-1] == agents[0], "nobody twice"
    said(third, 0)
    assert (log.job_groups.has_begun(third, agents[0]), log.job_groups.has_begun(third, agents[4])) == (
        True,
        False,
    )
    assert log.job_groups.has_begun(third, "unknown") is None
    assert log.unbegun() == ()
    assert log.job(job.uid) is not None
    assert log.streams_of(log.after(log.last - 1)[0]) == ("clicks",)
