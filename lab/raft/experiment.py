"""A whole experiment: many groups on a ring of nodes, a share of the nodes killed at once, and back again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.raft.world import Weather, World
from overlay.effects import Rng
from overlay.ids import closeness, key_of, node_id, to_int
from overlay.raft.config import RaftConfig

_BOOTSTRAP_MS = 20_000
_LIMIT_MS = 60_000
_IDLE_MS = 10_000
_ANSWER_MS = 2_000


@dataclass(frozen=True)
class MassKill:
    """What ``mass_kill`` saw, in virtual seconds from the kill.

    ``led``: groups that a killed node led and that kept a majority; ``recovery``: until such a group has a
    leader that has committed a record of its own term: median, 99th percentile, worst. ``stalled``: groups
    that lost their majority; of those, ``stalled_accepted`` took a record all the same (must be 0).
    ``accepted``: share of the groups with a majority that take a record asked for 4 s after the kill.
    ``resumed``: until every group takes records again, from the restart of the killed.
    """

    nodes: int
    groups: int
    killed: int
    led: int
    recovery: tuple[float, float, float]
    accepted: float
    stalled: int
    stalled_accepted: int
    resumed: float
    idle_messages_per_s: float
    idle_peers: float


class Fleet:
    """A world with groups on the five nodes closest to each key."""

    def __init__(self, nodes: int, groups: int, rng: Rng, config: RaftConfig, weather: Weather) -> None:
        self.world = World(rng, config, weather)
        self.addresses = [f"node-{number}" for number in range(nodes)]
        self.keys = [key_of(b"group %d" % number) for number in range(groups)]
        self._tokens = 0
        for address in self.addresses:
            self.world.start(address)
        for key in self.keys:
            number = to_int(key)
            near = sorted(self.addresses, key=lambda address: closeness(number, node_id(address)))
            founder, *others = near[: config.size]
            effects = self.world.at(founder).create(key, b"", others, self.world.now)
            self.world.perform(founder, effects)
            self.world.run(_BOOTSTRAP_MS // groups)
        self.world.run_until(lambda: all(self._full(key) for key in self.keys), _LIMIT_MS, every_ms=500)

    def ask(self, keys: Sequence[bytes], wait_ms: int) -> int:
        """Ask for a record at the leader of each group that has one; how many were accepted."""
        asked: list[tuple[str, int]] = []
        for key in keys:
            leader = self.world.leader(key)
            if leader is None:
                continue
            self._tokens += 1
            payload = b"record %d" % self._tokens
            self.world.judge.asked(leader, self._tokens, key, payload)
            effects = self.world.at(leader).propose(key, self._tokens, payload, self.world.now)
            self.world.perform(leader, effects)
            asked.append((leader, self._tokens))
        self.world.run(wait_ms)
        return sum(self.world.judge.operations[name].index > 0 for name in asked)

    def majority(self, key: bytes) -> bool:
        """Whether a majority of the group's voters runs, as whoever knows the latest membership says."""
        standings = (self.world.at(address).standing(key) for address in self.world.running())
        known = [standing.membership for standing in standings if standing is not None]
        if not known:
            return False
        membership = max(known, key=lambda membership: membership.epoch)
        up = sum(self.world.nodes[voter.address].groups is not None for voter in membership.voters)
        return up >= membership.quorum

    def _full(self, key: bytes) -> bool:
        leader = self.world.leader(key)
        standing = self.world.at(leader).standing(key) if leader else None
        return standing is not None and len(standing.membership.voters) == self.world.config.size


def mass_kill(
    nodes: int,
    groups: int,
    share: float,
    rng: Rng,
    *,
    config: RaftConfig | None = None,
    weather: Weather | None = None,
) -> MassKill:
    """Found the groups, idle, kill a share of the nodes at once, and start them again. OverlayError
    (``Broken``) when a promise does not hold. ValueError for sizes that make no fleet."""
    if nodes < 5 or groups < 1 or not 0 < share < 1:
        raise ValueError("at least five nodes, a group, a share between 0 and 1")
    settings = config or RaftConfig()
    fleet = Fleet(nodes, groups, rng, settings, weather or Weather())
    world = fleet.world
    fleet.ask(fleet.keys, _ANSWER_MS)
    idle = _idle(fleet)
    peers = sum(world.at(address).peers() for address in fleet.addresses) / nodes
    killed = _shuffled(rng, fleet.addresses)[: round(nodes * share)]
    led = {key for key in fleet.keys if world.leader(key) in killed}
    at = world.now
    for address in killed:
        world.crash(address)
    kept = [key for key in fleet.keys if fleet.majority(key)]
    stalled = sorted(set(fleet.keys) - set(kept))
    world.run(4_000)
    times = sorted(world.judge.led_at[key] - at for key in kept if key in led)
    accepted = fleet.ask(kept, _ANSWER_MS)
    stalled_accepted = fleet.ask(stalled, _ANSWER_MS)
    resumed = _resume(fleet, killed)
    return MassKill(
        nodes=nodes,
        groups=groups,
        killed=len(killed),
        led=len(times),
        recovery=_spread(times),
        accepted=accepted / len(kept),
        stalled=len(stalled),
        stalled_accepted=stalled_accepted,
        resumed=resumed,
        idle_messages_per_s=round(idle, 2),
        idle_peers=round(peers, 2),
    )


def _idle(fleet: Fleet) -> float:
    """Messages a second and node when nothing happens."""
    fleet.world.run(_ANSWER_MS)
    before = sum(fleet.world.messages.values())
    fleet.world.run(_IDLE_MS)
    return (sum(fleet.world.messages.values()) - before) * 1_000 / _IDLE_MS / len(fleet.addresses)


def _resume(fleet: Fleet, killed: Sequence[str]) -> float:
    """Start the killed; seconds until all groups take records. All that was ever accepted must be there."""
    world = fleet.world
    at = world.now
    for address in killed:
        world.start(address)
    world.run_until(lambda: all(world.leader(key) for key in fleet.keys), _LIMIT_MS, every_ms=100)
    taken = (world.now - at) / 1_000
    if fleet.ask(fleet.keys, 2 * _ANSWER_MS) < len(fleet.keys):
        taken = math.inf
    for key in fleet.keys:
        world.judge.rest(world, key)
    world.judge.operations_hold()
    return taken


def _spread(times: Sequence[int]) -> tuple[float, float, float]:
    """Median, 99th percentile and worst of sorted milliseconds, in seconds."""
    if not times:
        return (0.0, 0.0, 0.0)
    last = len(times) - 1
    return (times[last // 2] / 1_000, times[last * 99 // 100] / 1_000, times[last] / 1_000)


def _shuffled(rng: Rng, items: Sequence[str]) -> list[str]:
    left = list(items)
    return [left.pop(rng.randrange(len(left))) for _ in items]
