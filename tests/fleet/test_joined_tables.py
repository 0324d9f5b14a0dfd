"""A stream joined with the table of another job, in a fleet of real processes: each window has one state of
the table, later ones have later rows, and every row of the stream counts once, when the job's master is
killed too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from elf.client import Client, Window
from elf.client.results import facts_of
from elf.errors import UserError
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, Windows, connected, create, watched

BUSY = (
    f"CREATE JOB busy AS SELECT product, COUNT(*) AS n FROM {STREAM} GROUP BY product "
    "WINDOWING LANDMARK EVERY 1 SECONDS"
)
MET = (
    f"SELECT product, s.n AS seen, SUM(clicks_count) AS clicks FROM {STREAM} LEFT JOIN TABLE seen AS s "
    "USING (product) GROUP BY product, s.n WINDOWING 2 SECONDS"
)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    found = Fleet(tmp_path, 3)
    protocol = {"straggler_min_secs": 2, "cut_interval_secs": 1, "copy_after_secs": 1, "join_secs": 1}
    for agent in found.agents:
        agent.more["protocol"] = protocol
    found.start()
    yield found
    found.stop()


async def facts(client: Client, what: str) -> dict[str, str]:
    return facts_of(await client.sql(f"DESCRIBE {what}"))


def seen_in(window: Window) -> dict[str, int | None]:
    """By product the count that was joined: a product is in one row."""
    rows = window.table.to_pylist()
    found = {row["product"]: row["seen"] for row in rows}
    assert len(found) == len(rows), rows
    return found


def check(fleet: Fleet, windows: Windows, until_us: int) -> None:
    """No window lacks a row, or has one twice; what is joined belongs to its version, and is later in the
    last one."""
    by_version: dict[int, dict[str, int | None]] = {}
    done = sorted((start, one) for start, one in windows.items() if start + 2 * SECOND_US <= until_us)
    assert [start for start, _ in done] == list(range(done[0][0], done[-1][0] + 1, 2 * SECOND_US))
    for start, window in done:
        clicks = {row["product"]: int(row["clicks"]) for row in window.table.to_pylist()}
        missing = window.status["missing"]
        assert isinstance(missing, list)
        assert clicks == fleet.truth(start, start + 2 * SECOND_US, missing), window.status
        had = by_version.setdefault(window.version, {})
        for product, seen in seen_in(window).items():
            assert had.setdefault(product, seen) == seen
    first, last = by_version[min(by_version)], by_version[max(by_version)]
    both = [(first[product] or 0, last[product] or 0) for product in first.keys() & last.keys()]
    assert both
    assert all(early < late for early, late in both), both


async def test_each_window_joins_one_state_of_a_table_and_later_ones_later_rows(fleet: Fleet) -> None:
    client = await connected(fleet, 0)
    fleet.begin_writing()
    await create(client, BUSY)
    await client.sql("CREATE TABLE seen FROM JOB busy KEY (product)")
    with pytest.raises(UserError, match="seen is a table, no stream: JOIN TABLE seen"):
        await client.sql(f"CREATE JOB met AS {MET.replace('JOIN TABLE', 'JOIN')}")
    with pytest.raises(UserError, match="there is no table sen; tables: seen"):
        await client.sql(f"CREATE JOB met AS {MET.replace('TABLE seen', 'TABLE sen')}")

    async def made() -> bool:
        try:
            await client.sql(f"CREATE JOB met AS {MET}")
        except UserError as error:
            if "exists already" not in str(error):  # of a time when nobody waited for it any more
                raise
        return True

    await eventually(made, "a window of the table", 120, despite=(UserError,))
    with pytest.raises(UserError, match="its rows are read anew between two windows"):
        await client.sql(f"EXPLAIN {MET.replace('2 SECONDS', 'LANDMARK EVERY 2 SECONDS')}")
    with pytest.raises(UserError, match=r"table seen is joined by met \(JOIN TABLE\): drop what joins it"):
        await client.sql("DROP TABLE seen")
    with pytest.raises(UserError, match="table seen is joined by met"):
        await client.sql("DROP JOB busy")
    assert (await facts(client, "TABLE seen"))["joined by"] == "met"
    assert "joins" in (await client.sql("EXPLAIN met")).text
    at = str((await client.tree("met"))["master"])
    master = fleet.agent_at(at)
    reader = await connected(fleet, (fleet.agents.index(master) + 1) % 3)
    await eventually(lambda: facts(reader, "met"), "who reads knows the job", 30, despite=(UserError,))
    async with watched(reader, "met") as windows:
        await eventually(lambda: len({one.version for one in windows.values()}) >= 3, "later rows", 180)
        told = await facts(reader, "met")
        assert told["table 1"].startswith("s of TABLE seen as of 20"), told
        assert any("joins TABLE seen as of " in value for fact, value in told.items() if "version" in fact)
        last = max(one.version for one in windows.values())
        master.kill()
        await eventually(lambda: max(one.version for one in windows.values()) > last + 1, "others lead", 120)
        master.start()
        await asyncio.sleep(1)
        until_us = fleet.end_writing()
        await eventually(
            lambda: bool(windows) and max(windows) + 4 * SECOND_US > until_us, "the last windows", 60
        )
        check(fleet, windows, until_us - 4 * SECOND_US)
    await client.close()
