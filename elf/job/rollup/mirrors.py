"""Copies of flows whose root is on another node, for the masters of this one (protocol 7.2).

One copy of a flow serves all jobs of this node that read it. It asks the root every second (each in turn
where there are many), and at once when something is missing or more is to come; the root also sends each
commit when it is made. Commits are numbered, and each names the one before it that concerns us, so the copy
sees doubles and gaps. Commits are stored, in order, before masters hear of them. A commit waits for the
entries of the catalog log that its root knew, so that both expect the same members.

A copy begins where the flow is (``FlowHead``) or, when its jobs began elsewhere or in an earlier life, at the
first pane that they want. It *begins again* when a job comes later from another job group, and began before
the copy did or needs rows that were left out of it: then its history is told anew. Panes that the root had
dropped before we had them are lost.

The store has a copy under a name of its own (``copy_of``). The same agent may keep the flow's own commits, as
a member of its job group's Raft group; a copy has only the rows of them that its jobs need. The name is never
used again, since what was still being stored under it when the copy ended must not be in the next one. So a
copy does not outlive the process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from elf.job import parts
from elf.job.catalog.log import CatalogLog
from elf.job.contributions import from_bytes
from elf.job.effects import Effect, PrunePanes, Send, StorePanes
from elf.job.events import PanesStored
from elf.job.messages.rollup import FlowHead, PaneRequest, PaneRow, ReadPanes
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.panes import PRUNE_MS, History, Panes, Segment
from elf.job.spec import START_OF_TIME, Flow
from elf.job.tops import serves
from elf.ql.plan import Top
from overlay.turns import Turns

ASK_MS: Final = 1_000
WAITING_MAX: Final = 64
"""Commits that wait to be stored, or for the one before them; more than these are asked for again."""

Need = tuple[str, int, Top | None]
"""A flow, the first pane that a job wants of it, and the rows of each."""


def copy_of(uid: str, number: int) -> str:
    """The name under which the store has a copy of a flow."""
    return f"{uid}.copy{number}"


def flow_of(name: str) -> str:
    """The flow that the store has under a name, its own or a copy's."""
    return name.partition(".copy")[0]


def is_copy(name: str) -> bool:
    """Whether the store has a copy of a flow under that name."""
    return ".copy" in name


class Mirror(Panes):
    """One copy. ``start``: the first pane that its jobs want, if that is known."""

    def __init__(self, flow: Flow, stored_as: str, start: int | None) -> None:
        super().__init__(flow)
        self.cut: Top | None = None
        """The rows of a pane that its jobs need."""
        self.begin_again(stored_as, start)

    def begin_again(self, stored_as: str, start: int | None) -> None:
        """Take all commits of panes from ``start`` on, as if there were none here, under another name."""
        self._stored_as = stored_as
        self.history = History()
        self._first = start
        self._have = 0
        self._taken: dict[Top | None, int] = {}
        self._ahead: dict[int, PaneRow] = {}
        self._waiting: list[PaneRow] = []
        self._storing = False

    @property
    def stored_as(self) -> str:
        return self._stored_as

    def begin(self, head: FlowHead) -> bool:
        """Begin where the flow is; False if the copy has begun already."""
        if self._first is not None:
            return False
        self._have, self._first = head.after, head.start
        self.note_known(head.known, head.start)
        return True

    def begins_at(self) -> int:
        """The first pane with all rows: earlier ones may lack rows that a new job needs."""
        return max([self.durable_to(), *self._taken.values()])

    def has(self, first: int, cut: Top | None) -> bool:
        """Whether a job that began at pane ``first`` and needs these rows finds, in time, all of them."""
        short = any(first < end and not serves(had, cut) for had, end in self._taken.items())
        return self._first is not None and self._first <= first and not short

    def request(self, wanted: int) -> PaneRequest:
        """``wanted``: the first pane that jobs here may yet want. The root keeps it for us, in case we die
        and another node goes on with the jobs."""
        end = min(self.durable_to(), wanted)
        return PaneRequest(self.flow.uid, self._have, self._first, end, self.cut)

    def take(self, row: PaneRow) -> tuple[bool, list[Effect]]:
        """A commit from the root: (whether to ask for what comes before or after it, effects)."""
        if self._first is None or row.seq <= self._have or row.wanted > self._first:
            return False, []
        if not serves(row.cut, self.cut):  # a job that needs more rows has come meanwhile
            return True, []
        gap = row.after > self._have
        if gap:
            if len(self._ahead) < WAITING_MAX:
                self._ahead[row.seq] = row
            return True, []
        more = row.more
        next_row: PaneRow | None = row
        while next_row is not None and len(self._waiting) < WAITING_MAX:
            self._have = next_row.seq
            self._taken[next_row.cut] = max(self._taken.get(next_row.cut, START_OF_TIME), next_row.end)
            self._waiting.append(next_row)
            more = next_row.more
            next_row = self._next()
        return more, self._store()

    def _next(self) -> PaneRow | None:
        """Commits that came too early and follow now."""
        self._ahead = {seq: row for seq, row in self._ahead.items() if seq > self._have}
        following = [
            row for row in self._ahead.values() if row.after <= self._have and serves(row.cut, self.cut)
        ]
        return min(following, key=lambda row: row.seq, default=None)

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
            if not row.revision:
                self.note_known(row.roster_version, row.end)
            if self._first is not None and row.end > self._first:
                start = max(row.start, self._first)
                members, late = from_bytes(row.members), parts.from_bytes(row.parts)
                new = Segment(start, row.end, row.revision, members, now_ms, parts=late)
                changed.extend(self.history.copy(new))
        self.history.compact(self.expected, final_ms)
        return changed, self._store()


class Mirrors:
    """All copies of this node. ``wanted_from`` as for ``FlowRoots``."""

    def __init__(
        self, log: CatalogLog, settings: RootSettings, wanted_from: Callable[[str, int], int]
    ) -> None:
        self._log = log
        self._settings = settings
        self._wanted_from = wanted_from
        self._mirrors: dict[str, Mirror] = {}
        self._number = 0
        self._left: list[tuple[int, str]] = []
        """Names that copies had before they began again, and when."""
        self._job_groups: Turns[str] = Turns(settings.groups_at_once)
        self._next_ms = 0

    def get(self, uid: str) -> Mirror | None:
        return self._mirrors.get(uid)

    def follow(
        self,
        wanted: Mapping[str, int | None],
        now_ms: int,
        cuts: Mapping[str, Top | None],
        needs: Sequence[Need] = (),
    ) -> list[Effect]:
        """Have copies of these flows (uid → the first pane that is wanted, if known), and of no others.
        ``cuts``: the rows of a pane that their jobs need; ``needs``: of jobs that come with a beginning.
        """
        gone = [uid for uid in self._mirrors if uid not in wanted]
        found: list[Effect] = [PrunePanes(self._mirrors.pop(uid).stored_as, None) for uid in gone]
        for uid, start in wanted.items():
            flow = self._log.flow(uid)
            if flow is not None and uid in self._mirrors:
                if flow.leader != self._mirrors[uid].flow.leader:
                    self._job_groups.forget(flow.leader)
                self._mirrors[uid].flow = flow
            elif flow is not None:
                mirror = Mirror(flow, self._name(uid, now_ms), start)
                mirror.set_roster(self._log.asked(flow.fragment), self._log.last)
                mirror.cut = cuts[uid]
                self._mirrors[uid] = mirror
                found.append(self._ask(mirror))
        for uid, mirror in self._mirrors.items():
            mirror.cut = cuts[uid]
        for uid, first, cut in needs:
            if uid in self._mirrors and not self._mirrors[uid].has(first, cut):
                mirror = self._mirrors[uid]
                self._left.append((now_ms, mirror.stored_as))  # a window of it may be under way
                mirror.begin_again(self._name(uid, now_ms), wanted[uid])
                found.append(self._ask(mirror))
        return found

    def _name(self, uid: str, now_ms: int) -> str:
        self._number = max(self._number + 1, now_ms)
        return copy_of(uid, self._number)

    def roster_changed(self, stream: str) -> None:
        for mirror in self._mirrors.values():
            if mirror.flow.fragment.stream == stream:
                mirror.set_roster(self._log.asked(mirror.flow.fragment), self._log.last)

    def _ask(self, *mirrors: Mirror) -> Send:
        wanted = {m.flow.uid: self._wanted_from(m.flow.uid, m.durable_to()) for m in mirrors}
        requests = tuple(mirror.request(wanted[mirror.flow.uid]) for mirror in mirrors)
        return Send(mirrors[0].flow.leader, ReadPanes(requests=requests))

    # -- what roots say --------------------------------------------------------------------------------------

    def head(self, message: FlowHead) -> bool:
        """The root says where the flow is; True if a copy begins there."""
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
        if mirror is None or mirror.stored_as != event.stored_as:
            left = any(name == event.stored_as for _, name in self._left)
            return [], [] if left else [PrunePanes(event.stored_as, None)]
        return mirror.stored(event.rows, now_ms, now_ms - mirror.revise_ms(self._settings.revise_ms))

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        return self._next_ms if self._mirrors else None

    def tick(self, now_ms: int) -> list[Effect]:
        """Ask the roots whose turn it is, one message each."""
        if now_ms < self._next_ms:
            return []
        self._next_ms = now_ms + ASK_MS
        together: dict[str, list[Mirror]] = defaultdict(list)
        found: list[Effect] = [PrunePanes(name, None) for at, name in self._left if now_ms - at > PRUNE_MS]
        self._left = [(at, name) for at, name in self._left if now_ms - at <= PRUNE_MS]
        for uid, mirror in self._mirrors.items():
            together[mirror.flow.leader].append(mirror)
            settled = mirror.settled_to(now_ms, self._settings.revise_ms)
            if settled is not None:
                below = self._wanted_from(uid, settled)
                mirror.forget(below)
                found.append(PrunePanes(mirror.stored_as, below))
        return [*found, *(self._ask(*together[leader]) for leader in self._job_groups.take(together))]

    def check(self) -> None:
        for mirror in self._mirrors.values():
            mirror.check()
