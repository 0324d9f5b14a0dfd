"""Copies of flows whose root is on another node, for the masters of this one (PROTOCOL 1).

One copy of a flow serves all jobs of this node that read it. It asks the root every second, and at once when
something is missing or more is to come; the root also sends each commit when it is made. Commits are numbered
and each names the one before it that concerns us, so that doubles and gaps are seen. They are stored, in
order, before masters hear of them: after a crash the copy goes on from what the store has. A commit waits for
the entries of the stream log that its root knew, so that both expect the same members.

The store has a copy under a name of its own (``copy_of``): the same agent may keep the flow's own commits,
as a member of its home's replica group, and of these a copy has only the rows that its jobs need.

A copy begins where the flow is (``FlowHead``), or, when its jobs began in an earlier life, at the first pane
that they want. Panes that the root had dropped before we had them are lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from elf.job.contributions import from_bytes
from elf.job.effects import Effect, PrunePanes, Send, StorePanes
from elf.job.events import PanesStored
from elf.job.flowroots import StoredPanes
from elf.job.history import Segment
from elf.job.messages import FlowHead, PaneRow, PaneWish, ReadPanes
from elf.job.panes import Panes
from elf.job.root import RootSettings
from elf.job.spec import START_OF_TIME, Flow
from elf.job.streamlog import StreamLog
from elf.job.tops import serves
from elf.ql.plan import Top

ASK_MS: Final = 1_000
WAITING_MAX: Final = 64
"""Commits that wait to be stored; others are asked for again."""


def copy_of(uid: str) -> str:
    """The name under which the store has the copy of a flow."""
    return f"{uid}.copy"


class Mirror(Panes):
    """One copy. ``start``: the first pane that its jobs want, if that is known."""

    def __init__(self, flow: Flow, stored: StoredPanes, start: int | None, now_ms: int) -> None:
        super().__init__(flow, stored.segments(now_ms))
        self._have = stored.seq
        self._first = start if start is not None or not self._history else self._history.start
        self.cut: Top | None = None
        """The rows of a pane that its jobs need."""
        self._taken_to = START_OF_TIME
        self._waiting: list[PaneRow] = []
        self._storing = False

    @property
    def stored_as(self) -> str:
        return copy_of(self.flow.uid)

    def begin(self, head: FlowHead) -> bool:
        """Begin where the flow is; False if the copy has begun."""
        if self._first is not None:
            return False
        self._have, self._first = head.after, head.start
        return True

    def begins_at(self) -> int:
        """What was taken before may lack rows that a new job needs."""
        return max(self.durable_to(), self._taken_to)

    def wish(self, wanted: int) -> PaneWish:
        """``wanted``: the first pane that jobs here may want yet. The root is to keep it for us, lest we die
        and another node goes on with them."""
        end = min(self.durable_to(), wanted)
        return PaneWish(self.flow.uid, self._have, self._first, end, self.cut)

    def take(self, row: PaneRow) -> tuple[bool, list[Effect]]:
        """A commit from the root: (whether to ask for what comes before or after it, effects)."""
        if self._first is None or row.seq <= self._have:
            return False, []
        if row.after > self._have or len(self._waiting) >= WAITING_MAX:
            return row.after > self._have, []
        if not serves(row.cut, self.cut):  # a job that needs more has come meanwhile
            return True, []
        self._have, self._taken_to = row.seq, max(self._taken_to, row.end)
        self._waiting.append(row)
        return row.more, self._store()

    def _store(self) -> list[Effect]:
        if self._storing or not self._waiting:
            return []
        rows, self._waiting = tuple(self._waiting), []
        self._storing = True
        return [StorePanes(self.flow, self.stored_as, rows)]

    def stored(
        self, rows: Sequence[PaneRow], now_ms: int, final_ms: int
    ) -> tuple[list[Segment], list[Effect]]:
        """Commits are durable: (what that changes for the masters, effects)."""
        self._storing = False
        changed: list[Segment] = []
        for row in rows:
            if self._first is not None and row.end > self._first:
                start = max(row.start, self._first)
                new = Segment(start, row.end, row.revision, from_bytes(row.members), now_ms)
                changed.extend(self._history.copy(new))
        self._history.compact(self.expected, final_ms)
        return changed, self._store()


class Mirrors:
    """All copies of this node. ``wanted_from`` as for ``FlowRoots``."""

    def __init__(
        self, log: StreamLog, settings: RootSettings, wanted_from: Callable[[str, int], int]
    ) -> None:
        self._log = log
        self._settings = settings
        self._wanted_from = wanted_from
        self._mirrors: dict[str, Mirror] = {}
        self._next_ms = 0

    def get(self, uid: str) -> Mirror | None:
        return self._mirrors.get(uid)

    def follow(
        self,
        wanted: Mapping[str, int | None],
        now_ms: int,
        stored: Mapping[str, StoredPanes] | None = None,
        cuts: Mapping[str, Top | None] | None = None,
    ) -> list[Effect]:
        """Have copies of these flows (uid → the first pane that is wanted, if known), and of no others.
        ``cuts``: the rows of a pane that their jobs need.
        """
        found: list[Effect] = []
        for uid in [uid for uid in self._mirrors if uid not in wanted]:
            del self._mirrors[uid]
            found.append(PrunePanes(copy_of(uid), None))
        for uid, start in wanted.items():
            flow = self._log.flow(uid)
            if flow is not None and uid in self._mirrors:
                self._mirrors[uid].flow = flow
            elif flow is not None:
                known = (stored or {}).get(copy_of(uid))
                if known is None:  # what an earlier life may have left has other rows of its panes
                    found.append(PrunePanes(copy_of(uid), None))
                mirror = Mirror(flow, known or StoredPanes(), start, now_ms)
                mirror.set_roster(self._log.members(flow.fragment.stream), self._log.last)
                mirror.cut = (cuts or {}).get(uid)
                self._mirrors[uid] = mirror
                found.append(self._ask(mirror))
        for uid, mirror in self._mirrors.items():
            mirror.cut = (cuts or {}).get(uid)
        return found

    def roster_changed(self, stream: str) -> None:
        for mirror in self._mirrors.values():
            if mirror.flow.fragment.stream == stream:
                mirror.set_roster(self._log.members(stream), self._log.last)

    def _ask(self, *mirrors: Mirror) -> Send:
        wanted = {m.flow.uid: self._wanted_from(m.flow.uid, m.durable_to()) for m in mirrors}
        wishes = tuple(mirror.wish(wanted[mirror.flow.uid]) for mirror in mirrors)
        return Send(mirrors[0].flow.home, ReadPanes(wishes=wishes))

    # -- what roots say --------------------------------------------------------------------------------------

    def head(self, message: FlowHead) -> bool:
        """True if a copy begins with it."""
        mirror = self._mirrors.get(message.flow)
        return mirror is not None and mirror.begin(message)

    def take(self, row: PaneRow) -> list[Effect]:
        mirror = self._mirrors.get(row.flow)
        if mirror is None or row.roster_version > self._log.last:
            return []
        asks, found = mirror.take(row)
        return [*found, self._ask(mirror)] if asks else found

    def stored(self, event: PanesStored, now_ms: int) -> tuple[list[Segment], list[Effect]]:
        mirror = self._mirrors.get(event.flow.uid)
        if mirror is None:
            return [], [PrunePanes(copy_of(event.flow.uid), None)]
        return mirror.stored(event.rows, now_ms, now_ms - mirror.revise_ms(self._settings.revise_ms))

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        return self._next_ms if self._mirrors else None

    def tick(self, now_ms: int) -> list[Effect]:
        """Ask the roots, one message each."""
        if now_ms < self._next_ms:
            return []
        self._next_ms = now_ms + ASK_MS
        together: dict[str, list[Mirror]] = defaultdict(list)
        found: list[Effect] = []
        for uid, mirror in self._mirrors.items():
            together[mirror.flow.home].append(mirror)
            settled = mirror.settled_to(now_ms, self._settings.revise_ms)
            if settled is not None:
                below = self._wanted_from(uid, settled)
                mirror.forget(below)
                found.append(PrunePanes(mirror.stored_as, below))
        return [*found, *(self._ask(*mirrors) for mirrors in together.values())]

    def check(self) -> None:
        for mirror in self._mirrors.values():
            mirror.check()
