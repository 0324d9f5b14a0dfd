"""``elf compare`` of a job whose windows are revised: late rows are in the live answer and in Spark's."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pyspark.sql import SparkSession

from elf.cli.compare import live_windows
from elf.client import CompareFacts
from spark_backend import offline
from spark_backend.compare import Comparison, compare
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, clicks, connected, create, watched

CREATE = (
    f"CREATE JOB late AS SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} GROUP BY product "
    "WINDOWING 1 SECONDS LATENESS 200 MILLISECONDS EMIT FINAL REVISE 30 SECONDS"
)


async def revised(fleet: Fleet) -> CompareFacts:
    """A second after the other gets a row, and then rows of seconds that were over."""
    client = await connected(fleet, 0)
    (agent,) = fleet.agents

    def now() -> int:
        return time.time_ns() // 1000

    agent.append([(now(), "Doom", 1)])
    await create(client, CREATE)
    async with watched(await connected(fleet, 0), "late") as windows:
        while len(windows) < 3:
            agent.append([(now(), "Doom", 2), (now() - 100_000, "Myst", 1)])
            await asyncio.sleep(0.2)  # five times a second
        over = sorted(windows)[1:]
        agent.append([(start + third * SECOND_US // 3, "Pong", 5) for start in over for third in range(3)])
        agent.append([(now(), "Doom", 2)])
        await eventually(lambda: all(clicks(windows[start]).get("Pong") == 15 for start in over), "revisions")
    facts = await client.compare_facts("late")
    await client.close()
    return facts


def compared(spark: SparkSession, facts: CompareFacts) -> Comparison:
    live = live_windows(facts)
    sources = [
        offline.Archived(path, source.stream, source.format, source.timestamp)
        for source in facts.archives
        for path in source.archives
    ]
    spans = [(window.start_us, window.end_us) for window in live]
    return compare(live, offline.run(spark, facts.job.spec.plan, sources, spans))


def test_the_last_word_on_a_window_is_that_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1)
    fleet.start()
    try:
        facts = asyncio.run(revised(fleet))
    finally:
        fleet.stop()
    comparison = compared(spark, facts)
    assert [window.differences for window in comparison.windows if not window.equal] == []
    assert comparison.equal
    assert any(window.revision for window in comparison.windows)
