"""What an agent's stream task, a root and a job group do, in one process: the parts of which sides are
made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from agents.committing import panecommits, windowcommits
from agents.committing.kept import Kept
from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.ranges import split_inputs
from agents.inputs.whole import Whole
from agents.tasks.archive import Archive
from agents.tasks.feeding import CHUNK_BYTES_MAX
from agents.tasks.finishing import finisher_of
from agents.tasks.samples import sample_lines
from agents.tasks.sinks import Sinks
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.batch import decode
from elf.job.commands import Finish, Install, Outcome
from elf.job.contributions import Piece
from elf.job.effects import CommitPanes, CommitWindows, Coverage
from elf.job.snapshots import Sealed
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow, JobSpec, flow_uid
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.ql.plan import Plan
from lab.bench.measure import plan_of
from lab.chaos.engine import spec_of

NO_CHECKPOINTS: Final = 1 << 60
Rows = list[tuple[int, str, int]]


def plan_over(path: str, sql: str, format: str = "json") -> Plan:
    """The plan of one SELECT over a file of lines of that format."""
    return plan_of(sql, get_format(format).schema(pa.array(sample_lines((path,)), pa.string()), None))


def flow_of(plan: Plan) -> Flow:
    """The plan's only flow."""
    return Flow(flow_uid(plan.fragment, "bench"), plan.fragment, bytes(16), "")


def lane_with(
    path: str, flows: Sequence[Flow], format: str = "json", archive: Archive | None = None
) -> tuple[StreamTask, Whole]:
    """A stream task with these flows installed, and its input: a file of lines of that format."""
    settings = WorkerSettings(
        finite=True, future_us=None, lateness_us=None, since_us=LONG_AGO, checkpoint_ms=NO_CHECKPOINTS
    )
    facts = TaskStatus(flows[0].fragment.stream, get_format(format), None, "")
    task = StreamTask(facts, settings, Store(":memory:"), sinks=Sinks(archive), samples=sample_lines((path,)))
    for flow in flows:
        task.perform(Install(flow), 0)
    return task, Whole(split_inputs((path,), 1)[0])


def read_all(task: StreamTask, source: Whole) -> Outcome:
    """Feed the stream task everything, and seal."""
    while not source.exhausted:
        chunk = source.read(CHUNK_BYTES_MAX, 0)
        if chunk is not None:
            task.feed(chunk, source.positions(), 0)
            task.ship()
    return task.perform(Finish(), 0)


SUMMED: Final = {
    "json": ("product", "SUM(clicks_count)"),
    "combined": ("cs_uri_stem", "COUNT(*)"),
}
"""By format, the key of a job on clicks, and what is counted of each."""


class Clicks:
    """One job on a file of clicks (``lab.bench.sliding.generate``): the first products of each window."""

    def __init__(
        self,
        path: str,
        windowing: str,
        top: int,
        store: str | None = None,
        format: str = "json",
        archive: Archive | None = None,
    ) -> None:
        where = f"WHERE store = '{store}'" if store else ""
        key, summed = SUMMED[format]
        plan = plan_over(
            path,
            f"SELECT {key} AS product, {summed} AS clicks FROM input {where} GROUP BY {key} "
            f"ORDER BY clicks DESC LIMIT {top} WINDOWING {windowing}",
            format,
        )
        flow = flow_of(plan)
        self.master = Master(spec_of("bench", "bench", 1, plan, (flow,)))
        self._task, self._source = lane_with(path, [flow], format, archive)

    def sealed(self) -> Sealed:
        """Read everything, as an agent's stream task does."""
        (sealed,) = read_all(self._task, self._source).sealed
        return sealed


class Master:
    """The job group of the job: commits what the stream task sealed, and its windows."""

    def __init__(self, spec: JobSpec, store: Store | None = None) -> None:
        self.spec = spec
        self.store = store or Store(":memory:")
        self.finisher = finisher_of(spec.plan)
        self.kept = Kept()
        self.rows: list[pa.Table] = []

    def commit(self, sealed: Sealed) -> None:
        """All panes of it."""
        self.panes(sealed.start, sealed.end, sealed.counters, sealed.payload)

    def panes(self, start: int, end: int, counters: bytes, payload: bytes) -> None:
        """Commit these panes."""
        pieces = (Piece(start, end, 1, counters, payload),)
        panecommits.commit_panes(CommitPanes(self.spec.flows[0], start, end, pieces, 0, 1, 0), self.store)

    def finish(self, sealed: Sealed) -> None:
        """All windows, of its panes."""
        self.windows(START_OF_TIME, END_OF_TIME, (sealed.start, sealed.end))

    def windows(self, first_us: int, last_us: int, panes: tuple[int, int]) -> None:
        """Those that end in ``(first_us, last_us]``, of these committed panes."""
        coverage = (Coverage(self.spec.flows[0].uid, *panes, 0, 1, 1),)
        effect = CommitWindows(self.spec, first_us, last_us, coverage, (), last_us >= END_OF_TIME)
        done = windowcommits.commit_windows(effect, self.store, self.finisher, "home", self.kept)
        if done.result is not None:
            self.rows.append(decode(done.result.payload))

    def answer(self) -> Rows:
        """The windows' rows: (start in µs, product, clicks)."""
        found: Rows = []
        for table in self.rows:
            if table.num_rows:
                starts = table["window_start"].cast(pa.int64()).to_pylist()
                sums = map(int, table["clicks"].to_pylist())
                found.extend(zip(starts, table["product"].to_pylist(), sums, strict=True))
        return found
