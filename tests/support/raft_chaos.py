"""Random histories of Raft groups, from one seed: everything that may happen to a fleet, then peace."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from lab.raft.world import Make, Weather, World
from overlay.ids import key_of
from overlay.raft.config import RaftConfig
from overlay.raft.effects import Effect
from overlay.raft.groups import Groups

NODES = [f"n{number}" for number in range(7)]
KEYS = [key_of(b"one"), key_of(b"two")]
CONFIG = RaftConfig(
    beat_ms=100,
    silence_ms=500,
    slot_ms=40,
    vote_ms=60,
    push_ms=50,
    ask_ms=100,
    forward_ms=700,
    transfer_ms=400,
    learner_ms=3_000,
    batch_entries=3,
    piece_bytes=5,
    compact_entries=6,
    parts_max=2,
    uncommitted_max=12,
)
"""Everything small and fast, so that a few seconds see every branch."""


class Chaos:
    """One history. ``act`` does something random; ``peace`` ends it and lets the judge speak."""

    def __init__(self, seed: int, make: Make = Groups, *, check: bool = True) -> None:
        self.rng = random.Random(seed)
        self.storm = Weather(
            delay_min=1,
            delay_max=self.rng.choice([4, 20, 80]),
            loss=self.rng.choice([0, 0.02, 0.15]),
            doubling=self.rng.choice([0, 0.1]),
            sync_max=self.rng.choice([0, 3, 30]),
        )
        self.world = World(self.rng, CONFIG, check=check, make=make)
        self.removes = self.rng.random() < 0.5
        self.count = 0
        for address in NODES:
            self.world.start(address)
        for key in KEYS:
            founder, *others = self.rng.sample(NODES, 5)
            created = self.world.at(founder).create(key, b"", others, self.world.now)
            self.world.perform(founder, created)
        assert self.world.run_until(lambda: all(self.voters(key) == 5 for key in KEYS), 10_000)
        self.world.weather = self.storm

    def do(self, address: str, call: Callable[[Groups], Sequence[Effect]]) -> None:
        self.world.perform(address, call(self.world.at(address)))

    def voters(self, key: bytes) -> int:
        leader = self.world.leader(key)
        standing = self.world.at(leader).standing(key) if leader else None
        return len(standing.membership.voters) if standing else 0

    # -- what may happen -------------------------------------------------------------------------------------

    def propose(self) -> None:
        """At the leader as far as anybody knows, or anywhere; sometimes fenced by the term that it believes
        in."""
        world, key = self.world, self.rng.choice(KEYS)
        leaders = [address for address in world.running() if self.leads(address, key)]
        places = leaders if leaders and self.rng.random() < 0.7 else world.running()
        if not places:
            return
        address = self.rng.choice(places)
        standing = world.at(address).standing(key)
        term = standing.term if standing and self.rng.random() < 0.3 else 0
        for _ in range(self.rng.choice([1, 1, 1, 4])):
            self.count += 1
            token, payload = self.count, b"record %d" % self.count
            world.judge.asked(address, token, key, payload)
            world.perform(address, world.at(address).propose(key, token, payload, world.now, term))

    def leads(self, address: str, key: bytes) -> bool:
        standing = self.world.at(address).standing(key)
        return standing is not None and standing.leads

    def read(self) -> None:
        world, key = self.world, self.rng.choice(KEYS)
        leaders = [address for address in world.running() if self.leads(address, key)]
        if leaders:
            address = self.rng.choice(leaders)
            self.count += 1
            world.judge.asked(address, self.count, key, b"")
            self.do(address, lambda node: node.read(key, self.count, world.now))

    def crash(self) -> None:
        """One stops; rather one that is just writing."""
        running = self.world.running()
        if len(running) > 2:
            writing = [address for address in running if self.world.nodes[address].syncing is not None]
            self.world.crash(self.rng.choice(writing or running))

    def blackout(self) -> None:
        """All stop at the same moment, and begin again."""
        for address in self.world.running():
            self.world.crash(address)
        for address in NODES:
            self.world.start(address)

    def wake(self) -> None:
        asleep = [address for address in NODES if self.world.nodes[address].groups is None]
        if asleep:
            self.world.start(self.rng.choice(asleep))

    def wipe(self) -> None:
        """A node loses its disk, if every membership that anybody has in mind keeps a majority of disks
        without it, even after a member that still has its own was removed (where the history has
        removals)."""
        address = self.rng.choice(NODES)
        if all(self.spared(key, address) for key in KEYS):
            if self.world.nodes[address].groups is not None:
                self.world.crash(address)
            self.world.wipe(address)
            if self.rng.random() < 0.7:
                self.world.start(address)

    def spared(self, key: bytes, address: str) -> bool:
        slots = {
            node.disk.groups[key].slot
            for node in self.world.nodes.values()
            if key in node.disk.groups and node.address != address
        }
        for node in self.world.nodes.values():
            held = node.disk.groups.get(key)
            if held is None:
                continue
            changes = [entry.membership[0] for entry in held.entries if entry.membership]
            if node.groups is not None and key in node.groups.held():
                changes.append(node.groups.group(key).local.membership)
            for membership in (held.snapshot.membership, *changes):
                kept = sum(voter.slot in slots for voter in membership.voters)
                if membership.voters and kept < membership.quorum:
                    return False
                if self.removes and kept - 1 < (len(membership.voters) - 1) // 2 + 1:
                    return False
        return True

    def cut(self) -> None:
        nodes = self.rng.sample(NODES, len(NODES))
        at = self.rng.randrange(1, len(nodes))
        self.world.partition(nodes[:at], nodes[at:])

    def transfer(self) -> None:
        key = self.rng.choice(KEYS)
        leader = self.world.leader(key)
        if leader:
            to = self.rng.choice(["", *NODES])
            self.do(leader, lambda node: node.transfer(key, to, self.world.now))

    def invite(self) -> None:
        key = self.rng.choice(KEYS)
        leader = self.world.leader(key)
        if leader:
            guest = self.rng.choice(NODES)
            self.do(leader, lambda node: node.invite(key, [guest], self.world.now))

    def enter(self) -> None:
        if self.world.running():
            key, address = self.rng.choice(KEYS), self.rng.choice(self.world.running())
            self.do(address, lambda node: node.enter(key, NODES, self.world.now))

    def remove(self) -> None:
        key = self.rng.choice(KEYS)
        leader = self.world.leader(key)
        if leader and self.removes and self.voters(key) > 3:
            out = self.rng.choice(NODES)
            self.do(leader, lambda node: node.remove(key, out, self.world.now))

    def stall(self) -> None:
        if self.world.running():
            self.world.stall(self.rng.choice(self.world.running()), self.rng.randrange(1_500))

    def heal(self) -> None:
        self.world.heal()

    def act(self) -> None:
        self.rng.choices(
            [
                self.propose,
                self.read,
                self.crash,
                self.wake,
                self.wipe,
                self.cut,
                self.heal,
                self.transfer,
                self.invite,
                self.enter,
                self.remove,
                self.stall,
                self.blackout,
            ],
            [40, 8, 5, 9, 1, 3, 5, 2, 3, 1, 1, 2, 1],
        )[0]()

    # -- a whole history -------------------------------------------------------------------------------------

    def history(self, steps: int = 150) -> None:
        """So many things, and time between them."""
        for step in range(steps):
            self.act()
            self.world.run(self.rng.choice([0, 3, 20, 60, 200]))
            if step % 10 == 0:
                self.world.judge.logs(self.world)
        self.peace()

    def peace(self) -> None:
        """All is mended; every group must come to one end, which holds all that was accepted."""
        world = self.world
        world.heal()
        world.weather = Weather()
        for address in NODES:
            if world.nodes[address].groups is None:
                world.start(address)
        world.run(2_000)
        for key in KEYS:
            assert world.run_until(lambda: world.leader(key) is not None, 10_000), f"no leader of {key.hex()}"  # noqa: B023
        assert world.run_until(lambda: all(self.serves(key) for key in KEYS), 20_000), "no record is accepted"
        world.run(1_500)
        for key in KEYS:
            world.judge.rest(world, key)
        world.judge.logs(world)
        world.judge.operations_hold()

    def serves(self, key: bytes) -> bool:
        """Whether a record asked for now is accepted soon."""
        leader = self.world.leader(key)
        if leader is None:
            return False
        self.count += 1
        token, payload = self.count, b"record %d" % self.count
        self.world.judge.asked(leader, token, key, payload)
        self.do(leader, lambda node: node.propose(key, token, payload, self.world.now))
        self.world.run(200)
        return self.world.judge.operations[leader, token].index > 0
