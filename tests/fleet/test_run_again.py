"""STRAGGLERS MIRROR with real processes whose logs all see: one stands still, or is dead, with lines that it
has not read, another one reads them in its place, and when it goes on no line counts twice."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from elf.client import Window
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import (
    QUERY,
    SECOND_US,
    Windows,
    clicks,
    connected,
    create,
    stop,
    watched,
)

SPAN_US = 2 * SECOND_US


@pytest.fixture
def sharing(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, 3)
    for agent in fleet.agents:
        agent.shared = (str(tmp_path / "*" / "logs" / "clicks*.log"),)
    fleet.start()
    yield fleet
    fleet.stop()


@pytest.mark.parametrize("away", ["stands still", "is killed"])
async def test_a_neighbour_reads_the_lines_of_an_agent_that(away: str, sharing: Fleet) -> None:
    client, statements = [await connected(sharing, 0) for _ in range(2)]
    sharing.begin_writing()
    await create(client)
    await statements.sql("DROP JOB popular")
    await statements.sql(f"CREATE JOB mirrored AS {QUERY} STRAGGLERS MIRROR")
    async with watched(client, "mirrored") as windows:
        await eventually(lambda: len(windows) >= 3, "windows")
        told = await statements.tree("mirrored")
        leader = sharing.agent_at(str(told["master"]))
        victim = next(agent for agent in sharing.agents[1:] if agent is not leader)
        if away == "is killed":
            victim.kill()
        else:
            stop(victim, signal.SIGSTOP)
        stopped_us = time.time_ns() // 1_000

        def whole() -> list[Window]:
            return [w for at, w in windows.items() if at >= stopped_us and w.status["missing"] == []]

        await eventually(lambda: len(whole()) >= 4, "windows with what it has not read", 30)
        for start in [at for at in windows if at >= stopped_us and windows[at] in whole()]:
            assert clicks(windows[start]) == sharing.truth(start, start + SPAN_US)
        assert leader.metric("panes_run_again_total") >= 4
        if away == "is killed":
            victim.start()
        else:
            stop(victim, signal.SIGCONT)
        await eventually(
            lambda: victim.metric("rows_answered_total", stream=STREAM) > 0,
            "its word that others have its rows",
            despite=(OSError,),
        )
        back_us = time.time_ns() // 1_000
        await eventually(lambda: max(windows) > back_us, "a window since it is back")
        end_us = sharing.end_writing() - SECOND_US
        await eventually(lambda: max(windows) + 2 * SPAN_US >= end_us, "the last windows")
        await eventually(
            lambda: victim.metric("snapshots_retained") == 0, "an answer for all that it has sealed"
        )
        done = {at: window for at, window in windows.items() if at + 2 * SPAN_US <= end_us}
        await eventually(lambda: all(windows[at].status["missing"] == [] for at in done), "its own rows")
        check_by_duckdb(sharing, {at: windows[at] for at in done})
        assert sum(int(str(windows[at].status["late"])) for at in done) == 0
    table = (await statements.sql("DESCRIBE mirrored")).table
    assert table is not None
    (said,) = [row["value"] for row in table.to_pylist() if row["fact"] == "stragglers"]
    assert re.search(rf"; web-\d has run \d+ panes of {victim.name} again", said)
    await statements.close()


def check_by_duckdb(fleet: Fleet, windows: Windows) -> None:
    """Each window, and all together, are what DuckDB finds in the files."""
    files = [str(agent.log) for agent in fleet.agents]
    rows = duckdb.execute(
        "SELECT epoch_us(created_at::TIMESTAMPTZ) // ? * ? AS start, product, sum(clicks_count)::BIGINT "
        "FROM read_json(?) GROUP BY ALL",
        [SPAN_US, SPAN_US, files],
    ).fetchall()
    truth: dict[int, dict[str, int]] = {}
    for start, product, count in rows:
        truth.setdefault(start, {})[product] = count
    assert {at: clicks(window) for at, window in windows.items()} == {at: truth[at] for at in windows}
