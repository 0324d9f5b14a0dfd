"""Histories with crashes, losses and doubles that end with the checks of the oracle. Tests of planted bugs
run them too, to see that the checks fail.
"""

from __future__ import annotations

import random
from collections import Counter

from elf.fields import replace
from elf.job.spec import JobSpec
from elf.ql.plan import Plan
from lab.chaos.agent import SimAgent
from lab.chaos.engine import SECOND, STREAM, plan
from lab.chaos.world import World
from tests.support.histories import begun, check_all, settled


def crashes_loss_and_doubles(seed: int) -> None:
    """The oracle: at the end, when all are back, every committed window equals a count over all logs."""
    world = World(100 + seed, 5, loss=0.03, doubles=0.03)
    spec, until = begun(world, 30_000, through=seed % 5, rate_ms=300)
    world.crash_share = 0.004
    world.run(28_000)
    world.crash_share, world.loss, world.doubles = 0.0, 0.0, 0.0
    world.run(12_000)
    for agent in world.agents:
        world.restart(agent)
    world.run(45_000)
    check_all(world, spec, until, least=10)


def snapshots_lost_for_long() -> None:
    """The agent hears of the commits without it, and keeps what they left out."""
    world = World(12, 5)
    spec, until = begun(world, 40_000)
    world.run(8_000)
    victim = next(a for a in world.agents if a.address not in (spec.flows[0].leader, world.agents[0].address))
    began = world.now
    world.unheard = {victim.address}
    world.run(16_000)
    world.unheard = set()
    during = [
        w for s, w in world.committed(spec).items() if began * 1000 + SECOND < s < (began + 3_000) * 1000
    ]
    assert any(status["missing"] == [f"a{victim.index}"] for _, _, status in during)
    world.run(60_000)
    check_all(world, spec, until, least=12)
    for start, (_, _, status) in settled(world, spec, until).items():
        assert status["missing"] == [] or start < began * 1000


def another(world: World, spec: JobSpec, least: int = 0, query: Plan | None = None) -> JobSpec:
    """A job of the same fragment, with another window and HAVING, whose master is on another node."""
    for n in range(20):
        other = world.create(n % len(world.agents), query or plan(4, 2, least=least), f"other{n}")
        assert other.flows == spec.flows, "an equal fragment is computed once"
        if other.leader != spec.leader:
            return other
        world.drop(other)
    raise AssertionError("all jobs have one master")


def both(agents: int, seed: int, *, loss: float = 0.0, doubles: float = 0.0) -> World:
    """Two streams with different rosters: the first agents have one, the last ones the other, some both."""
    world = World(seed, agents, loss=loss, doubles=doubles)
    for agent in world.agents:
        agent.streams = tuple(
            stream
            for stream, has in (
                (STREAM, agent.index < agents - 1),
                ("buys", agent.index >= agents // 2),
            )
            if has
        )
    return world


def crashes_loss_and_doubles_below_readers(seed: int) -> None:
    world = both(5, 200 + seed, loss=0.03, doubles=0.03)
    first, until = begun(world, 24_000, through=seed % 4, rate_ms=400)
    second = another(world, first)
    third = world.create(seed % 5, plan(2, streams=(STREAM, "buys")), "third")
    world.crash_share = 0.005
    world.run(9_000)
    world.drop(first)
    world.run(9_000)
    world.crash_share, world.loss, world.doubles = 0.0, 0.0, 0.0
    world.run(9_000)
    for agent in world.agents:
        world.restart(agent)
    world.run(25_000)
    check_all(world, second, until, least=5)
    check_all(world, third, until, least=5)


REVISE_US = 8 * SECOND


def revising() -> Plan:
    """The count by key, revised by rows that are up to 8 s too late."""
    base = plan()
    return replace(base, fragment=replace(base.fragment, revise_us=REVISE_US))


def write(world: World, agent: SimAgent, until_ms: int) -> None:
    """Rows in time; every third as much as 5 s late, every tenth beyond all bounds."""
    rng = random.Random(world.rng.random())

    def one() -> None:
        behind = rng.choice([0, 0, 0, 0, 0, 0, 1_200, 2_500, 5_000, 20_000])
        agent.log.rows.append(((world.now - behind) * 1000, rng.choice("abc")))
        if world.now < until_ms:
            world.at(world.now + rng.randrange(100, 400), one)

    world.at(world.now + rng.randrange(0, 200), one)


def reference(world: World, spec: JobSpec, start: int) -> Counter[str]:
    """Over all rows but those that are further behind their own source than the bound."""
    fragment = spec.plan.fragment
    bound = (fragment.lateness_us or 0) + REVISE_US
    found: Counter[str] = Counter()
    for agent in world.agents:
        highest = -(1 << 62)
        for ts, key in agent.log.rows:
            if start <= ts < start + fragment.pane_us and start + fragment.pane_us + bound > highest:
                found[key] += 1
            highest = max(highest, ts)
    return found


def crashes_loss_and_doubles_of_late_rows(seed: int) -> None:
    """Whatever is lost, doubled or dies on the way."""
    world = World(seed, 3, loss=0.03, doubles=0.03)
    world.start_all()
    until = world.now + 24_000
    for agent in world.agents:
        write(world, agent, until)
    spec = world.create(1, revising())
    world.run(6_000)
    world.crash_share = 0.004
    world.run(until - world.now)
    world.crash_share = 0.0
    world.run(12_000)
    for agent in world.agents:
        world.restart(agent)
    world.run(25_000)
    windows = world.committed(spec)
    checked = 0
    for start, (_, counts, status) in windows.items():
        if start + 4 * SECOND < until * 1000 and all(world.answers_for(a, spec, start) for a in world.agents):
            assert counts == dict(reference(world, spec, start)), (start, status)
            checked += 1
    assert checked >= 6
    assert any(revision > 0 for revision, _, _ in windows.values())
    assert sum(agent.node.sender.retained() for agent in world.agents) <= 2 * len(world.agents)
    assert sum(status["late"] for _, _, status in windows.values()) > 0
