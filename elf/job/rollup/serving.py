"""A flow's readers on other nodes: who they are, what they have of its commits, and what is sent to them
(protocol 7.2).

A reader first asks where the flow is (a request without a start), and hears it when the flow has begun. From
there each commit is sent to it when it is made, at most one range of them at a time. A reader asks every
second with what it has, so what got lost is sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from elf.job.effects import Effect, ReadCommits, Send
from elf.job.events import CommitsRead
from elf.job.messages.rollup import FlowHead, PaneRequest
from elf.job.rollup.root import Root
from elf.ql.plan import Top

CROSSED_MS: Final = 500
"""How long a commit that a reader asks for may have been under way to it."""

READERS_MAX: Final = 4_096


@dataclass
class _Reader:
    """A node whose jobs read the flow. It has panes below ``end``; ``sent``: the last commit sent to it;
    ``lacks``: the commit after which it asks, and since when."""

    heard_ms: int
    end: int
    start: int | None = None
    sent: int = 0
    sent_ms: int = 0
    lacks: tuple[int, int] | None = None
    seen: int = 0
    reading: bool = False
    cut: Top | None = None
    early: bool = False
    """It asked before the flow had begun."""

    def lost(self, after: int, now_ms: int) -> bool:
        """The reader asks for what follows ``after``: is what was sent of it lost, or still under way? Where
        panes are short something is always under way, so the time for which it has lacked the same commit
        decides."""
        if after >= self.sent:
            self.lacks = None
        elif self.lacks is None or self.lacks[0] != after:
            self.lacks = after, now_ms
        since = self.sent_ms if self.lacks is None else min(self.sent_ms, self.lacks[1])
        return now_ms - since >= CROSSED_MS


class Readers:
    """The readers of the flow of ``root``, by address. ``seq``: number of its last commit."""

    def __init__(self, root: Root, seq: int) -> None:
        self.seq = seq
        self._root = root
        self._readers: dict[str, _Reader] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def named(self, addresses: Iterable[str], now_ms: int) -> None:
        """The catalog log has readers there, and nowhere else."""
        new = {to: _Reader(now_ms, self._root.kept_from()) for to in sorted(addresses)}
        self._readers = {to: self._readers.get(to, reader) for to, reader in new.items()}

    def asked(self, sender: str, request: PaneRequest, now_ms: int) -> list[Effect]:
        """A reader says what it has and wants; it may not be in our log yet."""
        states = {state.name for state in self._root.flow.fragment.states}
        if request.cut is not None and request.cut.state not in states:
            return []
        if sender not in self._readers and len(self._readers) >= READERS_MAX:
            return []
        reader = self._readers.setdefault(sender, _Reader(now_ms, self._root.kept_from()))
        reader.heard_ms = now_ms
        if request.start is None:
            reader.cut = request.cut
            if self._root.first_pane is None:
                reader.early = True
                return []
            return [self._head(sender)]
        other = (request.start, request.cut) != (reader.start, reader.cut)
        reader.start, reader.end, reader.cut = request.start, max(request.end, request.start), request.cut
        if reader.lost(request.after, now_ms) or other or request.after > reader.sent:
            reader.sent, reader.lacks = request.after, None
        return self._serve(sender)

    def begun(self) -> list[Effect]:
        """The flow has begun: tell the readers that asked before."""
        return [self._head(to) for to, reader in self._readers.items() if reader.early]

    def _head(self, to: str) -> Send:
        """A reader begins where the flow is now."""
        reader, start = self._readers[to], self._root.durable_to()
        reader.sent, reader.start, reader.end, reader.early = self.seq, start, start, False
        return Send(
            to, FlowHead(flow=self._root.flow.uid, after=reader.sent, start=start, known=self._root.known_at)
        )

    def committed(self, seq: int) -> list[Effect]:
        """A commit of this number is durable."""
        self.seq = max(self.seq, seq)
        return [effect for to in self._readers for effect in self._serve(to)]

    def _serve(self, to: str) -> list[Effect]:
        reader = self._readers[to]
        if reader.reading or reader.start is None or reader.sent >= self.seq:
            return []
        reader.reading, reader.seen = True, self.seq
        return [ReadCommits(self._root.flow, to, reader.sent, reader.start, reader.cut)]

    def read(self, event: CommitsRead, now_ms: int) -> list[Effect]:
        """Commits for a reader. After a range that has more to follow the reader asks again."""
        reader = self._readers.get(event.to)
        if reader is None:
            return []
        reader.reading = False
        found: list[Effect] = [Send(event.to, row) for row in event.rows]
        if event.rows:
            reader.sent, reader.sent_ms = event.rows[-1].seq, now_ms
        more = bool(event.rows) and event.rows[-1].more
        if not more and reader.seen < self.seq:
            found.extend(self._serve(event.to))
        return found

    def have(self, since_ms: int) -> list[int]:
        """Below which pane each reader that was heard since then has all it wants."""
        return [reader.end for reader in self._readers.values() if reader.heard_ms >= since_ms]
