"""What feeds a stream task: the loop is not woken for looks, and idle commands, of which nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import pytest

from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.values import Chunk, Counters, Position, Unresting
from agents.logs import get_logger
from agents.ports import WhenDone
from agents.tasks import feeding
from agents.tasks.feeding import GATHER_S, IDLE_EVERY_MS, LAST_S, SAID_EVERY_MS, STOPPED_MS, Feeding
from agents.tasks.helping import Helping
from agents.tasks.running import Running
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.job import events as was
from elf.job.commands import Idle, Install, Outcome
from elf.job.gaps import Missed
from elf.job.worker.stream import WorkerSettings
from elf.planning.latency import POLL_GROWS, POLL_MAX_S, POLL_S
from tests.support.flow_copies import FLOW
from tests.support.waiting import eventually

T = TypeVar("T")


class Silent(Unresting):
    """An input in which nothing comes."""

    exhausted = has_new_sources = False
    unread = 0

    def __init__(self) -> None:
        self.counters = Counters()

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        return None

    def positions(self) -> tuple[Position, ...]:
        return ()

    def gaps(self) -> tuple[Missed, ...]:
        return ()

    def finished(self) -> tuple[str, ...]:
        return ()

    def kept(self, positions: tuple[Position, ...]) -> None: ...

    def close(self) -> None: ...


class Task(StreamTask):
    """Counts its idle commands."""

    idles = 0

    def idle(self, idle: Idle, positions: tuple[Position, ...]) -> Outcome:
        self.idles += 1
        return super().idle(idle, positions)


Told = was.Worked | was.Consulted | was.Ran | was.Helped | was.HeldBack | was.Lagging


def feeding_of(
    task: StreamTask, now_ms: Callable[[], int], when_done: WhenDone, tell: Callable[[Told], None]
) -> Feeding:
    return Feeding(
        [(task, Silent())],
        get_logger(),
        now_ms=now_ms,
        leaving=lambda: False,
        when_done=when_done,
        tell=tell,
        memory_max_bytes=None,
        running=Running({}, 0),
        helping=Helping(None),
        receivers={},
    )


async def test_who_has_nothing_to_say_wakes_nobody() -> None:
    loop, told = asyncio.get_running_loop(), list[str]()
    task = Task(TaskStatus("clicks", get_format("json"), None, ""), WorkerSettings(), Store(":memory:"))
    task.perform(Install(FLOW), 0)

    def when_done(future: Future[T], then: Callable[[T], None]) -> None:
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(lambda: then(done.result())))

    def tell(event: Told) -> None:
        assert isinstance(event, was.Worked)
        told.append(event.command)

    made = feeding_of(task, lambda: int(loop.time() * 1000), when_done, tell)
    reading = [asyncio.ensure_future(one) for one in made.readers()]
    began = loop.time()
    await eventually(lambda: task.idles >= 8, "it is told that nothing comes", 30)
    took_ms = 1000 * (loop.time() - began)
    assert took_ms >= 7 * IDLE_EVERY_MS
    assert 1 <= len(told) <= 2 + took_ms / SAID_EVERY_MS, "once a second, not each time"
    for one in reading:
        one.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    await made.close(clean=False)


async def test_a_stream_is_behind_by_the_least_of_a_second() -> None:
    """A chunk that ends panes takes long each time, and is no backlog."""
    task = StreamTask(TaskStatus("clicks", get_format("json"), None, ""), WorkerSettings(), Store(":memory:"))
    told = list[was.Lagging]()

    def tell(event: Told) -> None:
        assert isinstance(event, was.Lagging)
        told.append(event)

    made = feeding_of(task, lambda: 0, lambda future, then: None, tell)
    (stream,) = made._streams.values()
    made._lags(stream, 40, 10_000)
    assert not told, "it was never behind"
    for now_ms in range(10_200, 14_200, 200):
        made._lags(stream, 900 if now_ms % 1_000 == 0 else 20, now_ms)
    assert [one.lag_ms for one in told[1:]] == [0] * (len(told) - 1)
    assert len(told) >= 3, "each second, as it was behind once"
    told.clear()
    for now_ms in range(20_000, 24_000, 200):
        made._lags(stream, 600 + now_ms % 1_000, now_ms)
    assert [one.lag_ms for one in told] == [600] * 4
    task.perform(Install(FLOW), 0)
    made._lags(stream, 600, 25_000)
    assert 0 < task.cpu_us <= task.busy_us + 1_000
    assert told[-1].busy_ms == task.busy_us // 1_000
    await made.close(clean=False)


async def test_who_was_stopped_is_not_live_until_he_has_caught_up() -> None:
    task = StreamTask(TaskStatus("clicks", get_format("json"), None, ""), WorkerSettings(), Store(":memory:"))
    clock = iter([0, 100, 200, 200 + STOPPED_MS, *range(5_000, 10**6, 100)])
    made = feeding_of(task, lambda: next(clock), lambda future, then: None, lambda event: None)
    (stream,) = made._streams.values()
    stream.at_end_ms = 1
    made.reading.clear()
    made._poll(stream, 1 << 20)
    assert stream.at_end_ms == 1
    made.reading.set()
    made._poll(stream, 1 << 20)
    assert stream.at_end_ms == 0
    await made.close(clean=False)


def test_lines_gather_until_one_of_them_may_end_a_pane() -> None:
    task = Task(TaskStatus("clicks", get_format("json"), None, ""), WorkerSettings(), Store(":memory:"))
    stream = feeding._stream(task, Silent())
    assert feeding._pause_s(stream, 0) == GATHER_S, "no flow: nothing is ever due"
    task.due_us = 10_000_000
    assert feeding._pause_s(stream, 9_700) == GATHER_S
    assert feeding._pause_s(stream, 9_900) == pytest.approx(0.1)
    pauses = [feeding._pause_s(stream, 10_000 + n) for n in range(100)]
    assert pauses[0] == POLL_S, "from then on it is looked for"
    assert pauses == sorted(pauses)
    assert pauses[-1] == POLL_MAX_S
    task.due_us = 20_000_000
    assert feeding._pause_s(stream, 10_200) == GATHER_S
    stream.poll_s = POLL_S / 2
    assert feeding._pause_s(stream, 19_900) == pytest.approx(0.1 - LAST_S), (
        "the last look before that is late"
    )
    assert feeding._pause_s(stream, 19_980) == pytest.approx(0.02)
    stream.poll_s = POLL_S
    task.due_us = 5_000_000
    assert feeding._pause_s(stream, 10_200) == POLL_S
    stream.poll_s, stream.due_pause_s = 0.005, 0.0
    pauses = [feeding._pause_s(stream, 10_200 + n) for n in range(100)]
    assert pauses[:2] == pytest.approx([0.005, POLL_GROWS * 0.005])
    assert pauses[-1] == POLL_MAX_S
    task.close(checkpoint=False)
