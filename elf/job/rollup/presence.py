"""Which members of a flow are there, as its root hears of them: what each last said, who is taken for dead,
and who has been silent for too long to be waited for.

A root asks with every word and every piece that comes, so the answers are contribution sets that change when
somebody's state does; what depends on time is looked at again when the first silence may have become too
long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elf.job.contributions import bitmap
from elf.job.messages import FlowProgress
from elf.job.rollup.waiting import Told
from elf.job.spec import START_OF_TIME

LATER_MS_MAX = 10_000
"""Who says that its next word comes later than this is not believed."""


class Presence:
    """``grace_ms``: whoever says nothing for longer is not waited for."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._told: dict[int, Told] = {}
        self.latest = START_OF_TIME
        """No ``live_from`` is above it."""
        self._silent = 0
        self._sure_ms = 0
        """Until then nobody else can have been silent for too long."""
        self.heard = 0
        """Those who have said anything, as a contribution set."""
        self.dead = 0
        """Those that the overlay takes for dead, and of whom nothing was heard since."""
        self.later_ms = 0
        """Nobody's next word comes so much later than after a second."""

    def __getitem__(self, member: int) -> Told:
        return self._told[member]

    def __iter__(self) -> Iterator[int]:
        return iter(self._told)

    def get(self, member: int) -> Told | None:
        return self._told.get(member)

    def hear(self, member: int, progress: FlowProgress, now_ms: int) -> bool:
        """A member's word. Whether its place among the others is another one than before: it is there again,
        or it begins with another pane."""
        bit, known = 1 << member, self._told.get(member)
        again = (self.dead | self._silent) & bit
        self.dead &= ~bit
        self._silent &= ~bit
        self.latest = max(self.latest, progress.live_from)
        self.later_ms = max(self.later_ms, min(progress.later_ms, LATER_MS_MAX))
        if known is None:
            self._told[member] = Told(progress, now_ms)
            self.heard |= bit
            return True
        other = known.progress.live_from != progress.live_from
        known.hear(progress, now_ms)
        return other or bool(again)

    def lose(self, members: Iterable[int]) -> None:
        """The overlay takes them for dead."""
        self.dead |= bitmap(members)

    def there(self, now_ms: int) -> int:
        """Those who speak, and are not taken for dead."""
        if now_ms > self._sure_ms:
            least = now_ms - self._grace_ms
            self._silent = bitmap(n for n, told in self._told.items() if told.at_ms < least)
            rest = (told.at_ms for told in self._told.values() if told.at_ms >= least)
            self._sure_ms = min(rest, default=now_ms) + self._grace_ms
        return self.heard & ~self.dead & ~self._silent

    def is_silent(self, member: int, silent_ms: int, began_ms: int | None, now_ms: int) -> bool:
        """Whether it is taken for dead, or nothing was heard of it (ever: since ``began_ms``) for so long and
        the time that it may take."""
        told = self._told.get(member)
        since_ms = began_ms if told is None else told.at_ms
        dead = bool(self.dead >> member & 1)
        return dead or (since_ms is not None and now_ms - since_ms > silent_ms + self.later_ms)

    def begun(self, pane: int) -> int:
        """Those who say that they answer for this pane."""
        if pane >= self.latest:
            return self.heard
        return bitmap(n for n, told in self._told.items() if told.progress.live_from <= pane)

    def beginnings(self, start: int, end: int) -> set[int]:
        """The panes inside ``(start, end)`` with which somebody begins."""
        if start >= self.latest:
            return set()
        found = {told.progress.live_from for told in self._told.values()}
        return {pane for pane in found if start < pane < end}
