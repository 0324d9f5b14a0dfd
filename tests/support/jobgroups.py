"""Who keeps a job group, and whether all of them say the same."""

from __future__ import annotations

from itertools import pairwise

from elf.job.group.records import group_key
from elf.job.spec import JobSpec
from lab.chaos.agent import SimAgent
from lab.chaos.engine import SECOND
from lab.chaos.world import World
from tests.support.histories import settled


def members(world: World, spec: JobSpec) -> list[SimAgent]:
    """The voters of a job group, as its leader has them."""
    lead = leader(world, spec)
    standing = lead.node.catalog.desk.groups.standing(group_key(spec.uid))
    assert standing is not None
    return [world.by_address[voter.address] for voter in standing.membership.voters]


def leader(world: World, spec: JobSpec) -> SimAgent:
    led = [a for a in world.agents if a.up and a.node.job_groups.has(spec.uid)]
    return led[-1]


def staffed(world: World, spec: JobSpec, count: int) -> list[SimAgent]:
    world.run_until(lambda: len(members(world, spec)) == count, 20_000)
    return members(world, spec)


def agree(world: World, spec: JobSpec) -> None:
    """No window was committed in two ways: all stores have the same words, as far as they have any."""
    words: dict[tuple[int, int, int], bytes] = {}
    for agent in world.agents:
        for row in agent.store.windows(spec.uid, -(1 << 62), 1 << 62):
            name = (row.first_start, row.last_end, row.revision)
            assert words.setdefault(name, row.rows + row.status) == row.rows + row.status, (
                agent.address,
                name,
            )


def last_end(world: World, spec: JobSpec) -> int:
    rows = world.leader(spec).store.last_windows(spec.uid, 1)
    return rows[0].last_end if rows else 0


def exact(world: World, spec: JobSpec, until: int, least: int, dead: tuple[SimAgent, ...] = ()) -> None:
    """Every window is there, in one piece with its neighbours, with all rows of those that it names; nobody
    is missing but the dead; and no word differs from another."""
    windows = settled(world, spec, until)
    assert len(windows) >= least
    (kind,) = spec.plan.windows
    starts = sorted(windows)
    assert {b - a for a, b in pairwise(starts)} == {kind.step_us}
    for start, (_, counts, status) in windows.items():
        assert not status["skipped"], status
        assert counts == world.truth(spec, start, status["missing"]), (start, status)
        assert set(status["missing"]) <= {f"a{agent.index}" for agent in dead}, status
    agree(world, spec)


def moved(world: World, spec: JobSpec, lead: SimAgent) -> None:
    """The log has another job group, and a window that ended after now has come from there."""
    now_us = world.now * 1_000
    world.run_until(lambda: world.leader(spec) is not lead, 20_000)
    world.run_until(lambda: last_end(world, spec) > now_us + 2 * SECOND, 30_000)
