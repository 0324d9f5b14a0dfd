"""Worlds in which everything happens to everybody: whatever the history, some peace brings truth back.

A failure prints its seed and the last things that happened. Nodes check their invariants after each event.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from lab.overlay.oracles import tree_faults, wrong_leaf_sets
from lab.overlay.world import Simulator, plane
from overlay import OverlayConfig, key_of
from tests.support.worlds import host, names, shout, subscribe

COUNT = 20
LEAVES = 8
TOPICS = [key_of(b"topic %d" % number) for number in range(4)]
GROUPS: dict[bytes, str | None] = {t: (f"n{n}" if n % 2 else None) for n, t in enumerate(TOPICS)}
LONGEST_STALL_MS = 5_000
PEACE_MS = 15_000


@dataclass
class Churn:
    """A world, what should be true of it, and what has happened."""

    rng: random.Random
    world: Simulator
    wanted: dict[bytes, set[str]] = field(default_factory=lambda: {topic: set() for topic in TOPICS})
    history: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.history.append(f"{self.world.now} {what}")

    def boot(self, address: str) -> None:
        ready = [o.me.address for o in self.world.running() if o.ready and o.me.address != address]
        self.world.add(address, self.rng.sample(ready, min(3, len(ready))))
        for topic in TOPICS:
            if GROUPS[topic] == address:
                host(self.world, topic, address)
            if self.rng.random() < 0.5:
                self.wanted[topic].add(address)
                subscribe(self.world, topic, [address], GROUPS[topic])
        self.note(f"boot {address}")

    def stop(self, address: str, how: Callable[[str], None]) -> None:
        if len(names(self.world)) > 3:
            how(address)
            for subscribers in self.wanted.values():
                subscribers.discard(address)
            self.note(f"{how.__name__} {address}")

    def resubscribe(self, address: str) -> None:
        topic = self.rng.choice(TOPICS)
        if address in self.wanted[topic]:
            self.wanted[topic].remove(address)
            overlay = self.world.nodes[address].overlay
            self.world.perform(address, overlay.unsubscribe(topic, self.world.now))
        else:
            self.wanted[topic].add(address)
            subscribe(self.world, topic, [address], GROUPS[topic])

    def split(self) -> None:
        up = names(self.world)
        self.world.partition(up[: len(up) // 2], up[len(up) // 2 :])
        self.world.run(self.rng.choice([1_000, 8_000]))
        self.world.heal()
        self.note("split")

    def step(self) -> None:
        rng, world = self.rng, self.world
        one = rng.choice(names(world))
        down = sorted(set(world.nodes) - set(names(world)))
        chance = rng.random()
        if chance < 0.25:
            self.stop(one, world.crash)
        elif chance < 0.35:
            self.stop(one, world.leave)
        elif chance < 0.65 and down:
            self.boot(rng.choice(down))
        elif chance < 0.75:
            world.stall(one, rng.choice([500, 2_000, LONGEST_STALL_MS]))
            self.note(f"stall {one}")
        elif chance < 0.95:
            self.resubscribe(one)
        else:
            self.split()
        world.run(rng.choice([0, 100, 1_000, 4_000]))

    def faults(self) -> list[str]:
        found = [f"{name}: leaf set" for name in wrong_leaf_sets(self.world, LEAVES)]
        for topic, subscribers in self.wanted.items():
            if subscribers:
                found += tree_faults(self.world, topic, sorted(subscribers))
        return found


def churn(seed: int, loss: float, doubling: float, steps: int = 25) -> Churn:
    """A history from a seed, then peace: no more losses, all hosts up, nobody stalled."""
    rng = random.Random(seed)
    world = Simulator(
        rng, OverlayConfig(leaf_set_size=LEAVES), plane(10), loss=loss, doubling=doubling, check=True
    )
    story = Churn(rng, world)
    for number in range(COUNT):
        story.boot(f"n{number}")
        world.run(rng.choice([10, 10, 20, 300]))
    for _ in range(steps):
        story.step()
    world.loss = world.doubling = 0.0
    for top in filter(None, GROUPS.values()):
        if not world.nodes[top].alive:
            story.boot(top)
    world.run(LONGEST_STALL_MS)
    return story


def verify(story: Churn, seed: int) -> None:
    world = story.world
    calm = world.run_until(lambda: world.all_ready() and not story.faults(), PEACE_MS, every_ms=500)
    assert calm, (seed, story.faults(), story.history[-8:])
    for number, (topic, subscribers) in enumerate(story.wanted.items()):
        if subscribers:
            heard = shout(world, topic, b"message %d" % number)
            assert heard == dict.fromkeys(subscribers, 1), (seed, story.history[-8:])


@pytest.mark.parametrize("seed", range(4))
def test_after_churn_peace_brings_truth(seed: int) -> None:
    verify(churn(seed, loss=0.0, doubling=0.0), seed)


@pytest.mark.parametrize("seed", range(100, 104))
def test_after_churn_with_lost_and_doubled_messages(seed: int) -> None:
    verify(churn(seed, loss=0.05, doubling=0.1), seed)


def test_equal_seeds_tell_equal_stories_and_others_do_not() -> None:
    one, same, other = (churn(seed, 0.05, 0.1, steps=5).world.fingerprint for seed in (7, 7, 8))
    assert one == same != other
