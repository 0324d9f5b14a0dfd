"""Jobs that get other trees while they run, and what is decided of where they are, how many trees they have,
and over which regions they send: as people ask for it, and as the leader of the catalog log decides it, in
time and too late."""

from __future__ import annotations

import random
from functools import partial

from elf.fields import replace
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.log import AssignJobGroup, DecideRoute, DecideTrees
from elf.job.spec import JobSpec
from elf.ql.plan import Plan
from lab.chaos.engine import defined
from lab.chaos.schedule import Fault
from lab.chaos.world import World
from overlay.regions import region_of

TREES_MOST = 3
HELD = (0, 0, 1, 2, 3, 6)
"""Panes that a head is to hold."""
LATE_MS = (1_000, 3_000, 6_000)
"""A decision is proposed again so much later."""


def has_trees(query: Plan) -> bool:
    """Whether a query may have several trees."""
    plain = not (query.beside or query.reads or query.stages or query.join or query.final)
    fragments = query.fragments
    return plain and all(
        (one.revise_us, one.changes_us, one.reduce, one.stage, one.since_us) == (None,) * 5
        for one in fragments
    )


def scaled(world: World, spec: JobSpec, rng: random.Random, origin: str) -> ReconfigureJob | None:
    """Other trees, and perhaps by itself from then on; None: such a job has one."""
    if not has_trees(spec.plan):
        return None
    query = replace(spec.plan, trees=rng.randint(1, TREES_MOST))
    return ReconfigureJob(
        id=1,
        origin=origin,
        uid=spec.uid,
        verb="alter",
        definition=defined(query),
        roots=world.range_roots(spec.name, query),
        note="scale …",
        scale=rng.choice([None, (1, TREES_MOST)]),
    )


def decide(world: World, spec: JobSpec, fault: Fault, rng: random.Random) -> None:
    """The leader of the log's voters decides of a job, and once more when that is late."""
    voter = next((agent for agent in world.agents if agent.up and agent.node.catalog.leads), None)
    if voter is None:
        return
    target, at_ms = world.agents[fault.who[0]].address, world.now
    word: AssignJobGroup | DecideTrees
    if spec.scale is None:
        lead = voter.node.log.leader(spec.uid) or ""
        word = AssignJobGroup(uid=spec.uid, origin=lead, target=target, at_ms=at_ms, why="chaos")
    else:
        before = spec.plan.trees
        trees = rng.choice([n for n in range(1, TREES_MOST + 1) if n != before])
        roots = world.range_roots(spec.name, replace(spec.plan, trees=trees))
        word = DecideTrees(uid=spec.uid, before=before, trees=trees, at_ms=at_ms, why="chaos", roots=roots)
    for late_ms in (0, rng.choice(LATE_MS)):
        world.at(at_ms + late_ms, partial(_propose, world, word))


def route(world: World, spec: JobSpec, rng: random.Random) -> None:
    """The same of how the flows of a job go over borders: over which regions, and in units of what."""
    regions = sorted({region_of(agent.place) for agent in world.agents})
    for flow in spec.flows:
        root = world.by_address.get(flow.leader)
        target = region_of(root.place) if root is not None and rng.random() < 0.8 else rng.choice(regions)
        over = {region for region in regions if region != target and rng.random() < 0.5}
        vias = [(one, rng.choice(sorted(over))) for one in regions if one not in {target, *over} and over]
        word = DecideRoute(
            uid=flow.uid,
            target=target,
            vias=tuple(vias),
            panes=rng.choice(HELD),
            at_ms=world.now,
            why="chaos",
            acts=rng.random() < 0.8,
        )
        for late_ms in (0, rng.choice(LATE_MS)):
            world.at(world.now + late_ms, partial(_propose, world, word))


def _propose(world: World, word: AssignJobGroup | DecideTrees | DecideRoute) -> None:
    """Whoever leads then."""
    agent = next((one for one in world.agents if one.up and one.node.catalog.leads), None)
    if agent is None:
        return
    leader, node = agent, agent.node

    def serve() -> None:
        leader.perform(node.settle(node.catalog.serve(leader.address, word, world.now), world.now))

    leader.guard(serve)
