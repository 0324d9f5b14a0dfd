"""elf's side of ``elf bench ingest``: the stream task of a real agent, fed from a file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import Final

import pyarrow as pa

from agents.disk import sqlite
from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.ranges import split_inputs
from agents.inputs.values import Chunk, Position
from agents.inputs.whole import Whole
from agents.tasks.archive import Archive
from agents.tasks.feeding import CHUNKS_AHEAD
from agents.tasks.samples import sample_lines
from agents.tasks.sinks import Sinks
from agents.tasks.streams import Parsed
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.batch import decode
from elf.fields import replace
from elf.job.commands import Finish, Install
from elf.job.spec import Flow, flow_uid
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.native.binding import SWITCH
from elf.ql.plan import Fragment
from lab.bench.measure import Done, Run, Task, plan_of, timed
from lab.bench.pipeline import NO_CHECKPOINTS

CUT_MS: Final = 5_000
LATENESS_US: Final = 2_000_000
"""As in an agent, by default."""
ROLL_BYTES: Final = 64 << 20


def run_lane(task: Task) -> Run:
    """One run of the stream task."""
    return timed(task, prepare(task))


def prepare(task: Task) -> Callable[[], Done]:
    """A stream task with the query's flows installed."""
    if not task.native:
        os.environ[SWITCH] = "off"
    paths = (task.path,)
    format_ = get_format(task.format)
    samples = sample_lines(paths)
    plan = plan_of(task.query, format_.schema(pa.array(samples, pa.string()), None))
    live = task.durable is not None
    settings = WorkerSettings(
        finite=not live,
        future_us=None,
        lateness_us=LATENESS_US if live else None,
        since_us=LONG_AGO,
        checkpoint_ms=CUT_MS if live else NO_CHECKPOINTS,
    )
    if task.durable is False:
        os.fsync = _at_once
        sqlite.SYNCHRONOUS = "OFF"
    facts = TaskStatus(plan.fragment.stream, format_, None, "")
    folder = tempfile.TemporaryDirectory(prefix="elf-bench-")
    archive = archive_in(Path(folder.name), facts.stream) if task.archive else None
    store = Store(Path(folder.name) / "state.sqlite" if live else ":memory:")
    stream_task = StreamTask(facts, settings, store, sinks=Sinks(archive), samples=samples, cores=task.cores)
    for flow in flows(plan.fragment, task.jobs, task.distinct):
        stream_task.perform(Install(flow), 0)
    source = Whole(split_inputs(paths, 1)[0])

    def work() -> Done:
        _feed(source, stream_task, task.chunk_bytes)
        last = stream_task.perform(Finish(), _now_ms()).sealed
        made = [one for flow in stream_task.worker.flows() for one in store.snapshots(flow)] if live else last
        sealed = [one for one in made if one.payload]
        stream_task.ship()
        store.close()
        folder.cleanup()
        first = [decode(one.payload) for one in sealed if one.flow == sealed[0].flow]
        return Done(stream_task.counts.rows_read, pa.concat_tables(first) if first else pa.table({}))

    return work


def flows(fragment: Fragment, jobs: int, distinct: int) -> list[Flow]:
    """So many flows in so many fragments, which say the same in other words."""
    words = [
        replace(
            fragment,
            map_sql=fragment.map_sql if not n else f"SELECT * FROM ({fragment.map_sql}) /* {n} */",
        )
        for n in range(min(jobs, distinct))
    ]
    chosen = [words[n % len(words)] for n in range(jobs)]
    return [Flow(flow_uid(each, f"bench {n}"), each, bytes(16), "") for n, each in enumerate(chosen)]


def _feed(source: Whole, stream_task: StreamTask, chunk_bytes: int) -> None:
    """As an agent does it: this thread reads, others parse ahead, one more is the stream task's, and one
    ships."""
    free = Semaphore(CHUNKS_AHEAD)
    fed: list[Future[None]] = []
    with ThreadPoolExecutor(1) as shipper, ThreadPoolExecutor(1) as own:

        def feed(chunk: Chunk, positions: tuple[Position, ...], ahead: Future[Parsed] | None) -> None:
            stream_task.feed(chunk, positions, _now_ms(), ahead)
            if stream_task.unshipped:
                fed.append(shipper.submit(stream_task.ship))

        while (chunk := source.read(chunk_bytes, 0)) is not None:
            free.acquire()
            ahead = stream_task.ahead.parse(chunk, stream_task.worker.wanted)
            future = own.submit(feed, chunk, source.positions(), ahead)
            future.add_done_callback(lambda _: free.release())
            fed.append(future)
    for each in fed:
        each.result()


def _at_once(fd: object) -> None:
    """For an ``os.fsync`` that waits for nothing."""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def archive_in(folder: Path, stream: str) -> Archive:
    """An archive of its own."""
    return Archive(
        folder / "rolls",
        str(folder / "archive"),
        stream=stream,
        agent="bench",
        roll_secs=NO_CHECKPOINTS,
        roll_bytes=ROLL_BYTES,
        facts={},
    )
