"""Windows of rows: the same whatever the chunks, through cuts, restarts and rotations, counted row by row."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.formats import get_format
from agents.inputs.values import Chunk, Source
from agents.tasks.streams import StreamEngine
from elf.batch import decode
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import Feed, Finish, Idle, Install, Resume, Suspend
from elf.job.snapshots import Sealed
from elf.job.spec import Flow
from elf.job.worker.stream import StreamWorker, WorkerSettings
from elf.ql.planner import plan_text
from elf.schema import Column, Schema

SCHEMA = Schema((Column("ts", "timestamp"), Column("host", "text"), Column("n", "bigint")), event_time="ts")
SIZE = 7
PLAN = plan_text(
    f"SELECT host, SUM(n), COUNT(DISTINCT n) FROM log WHERE n > 2 GROUP BY host WINDOWING {SIZE} ROWS", SCHEMA
)
FLOW = Flow("f" * 24, PLAN.fragment, bytes(16), "home")
SETTINGS = WorkerSettings(idle_ms=5_000, future_us=None, checkpoint_ms=10**9, agent="a:1")

Row = tuple[int, str, int]
Windows = dict[tuple[str, int], Counter[str]]
"""By source and number: the sum of ``n`` by host, and of each host's distinct values of it how many rows."""

row = st.tuples(st.integers(0, 20), st.sampled_from("ab"), st.integers(0, 6))
files = st.lists(st.lists(row, max_size=40), min_size=1, max_size=3)


def worker(checkpoint: StreamCheckpoint | None = None) -> StreamWorker:
    return StreamWorker("log", SETTINGS, StreamEngine(get_format("json"), "ts"), checkpoint)


def chunk(source: Source, rows: list[Row], start: int) -> Chunk:
    lines = [f'{{"ts":{1_700_000_000 + ts},"host":"{host}","n":{n}}}' for ts, host, n in rows]
    offsets = np.arange(start, start + len(rows), dtype=np.int64)
    return Chunk(source, start, start + len(rows), pa.array(lines, pa.string()), offsets, (), False)


def made(sealed: list[Sealed]) -> tuple[Windows, int]:
    """(what each window has, rows that were counted). A window is whole in one slice, and in one pane."""
    found: Windows = {}
    counted = 0
    for one in sealed:
        panes: dict[tuple[str, int], set[int]] = {}
        for r in decode(one.payload).to_pylist() if one.payload else ():
            window = (r["window_source"], r["window_number"])
            panes.setdefault(window, set()).add(r["_pane"])
            assert one.start <= r["_pane"] < one.end
            at = found.setdefault(window, Counter())
            if r["c0"] is None:
                at["sum " + r["k0"]] += int(r["s1_sum"])
                at["rows"] += r["s0_count"]
            else:
                at[f"{r['k0']} {r['c0']}"] += r["cell_count"]
        assert all(len(each) == 1 for each in panes.values())
        counted += sum(t["rows_in"] for t in decode(one.counters).to_pylist()) if one.counters else 0
    return found, counted


def obvious(rows: list[Row], name: str) -> Windows:
    """Row by row."""
    found: Windows = {}
    for place, (_, host, n) in enumerate(one for one in rows if one[2] > 2):
        at = found.setdefault((name, place // SIZE + 1), Counter())
        at["sum " + host] += n
        at["rows"] += 1
        at[f"{host} {n}"] += 1
    return found


@settings(max_examples=25)
@given(files, st.integers(1, 25), st.integers(0, 2**32))
def test_chunks_cuts_and_restarts_change_nothing(logs: list[list[Row]], most: int, seed: int) -> None:
    """What is cut is durable; a crash goes back to the last checkpoint, and reads again more than it must."""
    rng = random.Random(seed)
    at = worker()
    at.handle(Install(FLOW))
    durable: list[Sealed] = []
    saved = msgspec.msgpack.encode(at.checkpoint())
    read = [0] * len(logs)
    while any(place < len(log) for place, log in zip(read, logs, strict=True)):
        if rng.random() < 0.1:
            at.close()
            checkpoint = msgspec.msgpack.decode(saved, type=StreamCheckpoint)
            at = worker(checkpoint)
            ends = {source.id: source.end for source in checkpoint.sources}
            read = [max(0, ends.get(f"file {i}", 0) - rng.randrange(4)) for i in range(len(logs))]
        number = rng.choice([i for i, log in enumerate(logs) if read[i] < len(log)])
        rows = logs[number][read[number] : read[number] + rng.randrange(1, most + 1)]
        source = Source(f"file {number}", f"/log/{number}")
        outcome = at.handle(Feed(chunk(source, rows, read[number]), 0))
        read[number] += len(rows)
        if outcome.checkpoint is not None:
            saved = msgspec.msgpack.encode(outcome.checkpoint)
            durable.extend(outcome.sealed)
    durable.extend(at.handle(Finish()).sealed)
    at.close()
    wanted: Windows = {}
    for number, log in enumerate(logs):
        wanted |= obvious(log, f"a:1/log/{number}")
    assert made(durable) == (wanted, sum(map(len, logs)))


def rows_of(count: int, ts: int = 0) -> list[Row]:
    return [(ts, "a", 3)] * count


def test_a_file_goes_on_where_the_one_before_it_ended_and_keeps_its_name() -> None:
    """Rotated: renamed while it has rows to read, a new file in its place. Then both are gone."""
    at = worker()
    at.handle(Install(FLOW))
    old, new = Source("1", "/log/x"), Source("2", "/log/x")
    at.handle(Feed(chunk(old, rows_of(4), 0), 0))
    at.handle(Feed(chunk(new, rows_of(1), 0), 0))
    at.handle(Feed(chunk(Source("1", "/log/x.1"), rows_of(4), 4), 0))
    at.handle(Idle(0, ("1",)))
    sealed = [*at.handle(Feed(chunk(new, rows_of(1, 5), 1), 0)).sealed]
    assert {window: at["rows"] for window, at in made(sealed)[0].items()} == {("a:1/log/x", 1): SIZE}
    sealed = [*at.handle(Idle(0, ("2",))).sealed, *at.handle(Finish()).sealed]
    at.close()
    assert {window: at["rows"] for window, at in made(sealed)[0].items()} == {("a:1/log/x", 2): 3}


def test_what_is_dropped_is_counted_as_shed_and_the_next_window_is_another() -> None:
    at = worker()
    at.handle(Install(FLOW))
    source = Source("1", "/log/x")
    at.handle(Feed(chunk(source, rows_of(SIZE + 3), 0), 0))
    at.handle(Suspend(FLOW.uid))
    at.handle(Feed(chunk(source, rows_of(2), SIZE + 3), 0))
    at.handle(Resume(FLOW.uid))
    sealed = [*at.handle(Feed(chunk(source, rows_of(SIZE, 5), SIZE + 5), 0)).sealed]
    sealed += at.handle(Finish()).sealed
    at.close()
    assert {window: at["rows"] for window, at in made(sealed)[0].items()} == {("a:1/log/x", 3): SIZE}
    counters = [row for one in sealed for row in (decode(one.counters).to_pylist() if one.counters else ())]
    assert sum(row["shed"] for row in counters) == SIZE + 3 + 2
