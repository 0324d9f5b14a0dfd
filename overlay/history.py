"""What a node has heard of a topic: for each root its numbered multicasts, released in order, and the last of
them kept for repairs.

Rules:

- A root numbers its multicasts from 1. Each number is released once and in its turn, or named as lost.
- Another incarnation of a root is another root. Between roots there is no order.
- What is kept has bounds for the whole topic, all roots together: the lowest number of the root that was
  silent longest goes first. A number that waits for those before it is kept, too: when it must go, so must
  they.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sortedcontainers import SortedDict

from overlay.errors import OverlayBug
from overlay.ids import Peer, key_of
from overlay.treemessages import Head

ROOTS_MAX: Final = 32
"""Roots of one topic whose numbers are remembered: the present one, and former ones."""


@dataclass(frozen=True, slots=True)
class Word:
    """A released payload, that of number ``first``; or (None) the numbers ``first`` to ``last`` are lost."""

    root: Peer
    first: int
    last: int
    payload: bytes | None


class History:
    """One root's multicasts. All numbers below ``next`` were released or lost; ``newest`` is the highest that
    is known to exist."""

    def __init__(self, root: Peer) -> None:
        self.root = root
        self.next = 1
        self.newest = 0
        self.waits_since: int | None = None
        """When the first missing number was found to be missing (or became the first); None when none is."""
        self._kept: SortedDict[int, bytes] = SortedDict()

    def begin(self, number: int) -> None:
        """We are the root, and this will be our next number: what we sent in an earlier stay in the tree is
        over."""
        if self.newest == 0:
            self.next, self.newest = number, number - 1

    def lacks(self, number: int) -> bool:
        """Whether the number is new."""
        return number >= self.next and number not in self._kept

    def take(self, number: int, payload: bytes, now: int) -> list[Word]:
        """A missing number has come."""
        self._kept[number] = payload
        self.newest = max(self.newest, number)
        return self._advance(now)

    def exists(self, number: int, now: int) -> None:
        """Somebody has all numbers up to this one."""
        self.newest = max(self.newest, number)
        if self.next <= self.newest and self.waits_since is None:
            self.waits_since = now

    def missing(self, most: int) -> tuple[int, int] | None:
        """The first missing numbers, as (first, last), at most so many."""
        if self.next > self.newest:
            return None
        ahead = next(iter(self._kept.irange(self.next)), self.newest + 1)
        return self.next, min(ahead - 1, self.next + most - 1)

    def lose(self, first: int, last: int, now: int) -> list[Word]:
        """The missing ones among the numbers from ``first`` to ``last`` are lost, once it is their turn."""
        if not first <= self.next <= last:
            return []
        words = []
        for number in self._kept.irange(self.next, last):
            if number > self.next:
                words.append(Word(self.root, self.next, number - 1, None))
            words.append(Word(self.root, number, number, self._kept[number]))
            self.next = number + 1
        if self.next <= last:
            words.append(Word(self.root, self.next, last, None))
            self.next = last + 1
        self.newest = max(self.newest, last)
        return words + self._advance(now)

    def kept(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Kept and released numbers in a range, in order."""
        return ((number, self._kept[number]) for number in self._kept.irange(first, min(last, self.next - 1)))

    def again(self) -> list[Word]:
        """All that was released, as for a subscriber that has heard nothing yet."""
        words, first = [], 1
        for number, payload in self.kept(1, self.next - 1):
            if number > first:
                words.append(Word(self.root, first, number - 1, None))
            words.append(Word(self.root, number, number, payload))
            first = number + 1
        if first < self.next:
            words.append(Word(self.root, first, self.next - 1, None))
        return words

    def drop_lowest(self, now: int) -> tuple[int, list[Word]]:
        """Keep one number less: bytes freed, and what is released because nobody can wait for it any more."""
        number = self._kept.peekitem(0)[0]
        words = self.lose(self.next, number, now) if number >= self.next else []
        return len(self._kept.pop(number)), words

    def __len__(self) -> int:
        return len(self._kept)

    def check(self) -> None:
        """Raise OverlayBug unless the numbers agree with each other."""
        if self.newest < self.next - 1 or self.next in self._kept:
            raise OverlayBug(f"numbers of {self.root}: {self.next} is next, {self.newest} the newest")
        if (self.waits_since is None) != (self.next > self.newest):
            raise OverlayBug(f"{self.root}: something is missing and not waited for, or the other way round")

    def _advance(self, now: int) -> list[Word]:
        """Release the numbers whose turn it is."""
        words = []
        while (payload := self._kept.get(self.next)) is not None:
            words.append(Word(self.root, self.next, self.next, payload))
            self.next += 1
        if self.next > self.newest:
            self.waits_since = None
        elif words or self.waits_since is None:
            self.waits_since = now
        return words


class Histories:
    """The roots of a topic, the one heard last at the end, within ``kept_max`` payloads and ``bytes_max``
    bytes of them (the newest payload of all is kept whatever its size)."""

    def __init__(self, kept_max: int, bytes_max: int) -> None:
        self._kept_max = kept_max
        self._bytes_max = bytes_max
        self._kept = 0
        self._bytes = 0
        self._of: OrderedDict[Peer, History] = OrderedDict()

    def __iter__(self) -> Iterator[History]:
        return iter(self._of.values())

    def of(self, root: Peer) -> History:
        """A root's history, empty if it was unknown."""
        history = self._of.get(root)
        if history is None:
            history = self._of[root] = History(root)
            while len(self._of) > ROOTS_MAX:
                _, oldest = self._of.popitem(last=False)
                self._forget(oldest)
        return history

    def known(self, root: Peer) -> History | None:
        return self._of.get(root)

    def take(self, root: Peer, number: int, payload: bytes, now: int) -> list[Word] | None:
        """A multicast: what is to be released now, perhaps nothing; None if it was not new."""
        known = self._of.get(root)
        if number < 1 or (known is not None and not known.lacks(number)):
            return None
        history = self.of(root)
        self._of.move_to_end(root)
        words = history.take(number, payload, now)
        self._kept += 1
        self._bytes += len(payload)
        while self._kept > self._kept_max or (self._bytes > self._bytes_max and self._kept > 1):
            oldest = next(history for history in self if len(history))
            freed, forced = oldest.drop_lowest(now)
            self._kept -= 1
            self._bytes -= freed
            words += forced
        return words

    def waiting(self) -> History | None:
        """The history that has waited longest for a missing number."""
        waits = [history for history in self if history.waits_since is not None]
        return min(waits, key=lambda history: history.waits_since or 0, default=None)

    def heads(self) -> tuple[Head, ...]:
        """Up to which number each root's multicasts are settled here."""
        return tuple(Head(history.root, history.next - 1) for history in self if history.next > 1)

    def check(self) -> None:
        """Raise OverlayBug unless the bounds hold and the sums are right."""
        if self._kept != sum(len(history) for history in self) or self._kept > self._kept_max:
            raise OverlayBug("more multicasts are kept than may be, or they are miscounted")
        for history in self:
            history.check()

    def _forget(self, history: History) -> None:
        while len(history):
            self._kept -= 1
            self._bytes -= history.drop_lowest(0)[0]


def mark(path: tuple[str, ...], heads: tuple[Head, ...]) -> int:
    """A checksum, 32 bits, of a path to the root and of what has been heard."""
    known = sorted(f"{head.root.address} {head.root.incarnation} {head.number}" for head in heads)
    return int.from_bytes(key_of("\n".join((*path, "", *known)).encode())[:4], "big")
