"""A stream that nobody wants is not read; who wants it gets what comes from then on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.tail import KEPT_BYTES, Tail
from agents.logs import get_logger
from agents.tasks import resting
from agents.tasks.feeding import Feeding
from agents.tasks.running import Running
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.job import effects as do
from elf.job import events as was
from elf.job.commands import Install, Uninstall
from elf.job.messages.inquiries import DescribeStream, StreamSeen
from elf.job.spec import Flow
from elf.job.worker.stream import WorkerSettings
from elf.schema import Column, Schema
from lab.bench.measure import STREAM, plan_of
from tests.support.flow_copies import flow_of
from tests.support.waiting import eventually

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

    def __init__(self, log: Path, store: Store) -> None:
        self.input = Tail([str(log)])
        facts = TaskStatus(STREAM, get_format("json"), "ts", "")
        self.task = StreamTask(facts, WorkerSettings(), store)
        self.told: list[was.Worked | was.Consulted | was.Ran] = []
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
            running=Running({}, 0),
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


@asynccontextmanager
async def guest(log: Path, store: Store | None = None) -> AsyncIterator[Guest]:
    made = Guest(log, store or Store(":memory:"))
    reading = [asyncio.ensure_future(one) for one in made.feeding.readers()]
    yield made
    for one in reading:
        one.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await made.feeding.close(clean=False)


async def test_what_nobody_wants_is_not_read(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(lines(0, 100))
    async with guest(log) as agent:
        await agent.rests()
        log.open("a").write(lines(100, 100))
        await asyncio.sleep(0.6)  # some looks at the file, if there were any
        assert agent.task.counts.bytes_read == 0
        assert agent.input.counters.problems == {}
        assert agent.input._files.scanned_ms is None


async def test_a_flow_begins_after_all_that_was_written_before_it_was_wanted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(lines(0, 20_000))
    async with guest(log) as agent:
        await agent.rests()
        agent.feeding.perform(STREAM, Install(the_flow()))
        live_from = await agent.begun()
        midnight = 1_767_225_600
        assert live_from == midnight + 20_000
        assert 0 < agent.task.counts.bytes_read <= KEPT_BYTES + 100
        log.open("a").write(lines(20_000, 5))
        await eventually(lambda: agent.rows() == 5, lambda: f"{agent.rows()} of 5 rows", 20)


async def test_who_asks_about_a_stream_hears_of_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(lines(0, 2_000))
    async with guest(log) as agent:
        await agent.rests()
        agent.feeding.consult(do.Consult(STREAM, DescribeStream(id=1, origin="", stream=STREAM)))
        (answer,) = await eventually(
            lambda: [one for one in agent.told if isinstance(one, was.Consulted)], "an answer", 20
        )
        seen = msgspec.msgpack.decode(answer.body, type=StreamSeen)
        assert seen.schema.names() == ("ts", "page")
        assert len(agent.task._samples) > 500
        assert not agent.resting.asleep, "the next question may come soon"


async def test_it_rests_again_and_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "ASKED_MS", 0)
    log, store, flow = tmp_path / "a.log", Store(":memory:"), the_flow()
    log.write_text(lines(0, 10))
    async with guest(log, store) as agent:
        await agent.rests()
        agent.feeding.perform(STREAM, Install(flow))
        first = await agent.begun()
        log.open("a").write(lines(10, 5))
        await eventually(lambda: agent.rows() == 5, "its rows", 20)
        agent.feeding.perform(STREAM, Uninstall(flow.uid))
        await agent.rests()
        assert agent.task.positions == ()
        assert agent.task.worker.checkpoint().sources == ()
        log.open("a").write(lines(15, 20))
        agent.told.clear()
        agent.feeding.perform(STREAM, Install(flow))
        assert await agent.begun() == first + 25, "nothing is counted that was written meanwhile"
