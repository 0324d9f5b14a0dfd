"""How long trees are broken after a crash: a share of a simulated world is killed at one moment, and every
tree is watched from the outside until all survivors hang below its true root again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from overlay.config import OverlayConfig
from overlay.effects import Rng
from overlay.ids import to_key
from overlay.oracles import closest
from overlay.world import Latency, Simulator, plane

_BURST = 16
_BURST_MS = 100
_READY_MS = 60_000
_REST_MS = 10_000
_LOOK_MS = 25


@dataclass(frozen=True)
class Spread:
    """Seconds, over those that had to recover (all 0 if nobody had)."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True)
class Recovery:
    """What ``recover`` saw. ``trees`` counts those that broke, ``cut_off`` the places (a survivor in a topic)
    that lost their way to the root; ``never``: those still without one when the watch ended.
    ``tree_seconds``: from the crash until the last of a tree was back for good; ``place_seconds``: until one
    place was. ``depth_mean``, ``depth_max`` and ``fanout_max`` are of the trees in the end."""

    nodes: int
    crashed: int
    topics: int
    trees: int
    places: int
    cut_off: int
    never: int
    tree_seconds: Spread
    place_seconds: Spread
    depth_mean: float
    depth_max: int
    fanout_max: int
    virtual_seconds: float
    fingerprint: str


def recover(
    nodes: int,
    topics: int,
    crash_share: float,
    seed_rng: Rng,
    *,
    config: OverlayConfig | None = None,
    latency: Latency | None = None,
    watch_ms: int = 12_000,
    check: bool = False,
) -> Recovery:
    """All nodes subscribe to all topics; ``crash_share`` of them die at once, and the trees are looked at
    every 25 ms for ``watch_ms``. Latency: a LAN (at most 2 ms) unless given. ValueError for sizes that make
    no world.

    A place is whole when the node closest to the topic is reached from it over bonds that both ends know.
    """
    if nodes < 2 or topics < 1 or not 0 < crash_share < 1 or watch_ms < _LOOK_MS:
        raise ValueError("at least two nodes, a topic, a crash share in (0, 1), and some time to watch")
    world = Simulator(seed_rng, config, latency or plane(2), check=check)
    _join(world, nodes)
    keys = [to_key(sum(seed_rng.randrange(1 << 32) << s for s in (0, 32, 64, 96))) for _ in range(topics)]
    for overlay in world.running():
        for key in keys:
            world.perform(overlay.me.address, overlay.subscribe(key, world.now))
    world.run(_REST_MS)
    left = sorted(world.nodes)
    victims = [left.pop(seed_rng.randrange(len(left))) for _ in range(max(1, round(nodes * crash_share)))]
    for address in victims:
        world.crash(address)
    last_cut = _watch(world, keys, watch_ms)
    end = world.now
    by_tree: dict[bytes, float] = {}
    for (key, _), seconds in last_cut.items():
        by_tree[key] = max(by_tree.get(key, 0.0), seconds)
    depths = [len(overlay.path(key)) for overlay in world.running() for key in keys]
    return Recovery(
        nodes=nodes,
        crashed=len(victims),
        topics=topics,
        trees=len(by_tree),
        places=len(left) * topics,
        cut_off=len(last_cut),
        never=sum(len(_cut_off(world, key)) for key in keys),
        tree_seconds=_spread(list(by_tree.values())),
        place_seconds=_spread(list(last_cut.values())),
        depth_mean=round(sum(depths) / len(depths), 3),
        depth_max=max(depths),
        fanout_max=max(len(overlay.children(key)) for overlay in world.running() for key in keys),
        virtual_seconds=end / 1000,
        fingerprint=world.fingerprint,
    )


def _join(world: Simulator, nodes: int) -> None:
    world.add("node-0")
    for number in range(1, nodes):
        world.add(f"node-{number}", [f"node-{world.rng.randrange(number)}"])
        if number % _BURST == 0:
            world.run(_BURST_MS)
    world.run_until(world.all_ready, _READY_MS)


def _watch(world: Simulator, keys: Sequence[bytes], watch_ms: int) -> dict[tuple[bytes, str], float]:
    """For each place that was ever cut off, the seconds from now until it was whole for good."""
    start = world.now
    found: dict[tuple[bytes, str], float] = {}
    while world.now - start < watch_ms:
        for key in keys:
            for address in _cut_off(world, key):
                found[key, address] = (world.now + _LOOK_MS - start) / 1000
        world.run(_LOOK_MS)
    return found


def _cut_off(world: Simulator, key: bytes) -> set[str]:
    """Running nodes that the topic's true root does not reach."""
    running = {overlay.me.address: overlay for overlay in world.running()}
    top = closest(world, key)
    if not running[top].is_root(key):
        return set(running)
    reached, front = {top}, [top]
    while front:
        above = front.pop()
        for child in running[above].children(key):
            if child in running and child not in reached and running[child].parent(key) == above:
                reached.add(child)
                front.append(child)
    return running.keys() - reached


def _spread(seconds: list[float]) -> Spread:
    ordered = sorted(seconds) or [0.0]
    last = len(ordered) - 1
    return Spread(ordered[last * 50 // 100], ordered[-(-last * 99 // 100)], ordered[-1])
