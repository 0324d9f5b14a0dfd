"""Whole experiments in a simulated world: join, route, crash, route again (``elf sim overlay``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from overlay.config import OverlayConfig
from overlay.effects import Rng
from overlay.ids import to_key
from overlay.oracles import closest, wrong_leaf_sets
from overlay.world import Delivery, Latency, Simulator, constant, plane

__all__ = [
    "Delivery",
    "Hops",
    "Latency",
    "Lookups",
    "Phase",
    "Report",
    "Simulator",
    "constant",
    "plane",
    "simulate",
]

_JOIN_GAP_MS = 200
_BURST = 8
_BURST_SHARE = 0.1
_LIMIT_MS = 120_000
_LOOKUP_GAP_MS = 5
_LOOKUP_REST_MS = 15_000


@dataclass(frozen=True)
class Hops:
    """Hops of delivered lookups; ``histogram[n]`` of them took n."""

    mean: float
    p999: int
    max: int
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class Lookups:
    """Routed keys: ended at another than the closest running node, nowhere, or more than once."""

    total: int
    wrong: int
    lost: int
    doubled: int


@dataclass(frozen=True)
class Phase:
    """A state of the ring, and the lookups made in it. ``settled_seconds``: until all leaf sets were true."""

    name: str
    nodes: int
    ready: int
    settled_seconds: float
    wrong_leaf_sets: int
    hops: Hops
    lookups: Lookups


@dataclass(frozen=True)
class Report:
    """What ``simulate`` saw, in virtual seconds. ``upkeep_messages_per_s`` is a node's share while idle."""

    nodes: int
    joined: int
    crashed: int
    phases: tuple[Phase, ...]
    upkeep_messages_per_s: float
    virtual_seconds: float
    messages: int
    fingerprint: str


def simulate(
    nodes: int,
    keys: int,
    crash_share: float,
    seed_rng: Rng,
    *,
    config: OverlayConfig | None = None,
    latency: Latency | None = None,
    loss: float = 0.0,
    rest_ms: int = 20_000,
    check: bool = False,
) -> Report:
    """Let nodes join, one by one and in bursts; route random keys; crash a share at once; route again.

    ``rest_ms`` passes between the moment when all leaf sets are true and the lookups: the time for tables to
    mend. ValueError for sizes that make no world.
    """
    if nodes < 1 or keys < 0 or not 0 <= crash_share < 1 or rest_ms < 1:
        raise ValueError("at least one node, no negative number of keys, a crash share in [0, 1), some rest")
    settings = config or OverlayConfig()
    world = Simulator(seed_rng, settings, latency or plane(10), loss=loss, check=check)
    _join(world, nodes)
    phases = [_phase(world, "joined", settings, keys, rest_ms)]
    joined = phases[0].ready
    before = sum(world.messages.values())
    world.run(rest_ms)
    upkeep = (sum(world.messages.values()) - before) / nodes / (rest_ms / 1000)
    crashed = round(nodes * crash_share)
    if crashed:
        for address in _sample(seed_rng, sorted(world.nodes), crashed):
            world.crash(address)
        phases.append(_phase(world, "repaired", settings, keys, rest_ms))
    return Report(
        nodes=nodes,
        joined=joined,
        crashed=crashed,
        phases=tuple(phases),
        upkeep_messages_per_s=round(upkeep, 2),
        virtual_seconds=world.now / 1000,
        messages=sum(world.messages.values()),
        fingerprint=world.fingerprint,
    )


def _join(world: Simulator, nodes: int) -> None:
    """Start all nodes in random order, each through a ready one, now and then several at the same moment."""
    rng = world.rng
    addresses = _sample(rng, [f"node-{number}" for number in range(nodes)], nodes)
    world.add(addresses[0])
    burst = 0
    for address in addresses[1:]:
        if burst:
            burst -= 1
        else:
            burst = _BURST if rng.random() < _BURST_SHARE else 0
            world.run(rng.randrange(_JOIN_GAP_MS))
        ready = [overlay.me.address for overlay in world.running() if overlay.ready]
        world.add(address, [ready[rng.randrange(len(ready))]])
    world.run_until(world.all_ready, _LIMIT_MS)


def _phase(world: Simulator, name: str, config: OverlayConfig, keys: int, rest_ms: int) -> Phase:
    start = world.now
    size = config.leaf_set_size
    world.run_until(lambda: not wrong_leaf_sets(world, size), _LIMIT_MS, every_ms=250)
    settled = world.now - start
    world.run(rest_ms)
    hops, lookups = _look_up(world, keys)
    return Phase(
        name=name,
        nodes=len(world.running()),
        ready=sum(overlay.ready for overlay in world.running()),
        settled_seconds=settled / 1000,
        wrong_leaf_sets=len(wrong_leaf_sets(world, size)),
        hops=hops,
        lookups=lookups,
    )


def _look_up(world: Simulator, keys: int) -> tuple[Hops, Lookups]:
    rng = world.rng
    first = len(world.deliveries)
    sources = world.running()
    expected: dict[bytes, str] = {}
    for _ in range(keys):
        key = to_key(sum(rng.randrange(1 << 32) << shift for shift in (0, 32, 64, 96)))
        source = sources[rng.randrange(len(sources))]
        expected[key] = closest(world, key)
        world.perform(source.me.address, source.route(key, b"", world.now))
        world.run(_LOOKUP_GAP_MS)
    world.run_until(lambda: len(world.deliveries) - first >= len(expected), _LOOKUP_REST_MS)
    return _judge(world.deliveries[first:], expected)


def _judge(deliveries: Sequence[Delivery], expected: dict[bytes, str]) -> tuple[Hops, Lookups]:
    times = Counter(delivery.effect.key for delivery in deliveries)
    hops = sorted(delivery.effect.hops for delivery in deliveries)
    count = Counter(hops)
    most = hops[-1] if hops else 0
    spread = Hops(
        mean=round(sum(hops) / len(hops), 4) if hops else 0.0,
        p999=hops[(len(hops) - 1) * 999 // 1000] if hops else 0,
        max=most,
        histogram=tuple(count[number] for number in range(most + 1)),
    )
    return spread, Lookups(
        total=len(expected),
        wrong=sum(delivery.at != expected[delivery.effect.key] for delivery in deliveries),
        lost=sum(key not in times for key in expected),
        doubled=sum(number > 1 for number in times.values()),
    )


def _sample(rng: Rng, items: Sequence[str], size: int) -> list[str]:
    """So many different items in random order."""
    left = list(items)
    return [left.pop(rng.randrange(len(left))) for _ in range(size)]
