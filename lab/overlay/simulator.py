"""Whole experiments in a simulated world: join, route, place jobs, crash, route again
(``elf sim overlay``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace

from lab.overlay.jobs import Jobs, TreeShape, first_times, grow, job_keys, parents, place, shape, whole
from lab.overlay.oracles import closest, wrong_leaf_sets
from lab.overlay.world import Delivery, Latency, Simulator, Weigh, constant, plane
from overlay.config import OverlayConfig
from overlay.effects import Rng
from overlay.ids import to_key

__all__ = [
    "Delivery",
    "Hops",
    "Jobs",
    "Latency",
    "Lookups",
    "Maintenance",
    "Partition",
    "Phase",
    "Report",
    "Simulator",
    "TreeShape",
    "constant",
    "plane",
    "simulate",
]

_JOIN_GAP_MS = 200
_BURST = 8
_BURST_SHARE = 0.1
_CALM = 200
"""Nodes for which a ring takes newcomers one by one; a larger one takes so many more at once."""
_LIMIT_MS = 120_000
_LOOKUP_GAP_MS = 5
_LOOKUP_REST_MS = 15_000
_JOB_GAP_MS = 10
_TREES = 20
"""Trees that are grown, with every node in them; of other jobs only the place is looked for."""


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
class Maintenance:
    """What a node sends while nobody asks for anything; bytes as ``simulate`` was told to weigh messages."""

    messages_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class Partition:
    """A ring in halves for ``seconds``, drawn at random; from its healing on, how long until all leaf sets
    were true (None: never), and until each of the grown trees was whole; ``apart`` of them never were."""

    seconds: float
    one_ring_seconds: float | None
    trees_seconds: tuple[float, ...]
    apart: int


@dataclass(frozen=True)
class Report:
    """What ``simulate`` saw, in virtual seconds. ``lookups`` are those of all phases and of the jobs'
    keys."""

    nodes: int
    joined: int
    crashed: int
    phases: tuple[Phase, ...]
    lookups: Lookups
    maintenance: Maintenance
    jobs: Jobs
    partition: Partition | None
    virtual_seconds: float
    messages: int
    fingerprint: str


def simulate(
    nodes: int,
    keys: int,
    crash_share: float,
    seed_rng: Rng,
    *,
    jobs: int = 0,
    weigh: Weigh | None = None,
    config: OverlayConfig | None = None,
    latency: Latency | None = None,
    place_of: Callable[[str], str] = lambda _: "",
    loss: float = 0.0,
    rest_ms: int = 20_000,
    partition_ms: int = 0,
    check: bool = False,
) -> Report:
    """Let nodes join, one by one and in bursts; route random keys; place jobs; crash a share; route again;
    cut the ring in halves for ``partition_ms`` (0: don't), heal it, and route once more.

    ``rest_ms`` passes between the moment when all leaf sets are true and the lookups: the time for tables to
    mend. ``weigh`` tells the bytes of a message on the wire, ``place_of`` where an address stands. ValueError
    for sizes that make no world.
    """
    if nodes < 1 or min(keys, jobs, partition_ms) < 0 or not 0 <= crash_share < 1 or rest_ms < 1:
        raise ValueError(
            "at least one node, no negative number of keys, jobs or ms, a crash share in [0, 1), some rest"
        )
    settings = config or OverlayConfig()
    world = Simulator(seed_rng, settings, latency or plane(10), loss=loss, place_of=place_of, check=check)
    _join(world, nodes)
    (settled,) = first_times(world, [_settled(world, settings)], _LIMIT_MS)
    phases = [_phase(world, "joined", settings, keys, rest_ms, settled)]
    joined = phases[0].ready
    maintenance = _idle(world, rest_ms, weigh)
    topics, placed, job_lookups = _place(world, jobs)
    crashed = round(nodes * crash_share)
    if crashed:
        for address in _sample(seed_rng, sorted(world.nodes), crashed):
            world.crash(address)
        conditions = [_settled(world, settings), *(whole(world, topic) for topic in topics)]
        settled, *healed = first_times(world, conditions, _LIMIT_MS)
        times = tuple(ms / 1000 for ms in healed if ms is not None)
        placed = replace(placed, recovery_seconds=times, unrepaired=healed.count(None))
        phases.append(_phase(world, "repaired", settings, keys, rest_ms, settled))
    halves = None
    if partition_ms:
        halves = _part(world, settings, topics, partition_ms)
        settled = None if halves.one_ring_seconds is None else round(halves.one_ring_seconds * 1000)
        phases.append(_phase(world, "healed", settings, keys, rest_ms, settled))
    return Report(
        nodes=nodes,
        joined=joined,
        crashed=crashed,
        phases=tuple(phases),
        lookups=_total([*(phase.lookups for phase in phases), job_lookups]),
        maintenance=maintenance,
        jobs=placed,
        partition=halves,
        virtual_seconds=world.now / 1000,
        messages=sum(world.messages.values()),
        fingerprint=world.fingerprint,
    )


def _join(world: Simulator, nodes: int) -> None:
    """Start all nodes in random order, each through a ready one, now and then several at the same moment.

    A large ring takes as many more newcomers at once: it grows by a tenth a second or two, whatever its size.
    """
    rng = world.rng
    addresses = _sample(rng, [f"node-{number}" for number in range(nodes)], nodes)
    joining = [world.add(addresses[0])]
    ready: list[str] = []
    burst = 0
    for address in addresses[1:]:
        if burst:
            burst -= 1
        else:
            burst = _BURST if rng.random() < _BURST_SHARE else len(ready) // _CALM
            world.run(rng.randrange(_JOIN_GAP_MS))
            ready += [overlay.me.address for overlay in joining if overlay.ready]
            joining = [overlay for overlay in joining if not overlay.ready]
        joining.append(world.add(address, [ready[rng.randrange(len(ready))]]))
    world.run_until(world.all_ready, _LIMIT_MS)


def _settled(world: Simulator, config: OverlayConfig) -> Callable[[], bool]:
    """A condition: all leaf sets are true."""
    return lambda: not wrong_leaf_sets(world, config.leaf_set_size)


def _phase(
    world: Simulator, name: str, config: OverlayConfig, keys: int, rest_ms: int, settled: int | None
) -> Phase:
    """Rest, and make lookups. ``settled``: ms from the phase's begin until all leaf sets were true."""
    world.run(rest_ms)
    hops, lookups, _ = _look_up(world, _random_keys(world.rng, keys), _LOOKUP_GAP_MS)
    return Phase(
        name=name,
        nodes=len(world.running()),
        ready=sum(overlay.ready for overlay in world.running()),
        settled_seconds=(_LIMIT_MS if settled is None else settled) / 1000,
        wrong_leaf_sets=len(wrong_leaf_sets(world, config.leaf_set_size)),
        hops=hops,
        lookups=lookups,
    )


def _part(world: Simulator, config: OverlayConfig, topics: Sequence[bytes], for_ms: int) -> Partition:
    """Cut the ring in random halves for a while, heal it, and wait until ring and trees are whole again."""
    everybody = sorted(overlay.me.address for overlay in world.running())
    half = _sample(world.rng, everybody, len(everybody) // 2)
    world.partition(half)
    world.run(for_ms)
    world.heal()
    conditions = [_settled(world, config), *(whole(world, topic) for topic in topics)]
    settled, *healed = first_times(world, conditions, _LIMIT_MS)
    return Partition(
        seconds=for_ms / 1000,
        one_ring_seconds=None if settled is None else settled / 1000,
        trees_seconds=tuple(ms / 1000 for ms in healed if ms is not None),
        apart=healed.count(None),
    )


def _idle(world: Simulator, rest_ms: int, weigh: Weigh | None) -> Maintenance:
    messages, weight, world.weigh = sum(world.messages.values()), world.bytes, weigh
    world.run(rest_ms)
    world.weigh = None
    share = len(world.running()) * rest_ms / 1000
    return Maintenance(
        messages_per_s=round((sum(world.messages.values()) - messages) / share, 2),
        bytes_per_s=round((world.bytes - weight) / share, 1),
    )


def _place(world: Simulator, count: int) -> tuple[list[bytes], Jobs, Lookups]:
    """Route all candidate keys of the jobs, give each job its root, and grow some of the trees."""
    keys = list(job_keys(count))
    _, lookups, ends = _look_up(world, (key for choices in keys for key in choices), _JOB_GAP_MS)
    placed = place(keys, ends)
    topics = [topic for topic, _, _ in placed[:_TREES]]
    grown = grow(world, topics, _LIMIT_MS)
    trees = tuple(parents(world, topic) for topic in topics)
    jobs = Jobs(
        unplaced=count - len(placed),
        roots=tuple(root for _, root, _ in placed),
        first=tuple(first for _, _, first in placed),
        ungrown=grown.count(None),
        trees=trees,
        shape=shape(trees),
    )
    return topics, jobs, lookups


def _random_keys(rng: Rng, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield to_key(sum(rng.randrange(1 << 32) << shift for shift in (0, 32, 64, 96)))


def _look_up(world: Simulator, keys: Iterable[bytes], gap_ms: int) -> tuple[Hops, Lookups, dict[bytes, str]]:
    """Route each key from any node, one after the other; where they ended."""
    rng = world.rng
    first = len(world.deliveries)
    sources = world.running()
    expected: dict[bytes, str] = {}
    for key in keys:
        source = sources[rng.randrange(len(sources))]
        expected[key] = closest(world, key)
        world.perform(source.me.address, source.route(key, b"", world.now))
        world.run(gap_ms)
    world.run_until(lambda: len(world.deliveries) - first >= len(expected), _LOOKUP_REST_MS)
    deliveries = world.deliveries[first:]
    ends = {delivery.effect.key: delivery.at for delivery in deliveries}
    return *_judge(deliveries, expected), ends


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


def _total(all_lookups: Sequence[Lookups]) -> Lookups:
    return Lookups(*(sum(counts) for counts in zip(*map(astuple, all_lookups), strict=True)))


def _sample(rng: Rng, items: Sequence[str], size: int) -> list[str]:
    """So many different items in random order."""
    left = list(items)
    return [left.pop(rng.randrange(len(left))) for _ in range(size)]
