"""A map that fails on rows that had waited for it: they are counted as rejected in their panes, and named."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from agents.formats import get_format
from agents.inputs.values import Chunk, Source
from agents.tasks.streams import StreamEngine
from elf.batch import decode
from elf.job.commands import Feed, Finish, Install, Outcome
from elf.job.ports import MapFailed, MapperPort
from elf.job.spec import Flow
from elf.job.worker.stream import StreamWorker, WorkerSettings
from elf.ql.plan import Fragment
from elf.ql.planner import plan_text
from elf.schema import Column, Schema

SCHEMA = Schema((Column("ts", "timestamp"), Column("n", "bigint")), event_time="ts")
SETTINGS = WorkerSettings(idle_ms=5_000, future_us=None, checkpoint_ms=10**9, agent="a:1")
IN_SECONDS = "SELECT SUM(n) AS n FROM log WINDOWING 1 SECONDS"
BY_COUNT = "SELECT SUM(n) AS n FROM log WINDOWING 4 ROWS"


class Mapper(MapperPort):
    """Fails on the rows of number 13."""

    def __init__(self, mapper: MapperPort) -> None:
        self._mapper = mapper

    def prepare(self) -> None:
        self._mapper.prepare()

    def run(self, rows: pa.Table) -> pa.Table:
        if 13 in rows["n"].to_pylist():
            raise MapFailed("the map fails: no memory", rows.num_rows, None)
        return self._mapper.run(rows)

    def close(self) -> None:
        self._mapper.close()


class Engine(StreamEngine):
    def mapper(self, fragment: Fragment) -> MapperPort:
        return Mapper(super().mapper(fragment))


def fed(worker: StreamWorker, rows: list[tuple[int, int]], start: int, source: str = "file") -> Outcome:
    lines = [f'{{"ts":{1_700_000_000 + ts},"n":{n}}}' for ts, n in rows]
    offsets = np.arange(start, start + len(rows), dtype=np.int64)
    array = pa.array(lines, pa.string())
    chunk = Chunk(Source(source, source), start, start + len(rows), array, offsets, (), False)
    return worker.handle(Feed(chunk, 0))


def counted(outcomes: list[Outcome]) -> dict[int, Counter[str]]:
    """What was counted in each pane of all that was sealed."""
    found: dict[int, Counter[str]] = {}
    for one in (sealed for outcome in outcomes for sealed in outcome.sealed if sealed.counters):
        for row in decode(one.counters).to_pylist():
            counts = Counter({name: row[name] for name in ("rows_in", "rejected") if row[name]})
            found[row["_pane"]] = found.get(row["_pane"], Counter()) + counts
    return found


@pytest.mark.parametrize(
    ("sql", "expected"),
    [(IN_SECONDS, {"rejected": 4}), (BY_COUNT, {"rows_in": 1, "rejected": 3})],
    ids=["seconds", "rows"],
)
def test_rows_that_waited_for_a_map_that_fails_are_rejected_where_they_were_counted(
    sql: str, expected: dict[str, int]
) -> None:
    flow = Flow("f" * 24, plan_text(sql, SCHEMA).fragment, bytes(16), "home")
    worker = StreamWorker("log", SETTINGS, Engine(get_format("json"), "ts"), None)
    worker.handle(Install(flow))
    outcomes = [fed(worker, [(0, 1), (0, 13), (0, 2)], 0), fed(worker, [(0, 5)], 0, "other")]
    outcomes.append(worker.handle(Finish()))
    assert list(counted(outcomes).values()) == [expected]
    (failed,) = {text for outcome in outcomes for _, text in outcome.failed}
    assert failed.startswith("the map fails: no memory (")
    assert failed.endswith(" rows that waited for it are lost)")
    worker.checkpoint()
    worker.close()
