"""Who re-issues the snapshots of the dead, and of those that are behind where a job wants mirrors: the root's
side of copies (``elf.job.rollup.copying``).

For each snapshot that the root wants, one of the holders that offer it is appointed; another one only when
nothing has come of it for a while.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from elf.job.contributions import Piece, numbers
from elf.job.effects import Send
from elf.job.messages import CopyVerdict, OfferCopies
from elf.job.rollup.root import Root

PROXY_MS: Final = 3_000
"""How long a proxy may take."""
MIRROR_OF: Final = 4
"""A mirror may take this part of the straggler limit: so a second one can be asked in time."""
SILENT_MS: Final = 3_000
"""An agent that says nothing for so long, three beats, is taken for dead here: a copy of it does no harm."""


class Proxies:
    """Of one flow: (member, first pane, end, part) → holder, and when it was appointed. ``proxy_ms``: how
    long it may take."""

    def __init__(self, proxy_ms: int = PROXY_MS) -> None:
        self._proxy_ms = proxy_ms
        self._appointed: dict[tuple[int, int, int, int], tuple[str, int]] = {}
        self.answered: Counter[int] = Counter()
        """Snapshots that others have sent, by member."""

    def offered(self, root: Root, holder: str, offer: OfferCopies, now_ms: int) -> list[Send]:
        """What a holder is told of the copies that it has."""
        if root.member(offer.member) is None:
            return []
        found: list[Send] = []
        silent = root.is_silent(offer.member, SILENT_MS, now_ms)
        for start, end, part in offer.names:
            if part:
                words = [(start, end, root.verdict_of_part((offer.member, part), start))]
            else:
                words = root.verdicts(offer.member, start, end, now_ms)
            for first, last, verdict in words:
                if verdict == "wait":
                    continue
                snapshot = (offer.member, first, last, part)
                wanted = silent or root.wants_mirrors(first, now_ms)
                if verdict == "send" and not (wanted and self._appoint(snapshot, holder, now_ms)):
                    continue
                word = CopyVerdict(
                    flow=offer.flow, member=offer.member, start=first, end=last, verdict=verdict, part=part
                )
                found.append(Send(holder, word))
        return found

    def take(self, root: Root, sender: str, piece: Piece, now_ms: int) -> None:
        """A piece has come straight from there: whether it is another's than the member's, and wanted."""
        for number in numbers(piece.members):
            member = root.member(number)
            others = member is not None and member.address != sender
            if others and root.lacks(number, piece.start, piece.end, now_ms):
                self.answered[number] += 1

    def _appoint(self, snapshot: tuple[int, int, int, int], holder: str, now_ms: int) -> bool:
        """Whether this holder is to send it now."""
        self._appointed = {s: one for s, one in self._appointed.items() if now_ms - one[1] < self._proxy_ms}
        return self._appointed.setdefault(snapshot, (holder, now_ms)) == (holder, now_ms)
