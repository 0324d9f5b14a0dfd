"""The sides of ``elf bench sliding``: a process of its own each, one thread."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa

from agents.committing import panecommits, windowcommits
from agents.committing.kept import Kept
from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs import Whole, split_inputs
from agents.lanes.engine import Finisher
from agents.lanes.feeding import CHUNK_BYTES_MAX
from agents.lanes.lane import Lane, LaneFacts
from agents.lanes.samples import sample_lines
from elf.batch import decode, encode
from elf.bench.measure import peak_rss_bytes
from elf.bench.query import plan_of
from elf.bench.sides import THREADS, answer
from elf.bench.sliding import TOP_ROWS, Answer, Job
from elf.job.commands import Finish, Install
from elf.job.contributions import Piece
from elf.job.effects import CommitPanes, CommitWindows, Coverage
from elf.job.snapshots import Sealed
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow, JobSpec, flow_uid
from elf.job.worker.stream import LONG_AGO, WorkerSettings

NO_CUTS = 1 << 60
Rows = list[tuple[int, str, int]]


@dataclass
class Stages:
    """Seconds by name, one after the other."""

    found: dict[str, float] = field(default_factory=dict)
    at: float = field(default_factory=time.perf_counter)

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.found[name], self.at = now - self.at, now


class Master:
    """The home of the job: commits what the lane sealed, and its windows."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.store = Store(":memory:")
        self.finisher = Finisher(spec.plan.final_sql)
        self.kept = Kept()
        self.rows: list[pa.Table] = []

    def panes(self, start: int, end: int, tally: bytes, payload: bytes) -> None:
        piece = Piece(start, end, 1, tally, payload)
        panecommits.commit_panes(CommitPanes(self.spec.flows[0], start, end, (piece,), 0, 1, 0), self.store)

    def windows(self, first_us: int, last_us: int, panes: tuple[int, int]) -> None:
        """Those that end in ``(first_us, last_us]``, of these committed panes."""
        coverage = (Coverage(self.spec.flows[0].uid, *panes, 0, 1, 1),)
        effect = CommitWindows(self.spec, first_us, last_us, coverage, (), last_us >= END_OF_TIME)
        done = windowcommits.commit_windows(effect, self.store, self.finisher, "home", self.kept)
        if done.result is not None:
            self.rows.append(decode(done.result.payload))

    def answer(self) -> Rows:
        found: Rows = []
        for table in self.rows:
            if table.num_rows:
                starts = table["window_start"].cast(pa.int64()).to_pylist()
                sums = map(int, table["clicks"].to_pylist())
                found.extend(zip(starts, table["product"].to_pylist(), sums, strict=True))
        return found


def spec_of(job: Job) -> tuple[JobSpec, Lane, Whole]:
    """The job, a lane with its flow installed, and its input."""
    where = f"WHERE store = '{job.store}'" if job.store else ""
    return installed(job.path, where, f"{job.size_s} SECONDS SLIDE {job.slide_s} SECONDS")


def installed(path: str, where: str, windowing: str) -> tuple[JobSpec, Lane, Whole]:
    """The top rows of these windows as a job, a lane with its flow installed, and its input."""
    sql = (
        f"SELECT product, SUM(clicks_count) AS clicks FROM input {where} GROUP BY product "
        f"ORDER BY clicks DESC LIMIT {TOP_ROWS} WINDOWING {windowing}"
    )
    format_, samples = get_format("json"), sample_lines((path,))
    plan = plan_of(sql, format_.schema(pa.array(samples, pa.string()), None))
    settings = WorkerSettings(
        finite=True, future_us=None, lateness_us=None, since_us=LONG_AGO, cut_ms=NO_CUTS
    )
    facts = LaneFacts(plan.fragment.stream, format_, None, "")
    lane = Lane(facts, settings, Store(":memory:"), samples=samples)
    flow = Flow(flow_uid(plan.fragment, "bench"), plan.fragment, bytes(16), "")
    lane.perform(Install(flow), 0)
    return JobSpec("bench", "bench", 1, plan, (flow,)), lane, Whole(split_inputs((path,), 1)[0])


def sealed_of(lane: Lane, source: Whole) -> Sealed:
    """Read everything."""
    while not source.exhausted:
        chunk = source.read(CHUNK_BYTES_MAX, 0)
        if chunk is not None:
            lane.feed(chunk, source.positions(), 0)
    (sealed,) = lane.perform(Finish(), 0).sealed
    return sealed


def run_elf(job: Job) -> Answer:
    """Everything at once, as ``elf run``."""
    spec, lane, source = spec_of(job)
    master = Master(spec)
    stages = Stages()
    sealed = sealed_of(lane, source)
    stages.end("lane")
    master.panes(sealed.start, sealed.end, sealed.tally, sealed.payload)
    stages.end("panes")
    master.windows(START_OF_TIME, END_OF_TIME, (sealed.start, sealed.end))
    stages.end("windows")
    return answered(sum(stages.found.values()), master.answer(), stages.found)


def run_live(job: Job) -> Answer:
    """Pane by pane: each is committed, then the window that it completes."""
    spec, lane, source = spec_of(job)
    sealed = sealed_of(lane, source)
    groups, tally = decode(sealed.payload), decode(sealed.tally)
    numbers = np.unique(groups["_pane"].to_numpy())
    first, last = int(numbers[0]), int(numbers[-1])
    size = job.size_s // job.slide_s
    master, slides, slide_us = Master(spec), [], job.slide_s * 1_000_000
    for pane in range(first, last + size):
        inside = [encode(_of_pane(table, pane)) for table in (tally, groups)]
        began = time.perf_counter()
        master.panes(pane, pane + 1, *inside)
        master.windows(pane * slide_us, (pane + 1) * slide_us, (first, pane + 1))
        slides.append(time.perf_counter() - began)
    return answered(sum(slides), master.answer(), {}, [1_000 * seconds for seconds in slides])


def _of_pane(table: pa.Table, pane: int) -> pa.Table:
    return table.filter(pa.array(table["_pane"].to_numpy() == pane))


def run_duckdb(job: Job) -> Answer:
    """One batch query."""
    connection = duckdb.connect(config={"threads": THREADS})
    sql = duckdb_sql(job.path, job.size_s * 1000, job.slide_s * 1000, job.store)
    began = time.perf_counter()
    rows = connection.execute(sql).fetchall()
    return answered(time.perf_counter() - began, rows, {})


def duckdb_sql(path: str, size_ms: int, slide_ms: int, store: str | None) -> str:
    """The top rows of each window (its start in µs), by panes as long as the slide."""
    also, where = (", store: 'VARCHAR'", f"WHERE store = '{store}'") if store else ("", "")
    source = (
        f"read_json('{path}', format='newline_delimited', "
        f"columns={{created_at: 'BIGINT', product: 'VARCHAR', clicks_count: 'BIGINT'{also}}})"
    )
    return f"""
        WITH panes AS (
          SELECT created_at // {slide_ms} AS pane, product, SUM(clicks_count)::BIGINT AS clicks
          FROM {source} {where} GROUP BY ALL),
        sums AS (
          SELECT pane - back AS slot, product, SUM(clicks)::BIGINT AS clicks
          FROM panes, range({size_ms // slide_ms}) AS g(back) GROUP BY ALL),
        ranked AS (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY slot ORDER BY clicks DESC, product) AS place FROM sums)
        SELECT slot * {slide_ms} * 1000, product, clicks FROM ranked WHERE place <= {TOP_ROWS}
        ORDER BY slot, place"""


def answered(
    seconds: float,
    rows: Iterable[tuple[int, str, int]],
    stages: dict[str, float],
    slides: Sequence[float] = (),
) -> Answer:
    """What to say of an answer."""
    found = list(rows)
    digest = hashlib.sha1(repr(found).encode()).hexdigest()
    return Answer(seconds, peak_rss_bytes(), len(found), digest, stages, list(slides))


def main() -> None:
    sides: dict[str, Callable[[Job], Answer]] = {"elf": run_elf, "live": run_live, "duckdb": run_duckdb}
    answer(Job, lambda job: sides[job.engine](job))


if __name__ == "__main__":
    main()
