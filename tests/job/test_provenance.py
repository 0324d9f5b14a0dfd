"""Which rows a pane has counted: what is written down, counted again, is what was sealed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.batch import decode
from elf.fields import replace
from elf.job import provenance
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import Command, Feed, Finish, Install, Outcome, Replay, Resume, Suspend
from elf.job.past import Past, Records
from elf.job.provenance import UNKNOWN, PaneRows, Traced
from elf.job.snapshots import Sealed
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.worker.provenance import Run, runs_of
from elf.job.worker.stream import StreamWorker, WorkerSettings
from lab.chaos.engine import SECOND, PyEngine
from lab.chaos.task import SimArchive
from tests.support.chunks import FLOW, Rows, chunk

SETTINGS = WorkerSettings(
    idle_ms=5_000, future_us=12 * SECOND, lateness_us=SECOND, checkpoint_ms=10**9, traces=True
)
REVISED = replace(FLOW, fragment=replace(FLOW.fragment, revise_us=3 * SECOND))

rows_of_a_log = st.lists(
    st.tuples(st.integers(0, 60).map(lambda t: t * SECOND // 4), st.sampled_from("abc")), max_size=40
)


def counts_of(sealed: Sealed) -> dict[int, Counter[str]]:
    found: dict[int, Counter[str]] = {}
    for row in decode(sealed.payload).to_pylist() if sealed.payload else ():
        found.setdefault(row["_pane"], Counter())[row["k0"]] += int(row["s0"])
    return found


def rows_in(sealed: Sealed) -> int:
    return sum(row["rows_in"] for row in decode(sealed.counters).to_pylist()) if sealed.counters else 0


class Story:
    """A worker over two logs, which dies and reads again; what was durable of it."""

    def __init__(self, logs: Sequence[Rows], seed: int, *, stops: bool) -> None:
        self._logs = logs
        self._rng = random.Random(seed)
        self._stops = stops
        self.archive = SimArchive()
        self.sealed: list[Sealed] = []
        self.traced: list[Traced] = []
        self.worker = StreamWorker("s", SETTINGS, PyEngine())
        self._saved = b""
        self._kept(self.worker.handle(Install(REVISED)))

    def play(self) -> None:
        while any(self._at(name) < len(rows) for name, rows in enumerate(self._logs)):
            if self._rng.random() < 0.15:
                self.die()
            if self._stops and self._rng.random() < 0.1:
                uid = REVISED.uid
                self.handle(Suspend(uid) if self._rng.random() < 0.5 else Resume(uid))
            name = self._rng.randrange(len(self._logs))
            start = max(0, self._at(name) - self._rng.randrange(4))  # what a flow has applied it skips
            self.feed(name, start + self._rng.randrange(1, 12), start)
        self.handle(Finish())

    def feed(self, name: int, end: int, start: int = 0) -> None:
        """The rows of a log up to ``end``, if there are new ones."""
        rows = self._logs[name][start:end]
        if rows and start + len(rows) > self._at(name):
            fed = chunk(rows, start, f"log{name}")
            self.archive.take(fed)
            self.handle(Feed(fed, self._rng.randrange(2_000)))

    def die(self) -> None:
        checkpoint = msgspec.msgpack.decode(self._saved, type=StreamCheckpoint)
        self.worker = StreamWorker("s", SETTINGS, PyEngine(), checkpoint)

    def _at(self, name: int) -> int:
        known = {source.id: source.end for source in self.worker.checkpoint().sources}
        return known.get(f"log{name}", 0)

    def handle(self, command: Command) -> None:
        self._kept(self.worker.handle(command))

    def _kept(self, outcome: Outcome) -> None:
        assert not outcome.traced or outcome.checkpoint is not None
        if outcome.checkpoint is not None:
            self._saved = msgspec.msgpack.encode(outcome.checkpoint)
            self.sealed += outcome.sealed
            self.traced += outcome.traced

    def check(self) -> None:
        known = {(one.flow, one.start, one.end, one.part): one.panes for one in self.traced}
        for sealed in self.sealed:
            panes = known.pop((sealed.flow, sealed.start, sealed.end, sealed.part))
            again = {
                one.pane: Counter(key for _, _, key in self.archive.counted(one, FLOW.fragment.pane_us))
                for one in panes
            }
            assert again == counts_of(sealed)
            assert sum(one.rows for one in panes) == rows_in(sealed)
            assert all(one.rows == again[one.pane].total() for one in panes)
        assert not known


@settings(max_examples=40)
@given(rows_of_a_log, rows_of_a_log, st.integers(0, 2**32))
def test_rows_that_were_counted_are_counted_again(one: Rows, other: Rows, seed: int) -> None:
    story = Story([one, other], seed, stops=False)
    story.play()
    story.check()


@settings(max_examples=30)
@given(rows_of_a_log, st.integers(0, 2**32))
def test_what_is_shed_is_in_no_range(rows: Rows, seed: int) -> None:
    story = Story([rows], seed, stops=True)
    story.play()
    story.check()


@settings(max_examples=25)
@given(rows_of_a_log, rows_of_a_log, st.integers(0, 40), st.integers(0, 2**32))
def test_rows_of_the_past_are_counted_again(before: Rows, after: Rows, since: int, seed: int) -> None:
    """A flow with SINCE reads them in slices from the archive, dies, and goes on with live lines."""
    story, rng = Story([before + after], seed, stops=False), random.Random(seed)
    begun = len(before)
    if before:
        story.feed(0, begun)
    since_us = since * SECOND // 4
    flow = Flow("e" * 24, replace(FLOW.fragment, since_us=since_us), bytes(16), "home")
    past = Past(0, begun, END_OF_TIME, START_OF_TIME)
    story.handle(Install(flow, covers_us=since_us, past=past))
    state = story.worker.states()[flow.uid]
    reads, first_us = state.past is not None, state.live_from * flow.fragment.pane_us
    wanted = sum(ts >= first_us for ts, _ in before) if reads else 0
    while reads:
        if rng.random() < 0.3:
            story.die()
        past_now = story.worker.states()[flow.uid].past
        assert past_now is not None
        gone = rng.randrange(1, 4) if rng.random() < 0.2 else 0  # retention was quicker
        begin = min(begun, past_now.position + gone)
        holes = tuple((ts, ts) for ts, _ in before[past_now.position : begin])
        wanted -= sum(ts >= first_us for ts, _ in holes)
        after_it: Past | None = None
        at = min(begun, begin + rng.randrange(1, 9))
        found = [
            Records("log0", "log", part.lines, part.offsets)
            for part in [chunk(before[begin:at], begin, "log0")]
            if len(part.offsets)
        ]
        if reads := at < begun:
            floor = min(ts // flow.fragment.pane_us for ts, _ in before[at:])
            after_it = replace(past_now, position=at, floor=floor)
        story.handle(Replay(flow.uid, tuple(found), after_it, 0, holes))
    story.play()
    story.check()
    sealed = [one for one in story.sealed if one.flow == flow.uid]
    assert sum(map(rows_in, sealed)) >= wanted


def test_ranges_end_where_archived_rows_are_gone() -> None:
    """A flow with SINCE has read rows of a pane, and dies; then the archive has lost the next ones."""
    rows: Rows = [(n * SECOND // 8, "abc"[n % 3]) for n in range(8)]
    story = Story([rows], 0, stops=False)
    story.feed(0, len(rows))
    flow = Flow("e" * 24, replace(FLOW.fragment, since_us=0), bytes(16), "home")
    past = Past(0, len(rows), END_OF_TIME, START_OF_TIME)
    story.handle(Install(flow, covers_us=0, past=past))
    holes = ((rows[3][0], rows[4][0]),)
    for at, end, gone in [(0, 3, ()), (5, 7, holes), (7, 8, ())]:
        part = chunk(rows[at:end], at, "log0")
        found = Records("log0", "log", part.lines, part.offsets)
        after = None if end == len(rows) else replace(past, position=end, floor=0)
        story.handle(Replay(flow.uid, (found,), after, 10**10 * end, gone))
        story.die()
    story.handle(Finish())
    story.check()
    (panes,) = (one.panes for one in story.traced if one.flow == flow.uid and one.panes)
    assert panes == (PaneRows(0, 6, (("log0", ((0, 3), (5, 7), (7, 8))),)),)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_runs_are_rows_of_a_pane_side_by_side(rows: list[tuple[int, bool]]) -> None:
    panes = np.array([pane for pane, _ in rows], np.int64)
    counted = np.array([is_counted for _, is_counted in rows], np.bool_)
    offsets = np.arange(len(rows), dtype=np.int64) * 7
    runs = runs_of(panes, offsets, counted)
    assert sum(run.rows for run in runs) == len(rows)
    for run in runs:
        inside = [n for n in range(len(rows)) if run.first <= n * 7 < run.end and panes[n] == run.pane]
        assert len(inside) == run.rows
        assert {bool(counted[n]) for n in inside} == {run.counted}
    for before, after in pairwise(runs):
        assert before.pane < after.pane or before.counted != after.counted


def test_what_takes_too_many_bytes_is_not_written_down() -> None:
    few = PaneRows(1, 2, (("a", ((0, 5),)),))
    many = PaneRows(2, 5_000, tuple((f"source {n:050}", ((0, 1),)) for n in range(5_000)))
    assert provenance.from_bytes(provenance.to_bytes([few, many])) == (few, PaneRows(2, UNKNOWN, ()))
    assert provenance.to_bytes([]) == b""
    assert Run(1, counted=True, first=0, end=1, rows=1).counted
