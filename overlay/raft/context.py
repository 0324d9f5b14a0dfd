"""What the groups of one node share: its identity, the current time, its deadlines, and its outbox. The
outbox puts writes first and the parts of many groups for one peer into one message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from overlay.effects import Rng
from overlay.ids import Peer
from overlay.raft.config import RaftConfig
from overlay.raft.effects import Effect, Persist, Recorded, Send, Write
from overlay.raft.messages import (
    AppendReplies,
    AppendReply,
    AppendRequest,
    AppendRequests,
    Message,
    Part,
    UnknownMember,
    UnknownMembers,
    VoteReplies,
    VoteReply,
    VoteRequest,
    VoteRequests,
)
from overlay.timers import Timers

Timer = tuple[str, bytes | str]
"""A deadline's name: what is due, and for which group or address ("" for none)."""

_ENVELOPES: Final[dict[type[Part], Callable[[Peer, tuple[Any, ...]], Message]]] = {
    VoteRequest: VoteRequests,
    VoteReply: VoteReplies,
    AppendRequest: AppendRequests,
    AppendReply: AppendReplies,
    UnknownMember: UnknownMembers,
}

_GATHERED: Final = (VoteRequests, VoteReplies, AppendRequests, AppendReplies, UnknownMembers)


class Context:
    """It decides nothing but the order: writes, then messages, then effects for the caller."""

    def __init__(self, me: Peer, config: RaftConfig, rng: Rng) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.now = 0
        self.timers: Timers[Timer] = Timers()
        self._writes: list[Write] = []
        self._messages: list[Effect] = []
        self._parts: dict[tuple[str, type[Part]], list[Part]] = {}
        self._words: list[Effect] = []
        self._luck: float | None = None

    def luck(self) -> float:
        """A random number below 1, the same within one event: groups that begin to wait together stand
        together, and so share messages."""
        if self._luck is None:
            self._luck = self.rng.random()
        return self._luck

    def write(self, write: Write) -> None:
        """Write to the disk, before anything that is sent from now on."""
        self._writes.append(write)

    def send(self, to: str, message: Message) -> None:
        """A message of its own."""
        self._messages.append(Send(to, message))

    def part(self, to: str, part: Part) -> None:
        """A part for one peer; it travels with others of its kind at the end of the event."""
        self._parts.setdefault((to, type(part)), []).append(part)

    def emit(self, effect: Effect) -> None:
        """An effect for the caller."""
        self._words.append(effect)

    def after(self, timer: Timer, delay_ms: int) -> None:
        """Let something come due."""
        self.timers.set(timer, self.now + delay_ms)

    def take(self) -> list[Effect]:
        """All effects since the last call, in the order in which they must be performed."""
        effects: list[Effect] = [Persist(tuple(self._writes))] if self._writes else []
        effects += self._messages
        for (to, kind), parts in self._parts.items():
            effects += _sends(to, kind, parts, self.me, self.config)
        effects += self._words
        self._writes, self._messages, self._parts, self._words, self._luck = [], [], {}, [], None
        return effects


def gathered(sends: Sequence[Send], me: Peer, config: RaftConfig) -> list[Send]:
    """The same messages of several events, the parts for one peer together: each where the first of its kind
    stood."""
    found: dict[object, list[Send]] = {}
    parts: dict[tuple[str, type[Part]], list[Part]] = {}
    for place, send in enumerate(sends):
        message = send.message
        if not isinstance(message, _GATHERED):
            found[place] = [send]
            continue
        for part in message.parts:
            key = (send.to, type(part))
            found.setdefault(key, [])
            parts.setdefault(key, []).append(part)
    for (to, kind), some in parts.items():
        found[to, kind] = _sends(to, kind, some, me, config)
    return [send for several in found.values() for send in several]


def ahead(send: Send, writes: Sequence[Write]) -> bool:
    """Whether a message may leave before these writes, which stand before it, are durable: a leader's records
    (Raft thesis, 10.2.1), in a term and with a membership that are durable. What it says is decided is so
    without the writes: we do not count ourselves for what our disk does not have."""
    message = send.message
    return isinstance(message, AppendRequests) and not any(
        not isinstance(write, Recorded)
        or write.entries[0].index <= part.commit
        or any(entry.membership for entry in write.entries)
        for part in message.parts
        for write in writes
        if write.group == part.header.group
    )


def _sends(to: str, kind: type[Part], parts: Sequence[Part], me: Peer, config: RaftConfig) -> list[Send]:
    """The parts in messages of bounded size."""
    shares: list[tuple[Part, ...]] = []
    share: list[Part] = []
    size = 0
    for part in parts:
        weight = sum(len(e.payload) for e in part.entries) if isinstance(part, AppendRequest) else 0
        if share and (len(share) >= config.parts_max or size + weight > config.batch_bytes):
            shares.append(tuple(share))
            share, size = [], 0
        share.append(part)
        size += weight
    return [Send(to, _ENVELOPES[kind](me, one)) for one in (*shares, tuple(share))]
