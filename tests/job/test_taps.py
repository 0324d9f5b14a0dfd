"""Rows for jobs in Python: each is given once, whoever crashes, as far as the job's own checkpoint goes."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from elf.batch import decode
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import Feed, Idle, Outcome, SetTaps, TapsKept
from elf.job.program.spec import Tap
from elf.job.worker.stream import StreamWorker, WorkerSettings
from lab.chaos.engine import SECOND, PyEngine, plan
from tests.support.chunks import Rows, chunk

SETTINGS = WorkerSettings(idle_ms=5_000, future_us=None, lateness_us=SECOND, checkpoint_ms=10**9)
TAP = Tap("main", plan().fragment, (("k0", "key"),), (("s0", "n"),))
UID = "u"

rows_of_a_log = st.lists(st.tuples(st.integers(0, 60 * SECOND), st.sampled_from("abc")), max_size=60)


class _Job:
    """Takes what it is given once, and remembers what was durable."""

    def __init__(self) -> None:
        self.has: tuple[Counter[str], int] = (Counter(), 0)
        self.durable = self.has

    def take(self, outcome: Outcome) -> None:
        for one in outcome.tapped:
            counts, end = self.has
            if one.end > end:
                rows = decode(one.payload).to_pylist() if one.payload else []
                self.has = counts + Counter({row["k0"]: row["s0"] for row in rows}), one.end


@given(rows_of_a_log, st.integers(1, 7), st.integers(0, 1 << 30))
def test_each_row_is_given_once_through_crashes(rows: Rows, chunk_rows: int, seed: int) -> None:
    """The job's checkpoint may be behind the stream's, and before it; chunks come out in other sizes."""
    rng, job = random.Random(seed), _Job()
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(SetTaps(UID, (TAP,)))
    stored, position = _stored(worker), 0
    while position < len(rows):
        some = rows[position : position + rng.randint(1, chunk_rows)]
        outcome = worker.handle(Feed(chunk(some, position), 0))
        position += len(some)
        job.take(outcome)
        if rng.random() < 0.3:
            stored = _stored(worker)
        if rng.random() < 0.3:
            job.durable = job.has
            if rng.random() < 0.7:
                worker.handle(TapsKept(UID, (("main", "log", job.durable[1]),)))
        if rng.random() < 0.2:
            job.has = job.durable
            given_ = {UID: {("main", "log"): job.durable[1]}}
            worker = StreamWorker("s", SETTINGS, PyEngine(), stored, given=given_)
            position = stored.sources[0].end if stored.sources else 0
            if rng.random() < 0.5:
                job.take(worker.handle(Idle(0)))
            worker.handle(SetTaps(UID, (TAP,)))
    job.take(worker.handle(Idle(0)))
    assert job.has[0] == Counter(key for _, key in rows)


def _stored(worker: StreamWorker) -> StreamCheckpoint:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(worker.checkpoint()), type=StreamCheckpoint)


def test_what_is_durable_with_the_job_is_in_no_further_checkpoint() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(SetTaps(UID, (TAP,)))
    for start in (0, 1, 2):
        worker.handle(Feed(chunk([(0, "a")], start), 0))
    worker.handle(TapsKept(UID, (("main", "log", 2),)))
    (taps,) = worker.checkpoint().taps
    assert [one.end for one in taps.unkept] == [3]
    worker.handle(SetTaps(UID, ()))
    assert worker.checkpoint().taps == ()


def test_the_end_of_panes_is_told_once_each_and_waits_for_late_rows() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(SetTaps(UID, (TAP,), 2 * SECOND))
    told = []
    for second in (0, 1, 3, 4, 5, 9):
        outcome = worker.handle(Feed(chunk([(second * SECOND, "a")], second), 0))
        told += [one.until_us // (2 * SECOND) for one in outcome.tapped if not one.name]
    assert told == [-1, 0, 1, 2, 4], "a second behind the rows"
