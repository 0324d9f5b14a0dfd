"""STRAGGLERS with real processes: one agent stands still (SIGSTOP) while two jobs with two policies go on."""

from __future__ import annotations

import asyncio
import re
import signal
import time

import pytest

from elf.client import Window
from elf.client.results import facts_of
from elf.errors import ElfError
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually
from tests.support.watching import (
    QUERY,
    SECOND_US,
    check,
    clicks,
    connected,
    create,
    start_us,
    stop,
    watched,
)

STANDS_S = 9.0


async def test_a_job_that_leaps_says_each_window_once_and_one_that_waits_says_it_whole(six: Fleet) -> None:
    client, other, statements = [await connected(six, index) for index in (0, 1, 1)]
    six.begin_writing()
    await create(client)
    await statements.sql(f"CREATE JOB leaping AS {QUERY} STRAGGLERS LEAP")
    await statements.sql(f"CREATE JOB waiting AS {QUERY} STRAGGLERS WAIT 60 SECONDS")
    with pytest.raises(ElfError, match="contradict one another"):
        await statements.sql(f"CREATE JOB no AS {QUERY} EMIT FINAL REVISE STRAGGLERS LEAP")
    jobs = (await statements.sql("SHOW JOBS")).table
    assert jobs is not None
    assert len({row["flow"] for row in jobs.to_pylist()}) == 3, "a flow has one policy"
    async with watched(client, "leaping") as leapt, watched(other, "waiting") as waited:
        await eventually(lambda: len(leapt) >= 3 and len(waited) >= 3, "windows")
        job_groups = [str((await statements.tree(job))["master"]) for job in ("leaping", "waiting")]
        job_groups.append(str((await statements.status()).get("leader", "")))
        victim = next(agent for agent in six.agents[2:] if agent.address not in job_groups)
        stop(victim, signal.SIGSTOP)
        stopped_us = time.time_ns() // 1_000
        await asyncio.sleep(STANDS_S)  # one job drops that, the other waits
        before = max(waited)
        stop(victim, signal.SIGCONT)
        goes_on_us = time.time_ns() // 1_000
        assert before <= stopped_us, "it waits"

        def lacking() -> list[Window]:
            return [w for w in leapt.values() if w.status["missing"] == [victim.name]]

        assert len(lacking()) >= 2, "it goes on without"
        await eventually(
            lambda: all(
                any(at > goes_on_us and not w.status["missing"] for at, w in windows.items())
                for windows in (leapt, waited)
            ),
            "windows of both with the one that goes on",
        )

        def left_out() -> int:
            return sum(leaves_out(six, window, victim) for window in lacking())

        def told() -> int:
            return sum(int(str(w.status["leapt"])) for w in leapt.values())

        await eventually(lambda: 0 < left_out() == told(), lambda: f"{left_out()} rows, not {told()}")
        end_us = six.end_writing() - SECOND_US
        both = (leapt, waited)
        await eventually(lambda: all(max(w) + 4 * SECOND_US >= end_us for w in both), "all windows", 60)
        check(six, waited, end_us - 2 * SECOND_US, least=6)
        assert {window.revision for window in waited.values()} == {0}
        assert {window.revision for window in leapt.values()} == {0}
        assert 0 < left_out() == told()
        assert victim.metric("rows_left_out_total", kind="leapt", stream="clicks") == told()
    facts = facts_of(await statements.sql("DESCRIBE leaping"))
    assert re.match(r"LEAP: the last \d+ windows tell of [1-9]", facts["stragglers"]), facts["stragglers"]
    assert "left out for good (STRAGGLERS LEAP)" in victim.said()
    await statements.close()


def leaves_out(fleet: Fleet, window: Window, victim: Agent) -> int:
    """How many rows of the agent are not in a window, which has all rows of all others."""
    start = start_us(window)
    span = (start, start + 2 * SECOND_US)
    assert clicks(window) == fleet.truth(*span, without=[victim.name])
    return sum(span[0] <= ts < span[1] for ts, _, _ in victim.written)
