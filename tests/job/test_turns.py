"""Flows that take turns make the panes that they would have made at once, only later: through checkpoints and
crashes, and whatever else is asked of them meanwhile."""

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

from agents.disk.store import Store
from agents.tasks.checkpoints import Checkpoints, StoredCheckpoint, load_checkpoint
from elf.batch import decode
from elf.fields import replace
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import (
    Command,
    DropStragglers,
    Feed,
    Finish,
    Idle,
    Install,
    Outcome,
    SetBounds,
    SetMemory,
    SetWeights,
    Suspend,
    TakeCheckpoint,
    Turn,
    Uninstall,
)
from elf.job.ports import Engine, MapFailed
from elf.job.sampling import drawn
from elf.job.snapshots import Sealed
from elf.job.spec import Flow
from elf.job.worker import turns
from elf.job.worker.postponed import Part
from elf.job.worker.stream import StreamWorker
from elf.planning.budgets import WEIGHT_MAX
from elf.planning.turns import CUT_FIRST, CUT_LAST, UNCUT, Bound
from elf.ql.plan import Fragment
from lab.chaos.engine import SECOND, PyEngine, PyMapper
from tests.support.chunks import FLOW, SETTINGS, Rows, chunk, obvious, panes_of, rows_of_a_log

OTHER = replace(FLOW, uid="e" * 24)
FLOWS = (FLOW, OTHER)
WHOSE = "the promise of job me/job"
SOON, LATER = Bound(100.0, CUT_LAST, WHOSE), Bound(5_000.0, CUT_LAST, "the promise of job me/other")
BOUNDS = SetBounds(((FLOW.uid, SOON), (OTHER.uid, LATER)))
ROWS: Rows = [(t * SECOND // 50, "abc"[t % 3]) for t in range(2_000)]


class Spent:
    """A clock: mapping a row takes ``row_us`` of it, for the flows of an engine."""

    def __init__(self, row_us: int = 0) -> None:
        self.row_us, self.us = row_us, 0

    def __call__(self) -> int:
        return self.us


class SpendingMapper(PyMapper):
    def __init__(self, spent: Spent) -> None:
        super().__init__()
        self._spent = spent

    def run(self, rows: pa.Table) -> pa.Table:
        self._spent.us += self._spent.row_us * rows.num_rows
        return super().run(rows)


class SpendingEngine(PyEngine):
    def __init__(self, spent: Spent) -> None:
        super().__init__()
        self._spent = spent

    def mapper(self, fragment: Fragment) -> PyMapper:
        return SpendingMapper(self._spent)


def begun(
    checkpoint: StreamCheckpoint | None = None,
    spent: Spent | None = None,
    bounds: SetBounds = BOUNDS,
    engine: Engine | None = None,
) -> StreamWorker:
    clock = spent or Spent()
    engine = engine or SpendingEngine(clock)
    worker = StreamWorker("s", SETTINGS, engine, checkpoint, cpu_us=clock, clock_us=clock)
    for flow in FLOWS if checkpoint is None else ():
        worker.handle(Install(flow))
    worker.handle(bounds)
    return worker


def fed(worker: StreamWorker, begin: int, end: int, now_ms: int = 0, *, is_live: bool = True) -> Outcome:
    return worker.handle(Feed(chunk(ROWS[begin:end], begin), now_ms, is_live=is_live))


def of(sealed: list[Sealed], flow: Flow) -> list[Sealed]:
    return [one for one in sealed if one.flow == flow.uid]


def counted(sealed: list[Sealed], flow: Flow, name: str) -> int:
    """What all panes of a flow have of a counter."""
    tables = [decode(one.counters) for one in of(sealed, flow) if one.counters]
    return sum(row[name] for table in tables for row in table.to_pylist())


def waits(worker: StreamWorker) -> dict[str, int]:
    """Rows of each flow that wait for a turn."""
    return {flow.uid: sum(one.rows for one in worker.turns.turns.of(flow.uid)) for flow in FLOWS}


def again(worker: StreamWorker) -> StreamCheckpoint:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(worker.checkpoint()), type=StreamCheckpoint)


@given(rows_of_a_log, st.integers(1, 20), st.integers(0, 2**32))
def test_flows_that_take_turns_make_the_same_panes_through_delays_and_crashes(
    rows: Rows, chunk_rows: int, seed: int
) -> None:
    rng = random.Random(seed)
    worker, durable = begun(), list[Sealed]()
    saved, position = msgspec.msgpack.encode(worker.checkpoint()), 0

    def keep(outcome: Outcome) -> bytes:
        assert outcome.checkpoint is not None or not outcome.sealed
        durable.extend(outcome.sealed)
        return saved if outcome.checkpoint is None else msgspec.msgpack.encode(outcome.checkpoint)

    def asked() -> Command:
        draw = rng.random()
        if draw < 0.6:
            return Turn(0, rng.randrange(1, 5))
        return TakeCheckpoint() if draw < 0.8 else Idle(0)

    while position < len(rows):
        if rng.random() < 0.15:  # a crash
            checkpoint = msgspec.msgpack.decode(saved, type=StreamCheckpoint)
            worker = begun(checkpoint)
            position = max((source.end for source in checkpoint.sources), default=0)
        size = rng.randrange(1, chunk_rows + 1)
        saved = keep(worker.handle(Feed(chunk(rows[position : position + size], position), 0)))
        position += len(rows[position : position + size])
        while rng.random() < 0.5:
            saved = keep(worker.handle(asked()))
    keep(worker.handle(Finish()))
    for flow in FLOWS:
        assert panes_of(of(durable, flow)) == obvious(rows)


def test_who_is_in_a_hurry_is_first_and_no_pane_is_sealed_before_its_rows_are_mapped() -> None:
    worker = begun()
    outcome = fed(worker, 0, 500)
    assert not any(one.payload for one in outcome.sealed)
    assert waits(worker) == {FLOW.uid: 500, OTHER.uid: 500}
    assert worker.has_turn(0)
    assert worker.due_us() > ROWS[499][0], "a pane that waits to be sealed is not ended by the next line"
    sealed = list(worker.handle(Turn(0, 1)).sealed)
    assert waits(worker)[FLOW.uid] < 500
    assert waits(worker)[OTHER.uid] == 500
    while worker.has_turn(0):
        sealed += worker.handle(Turn(0)).sealed
    assert {one.flow for one in sealed} == {FLOW.uid, OTHER.uid}
    assert panes_of(of(sealed, FLOW))[0] == panes_of(of(sealed, OTHER))[0]
    assert not worker.turns.turns


def test_one_that_is_done_is_sealed_while_another_waits_but_not_before_what_is_due_sooner() -> None:
    spent = Spent(1_000)
    worker = begun(spent=spent)
    fed(worker, 0, 500)
    found = list[str]()
    for _ in range(1_000):
        if not worker.has_turn(0):
            break
        sealed = [one.flow for one in worker.handle(Turn(0, 1)).sealed]
        assert len(set(sealed)) <= 1
        assert sealed != [FLOW.uid] or waits(worker)[OTHER.uid]
        found += sealed
    assert list(dict.fromkeys(found)) == [FLOW.uid, OTHER.uid]


ENDS = 125
"""The row that says that the first pane is over, at 2.5 seconds."""


def test_what_is_promised_soon_is_mapped_and_sealed_with_the_line_that_ends_its_pane() -> None:
    """Before other chunks, and without a turn of its own."""
    worker = begun()
    assert not [one for one in fed(worker, 0, ENDS, 2_490).sealed if one.payload]
    sealed = [one.flow for one in fed(worker, ENDS, ENDS + 1, 2_501).sealed]
    assert sealed == [FLOW.uid]
    assert waits(worker) == {FLOW.uid: 1, OTHER.uid: ENDS + 1}, "of the next pane nothing comes along"


def test_nothing_is_begun_while_the_line_that_ends_a_pane_is_about_to_be_read() -> None:
    worker = begun()
    fed(worker, 0, ENDS, 2_490)
    assert worker.has_turn(2_490)
    assert not worker.has_turn(2_510)
    assert not worker.handle(Turn(2_510)).sealed
    assert waits(worker) == {FLOW.uid: ENDS, OTHER.uid: ENDS}
    assert worker.has_turn(2_530), "no such line came"
    worker.handle(Idle(2_510))
    assert worker.has_turn(2_511), "nothing was there to be read"


@pytest.mark.parametrize("late_ms", [0, 30])
def test_what_comes_after_the_map_is_told_and_how_late_that_was(late_ms: int) -> None:
    spent = Spent(10)
    worker = begun(spent=spent)
    due_ms = 2_500 + 60
    fed(worker, 0, ENDS, 2_490)
    took_ms = ENDS * spent.row_us // 1_000
    outcome = fed(worker, ENDS, ENDS + 1, due_ms + late_ms - took_ms)
    assert [one.flow for one in outcome.sealed] == [FLOW.uid]
    assert outcome.late_us == late_ms * 1_000
    assert outcome.sealing_us == 0, "by a clock that maps alone move"


class Counting(PyMapper):
    def __init__(self) -> None:
        super().__init__()
        self.runs = list[int]()

    def run(self, rows: pa.Table) -> pa.Table:
        self.runs.append(rows.num_rows)
        return super().run(rows)


class CountingEngine(PyEngine):
    def __init__(self, mapper: Counting) -> None:
        super().__init__()
        self._mapper = mapper

    def mapper(self, fragment: Fragment) -> PyMapper:
        return self._mapper


def test_rows_of_several_weights_are_mapped_by_one_statement() -> None:
    mapper = Counting()
    worker = begun(engine=CountingEngine(mapper))
    for at, weight in ((0, 1), (100, 8), (200, 64)):
        worker.handle(SetWeights(((FLOW.uid, weight, WHOSE),)))
        fed(worker, at, at + 100)
    waiting = waits(worker)[FLOW.uid]
    mapper.runs.clear()
    sealed = list(worker.handle(Finish()).sealed)
    assert mapper.runs == [waiting, 300]
    want = Counter[str]()
    for at, weight in ((0, 1), (100, 8), (200, 64)):
        stay = drawn("log", np.arange(at, at + 100), weight)
        keys = [ROWS[at + place][1] for place in np.flatnonzero(stay)]
        want += Counter({key: weight * count for key, count in Counter(keys).items()})
    assert sum(panes_of(of(sealed, FLOW))[0].values(), Counter[str]()) == want


def overloaded(worker: StreamWorker, *, is_live: bool = True) -> tuple[list[Sealed], Counter[str]]:
    """All rows, those of two seconds in each second, while tasks are done for a second in each."""
    sealed, counts, spent = list[Sealed](), Counter[str](), worker.turns._clock_us
    assert isinstance(spent, Spent)
    for at in range(0, 2_000, 100):
        began = spent.us
        outcomes = [fed(worker, at, at + 100, at * 10, is_live=is_live)]
        while spent.us - began < 1_000_000 and worker.has_turn(at * 10):
            outcomes.append(worker.handle(Turn(at * 10 + (spent.us - began) // 1_000)))
        spent.us = max(spent.us, began + 1_000_000)
        for outcome in outcomes:
            sealed += outcome.sealed
            counts += Counter(outcome.counts)
    sealed += worker.handle(Finish()).sealed
    return sealed, counts


def test_rows_are_cut_short_where_not_all_can_be_in_time_and_their_panes_say_for_whom() -> None:
    """Twice as much as can be done comes."""
    spent = Spent(10_000)
    worker = begun(spent=spent)
    cut = list[str]()
    worker.turns.when_cut = lambda uid, part: cut.append(uid)
    sealed, counts = overloaded(worker)
    assert counts["sampled"] > 500
    told = Counter({flow.uid: counted(sealed, flow, "sampled") for flow in FLOWS})
    assert told.total() == counts["sampled"]
    assert set(cut) == {uid for uid, rows in told.items() if rows}
    for flow in FLOWS:
        assert counted(sealed, flow, "rows_in") == len(ROWS)


def test_of_what_is_cut_short_the_same_rows_stay_as_at_that_weight_and_stand_for_the_others() -> None:
    worker, sealed = begun(spent=Spent(100_000)), list[Sealed]()

    def turns() -> None:
        while worker.has_turn(0):
            sealed.extend(worker.handle(Turn(0, 1)).sealed)

    fed(worker, 0, 200)
    turns()  # what rows take is known now
    fed(worker, 200, 2_000)
    turns()
    sealed.extend(worker.handle(Finish()).sealed)
    stay = int(drawn("log", np.arange(200, 2_000), WEIGHT_MAX).sum())
    for flow in FLOWS:
        counts = sum(panes_of(of(sealed, flow))[0].values(), Counter[str]())
        assert counts.total() == 200 + WEIGHT_MAX * stay
        assert counted(sealed, flow, "sampled") == 1_800 - stay


@pytest.mark.parametrize("bound", ["catches up", "nobody agreed"])
def test_nothing_is_cut_short_in_vain_or_without_leave(bound: str) -> None:
    uncut = SetBounds(((FLOW.uid, Bound(100.0, UNCUT)), (OTHER.uid, Bound(None, UNCUT))))
    worker = begun(spent=Spent(10_000), bounds=BOUNDS if bound == "catches up" else uncut)
    sealed, counts = overloaded(worker, is_live=bound != "catches up")
    assert not counts["sampled"]
    for flow in FLOWS:
        assert panes_of(of(sealed, flow))[0] == obvious(ROWS)[0]


def test_who_gives_way_is_cut_short_first() -> None:
    bounds = SetBounds(((FLOW.uid, Bound(1_000.0, CUT_LAST)), (OTHER.uid, Bound(2_000.0, CUT_FIRST))))
    worker = begun(spent=Spent(8_000), bounds=bounds)
    cut = Counter[str]()

    def told(uid: str, part: Part) -> None:
        cut[uid] += part.rows

    worker.turns.when_cut = told
    overloaded(worker)
    assert cut[OTHER.uid] > 2 * cut[FLOW.uid]


def test_what_is_mapped_in_several_turns_is_one_group_after_a_checkpoint() -> None:
    worker = begun()
    for at in (0, 20):
        fed(worker, at, at + 20)
        worker.handle(Turn(0))
    for one in (worker, begun(again(worker))):
        sealed = list(one.handle(Finish()).sealed)
        assert panes_of(of(sealed, FLOW))[0] == obvious(ROWS[:40])[0]


def test_what_waits_is_bounded_and_what_has_waited_longest_is_mapped_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "BYTES_MAX", 20_000)
    worker = begun()
    for at in range(0, 2_000, 100):
        fed(worker, at, at + 100)
        assert sum(one.nbytes for one in worker.turns.turns.all()) <= 20_000
    assert 0 < min(waits(worker).values()) < 2_000


def test_rows_keep_the_weight_that_they_had_when_they_were_read() -> None:
    worker = begun()
    fed(worker, 0, 100)
    worker.handle(SetWeights(((FLOW.uid, 8, WHOSE),)))
    fed(worker, 100, 200)
    assert [one.weight for one in worker.turns.turns.of(FLOW.uid)] == [1, 8]
    stay = int(drawn("log", np.arange(100, 200), 8).sum())
    for one in (worker, begun(again(worker))):
        sealed = list(one.handle(Finish()).sealed)
        counts = sum(panes_of(of(sealed, FLOW))[0].values(), Counter[str]())
        assert counts.total() == 100 + 8 * stay


def test_who_is_suspended_leapt_or_gone_has_nothing_that_waits() -> None:
    worker = begun()
    fed(worker, 0, 300)
    worker.handle(Suspend(FLOW.uid))
    assert not waits(worker)[FLOW.uid]
    fed(worker, 300, 400)
    assert not waits(worker)[FLOW.uid], "its rows are only counted"
    before = waits(worker)[OTHER.uid]
    worker.handle(DropStragglers(OTHER.uid, ROWS[200][0] // FLOW.fragment.pane_us))
    assert 0 < waits(worker)[OTHER.uid] < before
    worker.handle(Uninstall(OTHER.uid))
    assert not worker.turns.turns


def test_who_may_not_hold_so_much_maps_at_once() -> None:
    worker = begun()
    worker.handle(SetMemory(((FLOW.uid, 1 << 10),)))
    fed(worker, 0, 300)
    assert waits(worker) == {FLOW.uid: 0, OTHER.uid: 300}
    worker.handle(SetBounds(()))
    fed(worker, 300, 600)
    assert waits(worker)[OTHER.uid] <= 300


class Fails(PyMapper):
    """No row of this key is mapped."""

    def run(self, rows: pa.Table) -> pa.Table:
        if "c" in rows["key"].to_pylist():
            raise MapFailed("it fails", rows.num_rows, None)
        return super().run(rows)


class FailingEngine(PyEngine):
    def mapper(self, fragment: Fragment) -> PyMapper:
        return Fails()


def test_rows_on_which_the_map_fails_in_their_turn_are_rejected_with_those_they_stand_for() -> None:
    worker = begun(engine=FailingEngine())
    worker.handle(SetWeights(((FLOW.uid, 8, WHOSE),)))
    rows: Rows = [(0, "a")] * 100 + [(1, "c")] * 100
    for at in (0, 100):
        worker.handle(Feed(chunk(rows[at : at + 100], at), 0))
    outcome = worker.handle(Finish())
    assert {uid for uid, _ in outcome.failed} == {FLOW.uid, OTHER.uid}
    for flow in FLOWS:
        (counted,) = decode(of(list(outcome.sealed), flow)[-1].counters).to_pylist()
        assert (counted["rows_in"], counted["rejected"]) == (100, 100)
    stay = int(drawn("log", np.arange(100), 8).sum())
    assert worker.states()[FLOW.uid].work["rows"] == 200
    (counted,) = decode(of(list(outcome.sealed), FLOW)[-1].counters).to_pylist()
    assert counted["sampled"] == 100 - stay


def test_rows_that_stay_in_the_store_are_written_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    checkpoints, worker = Checkpoints(store, "s"), begun()
    written = list[int]()

    def save() -> None:
        before = store.postponed("s")
        checkpoint = worker.checkpoint()
        checkpoints.save(StoredCheckpoint(checkpoint, (), 0, 0), Outcome(checkpoint=checkpoint))
        after = store.postponed("s")
        written.append(len(after.keys() - before.keys()))
        assert {number: after[number] for number in after.keys() & before.keys()} == {
            number: before[number] for number in after.keys() & before.keys()
        }

    for at in range(0, 400, 100):
        fed(worker, at, at + 100)
        save()
    assert written == [2, 2, 2, 2]
    stored = load_checkpoint(store, "s")
    assert stored is not None
    one, other = begun(stored.worker), worker
    assert waits(one) == waits(other)
    for each in (one, other):
        sealed = list(each.handle(Finish()).sealed)
        assert panes_of(of(sealed, FLOW))[0] == obvious(ROWS[:400])[0]
    worker.handle(Turn(0))
    save()
    assert not store.postponed("s")
    store.close()
