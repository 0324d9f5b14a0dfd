"""Who is in a window of a job with ``TREES m STRAGGLERS LEAP``: one root decides for all key ranges (protocol
8.8).

Each key range is a flow with a root of its own. If each of them leapt over whom it misses, a window would
have some groups with an agent and others without it, and the agent's rows in the groups of one range alone
would be dropped without being counted. So the root of the first range (the *lead*) decides, by its commit of
a pane; its members are the *decision*. The roots of the other ranges follow:

    lead       commits a pane as any root under LEAP ── Decided (pane, members) ──▶ roots of the others
    follower   holds what comes until the decision is here (it asks for it: ``AskDecided``)
                 of members that are not in the decision: dropped, and refused for ever
                 of those in it: waits for them as long as for stragglers, and commits the pane; what comes
                 of them later is a revision
    member     hears from the lead's commit alone what it leaps over, and drops that in all ranges at once

What a member has sealed it has sealed in all ranges, by one checkpoint, and it keeps each range's snapshot
until that range's root has answered. So the ranges of a pane come to the same members; until they have, the
window names who is missing in one of them. A merged piece with members of both kinds is dropped whole, and
those in the decision are asked for their own.

A decision is durable, as the lead's commit is. A follower keeps none: it asks again. What the lead has
pruned, and panes before its first one, is *free*: nobody decides there, and all that comes is taken.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.contributions import Piece, from_bytes, to_bytes
from elf.job.effects import Effect, Send
from elf.job.messages.rollup import AskDecided, Decided
from elf.job.rollup.panes import Panes
from elf.job.spec import START_OF_TIME, Flow
from elf.job.stragglers import outside
from elf.ql.plan import Fragment

ALL: Final = -1
"""The decision of what is free."""
AT_ONCE: Final = 256
"""Spans in one message."""
ASK_MS: Final = 400
"""Between two questions of a follower that waits."""


def follows(fragment: Fragment) -> bool:
    """Whether the root of another key range decides who is in the panes of a flow."""
    return fragment.leap and bool(fragment.range[0])


def siblings(one: Fragment, other: Fragment) -> bool:
    """Whether they are key ranges of the same groups."""
    return one.range[1] == other.range[1] and replace(one, range=other.range) == other


def ranges_of(log: CatalogLog, flow: Flow) -> Iterator[Flow]:
    """The other key ranges of the jobs that read a flow."""
    seen = {flow.uid}
    for spec in log.readers(flow.uid):
        for other in spec.flows:
            known = log.flow(other.uid)
            if known is not None and known.uid not in seen and siblings(known.fragment, flow.fragment):
                seen.add(known.uid)
                yield known


class _Span(msgspec.Struct, frozen=True):
    start: int
    end: int
    members: int
    at_ms: int


class Decisions:
    """Those that a follower has heard of, side by side from some pane on."""

    def __init__(self) -> None:
        self._spans: list[_Span] = []

    def hear(self, start: int, end: int, members: int, now_ms: int) -> None:
        """A decision; what is known, or would leave a hole, is passed over."""
        if self._spans:
            start = max(start, self._spans[-1].end) if start <= self._spans[-1].end else end
        if start < end:
            self._spans.append(_Span(start, end, members, now_ms))

    @property
    def end(self) -> int | None:
        """After the last pane that is known."""
        return self._spans[-1].end if self._spans else None

    def at(self, pane: int) -> _Span | None:
        """The decision on a pane."""
        place = bisect(self._spans, pane, key=lambda one: one.start) - 1
        return self._spans[place] if place >= 0 and pane < self._spans[place].end else None

    def members(self, pane: int) -> int | None:
        """Who is in a pane; None: it is not known."""
        found = self.at(pane)
        return None if found is None else found.members

    def edges(self) -> set[int]:
        """The panes at which they change."""
        return {edge for one in self._spans for edge in (one.start, one.end)}

    def usable(self, piece: Piece, durable_to: int = START_OF_TIME) -> Iterator[Piece]:
        """What a root may hold of a piece: of decided panes what is of their members alone, of undecided ones
        all. Nothing of those below ``durable_to``: they are committed, and a root that has not been it for
        long does not know yet who is in them."""
        for one in self._spans:
            inside = (max(piece.start, one.start), min(piece.end, one.end))
            is_taken = one.members == ALL or not piece.members & ~one.members
            if is_taken and inside[0] < inside[1]:
                yield piece.clip(*inside)
        if self._spans:
            known = self._spans[0].start, self._spans[-1].end
            undecided = outside((piece.start, piece.end), *known)
        else:
            undecided = [(piece.start, piece.end)]
        for start, end in undecided:
            if max(start, durable_to) < end:
                yield piece.clip(max(start, durable_to), end)

    def forget(self, below: int) -> None:
        """Nobody will ask about panes below this one."""
        while len(self._spans) > 1 and self._spans[0].end <= below:
            self._spans.pop(0)


def answer(panes: Panes, asked: AskDecided) -> Decided | None:
    """What the lead says of panes from ``asked.start`` on; None: nothing is decided there yet."""
    first, found = panes.first_pane, list[tuple[int, int, bytes]]()
    if first is None:
        return None
    kept = max(first, panes.kept_from())
    if asked.start < kept:
        found.append((asked.start, kept, b""))
    for one in panes.history.within(max(asked.start, kept), panes.durable_to()):
        found.append((max(one.start, asked.start), one.end, to_bytes(one.members)))
    free = asked.start < kept
    return Decided(flow=asked.follower, free=free, spans=tuple(found[:AT_ONCE])) if found else None


def heard(decisions: Decisions, said: Decided, wanted: int, now_ms: int) -> None:
    """What the lead has said. The first that is heard has to reach down to the pane that is ``wanted``."""
    for place, (start, end, members) in enumerate(said.spans):
        if decisions.end is None and start > wanted:
            return
        decided = ALL if said.free and not place else from_bytes(members)
        decisions.hear(start, end, decided, now_ms)


def told(log: CatalogLog, flow: Flow, start: int, end: int, members: int) -> Iterable[Effect]:
    """What the lead tells followers of a commit."""
    if not flow.fragment.leap or flow.fragment.range[0] or flow.fragment.range[1] == 1:
        return []
    spans = ((start, end, to_bytes(members)),)
    return [Send(one.leader, Decided(flow=one.uid, spans=spans)) for one in ranges_of(log, flow)]
