import asyncio

import pytest

from agents.disk.store import Store
from agents.formats import get_format
from agents.logs import get_logger
from agents.tasks import holding
from agents.tasks.holding import WEIGHED_BYTES, Holding
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.job.events import HeldBack
from elf.job.worker.stream import WorkerSettings
from tests.support.waiting import eventually


async def test_reading_waits_for_memory_tells_how_far_behind_it_is_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holding, "ROOM_POLL_S", 0.01)
    monkeypatch.setattr(holding, "PAUSE_S_MIN", 0.02)
    told, waited = list[HeldBack](), list[str]()
    task = StreamTask(TaskStatus("clicks", get_format("json"), None, ""), WorkerSettings(), Store(":memory:"))
    held = Holding(
        get_logger(),
        now_ms=lambda: 10_000,
        tell=told.append,
        waited=waited.append,
        memory_max_bytes=1,
        allowances={},
    )
    await held.room(task, 4_000)
    assert not told, "nothing was read since it was looked at last"
    held.read(WEIGHED_BYTES)
    waiting = asyncio.ensure_future(held.room(task, 4_000))
    await eventually(lambda: len(told) >= 2, "it tells that it waits", 30)
    assert not waited
    assert not waiting.done()
    assert all(one.lag_ms >= 6_000 for one in told)
    held._memory_max_bytes = 1 << 60
    await waiting
    assert waited == ["clicks"], "panes that were open meanwhile say so"
    task.close(checkpoint=False)
