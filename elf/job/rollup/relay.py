"""An inner node of a flow's tree: a combining barrier for the slices of its children and of its own worker
(paper, 3.2).

It sends panes up when everybody that it waits for has reported them, or when the oldest piece has waited for
the limit; what comes later goes up at once, as a supplement. It waits for children in its table that have
reported before: the root knows the roster and asks for who is missing, so a relay never has to know it.
Before anything has gone up it waits for all of its children, but not for long: some may have nothing of the
flow. Else the first panes of all members would come to the root one by one.
"""

from __future__ import annotations

from typing import Final

from elf.job.contributions import Batch, Piece, Pile
from elf.job.spec import START_OF_TIME

FIRST_MS: Final = 50
"""How long the first panes wait for children that have not reported anything yet."""
SELF = ""
"""The source name of the node's own worker."""


class Relay:
    """Pieces of one flow on their way up. ``wait_ms`` bounds how long a missing child holds up the others."""

    def __init__(self, wait_ms: int = 1_000) -> None:
        self._wait_ms = wait_ms
        self._pile = Pile()
        self._reported: dict[str, int] = {}
        self._oldest_ms: int | None = None
        self._sent = START_OF_TIME
        self.refused = 0
        self.supplements = 0

    def add(self, source: str, piece: Piece, now_ms: int) -> None:
        """A piece from a child (its address) or from our own worker (``SELF``)."""
        self._reported[source] = max(self._reported.get(source, START_OF_TIME), piece.end)
        self.refused += self._pile.add(piece)
        if self._pile and self._oldest_ms is None:
            self._oldest_ms = now_ms

    def __bool__(self) -> bool:
        """Whether something waits here to go up."""
        return bool(self._pile)

    def deadline(self) -> int | None:
        """When ``ready`` has something although somebody is missing."""
        if self._oldest_ms is None:
            return None
        return self._oldest_ms + (FIRST_MS if self._sent == START_OF_TIME else self._wait_ms)

    def ready(self, children: tuple[str, ...], now_ms: int, *, root: bool = False) -> list[Batch]:
        """Take what goes up now. ``root``: there is nobody above, and children's slices don't come here."""
        if not self._pile:
            return []
        present = {SELF, *children}
        self._reported = {source: end for source, end in self._reported.items() if source in present}
        deadline = self.deadline()
        expired = deadline is not None and now_ms >= deadline
        first = self._sent == START_OF_TIME and not root
        if first and not expired and not present <= self._reported.keys():
            return []
        top = max(piece.end for piece in self._pile)
        below = top if expired else min(self._reported.values(), default=top)
        below = max(below, self._sent)
        batches = self._pile.take(min(piece.start for piece in self._pile), below)
        self.supplements += sum(batch.start < self._sent for batch in batches)
        self._sent = below
        self._oldest_ms = now_ms if self._pile else None
        return batches
