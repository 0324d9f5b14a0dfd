"""Lifetime churn: nodes live for a random time and are replaced, while keys are looked up (OverSim's
experiment, with a judge that knows everything).

A delivery is right if at that moment it is at the live, ready node closest to the key. The run is as
deterministic as the world: seed and settings give the ``fingerprint``.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from lab.overlay.oracles import closest_ready, overlapping_claims
from lab.overlay.world import Latency, Simulator, plane
from overlay.config import OverlayConfig
from overlay.effects import Delivered, Rng
from overlay.ids import to_key

Distribution = Literal["exponential", "weibull", "pareto"]

_BURST: Final = 8
_BURST_GAP_MS: Final = 100
_JOIN_LIMIT_MS: Final = 120_000
_REST_MS: Final = 10_000
_CONTACTS: Final = 3
_WEIBULL_SHAPE: Final = 0.5
"""Many die young: what was measured in peer-to-peer networks (Stutzbach, Rejaie 2006)."""
_PARETO_SHAPE: Final = 2.0
_DRAIN_MS: Final = 15_000
"""Time for the last lookups: longer than detection and all retries of a hop."""


@dataclass(frozen=True)
class ChurnReport:
    """``wrong``, ``doubled``: lookups delivered at another than the closest ready node, or at two that live;
    ``again``: delivered once more since the node that had it died before its acknowledgement got through;
    ``lost``: delivered nowhere. ``overlaps``: moments at which two nodes claimed one key."""

    nodes: int
    seconds: float
    deaths: int
    departures: int
    joins: int
    not_ready: int
    total: int
    wrong: int
    doubled: int
    again: int
    lost: int
    looks: int
    overlaps: int
    delay_ms_p50: int
    delay_ms_p999: int
    messages_per_s: float
    fingerprint: str

    @property
    def right_share(self) -> float:
        """Share of lookups delivered once, at the right node."""
        return 1 - (self.wrong + self.doubled + self.again + self.lost) / self.total if self.total else 1.0


def lifetimes(kind: Distribution, mean_s: float) -> Callable[[Rng], float]:
    """Random lifetimes in seconds with that mean, by inverting the distribution function."""
    match kind:
        case "exponential":
            return lambda rng: -mean_s * math.log(1 - rng.random())
        case "weibull":
            scale = mean_s / math.gamma(1 + 1 / _WEIBULL_SHAPE)
            return lambda rng: scale * math.pow(-math.log(1 - rng.random()), 1 / _WEIBULL_SHAPE)
        case "pareto":
            least = mean_s * (_PARETO_SHAPE - 1) / _PARETO_SHAPE
            return lambda rng: least / math.pow(1 - rng.random(), 1 / _PARETO_SHAPE)


class _Churn:
    """A world, its death list, and the lookups under way."""

    def __init__(self, world: Simulator, draw: Callable[[Rng], float], leave_share: float) -> None:
        self.world = world
        self.draw = draw
        self.leave_share = leave_share
        self.ends: list[tuple[int, str]] = []
        self.counts: Counter[str] = Counter()
        self.asked: dict[bytes, int] = {}
        self.ended: dict[bytes, list[str]] = defaultdict(list)
        self.delays: list[int] = []

    def boot(self) -> None:
        """Start a node at a new address, which will live as long as drawn."""
        world, rng = self.world, self.world.rng
        address = f"node-{self.counts['joins']}"
        self.counts["joins"] += 1
        ready = [overlay.me.address for overlay in world.running() if overlay.ready]
        contacts = [ready[rng.randrange(len(ready))] for _ in range(_CONTACTS)] if ready else []
        world.add(address, contacts)
        heapq.heappush(self.ends, (world.now + round(self.draw(rng) * 1000), address))

    def end_next(self) -> None:
        """The next node dies (or goes), and another comes in its place."""
        _, address = heapq.heappop(self.ends)
        if self.world.rng.random() < self.leave_share:
            self.counts["departures"] += 1
            self.world.leave(address)
        else:
            self.counts["deaths"] += 1
            self.world.crash(address)
        self.boot()

    def look_up(self) -> None:
        """A ready node looks for a random key."""
        world, rng = self.world, self.world.rng
        ready = [overlay for overlay in world.running() if overlay.ready]
        key = to_key(sum(rng.randrange(1 << 32) << shift for shift in (0, 32, 64, 96)))
        source = ready[rng.randrange(len(ready))]
        self.asked[key] = world.now
        world.perform(source.me.address, source.route(key, b"", world.now))

    def delivered(self, at: str, effect: Delivered) -> None:
        """Judge a delivery at its moment."""
        before = self.ended[effect.key]
        if before:
            lives = any(self.world.nodes[other].alive for other in before)
            self.counts["doubled" if lives else "again"] += 1
        before.append(at)
        self.counts["wrong"] += at != closest_ready(self.world, effect.key)
        self.delays.append(self.world.now - self.asked[effect.key])

    def look_at_claims(self) -> None:
        """Does anybody share a key with another?"""
        self.counts["looks"] += 1
        self.counts["overlaps"] += len(overlapping_claims(self.world))


def churn(
    nodes: int,
    rng: Rng,
    *,
    kind: Distribution = "weibull",
    mean_lifetime_s: float = 1_000,
    seconds: int = 300,
    lookups_per_s: int = 100,
    leave_share: float = 0.0,
    loss: float = 0.01,
    look_ms: int = 1_000,
    config: OverlayConfig | None = None,
    latency: Latency | None = None,
    check: bool = False,
) -> ChurnReport:
    """Let nodes die after random lifetimes and be replaced at once, look keys up, and judge each delivery.

    ``leave_share`` of the nodes that go say good-bye. Every ``look_ms`` all claims are compared. ValueError
    for sizes that make no world.
    """
    if nodes < 2 or seconds < 1 or lookups_per_s < 1 or mean_lifetime_s <= 0 or look_ms < 1:
        raise ValueError("at least two nodes, one second, one lookup a second, and some lifetime")
    world = Simulator(rng, config, latency or plane(20), check=check)
    story = _Churn(world, lifetimes(kind, mean_lifetime_s), leave_share)
    _populate(story, nodes)
    world.loss = loss
    world.on_delivery = story.delivered
    before, start = sum(world.messages.values()), world.now
    _live(story, seconds, lookups_per_s, look_ms)
    messages = sum(world.messages.values()) - before
    world.run(_DRAIN_MS)
    delays = sorted(story.delays) or [0]
    return ChurnReport(
        nodes=nodes,
        seconds=(world.now - _DRAIN_MS - start) / 1000,
        deaths=story.counts["deaths"],
        departures=story.counts["departures"],
        joins=story.counts["joins"] - nodes,
        not_ready=sum(not overlay.ready for overlay in world.running()),
        total=len(story.asked),
        wrong=story.counts["wrong"],
        doubled=story.counts["doubled"],
        again=story.counts["again"],
        lost=len(story.asked) - len(story.ended),
        looks=story.counts["looks"],
        overlaps=story.counts["overlaps"],
        delay_ms_p50=delays[len(delays) // 2],
        delay_ms_p999=delays[len(delays) * 999 // 1000],
        messages_per_s=round(messages / nodes / seconds, 2),
        fingerprint=world.fingerprint,
    )


def _populate(story: _Churn, nodes: int) -> None:
    """All nodes, in bursts; then rest. Their lifetimes begin when everybody is there."""
    world = story.world
    story.boot()
    while story.counts["joins"] < nodes:
        for _ in range(min(_BURST, nodes - story.counts["joins"])):
            story.boot()
        world.run(_BURST_GAP_MS)
    world.run_until(world.all_ready, _JOIN_LIMIT_MS)
    world.run(_REST_MS)
    story.ends = [(at + world.now, address) for at, address in story.ends]
    heapq.heapify(story.ends)


def _live(story: _Churn, seconds: int, lookups_per_s: int, look_ms: int) -> None:
    world = story.world
    end = world.now + seconds * 1000
    gap_ms = 1000 / lookups_per_s
    next_lookup, next_look = float(world.now), world.now
    while world.now < end:
        due = min(story.ends[0][0], math.ceil(next_lookup), next_look, end)
        world.run(max(due - world.now, 0))
        while story.ends[0][0] <= world.now:
            story.end_next()
        while next_lookup <= world.now:
            story.look_up()
            next_lookup += gap_ms
        if next_look <= world.now:
            story.look_at_claims()
            next_look += look_ms
