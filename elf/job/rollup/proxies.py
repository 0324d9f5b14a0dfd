"""Who re-issues the snapshots of the dead: the root's side of copies (``elf.job.rollup.copying``).

For each snapshot that the root wants, one of the holders that offer it is appointed; another one only when
nothing has come of it for a while.
"""

from __future__ import annotations

from typing import Final

from elf.job.effects import Send
from elf.job.messages import CopyVerdict, OfferCopies
from elf.job.rollup.root import Root

PROXY_MS: Final = 3_000
"""How long a proxy may take."""
SILENT_MS: Final = 3_000
"""An agent that says nothing for so long, three beats, is taken for dead here: a copy of it does no harm."""


class Proxies:
    """Of one flow: (member, first pane, end, part) → holder, and when it was appointed."""

    def __init__(self) -> None:
        self._appointed: dict[tuple[int, int, int, int], tuple[str, int]] = {}

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
                if verdict == "send" and not (silent and self._appoint(snapshot, holder, now_ms)):
                    continue
                word = CopyVerdict(
                    flow=offer.flow, member=offer.member, start=first, end=last, verdict=verdict, part=part
                )
                found.append(Send(holder, word))
        return found

    def _appoint(self, snapshot: tuple[int, int, int, int], holder: str, now_ms: int) -> bool:
        """Whether this holder is to send it now."""
        self._appointed = {s: one for s, one in self._appointed.items() if now_ms - one[1] < PROXY_MS}
        return self._appointed.setdefault(snapshot, (holder, now_ms)) == (holder, now_ms)
