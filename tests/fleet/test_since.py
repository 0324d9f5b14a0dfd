"""``SINCE`` with real processes: a job begins in the past, out of what its agents have archived, and goes on
with live lines; an agent is killed while it reads."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from datetime import UTC, datetime

import pytest

from elf.client import Client, Window
from elf.client.results import facts_of
from elf.errors import ElfError
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import QUERY, SECOND_US, Windows, clicks, connected, watched

MINUTES = 10
"""That the agents have archived when a job begins there."""


async def test_yesterday_and_now_without_a_seam(three: Fleet) -> None:
    """Each window is right: those of the past, that in which the job was created, and those after it. The
    archived minutes come first, one agent being killed meanwhile."""
    client = await connected(three, 1)
    now_us = time.time_ns() // 1_000_000 * 1_000
    first_us = now_us - MINUTES * 60 * SECOND_US
    for agent in three.agents:
        agent.append((us, "old", 1) for us in range(first_us, now_us - 5 * SECOND_US, 20_000))
    three.begin_writing()
    await eventually(lambda: all(a.metric("rows_total") > 29_000 for a in three.agents), "all is read", 30)
    await client.sql(f"CREATE JOB popular AS {QUERY} SINCE '-{MINUTES - 1} minutes'")
    created_us = time.time_ns() // 1_000
    victim = three.agents[2]
    async with watched(client, "popular") as windows:
        victim.kill()
        victim.start()
        await eventually(lambda: any(map(is_live, windows.values())), "windows of now", 40)
        end_us = three.end_writing()
        whole = await until_whole(three, windows, end_us - 2 * SECOND_US)
    other = await connected(three, 0)
    described = facts_of(await other.sql("DESCRIBE JOB popular"))
    began_us = int(datetime.fromisoformat(described["answers from"]).timestamp() * 1e6)
    assert began_us <= created_us - (MINUTES - 1) * 60 * SECOND_US + 2 * SECOND_US
    assert whole == list(range(whole[0], whole[-1] + 1, 2 * SECOND_US)), "no window is left out"
    past = await kept_until(other, now_us - 10 * SECOND_US)
    assert min(past) <= began_us + 2 * SECOND_US
    assert len(past) > MINUTES * 60 / 2 - 60
    assert list(past) == list(range(min(past), max(past) + 1, 2 * SECOND_US)), "nor one that nobody watched"
    assert list(past.values()) == [[300, 300, 300]] * len(past)
    created = created_us // (2 * SECOND_US) * 2 * SECOND_US
    for start in (whole[0], max(whole[0], created), whole[-1]):
        moment = datetime.fromtimestamp(start / 1e6, UTC).isoformat()
        rows = await other.sql(f"ROWS OF popular WINDOW '{moment}' LIMIT 100000")
        assert rows.table is not None
        assert rows.data is not None
        assert rows.data["complete"], rows.text
        found = Counter[str]()
        for line in map(json.loads, rows.table["_line"].to_pylist()):
            found[line["product"]] += line["clicks_count"]
        assert found == clicks(windows[start])
    with pytest.raises(ElfError, match="SINCE '-7 moons' is no time"):
        await other.sql(f"CREATE JOB moons AS {QUERY} SINCE '-7 moons'")
    facts = await other.compare_facts("popular")
    assert facts.job.windows
    await other.close()


def is_live(window: Window) -> bool:
    """Whether all agents read new lines by then."""
    status = window.status
    return bool(status["rows_in"]) and (status["archived"], status["reported"]) == (0, 3)


async def until_whole(fleet: Fleet, windows: Windows, until_us: int) -> list[int]:
    """The starts of all windows that end before, when each of them is right."""

    def wrong() -> list[int]:
        done = {start: one for start, one in windows.items() if start + 2 * SECOND_US <= until_us}
        return [
            start
            for start, one in sorted(done.items())
            if one.status["missing"] or clicks(one) != fleet.truth(start, start + 2 * SECOND_US)
        ]

    await eventually(lambda: max(windows) + 4 * SECOND_US > until_us, "the last window", 20)
    await eventually(lambda: not wrong(), lambda: f"{wrong()[:5]} of {len(windows)} windows are right", 30)
    return sorted(start for start in windows if start + 2 * SECOND_US <= until_us)


async def kept_until(client: Client, until_us: int) -> dict[int, list[int]]:
    """Of windows that the job keeps, also those that were made before anybody watched: by start (µs) their
    clicks, and how many rows were read from archives, and in all."""
    sql = (
        "SELECT window_start, SUM(clicks), MIN(archived), MIN(rows_in) FROM JOB popular WINDOWS GROUP BY ALL"
    )
    table = (await client.sql(f"{sql} ORDER BY window_start")).table
    assert table is not None
    starts, *counts = table.to_pydict().values()
    by_start = (
        (int(start.timestamp() * 1e6), list(row)) for start, *row in zip(starts, *counts, strict=True)
    )
    return {start: row for start, row in by_start if start < until_us}


async def test_a_select_that_begins_in_the_past(three: Fleet) -> None:
    client = await connected(three, 0)
    now_us = time.time_ns() // 1_000_000 * 1_000
    for agent in three.agents:
        agent.append((us, "old", 1) for us in range(now_us - 120 * SECOND_US, now_us, 100_000))
    await eventually(lambda: all(a.metric("rows_total") >= 1_200 for a in three.agents), "all is read", 20)
    sql = f"SELECT product, COUNT(*) AS clicks FROM {STREAM} GROUP BY product WINDOWING 10 SECONDS"
    async with asyncio.timeout(20):
        starts = []
        async for window in client.subscribe(f"{sql} SINCE '-100 seconds'"):
            assert window.start is not None
            starts.append(int(window.start.timestamp()))
            assert clicks(window) == {"old": 300}
            if len(starts) == 6:
                break
    assert starts == list(range(starts[0], starts[0] + 60, 10))
    assert starts[0] * SECOND_US <= now_us - 85 * SECOND_US
    await client.close()


@pytest.mark.timeout(900)
async def test_what_is_older_than_a_job_comes_from_spark(three: Fleet) -> None:
    """Each window is from one side, and right; the job keeps both, and a SELECT prints both."""
    client = await connected(three, 0)
    now_us = time.time_ns() // 1_000_000 * 1_000
    for agent in three.agents:
        agent.append((us, "old", 1) for us in range(now_us - 240 * SECOND_US, now_us, 100_000))
    three.begin_writing()
    await eventually(lambda: all(a.metric("rows_total") > 2_400 for a in three.agents), "all is read", 30)
    await client.sql(f"CREATE JOB popular AS {QUERY}")
    async with watched(client, "popular") as windows:
        await eventually(lambda: any(map(is_live, windows.values())), "windows of now", 40)
        begins_us = min(windows)
        done = await backfilled(three, "popular", "--from", "-3 minutes")
        assert "windows of job popular that start from" in done
        await eventually(lambda: min(windows) < begins_us - 100 * SECOND_US, "windows of before", 40)
        first_us = min(windows)
        assert await backfilled(three, "popular", "--from", "-2 minutes"), "again: nothing changes"
        end_us = three.end_writing()
        whole = await until_whole(three, windows, end_us - 2 * SECOND_US)
    assert whole == list(range(first_us, whole[-1] + 1, 2 * SECOND_US)), "no window is left out"
    by_spark = {start for start, one in windows.items() if one.status["offline"]}
    assert by_spark == {start for start in windows if start < begins_us}
    client = await connected(three, 0)  # who watched has closed the other one
    past = await client.sql("SELECT COUNT(*) AS n FROM JOB popular WINDOWS WHERE offline")
    assert past.table is not None
    assert past.table["n"].to_pylist() >= [len(by_spark)]
    sql = f"{QUERY} SINCE '-30 seconds'"
    said = await backfilled(three, "-q", sql, "--from", "-2 minutes", "--windows", "45", "--output", "json")
    starts = list(dict.fromkeys(json.loads(line)["window_start"] for line in said.splitlines()))
    assert starts == sorted(starts)
    assert len(starts) == 45
    await client.close()


@pytest.mark.timeout(900)
async def test_what_is_older_than_a_job_with_key_ranges_comes_from_spark(three: Fleet) -> None:
    """Its roots commit parts of a window; what Spark has made is whole, and stands beside them."""
    client = await connected(three, 0)
    now_us = time.time_ns() // 1_000_000 * 1_000
    products = [f"p{number}" for number in range(8)]
    for agent in three.agents:
        at = range(now_us - 120 * SECOND_US, now_us, 100_000)
        agent.append((us, products[place % 8], 1) for place, us in enumerate(at))
    three.begin_writing()
    await eventually(lambda: all(a.metric("rows_total") > 1_200 for a in three.agents), "all is read", 60)
    await client.sql(f"CREATE JOB popular AS {QUERY} TREES 3")
    async with watched(client, "popular") as windows:
        await eventually(lambda: any(map(is_live, windows.values())), "windows of now", 60)
        begins_us = min(windows)
        await backfilled(three, "popular", "--from", "-90 seconds")
        await eventually(lambda: min(windows) < begins_us - 40 * SECOND_US, "windows of before", 60)
        first_us = min(windows)
        end_us = three.end_writing()
        whole = await until_whole(three, windows, end_us - 2 * SECOND_US)
    assert whole == list(range(first_us, whole[-1] + 1, 2 * SECOND_US)), "no window is left out"
    assert clicks(windows[first_us]).keys() == set(products)
    by_spark = {start for start, one in windows.items() if one.status["offline"]}
    assert by_spark == {start for start in windows if start < begins_us}


async def backfilled(fleet: Fleet, *words: str) -> str:
    """``elf offline backfill``; what it says. Raises ``AssertionError`` with that where it fails."""
    command = [sys.executable, "-m", "elf.cli.main", "offline", "backfill", *words]
    command += ["--connect", fleet.agents[0].address, "--cluster", "test", "--creator", "tests"]
    command += ["--master", "local[1]"]
    running = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, err = await running.communicate()
    assert not running.returncode, err.decode()
    return out.decode() or err.decode()
