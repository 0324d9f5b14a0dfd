"""Raft groups in an agent: the store does what ``Disk`` says, and nothing is said before it is durable."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

from agents.disk.store import Store
from agents.node.groups import GroupDesk, GroupStep
from elf.job.effects import Effect, SaveFact
from lab.raft.world import Inhabitant, Weather, World
from overlay import raft
from overlay.ids import Peer
from overlay.raft.messages import AppendReplies, AppendReply, AppendRequest, AppendRequests, Header

KEY = b"k" * 16


def test_the_store_is_a_disk_write_by_write(tmp_path: Path) -> None:
    """Groups under loss, crashes and compaction; each disk's writes go into a store as well."""
    config = raft.RaftConfig(size=3, piece_bytes=64, compact_entries=5)
    stores = {address: Store(tmp_path / address) for address in "abcd"}
    kinds: set[type] = set()

    class Twice(World):
        def _written(self, node: Inhabitant, effect: raft.Persist) -> None:
            super()._written(node, effect)
            stores[node.address].persist(effect.writes)
            kinds.update(type(write) for write in effect.writes)
            assert stores[node.address].load_groups() == node.disk.groups

    world = Twice(random.Random(6), config, Weather(loss=0.1, doubling=0.1))
    for address in "abcd":
        world.start(address)
    for key in (KEY, b"l" * 16):
        world.perform("a", world.at("a").create(key, b"state" * 40, ["b", "c"], world.now))
    world.run(2_000)
    for turn in range(24):
        for address in "abc":
            if turn == 8 and address == "b":
                world.crash("b")
            if address in world.running():
                record = f"{address} {turn}".encode()
                world.judge.asked(address, turn, KEY, record)
                world.perform(address, world.at(address).propose(KEY, turn, record, world.now))
        world.run(300)
    world.start("b")
    world.run(4_000)
    world.perform("d", world.at("d").enter(KEY, ["a", "b", "c"], world.now))
    world.run(3_000)
    world.perform("c", world.at("c").leave(world.now))
    world.run(6_000)
    assert kinds == {raft.SlotTaken, raft.Promised, raft.Recorded, raft.Snapped, raft.Forgotten}
    assert stores["c"].load_groups() == {}
    for store in stores.values():
        store.close()


class Counted:
    """A machine whose state is the records that it was told."""

    unusable = ""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def install(self, state: bytes) -> list[Effect]:
        self.records = state.split()
        return []

    def apply(self, record: bytes) -> list[Effect]:
        self.records.append(record)
        return [SaveFact("applied", record)]

    def state(self, index: int) -> bytes:
        return b" ".join(self.records)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_said_or_done_before_it_is_durable_and_nothing_twice(seed: int) -> None:
    """A group of one: whatever was being written when it died, what was said before is there afterwards."""
    rng, store, life, now = random.Random(seed), Store(":memory:"), 0, 1_000
    said: list[bytes] = []
    proposed = 0
    while life < 6:
        life += 1
        machine = Counted()
        config = raft.RaftConfig(compact_entries=4)
        groups = raft.Groups(Peer("a:1", life), config, rng, store.load_groups())
        desk = GroupDesk(groups, {KEY: machine}.__getitem__)
        steps = desk.start(now)
        if life == 1:
            steps += desk.create(KEY, b"", now)
        writing: raft.Persist | None = None
        for _ in range(rng.randrange(20, 60)):
            for step in steps:
                if isinstance(step, raft.Persist):
                    assert writing is None
                    writing = step
                elif isinstance(step, SaveFact):
                    assert writing is None or step.value not in b"".join(map(repr_of, writing.writes))
                    said += [step.value] if step.value not in said else []
            now += 100
            chance = rng.random()
            if writing is not None and chance < 0.4:
                store.persist(writing.writes)
                writing = None
                steps = desk.persisted(now)
            elif chance < 0.7:
                proposed += 1
                steps = desk.propose(KEY, b"%d" % proposed, now)
            else:
                steps = desk.tick(now)
        said += [s.value for s in steps if isinstance(s, SaveFact) and s.value not in said]
        assert len(set(machine.records)) == len(machine.records)
        assert machine.records == [record for record in said if record in machine.records]
    stored = store.load_groups()[KEY]
    durable = stored.snapshot.state.split() + [e.payload for e in stored.entries if e.payload]
    assert durable[: len(said)] == said
    assert len(said) > 20


def repr_of(write: raft.Write) -> bytes:
    return b"".join(e.payload for e in write.entries) if isinstance(write, raft.Recorded) else b""


def test_what_leaves_while_a_leader_writes() -> None:
    """Its records do, to the others, who may have them before it has; it is as if nobody had, until it has
    (protocol 5.12)."""
    names, now = ("a:1", "b:1", "c:1"), 1_000
    machines = {name: Counted() for name in names}
    desks = {
        name: GroupDesk(
            raft.Groups(Peer(name, 1), raft.RaftConfig(size=3), random.Random(name)),
            {KEY: machine}.__getitem__,
        )
        for name, machine in machines.items()
    }

    def perform(name: str, steps: Sequence[GroupStep], *, held: str = "") -> None:
        """And what they lead to; nothing is written at who is ``held``."""
        todo = deque((name, step) for step in steps)
        while todo:
            at, step = todo.popleft()
            if isinstance(step, raft.Send):
                todo.extend((step.to, one) for one in desks[step.to].received(step.message, now))
            elif isinstance(step, raft.Persist) and at != held:
                todo.extend((at, one) for one in desks[at].persisted(now))

    for name in names:
        perform(name, desks[name].start(now))
    perform("a:1", desks["a:1"].create(KEY, b"", now))
    for name in names[1:]:
        perform("a:1", desks["a:1"].invite(KEY, name, now))
    for _ in range(20):
        now += 300
        for name in names:
            perform(name, desks[name].tick(now))
    assert desks["a:1"].voters(KEY) == names
    steps = desks["a:1"].propose(KEY, b"one", now)
    write, *sends = steps
    assert isinstance(write, raft.Persist)
    assert {send.to for send in sends if isinstance(send, raft.Send)} == {"b:1", "c:1"}
    perform("a:1", sends, held="a:1")
    assert desks["b:1"].standing(KEY) != desks["a:1"].standing(KEY), "it counts itself"
    assert [machine.records for machine in machines.values()] == [[], [], []]
    perform("a:1", desks["a:1"].persisted(now))
    now += 300
    perform("a:1", desks["a:1"].tick(now))
    assert [machine.records for machine in machines.values()] == [[b"one"]] * 3


@pytest.mark.parametrize(
    ("writes", "goes"),
    [
        ((raft.Recorded(KEY, (raft.Entry(8, 2, b"x", ()),)),), True),
        ((raft.Recorded(KEY, (raft.Entry(7, 2, b"x", ()),)),), False),
        ((raft.Recorded(KEY, (raft.Entry(8, 2, b"", (raft.Membership(1, (), ()),)),)),), False),
        ((raft.Promised(KEY, 2, 1), raft.Recorded(KEY, (raft.Entry(8, 2, b"x", ()),))), False),
        ((raft.Promised(b"l" * 16, 2, 1),), True),
    ],
)
def test_what_a_leaders_records_rest_on(writes: tuple[raft.Write, ...], goes: bool) -> None:
    header = Header(KEY, 1, 2, 1, 2)
    request = AppendRequest(header, 5, 7, 2, 7, ())
    send = raft.Send("b:1", AppendRequests(Peer("a:1", 1), (request,)))
    assert raft.Groups.ahead(send, writes) is goes
    reply = AppendReplies(Peer("a:1", 1), (AppendReply(header, 5, True, 7, 7),))
    assert not raft.Groups.ahead(raft.Send("b:1", reply), writes)


def test_a_state_that_is_too_large_stays_records() -> None:
    """It stopped the agent, at every start."""
    config = raft.RaftConfig(compact_entries=4, state_bytes_max=64)
    store = Store(":memory:")
    for life, first in ((1, 0), (2, 40)):
        machine = Counted()
        groups = raft.Groups(Peer("a:1", life), config, random.Random(1), store.load_groups())
        desk = GroupDesk(groups, {KEY: machine}.__getitem__)
        steps = desk.start(life * 100_000)
        steps += desk.create(KEY, b"", life * 100_000) if life == 1 else []
        for turn in range(200):
            now = life * 100_000 + turn * 100
            written = [step for step in steps if isinstance(step, raft.Persist)]
            for write in written:
                store.persist(write.writes)
            if written:
                steps = desk.persisted(now)
            elif groups.leads(KEY) and turn % 4 == 0 and first < 40 * life:
                steps = desk.propose(KEY, b"record-%d" % first, now)
                first += 1
            else:
                steps = desk.tick(now)
        assert machine.records == [b"record-%d" % number for number in range(40 * life)]
    store.close()
