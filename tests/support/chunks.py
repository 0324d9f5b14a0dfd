"""Chunks of rows for workers, the flow that they are for, and what it has to make of them."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from elf.batch import decode
from elf.job.snapshots import Sealed
from elf.job.spec import Flow
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from lab.chaos.engine import SECOND, Chunk, Source, plan

FLOW = Flow("f" * 24, plan(2).fragment, bytes(16), "home")

Rows = list[tuple[int, str]]

SETTINGS = WorkerSettings(idle_ms=5_000, future_us=None, lateness_us=SECOND, checkpoint_ms=10**9)

moments = st.integers(0, 60).map(lambda t: t * SECOND // 4)
rows_of_a_log = st.lists(st.tuples(moments, st.sampled_from("abc")), max_size=60)


def chunk(rows: Rows, start: int, source: str = "log") -> Chunk:
    lines = pa.array([f"{ts},{key}" for ts, key in rows], pa.string())
    offsets = np.arange(start, start + len(rows), dtype=np.int64)
    return Chunk(Source(source), start, start + len(rows), lines, offsets)


def panes_of(sealed: list[Sealed]) -> tuple[dict[int, Counter[str]], int]:
    """(counts by pane and key, rows late) of everything that was sealed; ranges must follow each other."""
    counts: dict[int, Counter[str]] = {}
    late = 0
    for before, after in pairwise(sealed):
        assert before.end == after.start
    for one in sealed:
        rows = decode(one.payload).to_pylist() if one.payload else []
        assert len({(row["_pane"], row["k0"]) for row in rows}) == len(rows), "each group is there once"
        for row in rows:
            assert one.start <= row["_pane"] < one.end
            counts.setdefault(row["_pane"], Counter())[row["k0"]] += int(row["s0"])
        late += sum(row["late"] for row in decode(one.counters).to_pylist()) if one.counters else 0
    return counts, late


def obvious(rows: Rows) -> tuple[dict[int, Counter[str]], int]:
    """Row by row: late is what comes when its source is already past the pane's end plus lateness."""
    counts: dict[int, Counter[str]] = {}
    highest, late = LONG_AGO, 0
    lateness = FLOW.fragment.lateness_us or 0
    for ts, key in rows:
        pane = ts // FLOW.fragment.pane_us
        if (pane + 1) * FLOW.fragment.pane_us + lateness <= highest:
            late += 1
        else:
            counts.setdefault(pane, Counter())[key] += 1
        highest = max(highest, ts)
    return counts, late
