"""Open panes that may have less memory: the rest is on disk, no window differs, and a checkpoint has all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.tasks.spill import SpillFolder
from elf.batch import decode
from elf.job.commands import Feed, Finish, Install, Outcome, SetMemory
from elf.job.ports import Spill
from elf.job.worker.stream import WEIGHED_EVERY_MS, StreamWorker, WorkerSettings
from lab.chaos.engine import SECOND, PyEngine
from tests.support.chunks import FLOW, chunk

SETTINGS = WorkerSettings(future_us=None, lateness_us=SECOND, checkpoint_ms=10**9, name="web-1")
KEYS, CHUNKS = 30_000, 6
MOST = 512 << 10


@pytest.fixture
def begun(tmp_path: Path) -> Callable[[str], StreamWorker]:
    """Makes workers that spill to files."""

    def make(name: str) -> StreamWorker:
        spill = Spill(64 << 20, lambda flow: SpillFolder(tmp_path / name / flow))
        worker = StreamWorker("s", SETTINGS, PyEngine(), spill=spill)
        worker.handle(Install(FLOW))
        return worker

    return make


def fed(worker: StreamWorker, place: int) -> Outcome:
    """Keys of which a third is new with each chunk."""
    keys = range(place * KEYS // 3, place * KEYS // 3 + KEYS)
    rows = [(SECOND // 2, f"some longer key {key * 2654435761 % 2**32:x}") for key in keys]
    return worker.handle(Feed(chunk(rows, place * KEYS), place * WEIGHED_EVERY_MS))


def sums(outcome: Outcome) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in outcome.sealed:
        for row in decode(one.payload).to_pylist() if one.payload else ():
            found[row["k0"]] += int(row["s0"])
    return found


def test_a_flow_that_may_have_less_memory_has_the_rest_on_disk(begun: Callable[[str], StreamWorker]) -> None:
    free, bound = begun("free"), begun("bound")
    for place in range(CHUNKS):
        if place == 2:
            bound.handle(SetMemory(((FLOW.uid, MOST), ("gone", None))))
        whole, held = (fed(worker, place).work[FLOW.uid] for worker in (free, bound))
    assert whole["spilled_bytes"] == 0
    assert whole["memory_bytes"] > 2 * MOST
    assert held["memory_bytes"] <= MOST
    assert held["pinned_bytes"] <= MOST // 2
    assert held["spilled_bytes"] > 0
    assert sums(bound.handle(Finish())) == sums(free.handle(Finish()))
