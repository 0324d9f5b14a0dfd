"""A flow whose snapshots are copied: the agent that owns them, and one that holds replicas."""

from __future__ import annotations

from collections.abc import Sequence

from agents.disk import replicastore
from agents.disk.store import Store
from elf.fields import replace
from elf.job import replicas as disk
from elf.job.catalog.log import CatalogLog
from elf.job.contributions import to_bytes
from elf.job.effects import Send
from elf.job.messages.log import JobAdded, MemberJoined
from elf.job.messages.rollup import Committed, DropReplicas, FlowProgress, KeepReplicas, ReplicasKept
from elf.job.replicas import Replica, ReplicaName, ReplicasRead, ReplicasStored
from elf.job.rollup import holding, replication
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.holding import Holding
from elf.job.rollup.replication import Replication
from elf.job.rollup.root import Root
from elf.job.rollup.sender import Sender
from elf.job.snapshots import Sealed
from elf.job.spec import Flow, flow_topic, flow_uid
from elf.ql.plan import Fragment
from lab.chaos.engine import STREAM, plan, spec_of

OWNER, HOLDER, OTHER, ROOT = (f"10.0.0.{n}:7100" for n in range(4))

NEIGHBOURS = (ROOT, HOLDER, OTHER)


def flow_of(fragment: Fragment | None = None) -> Flow:
    fragment = fragment or plan(2).fragment
    uid = flow_uid(fragment, "1")
    return Flow(uid, fragment, flow_topic(bytes(16), uid), ROOT)


FLOW = flow_of()


def log_of(*flows: Flow, addresses: Sequence[str] = (OWNER, HOLDER)) -> CatalogLog:
    """Of members at these addresses, and a job for each flow."""
    joined = [
        MemberJoined(
            seq=seq,
            stream=STREAM,
            number=seq - 1,
            agent_id=f"id{seq}",
            name="a",
            incarnation=1,
            address=address,
            since_us=-1,
        )
        for seq, address in enumerate(addresses, 1)
    ]
    jobs = [
        JobAdded(
            seq=len(joined) + n,
            spec=spec_of(f"job{n}", "me", 1, replace(plan(2), fragment=flow.fragment), (flow,), master=ROOT),
        )
        for n, flow in enumerate(flows or (FLOW,), 1)
    ]
    return CatalogLog([*joined, *jobs])


class Owner:
    """An agent's sender and its replicas; what is to be read from its store is there."""

    def __init__(self, replicas: int = 2, flow: Flow = FLOW, *, eager: bool = False) -> None:
        self.uid = flow.uid
        self.sender = Sender(lambda _: None, lambda _: (), lambda _: 0, incarnation=1, eager=eager)
        self.sender.add(flow)
        self.live = list(NEIGHBOURS)
        self.replication = Replication(
            self.sender, lambda: self.live, replicas=replicas, after_ms=1_000, eager=eager
        )
        self.sent: list[tuple[str, tuple[ReplicaName, ...]]] = []
        self.dropped: list[tuple[str, tuple[ReplicaName, ...]]] = []

    def seal(self, pane: int, now_ms: int, size: int = 10, part: int = 0) -> None:
        self.sender.sealed(Sealed(self.uid, pane, pane + 1, b"", bytes(size), part), now_ms)
        if self.sender.is_copied_at_once(self.uid):
            name = ReplicaName(self.uid, 0, pane, pane + 1, part)
            self._do(self.replication.at_once([Replica(name, b"", bytes(size))], now_ms))

    def tick(self, now_ms: int) -> None:
        self._do(self.replication.tick(now_ms))

    def _do(self, todo: list[replication.Step]) -> None:
        """Do what it wants; ``sent`` and ``dropped`` are what that was."""
        self.sent, self.dropped = [], []
        while todo:
            step, *todo = todo
            match step:
                case disk.ReadSnapshots():
                    read = disk.SnapshotsRead(step.to, tuple(Replica(one, b"", b"") for one in step.names))
                    todo += self.replication.read(read)
                case Send(to, KeepReplicas() as message):
                    self.sent.append((to, tuple(replica.name for replica in message.replicas)))
                case Send(to, DropReplicas() as dropped):
                    self.dropped.append((to, dropped.names))

    def answers(self, address: str, *names: ReplicaName, refused: tuple[ReplicaName, ...] = ()) -> None:
        self.replication.kept(address, ReplicasKept(names=names, refused=refused))

    def commit(self, start: int, end: int) -> None:
        self.sender.committed(
            Committed(flow=self.uid, start=start, end=end, revision=0, members=to_bytes(1)), 0
        )


class Holder:
    """What one agent holds, over a real store."""

    def __init__(
        self, *flows: Flow, bytes_max: int = 10_000, addresses: Sequence[str] = (OWNER, HOLDER)
    ) -> None:
        self.store = Store(":memory:")
        self.dead: set[str] = set()
        self.log = log_of(*flows, addresses=addresses)
        self.bytes_max = bytes_max
        self.begin()

    def begin(self) -> None:
        """As after a restart."""
        self.holding = Holding(
            self.log,
            lambda address: address not in self.dead,
            bytes_max=self.bytes_max,
            settings=RootSettings(),
            restored=replicastore.held(self.store),
        )

    def perform(self, steps: Sequence[holding.Step]) -> list[Send]:
        """Do what it wants on the disk; what it says."""
        said: list[Send] = []
        todo = list(steps)
        while todo:
            step = todo.pop(0)
            if isinstance(step, Send):
                said.append(step)
                continue
            match replicastore.perform(self.store, step):
                case ReplicasStored() as stored:
                    todo += self.holding.stored(stored)
                case ReplicasRead() as read:
                    todo += self.holding.read(read)
        return said

    def keep(self, *names: ReplicaName, size: int = 10, now_ms: int = 0) -> list[Send]:
        replicas = tuple(Replica(one, b"t", bytes(size)) for one in names)
        return self.perform(self.holding.keep(OWNER, KeepReplicas(replicas=replicas), now_ms))

    def there(self) -> list[ReplicaName]:
        """The same in memory and on the disk."""
        assert len(self.store.replicas()) == len(self.holding)
        return [ReplicaName(*one) for one, _ in self.store.replicas()]


def rooted() -> Root:
    """A root that has heard both members until 10,000 ms, and has begun with pane 1."""
    root = Root(FLOW, RootSettings())
    root.set_roster(log_of().members(STREAM), 1)
    for member in (0, 1):
        root.hear(member, FlowProgress(FLOW.uid, 0, 5), 10_000)
    root.begin(1, 0)
    return root
