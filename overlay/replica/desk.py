"""What the groups of one node share: who it is, its clock of the moment, its deadlines, and its outbox, which
puts writes first and the parts of many groups for one peer into one message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from overlay.agenda import Agenda
from overlay.effects import Rng
from overlay.ids import Peer
from overlay.replica.config import ReplicaConfig
from overlay.replica.effects import Effect, Persist, Send, Write
from overlay.replica.messages import (
    AppendReplies,
    AppendReply,
    AppendRequest,
    AppendRequests,
    Message,
    Part,
    Stranger,
    Strangers,
    VoteReplies,
    VoteReply,
    VoteRequest,
    VoteRequests,
)

Timer = tuple[str, bytes | str]
"""A deadline's name: what is due, and for which group or address ("" for none)."""

_ENVELOPES: Final[dict[type[Part], Callable[[Peer, tuple[Any, ...]], Message]]] = {
    VoteRequest: VoteRequests,
    VoteReply: VoteReplies,
    AppendRequest: AppendRequests,
    AppendReply: AppendReplies,
    Stranger: Strangers,
}


class Desk:
    """It decides nothing but the order: writes, then messages, then word to the caller."""

    def __init__(self, me: Peer, config: ReplicaConfig, rng: Rng) -> None:
        self.me = me
        self.config = config
        self.rng = rng
        self.now = 0
        self.agenda: Agenda[Timer] = Agenda()
        self._writes: list[Write] = []
        self._messages: list[Effect] = []
        self._parts: dict[tuple[str, type[Part]], list[Part]] = {}
        self._words: list[Effect] = []
        self._luck: float | None = None

    def luck(self) -> float:
        """A number below 1, the same in one event: groups that begin to wait together stand together, and so
        share messages."""
        if self._luck is None:
            self._luck = self.rng.random()
        return self._luck

    def write(self, write: Write) -> None:
        """To the disk, before anything that is said from now on."""
        self._writes.append(write)

    def send(self, to: str, message: Message) -> None:
        """A message of its own."""
        self._messages.append(Send(to, message))

    def part(self, to: str, part: Part) -> None:
        """A part for one peer; it travels with its like at the end of the event."""
        self._parts.setdefault((to, type(part)), []).append(part)

    def emit(self, effect: Effect) -> None:
        """Word to the caller."""
        self._words.append(effect)

    def after(self, timer: Timer, delay_ms: int) -> None:
        """Let something come due."""
        self.agenda.set(timer, self.now + delay_ms)

    def take(self) -> list[Effect]:
        """All effects since the last call, in the order in which they must be performed."""
        effects: list[Effect] = [Persist(tuple(self._writes))] if self._writes else []
        effects += self._messages
        for (to, kind), parts in self._parts.items():
            effects += (Send(to, _ENVELOPES[kind](self.me, share)) for share in self._shares(parts))
        effects += self._words
        self._writes, self._messages, self._parts, self._words, self._luck = [], [], {}, [], None
        return effects

    def _shares(self, parts: Sequence[Part]) -> list[tuple[Part, ...]]:
        """The parts in messages of bounded size."""
        shares: list[tuple[Part, ...]] = []
        share: list[Part] = []
        size = 0
        for part in parts:
            weight = sum(len(e.payload) for e in part.entries) if isinstance(part, AppendRequest) else 0
            if share and (len(share) >= self.config.parts_max or size + weight > self.config.batch_bytes):
                shares.append(tuple(share))
                share, size = [], 0
            share.append(part)
            size += weight
        return [*shares, tuple(share)]
