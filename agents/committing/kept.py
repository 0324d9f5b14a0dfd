"""What a master keeps in memory of its jobs' windows, and what equal jobs have in common.

What is kept of a job (``Kept``) spares reading and merging panes again, and decides nothing.

What is kept of a *version* of a job (that, and prepared statements) is one thread's at a time: who leads a
job group anew may still be at work on windows that it began in the term before. What was kept in another term
is gone: it may be of panes that were about to be committed then (protocol 5.11). Versions with equal plans,
of whichever jobs, have in common what their windows have in common (``alike``), which is made once. One
thread alone adds versions and lets them go, so that none comes back with work that was waiting; their
statements are closed at once, or by the thread that is at work on them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from agents.committing.panetables import joined
from agents.committing.sides import Sides
from agents.committing.spans import Span
from elf.fields import replace
from elf.job.effects import CommitWindows, Coverage, SaveJob
from elf.job.ports import FinisherPort
from elf.job.spec import END_OF_TIME, JobSpec
from elf.ql.plan import Plan
from elf.windows import Sliding

CONTENTS_MAX: Final = 8
CONTENTS_BYTES_MAX: Final = 1 << 20
"""Windows of equal jobs that are kept until all of these have them: so many ranges, of that size each."""

VERSIONS_MADE: Final = 2
"""Of a job: an old version makes its last windows while the new one makes its first."""
Finishing = Callable[[Plan], FinisherPort]
"""Prepares what runs a plan's final fragment."""

PaneRange = tuple[str, int, int, int]
"""Panes of a flow in one revision: flow, start, end, revision."""


class Contents(NamedTuple):
    """Windows as they are committed: encoded, with the revision of their panes. ``empty``: there are none;
    ``failure``: as of their finisher."""

    revision: int
    status: bytes
    rows: bytes
    empty: bool
    failure: str


def alike(effect: CommitWindows) -> Hashable | None:
    """What the windows of an effect are made of, beside their plan: those of equal jobs are the same, bit by
    bit. None where they are the job's own: what is revised or cut off, what has a function, and what may
    reach back to where the job began.
    """
    plan = effect.spec.plan
    sizes = [kind.size_us for kind in plan.windows if isinstance(kind, Sliding)]
    plain = not (plan.final or plan.stages or plan.join or plan.beside or effect.landmarks or effect.final)
    running = effect.revised is None and effect.skipped_to is None and effect.until_us >= END_OF_TIME
    if not plain or not running or not sizes or len(sizes) < len(plan.windows):
        return None
    if effect.first_us - max(sizes) < effect.from_us:
        return None
    return effect.spec.version, effect.first_us, effect.last_us, effect.coverage, effect.names


class Kept:
    """What a master keeps in memory of one job's windows, or of those that equal jobs have in common. It may
    be lost at any time."""

    def __init__(self) -> None:
        self._contents: OrderedDict[Hashable, Contents] = OrderedDict()
        self._assembly: Sides | None = None
        self._counters: pa.Table | None = None
        self._revisions: list[PaneRange] = []
        self._landmarks: tuple[int, ...] = ()
        self._failure = ""
        self._failed = frozenset[Span]()
        """How smaller windows have failed of which larger ones are still to be made."""

    @property
    def next_us(self) -> int | None:
        """Windows that end later may go on from here; None: there is nothing to go on from."""
        return None if self._assembly is None else self._assembly.next_us

    def made(self, key: Hashable | None) -> Contents | None:
        """Windows that an equal job has had made already."""
        return None if key is None else self._contents.get(key)

    def remember(self, key: Hashable | None, contents: Contents) -> None:
        """For equal jobs."""
        if key is None or len(contents.rows) + len(contents.status) > CONTENTS_BYTES_MAX:
            return
        self._contents[key] = contents
        if len(self._contents) > CONTENTS_MAX:
            self._contents.popitem(last=False)

    def resume(self, effect: CommitWindows, finisher: FinisherPort) -> tuple[Sides, int]:
        """What these windows go on from, and the event time up to which nothing need be read. The finisher is
        told how that has failed."""
        known = self._assembly
        if known is not None and known.next_us == effect.first_us and self._landmarks == effect.landmarks:
            known.calendar = replace(known.calendar, until_us=effect.until_us)
            held = reached(effect, known.held_from_us, effect.first_us)
            if self._revisions == _revisions(effect.coverage, *held):
                if self._failed:
                    finisher.fail(self._failure, self._failed)
                return known, effect.first_us
        self._assembly, self._counters = None, None
        return Sides(effect.spec.plan, effect.calendar), effect.calendar.needs_from(effect.first_us)

    def count(self, counters: pa.Table | None, held: int, start: int) -> pa.Table | None:
        """The counters of the windows, and keep them: what was kept of panes ``[held, start)``, and
        ``counters`` from pane ``start`` on, or all of them where nothing was kept."""
        kept = self._counters
        if kept is not None:
            panes = kept["_pane"]
            kept = kept.filter(pc.and_(pc.greater_equal(panes, held), pc.less(panes, start)))
            if counters is not None:
                counters = counters.filter(pc.greater_equal(counters["_pane"], start))
        self._counters = joined([kept, counters])
        return self._counters

    def keep(self, assembly: Sides, effect: CommitWindows, finisher: FinisherPort) -> None:
        """The next windows may go on from here, unless these were the last."""
        self._failure, since_us = finisher.failure, assembly.held_from_us
        self._failed = frozenset(span for span in finisher.failed or () if span[0] >= since_us)
        self._landmarks = effect.landmarks
        self._assembly = None if effect.last_us >= END_OF_TIME else assembly
        held = reached(effect, assembly.held_from_us, effect.last_us)
        self._revisions = _revisions(effect.coverage, *held)


def bounded(us: int, pane_us: int) -> int:
    """The pane that starts at ``us``; the ends of time stay what they are."""
    return us if abs(us) >= END_OF_TIME else us // pane_us


def reached(effect: CommitWindows, start_us: int, end_us: int) -> tuple[int, int]:
    """The panes that windows between these times are made of; of joined streams, with those of partners."""
    before, after = effect.spec.plan.reach
    pane_us = effect.spec.plan.fragment.pane_us
    start, end = bounded(start_us, pane_us), bounded(end_us, pane_us)
    if before and abs(start) < END_OF_TIME:
        start -= before // pane_us
    if after and abs(end) < END_OF_TIME:
        end += after // pane_us
    return start, end


def _revisions(coverage: Sequence[Coverage], start: int, end: int) -> list[PaneRange]:
    """Panes ``[start, end)`` as ranges of one revision each: what decides their contents."""
    found: list[PaneRange] = []
    for part in coverage:
        begin, stop = max(part.start, start), min(part.end, end)
        if begin >= stop:
            continue
        if found and (found[-1][0], *found[-1][2:]) == (part.flow, begin, part.revision):
            begin = found.pop()[1]
        found.append((part.flow, begin, stop, part.revision))
    return found


class Version:
    """What is kept of one version, or in ``common`` with all that have an equal plan."""

    def __init__(self, plan: Plan, finishing: Finishing, common: Version | None = None) -> None:
        self.plan = plan
        self.common = common
        self.users = 0
        """Versions that have this in common."""
        self._finishing = finishing
        self._lock = threading.Lock()
        self._finisher: FinisherPort | None = None
        self._kept = Kept()
        self._term = 0
        self._gone = False

    @contextlib.contextmanager
    def alone(self, term: int = 0) -> Iterator[tuple[FinisherPort, Kept]]:
        """For one thread, while it makes windows in a term of their job group; 0: they are of committed panes
        alone, and whoever leads next may go on from them. Nothing is kept of those that cannot be made."""
        try:
            with self._lock:
                try:
                    if self._finisher is None:
                        self._finisher = self._finishing(self.plan)
                    if self.common is not None and self._term != term:
                        self._kept = Kept() if self._term else self._kept
                        self._term = term
                    yield self._finisher, self._kept
                except BaseException:
                    self._kept = Kept()  # before another thread may go on from it
                    raise
        finally:
            if self._gone:
                self._close()

    def let_go(self) -> None:
        self._gone = True
        self._close()

    def rest(self) -> None:
        """It is not needed now, while windows are made in common."""
        self._close()
        self._kept = Kept()

    def _close(self) -> None:
        """Unless a thread is at work, which does it then."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._finisher is not None:
                self._finisher.close()
                self._finisher = None
        finally:
            self._lock.release()


class Versions:
    """Those whose windows one agent makes."""

    def __init__(self, finishing: Finishing) -> None:
        self._finishing = finishing
        self._versions: dict[tuple[str, int], Version] = {}
        self._common: dict[Plan, Version] = {}

    def own(self, spec: JobSpec) -> Version:
        """What windows of panes that are not committed are made with: no other job may have them."""
        return self._version(spec)

    def maker(self, work: CommitWindows) -> Version:
        """What these windows are made with: the version's own, or what equal ones have in common."""
        version = self._version(work.spec)
        if version.common is None or alike(work) is None:
            return version
        version.rest()
        return version.common

    def saved(self, job: SaveJob) -> None:
        """Versions of a job that make no window any more need nothing kept."""
        live = {v.spec.version for v in job.versions if v.state == "committed" and job.state != "dropped"}
        for number in self.numbers(job.spec.uid):
            if number not in live:
                self._let_go(job.spec.uid, number)

    def forget(self, uid: str) -> None:
        """The job group of a job is here no more."""
        for number in self.numbers(uid):
            self._let_go(uid, number)

    def numbers(self, uid: str) -> list[int]:
        """The versions of a job of which something is kept."""
        return sorted(number for job, number in self._versions if job == uid)

    def close(self) -> None:
        """When no thread makes windows any more."""
        for uid, number in list(self._versions):
            self._let_go(uid, number)

    def _version(self, spec: JobSpec) -> Version:
        key = (spec.uid, spec.version)
        found = self._versions.get(key)
        if found is None:
            for number in self.numbers(spec.uid)[:-VERSIONS_MADE]:
                self._let_go(spec.uid, number)
            common = self._common.setdefault(spec.plan, Version(spec.plan, self._finishing))
            common.users += 1
            found = self._versions[key] = Version(spec.plan, self._finishing, common)
        return found

    def _let_go(self, uid: str, number: int) -> None:
        version = self._versions.pop((uid, number))
        version.let_go()
        if version.common is not None:
            version.common.users -= 1
            if not version.common.users:
                self._common.pop(version.common.plan).let_go()
