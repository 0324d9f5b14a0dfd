"""A stream task that is fed from files as in an agent without an archive, and what it tells."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.tail import Tail
from agents.logs import get_logger
from agents.tasks.allowance import Allowance
from agents.tasks.feeding import Feeding
from agents.tasks.helping import Helping
from agents.tasks.running import Running
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.job import events as was
from elf.job.spec import Flow
from elf.job.worker.stream import WorkerSettings
from elf.schema import Column, Schema
from lab.bench.measure import STREAM, plan_of
from tests.support.flow_copies import flow_of
from tests.support.waiting import eventually

__all__ = ["STREAM", "Guest", "guest", "lines", "the_flow"]

T = TypeVar("T")
SCHEMA = Schema((Column("ts", "timestamp"), Column("page", "text")), "ts")


def the_flow() -> Flow:
    query = f"SELECT page, COUNT(*) AS n FROM {STREAM} GROUP BY page WINDOWING 1 SECONDS"
    return flow_of(plan_of(query, SCHEMA).fragment)


def lines(first: int, count: int) -> str:
    """One a second."""
    return "".join(
        json.dumps({"ts": f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z", "page": f"/{n}"})
        + "\n"
        for n in range(first, first + count)
    )


class Guest:
    """A stream task that is fed from a file, without an archive; what it tells."""

    def __init__(
        self, logs: Path, store: Store, settings: WorkerSettings, cpu_share: Allowance | None
    ) -> None:
        self.input = Tail([str(logs)])
        facts = TaskStatus(STREAM, get_format("json"), "ts", "")
        self.task = StreamTask(facts, settings, store)
        self.told: list[was.Worked | was.Consulted | was.Ran | was.Helped | was.HeldBack | was.Lagging] = []
        loop = asyncio.get_running_loop()

        def when_done(future: Future[T], then: Callable[[T], None]) -> None:
            future.add_done_callback(lambda done: loop.call_soon_threadsafe(lambda: then(done.result())))

        self.feeding = Feeding(
            [(self.task, self.input)],
            get_logger(),
            now_ms=lambda: int(time.time() * 1000),
            leaving=lambda: False,
            when_done=when_done,
            tell=self.told.append,
            memory_max_bytes=None,
            allowances={} if cpu_share is None else {"cpu_max_share": cpu_share},
            running=Running({}, 0),
            helping=Helping(None),
            receivers={},
        )
        self.resting = self.feeding._streams[STREAM].resting

    async def rests(self) -> None:
        await eventually(lambda: self.resting.asleep and not self.input._files.followers, "it rests", 20)

    async def begun(self) -> int:
        """The first pane of the flow that is being installed."""

        def found() -> list[int]:
            worked = [one for one in self.told if isinstance(one, was.Worked) and one.command == "Install"]
            return [progress.live_from for one in worked for progress in one.outcome.progress]

        return (await eventually(found, "the flow has begun", 20))[0]

    def rows(self) -> int:
        """Of the flow, as it last said."""
        told = [one for one in self.told if isinstance(one, was.Worked) and one.outcome.progress]
        return told[-1].outcome.progress[0].rows if told else 0

    def late(self) -> int:
        """The same of rows that came too late."""
        told = [one for one in self.told if isinstance(one, was.Worked) and one.outcome.progress]
        return told[-1].outcome.progress[0].late if told else 0


@asynccontextmanager
async def guest(
    logs: Path,
    store: Store | None = None,
    settings: WorkerSettings = WorkerSettings(),  # noqa: B008 (it is a value)
    cpu_share: Allowance | None = None,
) -> AsyncIterator[Guest]:
    """It follows ``logs``, a path or a pattern."""
    made = Guest(logs, store or Store(":memory:"), settings, cpu_share)
    reading = [asyncio.ensure_future(one) for one in made.feeding.readers()]
    yield made
    for one in reading:
        one.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await made.feeding.close(clean=False)
