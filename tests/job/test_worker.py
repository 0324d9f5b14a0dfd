"""The worker of a stream: the same snapshots whatever the chunks, through cuts and restarts, row by row."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.tasks.spill import SpillFolder
from elf.batch import decode
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import Member
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import Feed, Finish, Idle, Install, Resume, SealOpen, Suspend
from elf.job.messages.log import JoinStream, LeaveStream
from elf.job.ports import MapperPort, Spill
from elf.job.rollup.presence import Roster
from elf.job.snapshots import Sealed
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.work import BEHIND_MS
from elf.job.worker.assigning import FEW_ROWS, GATHERED_ROWS, Assigner, Stand, View
from elf.job.worker.stream import LONG_AGO, StreamWorker, WorkerSettings
from elf.job.worker.times import times_of
from elf.ql.plan import Fragment
from elf.windows.kinds import highest_before
from lab.chaos.engine import SECOND, PyEngine, PyMapper
from tests.support.chunks import FLOW, SETTINGS, Rows, chunk, obvious, panes_of, rows_of_a_log


def test_the_line_that_ends_a_pane_is_due_at_its_time_and_none_before() -> None:
    pane, lateness = FLOW.fragment.pane_us, FLOW.fragment.lateness_us or 0
    worker = StreamWorker("s", SETTINGS, PyEngine())
    assert worker.due_us() == END_OF_TIME
    worker.handle(Feed(chunk([(0, "a")], 0), 0))
    worker.handle(Install(FLOW))
    assert worker.due_us() == 2 * pane + lateness, "pane 0 was read before the flow began"
    worker.handle(Feed(chunk([(pane, "a"), (worker.due_us() - 1, "a")], 1), 0))
    due = worker.due_us()
    outcome = worker.handle(Feed(chunk([(due - 1, "b")], 3), 0))
    assert not [one for one in outcome.sealed if one.payload]
    assert [one.end for one in worker.handle(Feed(chunk([(due, "c")], 4), 0)).sealed] == [2]
    assert worker.due_us() == 3 * pane + lateness
    worker.handle(Suspend(FLOW.uid))
    assert worker.due_us() == END_OF_TIME, "what is over its quota ends no pane"


class CannotCompute(PyMapper):
    def prepare(self) -> None:
        raise UserError("there is no such thing here")


def test_a_flow_that_cannot_be_computed_fails_alone_and_takes_no_checkpoint_with_it() -> None:
    class Engine(PyEngine):
        def mapper(self, fragment: Fragment) -> MapperPort:
            return CannotCompute() if fragment.map_sql == "none" else super().mapper(fragment)

    worker = StreamWorker("s", SETTINGS, Engine())
    worker.handle(Install(FLOW))
    worker.handle(Feed(chunk([(0, "a")], 0), 0))
    other = replace(FLOW, uid="e" * 24, fragment=replace(FLOW.fragment, map_sql="none"))
    outcome = worker.handle(Install(other))
    assert outcome.failed == ((other.uid, "it cannot be computed: there is no such thing here"),)
    assert outcome.checkpoint is not None, "what was clean after it would not be written"
    assert [one.flow.uid for one in outcome.checkpoint.flows] == [FLOW.uid] == list(worker.flows())


@given(rows_of_a_log, st.integers(1, 20), st.integers(0, 2**32))
def test_chunks_cuts_and_restarts_change_nothing(rows: Rows, chunk_rows: int, seed: int) -> None:
    rng = random.Random(seed)
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    durable: list[Sealed] = []
    saved, position = msgspec.msgpack.encode(worker.checkpoint()), 0
    while position < len(rows):
        if rng.random() < 0.15:  # a crash: back to the last checkpoint, reading from where that says
            checkpoint = msgspec.msgpack.decode(saved, type=StreamCheckpoint)
            worker = StreamWorker("s", SETTINGS, PyEngine(), checkpoint)
            read = max((source.end for source in checkpoint.sources), default=0)
            position = max(0, read - rng.randrange(5))  # what a flow has applied it skips
        size = rng.randrange(1, chunk_rows + 1)
        outcome = worker.handle(Feed(chunk(rows[position : position + size], position), 0))
        position += len(rows[position : position + size])
        assert outcome.checkpoint is not None or not outcome.sealed
        if outcome.checkpoint is not None:
            saved = msgspec.msgpack.encode(outcome.checkpoint)
            durable.extend(outcome.sealed)
    durable.extend(worker.handle(Finish()).sealed)
    assert durable[0].start == START_OF_TIME
    assert durable[-1].end == END_OF_TIME
    assert panes_of(durable) == obvious(rows)


@given(rows_of_a_log, st.integers(1, 20))
def test_how_many_rows_would_be_late_is_counted_for_each_lateness(rows: Rows, size: int) -> None:
    """As many as are, where it is LATENESS."""
    worker, work = StreamWorker("s", SETTINGS, PyEngine()), dict[str, int]()
    worker.handle(Install(FLOW))
    for position in range(0, len(rows), size):
        outcome = worker.handle(Feed(chunk(rows[position : position + size], position), 0))
        work |= outcome.work.get(FLOW.uid, {})
    for ms in BEHIND_MS:
        highest, late = LONG_AGO, 0
        for ts, _ in rows:
            late += (ts // FLOW.fragment.pane_us + 1) * FLOW.fragment.pane_us + 1_000 * ms <= highest
            highest = max(highest, ts)
        assert work.get(f"behind_{ms}", 0) == late
    assert obvious(rows)[1] == work.get(f"behind_{(FLOW.fragment.lateness_us or 0) // 1_000}", 0)


@given(rows_of_a_log, st.integers(1, 8), st.lists(st.integers(0, 12), max_size=3), st.integers(0, 2**32))
def test_flows_of_one_fragment_that_stand_at_different_places_share_nothing_wrong(
    rows: Rows, chunk_rows: int, installed: list[int], seed: int
) -> None:
    """Each gives what it would give if it were alone, though a chunk is mapped once for all of them."""
    flows = {Flow(f"f{n}", FLOW.fragment, bytes(16), ""): at for n, at in enumerate([0, 0, *installed])}

    def run(chosen: dict[Flow, int]) -> dict[str, list[Sealed]]:
        rng = random.Random(seed)
        worker = StreamWorker("s", SETTINGS, PyEngine())
        sealed: dict[str, list[Sealed]] = {flow.uid: [] for flow in chosen}
        position, number = 0, 0
        while position < len(rows):
            for flow, at in chosen.items():
                if at == number:
                    worker.handle(Install(flow))
            if rng.random() < 0.2:  # read again from earlier: each flow skips what it has
                position = max(0, position - rng.randrange(4))
            outcome = worker.handle(Feed(chunk(rows[position : position + chunk_rows], position), 0))
            for one in outcome.sealed:
                sealed[one.flow].append(one)
            position += chunk_rows
            number += 1
        for one in worker.handle(Finish()).sealed:
            sealed[one.flow].append(one)
        return sealed

    together = run(flows)
    for flow, at in flows.items():
        alone = run({flow: at})[flow.uid]
        found = together[flow.uid]
        assert [(one.start, one.end) for one in found] == [(one.start, one.end) for one in alone]
        assert panes_of(found) == panes_of(alone)


def test_a_flow_answers_from_the_first_pane_after_what_was_read() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Feed(chunk([(5 * SECOND, "a")], 0), 0))
    (progress,) = worker.handle(Install(FLOW)).progress
    assert (progress.live_from, progress.sealed) == (3, 3)
    outcome = worker.handle(Feed(chunk([(5 * SECOND, "b"), (6 * SECOND, "c")], 1), 0))
    assert outcome.sealed == ()
    counts, late = panes_of(list(worker.handle(Finish()).sealed))
    assert (counts, late) == ({3: Counter(c=1)}, 0)


def test_all_idle_closes_windows_by_the_clock_but_not_at_once() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    worker.handle(Feed(chunk([(7 * SECOND, "a")], 0), 7_000))
    assert worker.handle(Idle(9_000)).sealed == ()
    sealed = [one for at in range(10, 21) for one in worker.handle(Idle(at * 1_000)).sealed]
    # the clock less 5 s of idling less 1 s of lateness... two whole panes
    assert sealed[-1].end == (20_000 - 5_000) * 1000 // (2 * SECOND) - (FLOW.fragment.lateness_us or 0) // (
        2 * SECOND
    )
    assert panes_of(sealed)[0] == {3: Counter(a=1)}


@pytest.mark.parametrize("silent_s", [1, 4])
def test_who_was_stopped_does_not_take_its_files_for_silent(silent_s: int) -> None:
    """A minute in which nobody looked says nothing of a file."""
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    for name in ("one", "two"):
        worker.handle(Feed(chunk([(7 * SECOND, "a")], 0, name), 0))
    for at in range(1, silent_s + 1):
        worker.handle(Idle(at * 1_000))
    now = silent_s * 1_000 + 60_000
    assert worker.handle(Idle(now)).sealed == ()
    assert worker.handle(Feed(chunk([(90 * SECOND, "a")], 1, "one"), now)).sealed == ()
    sealed = worker.handle(Feed(chunk([(8 * SECOND, "b"), (90 * SECOND, "b")], 1, "two"), now)).sealed
    counts, late = panes_of([*sealed, *worker.handle(Finish()).sealed])
    assert (counts[4], late) == (Counter(b=1), 0)


def test_rows_of_small_chunks_are_mapped_together_and_wait_in_the_cut() -> None:
    mapped: list[list[int]] = []

    class Engine(PyEngine):
        def mapper(self, fragment: Fragment) -> PyMapper:
            class Mapper(PyMapper):
                def run(self, rows: pa.Table) -> pa.Table:
                    mapped.append(rows["_pane"].to_pylist())
                    return super().run(rows)

            return Mapper()

    worker = StreamWorker("s", SETTINGS, Engine())
    worker.handle(Install(FLOW))
    for start in range(3):
        worker.handle(Feed(chunk([(start * SECOND // 2, "ab"[start % 2])], start), 0))
    assert mapped == []
    worker = StreamWorker("s", SETTINGS, Engine(), worker.checkpoint())
    sealed = worker.handle(Feed(chunk([(3 * SECOND, "c")], 3), 0)).sealed
    assert mapped == [[0, 0, 0]]  # what is not of a pane that ends goes on waiting
    assert panes_of(list(sealed))[0] == {0: Counter(a=2, b=1)}
    worker.handle(Idle(10))
    assert mapped[1:] == []  # a quiet moment is for as many as are worth it
    worker.handle(Feed(chunk([(3 * SECOND, "c")] * 15, 4), 10))
    worker.handle(Idle(20))
    assert mapped[1:] == [[1] * 16]
    worker.handle(Feed(chunk([(4 * SECOND, "d")] * GATHERED_ROWS, 19), 20))
    assert mapped[2:] == [[2] * GATHERED_ROWS], "enough by themselves"
    counts, _ = panes_of(list(worker.handle(Finish()).sealed))
    assert counts == {1: Counter(c=16), 2: Counter(d=GATHERED_ROWS)}


def telling(mapped: list[int]) -> PyEngine:
    """Says how many rows come to its map at once."""

    class Mapper(PyMapper):
        def run(self, rows: pa.Table) -> pa.Table:
            mapped.append(rows.num_rows)
            return super().run(rows)

    class Engine(PyEngine):
        def mapper(self, fragment: Fragment) -> PyMapper:
            return Mapper()

    return Engine()


def test_rows_that_wait_for_the_map_are_as_many_as_are_worth_it_and_few_in_the_checkpoint() -> None:
    mapped: list[int] = []

    def fed(worker: StreamWorker, rows: int, times: int, keys: str = "a") -> None:
        for _ in range(times):
            worker.handle(Feed(chunk([(SECOND, keys)] * rows, sum(fed_rows)), 0))
            fed_rows.append(rows)

    fed_rows: list[int] = []
    worker = StreamWorker("s", SETTINGS, telling(mapped))
    worker.handle(Install(FLOW))
    fed(worker, 16, 1)  # seals what is before it
    worker.handle(Idle(0))
    fed(worker, GATHERED_ROWS // 4, 4)
    assert mapped[1:] == [GATHERED_ROWS], "so many are enough"
    fed(worker, FEW_ROWS // 32, 64)
    assert mapped[2:] == [2 * FEW_ROWS], "or those of so many chunks"
    fed(worker, FEW_ROWS, 1, "k" * 8_000)
    assert mapped[3:] == [FEW_ROWS], "or such large ones"
    fed(worker, FEW_ROWS - 1, 1)
    worker.checkpoint()
    assert mapped[4:] == []
    fed(worker, 1, 1)
    worker.checkpoint()
    assert mapped[4:] == [FEW_ROWS], "a checkpoint has groups in place of so many rows"


def test_rows_of_a_dear_map_do_not_wait_for_the_end_of_their_pane() -> None:
    """It would come that much later, and what waits behind it."""
    mapped: list[int] = []

    worker = StreamWorker("s", SETTINGS, telling(mapped), cpu_us=lambda: 100 * sum(mapped))
    worker.handle(Install(FLOW))
    for number in range(12):
        worker.handle(Feed(chunk([(SECOND, "a")] * 100, 100 * number), 0))
        if number == 1:
            worker.handle(Idle(0))  # now it is known what a row takes
    assert mapped == [200, 200, 200, 200, 200, 200]
    (sealed,) = worker.handle(Finish()).sealed
    assert panes_of([sealed])[0] == {0: Counter(a=1_200)}


def test_rows_from_the_future_are_counted_and_move_nothing() -> None:
    settings = WorkerSettings(future_us=60 * SECOND, lateness_us=0, checkpoint_ms=10**9)
    worker = StreamWorker("s", settings, PyEngine())
    worker.handle(Install(FLOW))
    outcome = worker.handle(Feed(chunk([(10 * SECOND, "a"), (900 * SECOND, "b")], 0), 10_000))
    assert outcome.counts["future"] == 1
    assert worker.watermark_us(10_000) == 10 * SECOND


def test_what_does_not_fit_into_memory_is_spilled_and_counts_all_the_same(tmp_path: Path) -> None:
    spill = Spill(48 << 20, lambda flow: SpillFolder(tmp_path / flow))
    settings = WorkerSettings(finite=True, future_us=None, lateness_us=None, checkpoint_ms=10**9)
    worker = StreamWorker("s", settings, PyEngine(), spill=spill)
    worker.handle(Install(FLOW))
    rng = random.Random(1)
    rows, spilled = 6, 0
    for number in range(rows):
        wide = [(SECOND, rng.randbytes(400).hex()) for _ in range(20_000)]
        worker.handle(Feed(chunk(wide, number * 20_000), 0))
        spilled = max(spilled, len(list(tmp_path.rglob("*.run"))))
    assert spilled > 0
    (sealed,) = worker.handle(Finish()).sealed
    counted = decode(sealed.payload)
    assert counted.num_rows == rows * 20_000
    assert set(counted["s0"].to_pylist()) == {1}
    assert not list(tmp_path.rglob("*.run"))


def test_rows_before_the_agent_was_a_member_are_unrostered_and_nothing_else() -> None:
    settings = WorkerSettings(future_us=None, lateness_us=0, since_us=6 * SECOND, checkpoint_ms=10**9)
    worker = StreamWorker("s", settings, PyEngine())
    worker.handle(Install(FLOW))
    outcome = worker.handle(Feed(chunk([(5 * SECOND, "a"), (7 * SECOND, "b")], 0), 0))
    assert (outcome.counts["unrostered"], outcome.counts["rejected"]) == (1, 0)
    assert panes_of(list(worker.handle(Finish()).sealed))[0] == {3: Counter(b=1)}


def join(log: CatalogLog, agent: str, incarnation: int, address: str = "a:1") -> tuple[object, ...]:
    return grow(
        log,
        JoinStream(
            stream="s", agent_id=agent, name=agent, incarnation=incarnation, address=address, since_us=0
        ),
    )


def test_member_numbers_are_given_once_and_a_copied_disk_is_refused() -> None:
    log = CatalogLog()
    assert len(join(log, "x", 1)) == 1
    assert join(log, "x", 1) == ()  # repeated: nothing new
    join(log, "y", 1, "b:1")
    assert [m.number for m in log.members("s")] == [0, 1]
    join(log, "x", 2, "c:1")  # restarted elsewhere: the same number
    assert [(m.number, m.address) for m in log.members("s")] == [(0, "c:1"), (1, "b:1")]
    with pytest.raises(UserError, match="copy"):
        join(log, "x", 2, "d:1")
    with pytest.raises(UserError, match="copy"):
        join(log, "x", 1, "a:1")
    grow(log, LeaveStream(stream="s", agent_id="y", until_us=5))
    assert join(log, "y", 1, "b:1") == ()  # a proposal that comes late lets nobody in again
    left = log.member_of("s", "y")
    assert left is not None
    assert left.until_us == 5
    assert len(join(log, "y", 2, "b:1")) == 1
    join(log, "z", 1, "e:1")
    assert [m.number for m in log.members("s")] == [0, 1, 2]
    copy = CatalogLog(log.after(0))
    assert copy.members("s") == log.members("s")


@given(rows_of_a_log, st.integers(1, 7), st.integers(0, 1 << 30))
def test_rows_around_a_suspension_are_sealed_or_counted(rows: Rows, chunk_rows: int, seed: int) -> None:
    """Also those that come after it and are of its time."""
    rng = random.Random(seed)
    worker = StreamWorker("s", SETTINGS, PyEngine())
    sealed = list(worker.handle(Install(FLOW)).sealed)
    for start in range(0, len(rows), chunk_rows):
        outcome = worker.handle(Feed(chunk(rows[start : start + chunk_rows], start), 0))
        sealed += outcome.sealed
        for command in (Suspend(FLOW.uid), Resume(FLOW.uid), SealOpen()):
            sealed += worker.handle(command).sealed if rng.random() < 0.3 else ()
        if rng.random() < 0.3:
            checkpoint = msgspec.msgpack.decode(
                msgspec.msgpack.encode(worker.checkpoint()), type=StreamCheckpoint
            )
            worker = StreamWorker("s", SETTINGS, PyEngine(), checkpoint)
    worker.handle(Resume(FLOW.uid))
    sealed += worker.handle(Finish()).sealed
    counts: Counter[str] = Counter()
    for one in sealed:
        for row in decode(one.counters).to_pylist() if one.counters else ():
            counts.update({what: row[what] for what in ("rows_in", "late", "shed")})
    assert counts.total() == len(rows)
    assert sum(n for pane in panes_of_some(sealed).values() for n in pane.values()) == counts["rows_in"]


@given(rows_of_a_log, st.lists(st.integers(1, 7), min_size=1, max_size=3), st.integers(0, 40))
def test_who_leaves_has_answered_for_all_that_it_is_expected_in(
    rows: Rows, seconds: list[int], idle_ms: int
) -> None:
    """Whatever the panes of its jobs: nobody waits for it, or misses it, in one that it has begun."""
    worker = StreamWorker("s", SETTINGS, PyEngine())
    for n, length in enumerate(seconds):
        fragment = replace(FLOW.fragment, pane_us=length * FLOW.fragment.pane_us)
        worker.handle(Install(replace(FLOW, uid=f"f{n}", fragment=fragment)))
    worker.handle(Feed(chunk(rows, 0), 0))
    worker.handle(Idle(idle_ms * 1_000))
    outcome = worker.handle(SealOpen())
    member = Member(0, "id", "a", 1, "a:1", -(1 << 62), outcome.until_us)
    assert outcome.until_us > max((ts for ts, _ in rows), default=LONG_AGO)
    for said, length in zip(outcome.progress, seconds, strict=True):
        roster = Roster(length * FLOW.fragment.pane_us, (member,))
        if said.sealed == START_OF_TIME:
            assert (len(rows), outcome.until_us) == (0, LONG_AGO + 1), "it never had anything"
            continue
        assert not roster.expected(said.sealed), "in nothing more"
        assert roster.expected(said.sealed - 1), "and in all that it has sealed"


def panes_of_some(sealed: list[Sealed]) -> dict[int, Counter[str]]:
    """The same of what may have gaps."""
    found: dict[int, Counter[str]] = {}
    for one in sealed:
        found |= panes_of([one])[0]
    return found


def test_windows_wait_for_sources_that_have_lines_and_were_never_read() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    held = worker.handle(Feed(chunk([(7 * SECOND, "a"), (90 * SECOND, "a")], 0, "one"), 0, new_sources=True))
    assert held.sealed == ()
    outcome = worker.handle(Feed(chunk([(8 * SECOND, "b"), (90 * SECOND, "b")], 0, "two"), 0))
    assert outcome.counts.get("late", 0) == 0
    assert len(outcome.sealed) == 1


@given(
    rows=rows_of_a_log.filter(bool),
    cut=st.integers(0, 60),
    sealed=st.integers(0, 30),
    lateness=st.sampled_from([None, 0, SECOND // 2, 20 * SECOND]),
    revise=st.sampled_from([None, 2 * SECOND]),
)
def test_rows_that_are_all_on_time_are_sorted_as_others_are(
    rows: Rows, cut: int, sealed: int, lateness: int | None, revise: int | None
) -> None:
    """In two chunks, the second of which may be late, or before the flow, or go back to sealed panes."""
    fragment = replace(FLOW.fragment, revise_us=revise)
    source_highest = max((ts for ts, _ in rows[:cut]), default=LONG_AGO)
    ts = np.array([ts for ts, _ in rows[cut:]], np.int64)
    times = times_of(pa.chunked_array([pa.array(ts)]), LONG_AGO, None)
    view = View(
        rows=pa.table({"key": [key for _, key in rows[cut:]]}),
        wanted=None,
        ts=times.ts,
        timed=times.rostered,
        future=times.future,
        before=highest_before(times.ts, source_highest),
        offsets=np.arange(len(ts)),
        rejected=0,
        uncast=0,
        unrostered=0,
        earliest_us=times.earliest_us,
    )
    assigner = Assigner(fragment, PyMapper(), lateness, Counter(), traces=True)
    for at in (Stand(0, sealed, False), Stand(sealed, sealed, False, (0, sealed)), Stand(sealed, 0, False)):
        quick = assigner._sorted_alike(view, 0, at)
        if quick is not None:
            for one, other in zip(quick, assigner._sorted_each(view, 0, at), strict=True):
                assert str(one) == str(other), "arrays, numbers and runs"


@given(
    known=st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=6),
    since=st.integers(-4, 2),
    until=st.one_of(st.none(), st.integers(-2, 5)),
)
def test_times_are_those_of_each_row(known: list[int | None], since: int, until: int | None) -> None:
    times = times_of(pa.chunked_array([pa.array(known, pa.int64())]), since, until)
    future = [ts is not None and until is not None and ts > until for ts in known]
    there = [ts is not None and not ahead for ts, ahead in zip(known, future, strict=True)]
    rostered = [here and ts is not None and ts >= since for ts, here in zip(known, there, strict=True)]
    assert times.ts.tolist() == [ts or 0 for ts in known]
    assert (times.known.tolist(), times.rostered.tolist(), times.future.tolist()) == (there, rostered, future)
    assert times.unrostered == sum(there) - sum(rostered)
    assert times.earliest_us == (min(times.ts.tolist()) if known and all(rostered) else None)
