"""A world of nodes with Raft groups on virtual time, from one seed: a heap of (time, sequence, event).

Messages are delayed (so they overtake each other), lost, doubled, cut off; a disk takes its time, during
which what stands behind a ``Persist`` waits; a crash keeps any first part of what was not synced; a wiped
disk keeps nothing. A :class:`lab.raft.oracles.Judge` sees everything. All chance comes from the
``rng`` that the caller passes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from lab.overlay.virtual import VirtualWorld
from lab.raft.disk import Disk, torn
from lab.raft.oracles import Judge
from overlay.effects import Rng, Tick
from overlay.errors import OverlayError
from overlay.ids import Peer
from overlay.raft.config import RaftConfig
from overlay.raft.effects import CompactWanted, Effect, Persist, Received, Send
from overlay.raft.groups import Groups
from overlay.raft.messages import Message
from overlay.raft.values import Stored

Make = Callable[[Peer, RaftConfig, Rng, Mapping[bytes, Stored]], Groups]
"""How a node is made; judges of judges put other ones in its place."""


@dataclass(frozen=True)
class Weather:
    """What the world does to messages and disks. Times in ms; shares between 0 and 1."""

    delay_min: int = 1
    delay_max: int = 5
    loss: float = 0.0
    doubling: float = 0.0
    sync_max: int = 0


@dataclass
class Inhabitant:
    """A place where a node lives, dies and is started again. ``life`` counts the starts."""

    address: str
    disk: Disk = field(default_factory=Disk)
    groups: Groups | None = None
    life: int = 0
    wake: int | None = None
    stalled_until: int = 0
    syncing: Persist | None = None
    queue: deque[Effect] = field(default_factory=deque)


_Event = tuple[str, int, Message | str | None]
"""Where, in which life (0: in any), and what: a message, a disk that has synced, or a deadline, perhaps."""


class World(VirtualWorld[_Event]):
    """The world. ``now`` is virtual milliseconds; with ``check`` a node checks itself after each of its
    events."""

    def __init__(
        self,
        rng: Rng,
        config: RaftConfig | None = None,
        weather: Weather | None = None,
        *,
        check: bool = False,
        make: Make = Groups,
    ) -> None:
        super().__init__()
        self.rng = rng
        self.config = config or RaftConfig()
        self.weather = weather or Weather()
        self.nodes: dict[str, Inhabitant] = {}
        self.judge = Judge()
        self.messages: Counter[str] = Counter()
        self._check = check
        self._make = make

    # -- the script ------------------------------------------------------------------------------------------

    def start(self, address: str) -> Groups:
        """Start a node with what is on its disk."""
        node = self.nodes.setdefault(address, Inhabitant(address))
        if node.groups is not None:
            raise OverlayError(f"{address} is running")
        node.life += 1
        node.groups = self._make(Peer(address, node.life), self.config, self.rng, node.disk.groups)
        node.wake, node.syncing, node.queue = None, None, deque()
        self.judge.started(address)
        self.perform(address, node.groups.start(self.now))
        return node.groups

    def crash(self, address: str) -> None:
        """The node stops; of what its disk was just told it keeps some first part."""
        node = self.nodes[address]
        if node.syncing is not None:
            pieces = [piece for write in node.syncing.writes for piece in torn(write)]
            for piece in pieces[: self.rng.randrange(len(pieces) + 1)]:
                node.disk.apply(piece)
        node.groups, node.syncing = None, None
        node.queue.clear()

    def stall(self, address: str, for_ms: int) -> None:
        """The node does nothing for a while; what comes in waits."""
        self.nodes[address].stalled_until = self.now + for_ms

    def wipe(self, address: str) -> None:
        """The stopped node's disk is lost."""
        if self.nodes[address].groups is not None:
            raise OverlayError(f"{address} is running")
        self.nodes[address].disk = Disk()

    def at(self, address: str) -> Groups:
        """The running node there."""
        groups = self.nodes[address].groups
        if groups is None:
            raise OverlayError(f"{address} is not running")
        return groups

    def running(self) -> list[str]:
        """Addresses of the nodes that are up."""
        return [address for address, node in self.nodes.items() if node.groups is not None]

    def leader(self, key: bytes) -> str | None:
        """The node that leads the group in the highest term, if any."""
        best: tuple[int, str] | None = None
        for address in self.running():
            standing = self.at(address).standing(key)
            if standing is not None and standing.leads:
                best = max(best or (0, ""), (standing.term, address))
        return best[1] if best else None

    def perform(self, address: str, effects: Iterable[Effect]) -> None:
        """Do what the node there asks for, in order, as its disk allows."""
        node = self.nodes[address]
        node.queue.extend(effects)
        self._drain(node)
        self._set_alarm(node)
        if self._check and node.groups is not None:
            node.groups.check()

    # -- the parts -------------------------------------------------------------------------------------------

    def _drain(self, node: Inhabitant) -> None:
        while node.queue and node.syncing is None and node.groups is not None:
            effect = node.queue.popleft()
            if isinstance(effect, Persist):
                wait = self.rng.randrange(self.weather.sync_max + 1) if self.weather.sync_max else 0
                if wait:
                    node.syncing = effect
                    self._push(self.now + wait, (node.address, node.life, "synced"))
                else:
                    self._written(node, effect)
            elif isinstance(effect, Send):
                self._send(node.address, effect)
            else:
                wanted = isinstance(effect, CompactWanted)
                state = self.judge.seen(self.now, node.address, node.groups, effect)
                if wanted and state is not None:
                    index, data = state
                    group = effect.group
                    node.queue.extend(node.groups.compact(group, index, data, self.now))

    def _written(self, node: Inhabitant, effect: Persist) -> None:
        for write in effect.writes:
            node.disk.apply(write)

    def _send(self, source: str, effect: Send) -> None:
        self.messages[type(effect.message).__name__] += 1
        weather = self.weather
        if effect.to not in self.nodes or self._parted(source, effect.to):
            return
        if weather.loss and self.rng.random() < weather.loss:
            return
        copies = 2 if weather.doubling and self.rng.random() < weather.doubling else 1
        for _ in range(copies):
            delay = weather.delay_min + self.rng.randrange(weather.delay_max - weather.delay_min + 1)
            self._push(self.now + delay, (effect.to, 0, effect.message))

    def _set_alarm(self, node: Inhabitant) -> None:
        deadline = node.groups.deadline() if node.groups is not None else None
        if deadline is not None and (node.wake is None or deadline < node.wake or node.wake <= self.now):
            node.wake = max(deadline, self.now)
            self._push(node.wake, (node.address, node.life, None))

    def _happen(self, event: _Event) -> None:
        address, life, what = event
        node = self.nodes[address]
        if node.groups is None or (life and life != node.life):
            return
        if node.stalled_until > self.now:
            self._push(node.stalled_until, event)
        elif isinstance(what, str):
            if node.syncing is not None:
                self._written(node, node.syncing)
                node.syncing = None
            self.perform(address, ())
        elif what is not None:
            self.perform(address, node.groups.handle(Received(what), self.now))
        else:
            if node.wake == self.now:
                node.wake = None
            deadline = node.groups.deadline()
            if deadline is not None and deadline <= self.now:
                self.perform(address, node.groups.handle(Tick(), self.now))
            else:
                self._set_alarm(node)
