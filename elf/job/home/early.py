"""Early results of jobs that say ``EMIT CHANGES`` (protocol 7.7).

Every so often each agent sends the state of its open panes, cumulative and whole, straight to the root of the
flow, which hands it on to the masters of the jobs that read it. A master puts each in the place of the one
before: what is lost, doubled or overtaken thus does no harm. Panes that an agent has sealed meanwhile are
kept from the message before, until they are committed. Out of these and of the committed panes the master
makes the windows that are not complete, at most once a period and only while somebody reads: published,
marked with a number, never committed and never stored.
"""

from __future__ import annotations

from dataclasses import replace

from elf.job.contributions import Piece, bitmap
from elf.job.effects import Coverage, MakeEarly
from elf.job.home.versions import Version
from elf.job.messages import EarlyState
from elf.job.spec import END_OF_TIME
from elf.windows import Landmark


class EarlyResults:
    """The open panes of one job as its master hears of them."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[str, int], list[Piece]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._order: dict[tuple[str, int], tuple[int, int]] = {}
        self._number = 0
        self._made_ms: int | None = None
        self._making = False
        self._fresh = False

    def take(self, state: EarlyState) -> None:
        """What an agent says of its open panes."""
        who, order = (state.flow, state.member), (state.incarnation, state.number)
        if order <= self._order.get(who, (0, 0)):
            return
        self._order[who] = order
        older = [piece.clip(piece.start, state.start) for piece in self._pieces.get(who, ())]
        newest = Piece(state.start, END_OF_TIME, 1 << state.member, state.tally, state.payload)
        self._pieces[who] = [*(piece for piece in older if piece.start < piece.end), newest]
        self._ends[who] = state.end
        self._fresh = True

    def due_ms(self, version: Version) -> int | None:
        """When ``make`` has something to do."""
        every_us = version.spec.plan.fragment.changes_us
        if not self._fresh or self._making or every_us is None:
            return None
        return 0 if self._made_ms is None else self._made_ms + every_us // 1000

    def make(self, version: Version, now_ms: int) -> list[MakeEarly]:
        """The open windows, if they are due."""
        at = self.due_ms(version)
        if at is None or now_ms < at:
            return []
        self._fresh, self._made_ms = False, now_ms
        committed = {flow.flow.uid: flow.durable_to() for flow in version.flows}
        calendar = version.calendar()
        end_us = max(self._ends.values()) * calendar.pane_us
        last_us = max(
            kind.ends_by(end_us - 1) + kind.step_us
            if isinstance(kind, Landmark)
            else kind.last_end(end_us - 1)
            for kind in calendar.kinds
        )
        base = version.open_windows(last_us)
        pieces: list[Piece] = []
        for who, known in self._pieces.items():
            below = committed.get(who[0], END_OF_TIME)
            self._pieces[who] = [piece.clip(below, piece.end) for piece in known if piece.end > below]
            pieces += self._pieces[who]
        if base is None or not pieces:
            return []
        open_panes = []
        for flow in version.flows:
            at_pane = flow.durable_to()
            heard = bitmap(member for uid, member in self._pieces if uid == flow.flow.uid)
            expected = flow.expected(at_pane) | heard
            open_panes.append(Coverage(flow.stored_as, at_pane, END_OF_TIME, 0, expected, heard))
        self._making = True
        self._number += 1
        whole = replace(base, coverage=(*base.coverage, *open_panes))
        return [MakeEarly(base, whole, tuple(pieces), self._number)]

    def made(self) -> None:
        self._making = False
