"""Fleets in three regions, on virtual time."""

from __future__ import annotations

from elf.job.spec import JobSpec
from lab.chaos.agent import SimAgent
from lab.chaos.world import World

REGIONS = ("eu", "us", "ap")


def world_of(seed: int, agents: int, *, places: bool = True) -> World:
    world = World(seed, agents, checking=False)
    for agent in world.agents:
        agent.place = f"{REGIONS[agent.index % 3]}/r{agent.index}" if places else ""
    return world


def heads(world: World) -> dict[str, list[SimAgent]]:
    """The heads of each region, without those of the roots' region."""
    found = {region: world.heads(region) for region in REGIONS}
    return {region: agents for region, agents in found.items() if agents}


def one_head_each(world: World, spec: JobSpec) -> bool:
    there = heads(world)
    root = world.by_address[spec.leader].place.split("/")[0]
    return {*there} == {*REGIONS} - {root} and all(len(agents) == 1 for agents in there.values())
