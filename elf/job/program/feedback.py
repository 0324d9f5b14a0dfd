"""Multicasts of jobs in Python, as one agent gives them to its jobs: in order, and large ones in pieces
(protocol 14.10).

A tree carries what is small. Of a larger multicast it carries a *notice*: how large it is. Each agent asks
its parent for the pieces, some at a time, and answers those below as the pieces come:

    master ──notice──▶ all     agent ──``AskPiece``──▶ parent ──``Piece``──▶ agent ──▶ … whole ──▶ given
                                     └─ silent ─▶ the master's agent

- What comes behind a large one waits for it, so the order of the root stays.
- What a master feeds back by key is such a multicast, too. Where it is large an agent asks only for the
  pieces of keys that its job has asked for, and for those that agents below it want (protocol 14.15).
- One is given whole, or counts as missed: when no piece has come for ``GIVE_UP_MS``, or when too much waits.
- A holder keeps what is whole for ``HOLD_MS`` after it was last asked for, within ``HELD_BYTES_MAX``.

Pure: nothing here sends or waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from elf.fields import replace
from elf.job.effects import Send
from elf.job.program import calls, keyed
from elf.job.program.keyed import INLINE_BYTES_MAX, PIECE_BYTES
from elf.job.program.messages import AskPiece, Piece, Told

AHEAD: Final = 4
"""Pieces of one multicast that are asked for at a time."""
AHEAD_KEYED: Final = 16
"""The same, of smaller ones."""
ASK_MS: Final = 1_000
"""A piece that has not come by then is asked for again."""
SILENT_MS: Final = 3_000
"""A parent that has sent nothing for so long may have nothing: the master's agent is asked."""
GIVE_UP_MS: Final = 15_000
HOLD_MS: Final = 30_000
HELD_BYTES_MAX: Final = 2 * calls.MULTICAST_BYTES_MAX
WAITING_MAX: Final = 1_000
WAITING_BYTES_MAX: Final = calls.MULTICAST_BYTES_MAX
"""What may wait behind a large multicast of a tree; of other large ones, ``HELD_BYTES_MAX``."""
ASKERS_MAX: Final = 64
"""Agents that are remembered to want a piece that has not come yet."""


class Name(NamedTuple):
    """Of a large multicast: the job group of its master, the term, and its number there."""

    uid: str
    term: int
    number: int


class Given(NamedTuple):
    """What is to be given: to the job with this uid (empty: of any), and to who listens to the application,
    in whose tree at ``topic`` it came."""

    topic: bytes
    uid: str
    value: bytes | int | tuple[bytes, ...]
    """A multicast; or so many are lost; or what was fed back for keys that were asked for."""


@dataclass
class _Large:
    """A large multicast, as far as it has come. ``asked``: when a piece was asked for last;
    ``wanted``: who wants a piece that is not here; ``seen_ms``: when a piece came, or was asked for, last."""

    size: int
    seen_ms: int
    cuts: int = 0
    """Of what is fed back by key: how many pieces; 0: it is not."""
    source: str = ""
    """Who has sent the last piece."""
    pieces: dict[int, bytes] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    wanted: dict[int, dict[str, None]] = field(default_factory=dict)
    asks: frozenset[bytes] = frozenset()
    """The keys that the job here has asked for."""
    own: Collection[int] = ()
    """The pieces that the job here needs."""

    def __post_init__(self) -> None:
        self.own = () if self.cuts else range(self.count)

    def takes(self, asks: frozenset[bytes]) -> None:
        """What is wanted here of what is fed back by key."""
        self.asks, self.own = asks, keyed.places(asks, self.cuts)

    @property
    def count(self) -> int:
        return self.cuts or -(-self.size // PIECE_BYTES)

    @property
    def is_whole(self) -> bool:
        return all(place in self.pieces for place in self.own)

    @property
    def held(self) -> int:
        return sum(map(len, self.pieces.values()))

    def value(self) -> bytes | tuple[bytes, ...]:
        if not self.cuts:
            return b"".join(self.pieces[place] for place in range(self.count))
        found = (keyed.chosen(self.pieces[place], self.asks) for place in sorted(self.own))
        return tuple(pair for pairs in found for pair in pairs)

    def missing(self) -> list[int]:
        return [place for place in sorted({*self.own, *self.wanted}) if place not in self.pieces]

    def fits(self, piece: Piece) -> bool:
        """Whether it may be that piece."""
        length = min(PIECE_BYTES, self.size - piece.piece * PIECE_BYTES)
        return piece.piece < self.cuts if self.cuts else len(piece.value) == length


_Waiting = Name | Given
"""In the queue of an application: a large multicast that is not whole, or what is ready."""


class Feedback:
    """See the module's docstring. ``topic_of``: the tree of a master, by the uid of its job group;
    ``parent_of``: this agent's parent in a tree; ``leader_of``: where the master of a job group is;
    ``asks_of``: the keys that its job has asked for here."""

    def __init__(
        self,
        topic_of: Callable[[str], bytes],
        parent_of: Callable[[bytes], str | None],
        leader_of: Callable[[str], str | None],
        asks_of: Callable[[str], frozenset[bytes]],
    ) -> None:
        self._asks_of = asks_of
        self._topic_of = topic_of
        self._parent_of = parent_of
        self._leader_of = leader_of
        self._large: dict[Name, _Large] = {}
        """The one that was asked for longest ago first."""
        self._queues: dict[bytes, deque[_Waiting]] = {}
        """By tree: what waits behind a large multicast that is not whole, this one first."""

    def send(self, name: Name, value: bytes, now_ms: int) -> Told:
        """What the tree is to carry for a multicast of a master here."""
        if len(value) <= INLINE_BYTES_MAX:
            return Told(uid=name.uid, value=value)
        large = self._large[name] = _Large(len(value), now_ms)
        large.pieces = {n: value[n * PIECE_BYTES : (n + 1) * PIECE_BYTES] for n in range(large.count)}
        self._bound()
        return Told(uid=name.uid, value=b"", size=len(value), term=name.term, number=name.number)

    def feed(self, name: Name, fed: calls.FeedOut, now_ms: int) -> Told | None:
        """The same for what a master here feeds back by key; None: a piece is none."""
        pieces, size = fed.pieces(), len(fed.value)
        if len(pieces) == 1 and size <= INLINE_BYTES_MAX:
            return Told(uid=name.uid, value=fed.value, cuts=1)
        if not all(0 < len(piece) <= PIECE_BYTES for piece in pieces):
            return None
        self._large[name] = _Large(size, now_ms, len(pieces), pieces=dict(enumerate(pieces)))
        self._bound()
        told = Told(uid=name.uid, value=b"", size=size, term=name.term, number=name.number)
        return replace(told, cuts=len(pieces))

    def told(self, told: Told, now_ms: int) -> tuple[list[Given], list[Send]]:
        """The tree has brought a multicast, or the notice of one."""
        topic = self._topic_of(told.uid)
        asks = self._asks_of(told.uid) if told.cuts else frozenset()
        if not told.size:
            value = tuple(keyed.chosen(told.value, asks)) if told.cuts else told.value
            return self._put(topic, Given(topic, told.uid, value), now_ms), []
        name = Name(told.uid, told.term, told.number)
        large = self._large.setdefault(name, _Large(told.size, now_ms, told.cuts))
        if told.cuts:
            large.takes(asks)
        given = self._put(topic, name, now_ms)
        return given, self._ask(name, now_ms)

    def missed(self, topic: bytes, count: int, now_ms: int) -> list[Given]:
        """A tree cannot bring so many multicasts."""
        return self._put(topic, Given(topic, "", count), now_ms)

    # -- pieces ----------------------------------------------------------------------------------------------

    def asked(self, sender: str, asked: AskPiece, now_ms: int) -> list[Send]:
        """An agent below wants a piece."""
        name = Name(asked.uid, asked.term, asked.number)
        large = self._large.get(name)
        if large is None or asked.piece >= large.count:
            return []
        if large.is_whole:
            large.seen_ms = now_ms
        if asked.piece in large.pieces:
            return [Send(sender, _piece(name, large, asked.piece))]
        wanted = large.wanted.setdefault(asked.piece, {})
        if len(wanted) < ASKERS_MAX:
            wanted[sender] = None
        return self._ask(name, now_ms)

    def came(self, sender: str, piece: Piece, now_ms: int) -> tuple[list[Given], list[Send]]:
        """A piece has come, of whom it was asked."""
        name = Name(piece.uid, piece.term, piece.number)
        large = self._large.get(name)
        topic = self._topic_of(piece.uid)
        if large is None or sender not in (self._parent_of(topic), self._leader_of(piece.uid)):
            return [], []
        if piece.piece not in large.asked or not large.fits(piece):
            return [], []
        del large.asked[piece.piece]
        large.pieces[piece.piece], large.seen_ms, large.source = piece.value, now_ms, sender
        below = large.wanted.pop(piece.piece, {})
        sends = [Send(to, _piece(name, large, piece.piece)) for to in below]
        return self._take(topic), [*sends, *self._ask(name, now_ms)]

    def _ask(self, name: Name, now_ms: int) -> list[Send]:
        """For pieces that are wanted next, or have not come."""
        large = self._large.get(name)
        if large is None:
            return []
        topic, found = self._topic_of(name.uid), list[Send]()
        for place in large.missing()[: AHEAD_KEYED if large.cuts else AHEAD]:
            if now_ms - large.asked.get(place, now_ms - ASK_MS) < ASK_MS:
                continue
            large.asked[place] = now_ms
            parent, leader = self._parent_of(topic), self._leader_of(name.uid)
            to = large.source or parent or leader
            if now_ms - large.seen_ms >= SILENT_MS:
                to = parent if to == leader else leader
            if to:
                found.append(
                    Send(to, AskPiece(uid=name.uid, term=name.term, number=name.number, piece=place))
                )
        return found

    # -- order -----------------------------------------------------------------------------------------------

    def _put(self, topic: bytes, one: _Waiting, now_ms: int) -> list[Given]:
        """Behind what waits, if anything does."""
        queue = self._queues.setdefault(topic, deque())
        queue.append(one)
        given = self._take(topic)
        while (queue := self._queues.get(topic, deque())) and self._is_too_much(queue):
            given += self._give_up(topic)
        return given

    def _take(self, topic: bytes) -> list[Given]:
        """What is ready, up to a multicast that is not."""
        queue, found = self._queues.get(topic, deque()), list[Given]()
        while queue:
            first = queue[0]
            if isinstance(first, Name):
                large = self._large.get(first)
                if large is not None and not large.is_whole:
                    return found
                first = Given(topic, first.uid, 1 if large is None else large.value())
            found.append(first)
            queue.popleft()
        self._queues.pop(topic, None)
        self._bound()
        return found

    def _is_too_much(self, queue: deque[_Waiting]) -> bool:
        ready = [one.value for one in queue if isinstance(one, Given)]
        size = sum(len(value) for value in ready if isinstance(value, bytes))
        size += sum(len(pair) for value in ready if isinstance(value, tuple) for pair in value)
        behind = [one for one in islice(queue, 1, None) if isinstance(one, Name)]
        held = sum(self._large[one].size for one in behind if one in self._large)
        return len(queue) > WAITING_MAX or size > WAITING_BYTES_MAX or held > HELD_BYTES_MAX

    def _give_up(self, topic: bytes) -> list[Given]:
        """The one that the others wait for does not come."""
        first = self._queues[topic][0]
        if isinstance(first, Name):
            self._large.pop(first, None)
        return self._take(topic)

    def _bound(self) -> None:
        """Forget what is whole, and was asked for longest ago, where too much is held."""
        waited = {one for queue in self._queues.values() for one in queue if isinstance(one, Name)}
        whole = [name for name, large in self._large.items() if large.is_whole and name not in waited]
        held = sum(self._large[name].held for name in whole)
        for name in sorted(whole, key=lambda name: self._large[name].seen_ms)[:-1]:
            if held <= HELD_BYTES_MAX:
                break
            held -= self._large.pop(name).held

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        found: list[int] = []
        for large in self._large.values():
            found.append(large.seen_ms + (HOLD_MS if large.is_whole else GIVE_UP_MS))
            found += [at_ms + ASK_MS for at_ms in large.asked.values()]
        return min(found, default=None)

    def tick(self, now_ms: int) -> tuple[list[Given], list[Send]]:
        """Ask again, and give up what does not come."""
        sends = [send for name in list(self._large) for send in self._ask(name, now_ms)]
        for name, large in list(self._large.items()):
            if now_ms - large.seen_ms >= (HOLD_MS if large.is_whole else GIVE_UP_MS):
                del self._large[name]
        return [given for topic in list(self._queues) for given in self._take(topic)], sends


def _piece(name: Name, large: _Large, place: int) -> Piece:
    value = large.pieces[place]
    return Piece(uid=name.uid, term=name.term, number=name.number, piece=place, value=value)
