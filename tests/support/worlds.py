"""Small worlds for tests: build, subscribe, shout, and wait for rest."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.overlay.oracles import tree_faults, wrong_leaf_sets
from lab.overlay.world import Latency, Simulator, constant
from overlay import OverlayConfig, PeerDown, PeerUp

SIZE = OverlayConfig().leaf_set_size


def ring(
    count: int,
    *,
    seed: int = 1,
    config: OverlayConfig | None = None,
    latency: Latency | None = None,
    loss: float = 0.0,
    doubling: float = 0.0,
    settle_ms: int = 1_000,
) -> Simulator:
    """Nodes n0 … in one ring, all joined through n0 at the same moment, at rest."""
    world = Simulator(
        random.Random(seed), config, latency or constant(2), loss=loss, doubling=doubling, check=True
    )
    world.add("n0")
    for number in range(1, count):
        world.add(f"n{number}", ["n0"])
    assert world.run_until(world.all_ready, 10_000)
    world.run(settle_ms)
    return world


def names(world: Simulator) -> list[str]:
    return [overlay.me.address for overlay in world.running()]


def subscribe(world: Simulator, topic: bytes, addresses: Sequence[str], top: str | None = None) -> None:
    for address in addresses:
        world.perform(address, world.nodes[address].overlay.subscribe(topic, world.now, host=top))


def host(world: Simulator, topic: bytes, address: str) -> None:
    world.perform(address, world.nodes[address].overlay.host(topic, world.now))


def root(world: Simulator, topic: bytes) -> str:
    """The only root."""
    roots = [overlay.me.address for overlay in world.running() if overlay.is_root(topic)]
    assert len(roots) == 1, roots
    return roots[0]


def shout(world: Simulator, topic: bytes, payload: bytes) -> dict[str, int]:
    """Multicast from the root, wait; who got it how often."""
    address = root(world, topic)
    world.perform(address, world.nodes[address].overlay.multicast(topic, payload, world.now))
    world.run(1_000)
    return {
        who: times
        for (who, where, what), times in world.multicasts.items()
        if (where, what) == (topic, payload)
    }


def tree_rests(
    world: Simulator, topic: bytes, subscribers: Sequence[str], limit_ms: int, every_ms: int = 50
) -> bool:
    return world.run_until(lambda: not tree_faults(world, topic, subscribers), limit_ms, every_ms)


def ring_rests(world: Simulator, limit_ms: int, size: int = SIZE) -> bool:
    return world.run_until(lambda: world.all_ready() and not wrong_leaf_sets(world, size), limit_ms)


def ups(world: Simulator, at: str, about: str) -> list[int]:
    """Incarnations of a peer that a node has seen come up, in order."""
    effects = world.nodes[at].effects
    return [e.peer.incarnation for e in effects if isinstance(e, PeerUp) and e.peer.address == about]


def downs(world: Simulator, at: str, about: str) -> list[tuple[int, str]]:
    """Incarnations of a peer that a node has seen go, and why, in order."""
    effects = world.nodes[at].effects
    return [
        (e.peer.incarnation, e.reason) for e in effects if isinstance(e, PeerDown) and e.peer.address == about
    ]
