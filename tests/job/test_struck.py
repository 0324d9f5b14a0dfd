"""Where a death is found early (``cluster.detect: fast``), windows go on early, whoever dies: what was on its
way through the dead agent is neither waited for nor asked for much later.
"""

from __future__ import annotations

from functools import partial

from elf.batch import decode
from elf.fields import replace
from elf.job.spec import JobSpec
from lab.chaos.agent import SimAgent
from lab.chaos.books import us_of
from lab.chaos.engine import STREAM, plan
from lab.chaos.world import World

EVERY_MS = 80
"""Between two rows beside each agent, dead or alive."""
PROMPT_MS = 1_300
"""From a death to the next window: it ends within a second, and somebody is dead after 0.7 to 0.9 s."""


def at_work(seed: int, agents: int) -> tuple[World, JobSpec]:
    """A fleet whose windows are a second long, and take no late row."""
    world = World(seed, agents, checking=False)
    world.detect, world.delay_ms, world.work_ms = "fast", (1, 3), (1, 6)
    world.worker_settings = replace(world.worker_settings, lateness_us=0, checkpoint_ms=5_000, traces=False)
    world.start_all()
    for agent in world.agents:
        _write(world, agent)
    return world, world.create(3, plan(1, 1, 0))


def _write(world: World, agent: SimAgent) -> None:
    def one() -> None:
        agent.logs[STREAM].add(1_000 * world.now, f"a{agent.index}")
        world.at(world.now + EVERY_MS, one)

    world.at(world.now + world.rng.randrange(EVERY_MS), one)


def windows(world: World, spec: JobSpec, since_us: int) -> dict[int, list[list[str]]]:
    """Who is missing in each revision of each window, by its start, of those that any agent has."""
    found: dict[int, list[list[str]]] = {}
    for agent in (agent for agent in world.agents if agent.up):
        for row in agent.store.windows(spec.uid, since_us, 1 << 62):
            for status in decode(row.status).to_pylist():
                found.setdefault(us_of(status["window_start"]), []).append(status["missing"])
    return found


def struck(world: World, spec: JobSpec, victim: SimAgent) -> int:
    """Milliseconds from its death to the next window."""
    at, before_us = world.now, 1_000 * (world.now - 1_000)
    victim.crash()
    world.run_until(lambda: any(start > before_us for start in windows(world, spec, before_us)), 8_000)
    return world.now - at


def calm(world: World, spec: JobSpec) -> bool:
    """Whether nobody is missing in the last two windows."""
    found = windows(world, spec, 1_000 * (world.now - 4_000))
    return len(found) > 1 and all(any(not who for who in found[start]) for start in sorted(found)[-2:])


def test_what_was_on_its_way_through_a_dead_relay_goes_to_the_root() -> None:
    world, spec = at_work(2, 8)
    for _ in range(2):  # the first one is back nearest to the tree's key, and others hang below it
        world.run_until(lambda: calm(world, spec), 30_000)
        leader = world.leader(spec)
        struck(world, spec, leader)
        world.restart(leader)
    world.run_until(lambda: world.now % 1_000 == 550, 1_000)  # half a second before a window ends
    topic, leader = spec.flows[0].topic, world.leader(spec)
    up = [agent for agent in world.agents if agent.up and agent is not leader]
    relay = max(up, key=lambda agent: len(agent.node.overlay.children(topic)))
    assert len(relay.node.overlay.children(topic)) > 1
    assert struck(world, spec, relay) <= PROMPT_MS


def test_a_relay_that_becomes_the_root_waits_for_no_child() -> None:
    """Masters and others die in turn, each soon after the one before is back."""
    world, spec = at_work(3, 8)
    world.run(4_000)
    for number in range(3):
        world.run_until(lambda: calm(world, spec), 30_000)
        leader = world.leader(spec)
        others = [agent for agent in world.agents if agent is not leader]
        victim = world.rng.choice(others) if number % 2 else leader
        assert struck(world, spec, victim) <= PROMPT_MS, number
        world.run(300)
        world.restart(victim)
        world.run_until(partial(_is_ready, victim), 20_000)


def _is_ready(agent: SimAgent) -> bool:
    return agent.node.ready
