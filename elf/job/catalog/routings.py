"""How flows go over borders, as the entries of the catalog log say it (protocol 4.12): the last
``RouteDecided`` of a flow holds, until another one does or the flow ends.

What a route says changes bytes and time, and no row: heads that know different ones are two heads for a while
(protocol 4.10), and how many panes they hold is at most what all readers allow (protocol 4.11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from elf.job.messages.log import REGIONS_MAX, DecideRoute, RouteDecided, Vias

KEPT: Final = 512
"""The last decisions, which are shown."""


def misled(target: str, vias: Vias) -> str:
    """Why nothing can go so; empty: it can. None takes more than two hops, so that no circle is decided."""
    sources, over = {source for source, _ in vias}, {via for _, via in vias}
    if len(vias) > REGIONS_MAX:
        return f"{len(vias)} regions have a way, and an entry has room for {REGIONS_MAX}"
    if len(sources) < len(vias):
        return "a region has two ways"
    if target in sources | over:
        return f"{target} is where all of it goes"
    if both := sorted(sources & over):
        return f"{both[0]} sends over another region, and others over it"
    return ""


class Routings:
    """Those of one log."""

    def __init__(self) -> None:
        self._last: dict[str, RouteDecided] = {}
        self._all: deque[RouteDecided] = deque(maxlen=KEPT)

    def add(self, entry: RouteDecided) -> None:
        self._last[entry.uid] = entry
        self._all.append(entry)

    def forget(self, uid: str) -> None:
        """A flow has ended; what was decided of it is shown for a while."""
        self._last.pop(uid, None)

    def last(self, uid: str) -> RouteDecided | None:
        """What was decided last of a flow, or proposed."""
        return self._last.get(uid)

    def ways(self) -> Mapping[str, tuple[str, Vias]]:
        """By flow, the region of its root and the ways of others to it. A flow that has none any more is
        among them, so that heads leave what they had."""
        return {uid: (one.target, one.vias if one.acts else ()) for uid, one in self._last.items()}

    def acting(self) -> list[RouteDecided]:
        """What flows go by that is no proposal."""
        return [one for one in self._last.values() if one.acts]

    def panes(self, uid: str) -> int:
        """How many panes of a flow heads hold, at most; 0: as many as readers allow."""
        one = self._last.get(uid)
        return one.panes if one is not None and one.acts else 0

    def __iter__(self) -> Iterator[RouteDecided]:
        """The last ones, in their order."""
        return iter(self._all)


def is_news(last: RouteDecided | None, said: DecideRoute) -> bool:
    """Whether a decision changes anything, and was not overtaken by another one."""
    if last is None:
        return bool(said.vias or said.panes)
    same = (last.target, last.vias, last.panes, last.acts) == (said.target, said.vias, said.panes, said.acts)
    return not same and said.at_ms > last.at_ms
