"""The replica groups of one agent: ``overlay.replica.Groups`` between the node and its disk, as a pure part
of the node.

Groups say what to write, and what may be said and done once that is durable. A write takes a while (an
fsync), and the loop must not wait for it; so writes leave as one ``Persist`` for the driver, which performs
it on a thread and hands ``Persisted`` back. Meanwhile everything that groups say waits here, in order, behind
it; what they write meanwhile goes into the next ``Persist`` as one transaction. So nothing is sent, and no
machine told, before what it rests on is on the disk, and a busy agent makes one fsync for many records.

What the records of a group mean is its *machine*'s to say: one object a group, told in the order of the
indices, from the group's snapshot on, at every start again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import overlay as ring
from elf.job.effects import Effect
from overlay import replica


@dataclass(frozen=True)
class Persisted:
    """Event: the last ``Persist`` is durable."""


GroupStep = Effect | replica.Send | replica.Persist
"""What comes out: messages and writes for the driver, and what machines want done."""


_Word = (
    replica.Installed
    | replica.Committed
    | replica.Reconfigured
    | replica.Elected
    | replica.Leading
    | replica.Following
    | replica.Accepted
    | replica.Rejected
    | replica.Readable
    | replica.CompactWanted
    | replica.Retired
)


class Machine(Protocol):
    """What the records of one group mean. Its state is a function of the snapshot and the records alone."""

    def install(self, state: bytes) -> None:
        """The state is now this one."""

    def apply(self, record: bytes) -> Sequence[Effect]:
        """A record is committed."""

    def state(self) -> bytes:
        """The state now, for a snapshot."""


class GroupDesk:
    """All groups of the node, each with its machine. ``changed`` names those of whose standing there was word
    since it was last emptied."""

    def __init__(self, groups: replica.Groups, machines: Mapping[bytes, Machine]) -> None:
        self.groups = groups
        self.changed: set[bytes] = set()
        self._machines = machines
        self._index: dict[bytes, int] = {}
        self._writing = False
        self._behind: list[replica.Send | _Word] = []
        self._waiting: list[replica.Effect] = []
        self._token = 0

    # -- calls -----------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.start(now_ms), now_ms)

    def received(self, message: replica.Message, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.handle(replica.Received(message), now_ms), now_ms)

    def tick(self, now_ms: int) -> list[GroupStep]:
        due = self.deadline()
        if due is None or due > now_ms:
            return []
        return self._take(self.groups.handle(ring.Tick(), now_ms), now_ms)

    def deadline(self) -> int | None:
        return self.groups.deadline()

    def peer_down(self, address: str, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.peer_down(address, now_ms), now_ms)

    def create(self, key: bytes, state: bytes, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.create(key, state, (), now_ms), now_ms)

    def propose(self, key: bytes, record: bytes, now_ms: int) -> list[GroupStep]:
        """Append a record, if a leader can be reached. Nobody is told whether it was: who wants it asks
        again, and records bear to stand twice."""
        self._token += 1
        return self._take(self.groups.propose(key, self._token, record, now_ms), now_ms)

    def invite(self, key: bytes, address: str, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.invite(key, [address], now_ms), now_ms)

    def remove(self, key: bytes, address: str, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.remove(key, address, now_ms), now_ms)

    def leave(self, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.leave(now_ms), now_ms)

    @property
    def busy(self) -> bool:
        """Whether something is being written."""
        return self._writing

    # -- the order -------------------------------------------------------------------------------------------

    def persisted(self, now_ms: int) -> list[GroupStep]:
        """What was written is durable: say and do what waited for it."""
        self._writing = False
        behind, self._behind = self._behind, []
        return [*self._perform(behind, now_ms), *self._flow(now_ms)]

    def _take(self, effects: Sequence[replica.Effect], now_ms: int) -> list[GroupStep]:
        self._waiting.extend(effects)
        return self._flow(now_ms)

    def _flow(self, now_ms: int) -> list[GroupStep]:
        found: list[GroupStep] = []
        while self._waiting and not self._writing:
            batch, self._waiting = self._waiting, []
            writes = tuple(
                w for effect in batch if isinstance(effect, replica.Persist) for w in effect.writes
            )
            rest = [effect for effect in batch if not isinstance(effect, replica.Persist)]
            if writes:
                self._writing, self._behind = True, rest
                found.append(replica.Persist(writes))
            else:
                found.extend(self._perform(rest, now_ms))
        return found

    def _perform(self, effects: Sequence[replica.Send | _Word], now_ms: int) -> list[GroupStep]:
        found: list[GroupStep] = []
        for effect in effects:
            if isinstance(effect, replica.Send):
                found.append(effect)
            else:
                found.extend(self._word(effect, now_ms))
        return found

    def _word(self, word: _Word, now_ms: int) -> Sequence[Effect]:
        """Tell the machine of a group what concerns it."""
        key = word.group
        machine = self._machines.get(key)
        match word:
            case replica.Installed() if machine is not None:
                self._index[key] = word.index
                machine.install(word.state)
            case replica.Committed() if machine is not None:
                self._index[key] = word.entry.index
                return machine.apply(word.entry.payload) if word.entry.payload else ()
            case replica.CompactWanted() if machine is not None:
                state = machine.state()
                self._waiting.extend(self.groups.compact(key, self._index[key], state, now_ms))
                return ()
            case replica.Accepted() | replica.Rejected() | replica.Readable():
                return ()
        self.changed.add(key)
        return ()
