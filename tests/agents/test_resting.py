"""A stream that nobody wants is not read; who wants it gets what comes from then on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from agents.disk.store import Store
from agents.inputs.tail import KEPT_BYTES
from agents.tasks import resting
from elf.job import effects as do
from elf.job import events as was
from elf.job.commands import Install, Uninstall
from elf.job.messages.inquiries import DescribeStream, StreamSeen
from tests.support.guest import STREAM, guest, lines, the_flow
from tests.support.waiting import eventually


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


@pytest.mark.parametrize("before", [0, 100])
async def test_a_flow_begins_after_what_was_rotated_while_nobody_wanted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """Its pane would lack the rows that lie in the other file, and say nothing of that."""
    monkeypatch.setattr(resting, "ASKED_MS", 0)
    log, old, flow = tmp_path / "a.log", tmp_path / "a.log.1", the_flow()
    log.write_text(lines(0, before))
    async with guest(log) as agent:
        if before:  # a flow has read some of it, long ago
            agent.feeding.perform(STREAM, Install(flow))
            await agent.begun()
            agent.feeding.perform(STREAM, Uninstall(flow.uid))
        await agent.rests()
        log.open("a").write(lines(before, 1_000))
        log.rename(old)
        log.write_text("")
        agent.told.clear()
        agent.feeding.perform(STREAM, Install(flow))
        assert await agent.begun() >= old.stat().st_mtime


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
        assert len(agent.task._samples) >= 200
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
