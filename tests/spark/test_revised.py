"""``elf compare`` of a fleet with late rows: where windows are revised they are on both sides, elsewhere
their number explains each difference; what was taken from the archive afterwards is not explained.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from pyspark.sql import SparkSession

from elf.client import CompareFacts
from spark_backend.compare import Outcome
from spark_backend.judging import judge
from spark_backend.report import window_line
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, clicks, connected, create, watched

CREATE = (
    f"CREATE JOB late AS SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} GROUP BY product "
    "WINDOWING 1 SECONDS LATENESS 200 MILLISECONDS EMIT FINAL REVISE 30 SECONDS"
)


PLAIN = (
    f"CREATE JOB plain AS SELECT product, SUM(clicks_count) AS clicks, COUNT(*) AS hits FROM {STREAM} "
    "WHERE clicks_count >= :least GROUP BY product WINDOWING 1 SECONDS LATENESS 200 MILLISECONDS "
    "WITH (least = 1)"
)


async def revised(fleet: Fleet) -> tuple[CompareFacts, CompareFacts]:
    """A second after the other gets a row, and then rows of seconds that were over."""
    client = await connected(fleet, 0)
    (agent,) = fleet.agents

    def now() -> int:
        return time.time_ns() // 1000

    agent.append([(now(), "Doom", 1)])
    await create(client, CREATE)
    await create(client, PLAIN)
    async with watched(await connected(fleet, 0), "late") as windows:
        while len(windows) < 3:
            agent.append([(now(), "Doom", 2), (now() - 100_000, "Myst", 1)])
            await asyncio.sleep(0.2)  # five times a second
        over = sorted(windows)[1:]
        agent.append([(start + third * SECOND_US // 3, "Pong", 5) for start in over for third in range(3)])
        agent.append([(now(), "Doom", 2)])
        await eventually(lambda: all(clicks(windows[start]).get("Pong") == 15 for start in over), "revisions")
        last = max(windows)
        agent.append([(now(), "Doom", 2)])
        await eventually(lambda: max(windows) > last + SECOND_US, "the windows that count them")
        assert "is version 2 now" in (await client.sql("ALTER JOB plain SET least = 2")).text
        last = max(windows)

        def goes_on() -> bool:
            agent.append([(now(), "Doom", 2)])
            return max(windows) > last + 3 * SECOND_US

        await eventually(goes_on, "windows of version 2")
    facts = [await client.compare_facts(job, versions=True) for job in ("late", "plain")]
    await client.close()
    return facts[0], facts[1]


def test_the_last_word_on_a_window_is_that_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1)
    fleet.start()
    try:
        facts, plain = asyncio.run(revised(fleet))
    finally:
        fleet.stop()
    comparison = judge(spark, facts)
    assert [window.differences for window in comparison.windows if not window.equal] == []
    assert comparison.equal
    assert any(window.revision for window in comparison.windows)
    comparison = judge(spark, plain)
    late = [window for window in comparison.windows if not window.equal]
    assert comparison.outcome is Outcome.EXPLAINED
    assert [(reason.name, reason.rows) for window in late for reason in window.reasons] == [("late", 3)] * 2
    assert {window.status["version"] for window in comparison.windows} == {1, 2}
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    comparison = judge(spark, plain)
    assert comparison.outcome is Outcome.EXPLAINED
    assert "the archive lacks" in window_line(comparison.windows[0])
