"""A job with longer windows on the panes of one with shorter ones, in a fleet of real processes."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from elf.client import Client
from tests.support.fleet import PRODUCTS, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, Windows, connected, create, watched

ASKED = "SELECT {key}, SUM(clicks_count) AS clicks FROM clicks GROUP BY {key} {having} WINDOWING {windows}"
ROWS = 400
"""Of an agent, each 50 ms: panes of 2 s are worth sharing from some thousand rows a second on."""


def asked(key: str, windows: str, having: str = "") -> str:
    return ASKED.format(key=key, windows=windows, having=having)


@contextmanager
def busy(fleet: Fleet) -> Iterator[None]:
    """Many rows in all logs, at the time of the clock."""
    over, chance = threading.Event(), random.Random(5)

    def write() -> None:
        while not over.wait(0.05):
            now = time.time_ns() // 1_000_000 * 1000
            for agent in fleet.agents:
                agent.append((now - n % 300 * 1000, chance.choice(PRODUCTS), n % 5) for n in range(ROWS))

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


async def explained(client: Client, what: str) -> tuple[str, dict[str, Any]]:
    reply = await client.sql(f"EXPLAIN {what}")
    assert reply.data is not None
    return reply.text, reply.data


async def flows(client: Client) -> dict[str, str]:
    """Each job's, by name."""
    table = (await client.sql("SHOW JOBS")).table
    assert table is not None
    return {row["job"]: row["flow"] for row in table.to_pylist()}


def by_duckdb(fleet: Fleet, start_us: int, end_us: int) -> dict[str, int]:
    paths = [str(agent.log) for agent in fleet.agents]
    rows = duckdb.execute(
        f"SELECT product, SUM(clicks_count)::BIGINT FROM read_json({paths}, format='newline_delimited') "
        f"WHERE epoch_us(created_at::TIMESTAMP) >= {start_us} AND epoch_us(created_at::TIMESTAMP) < {end_us} "
        "GROUP BY product"
    ).fetchall()
    return dict(rows)


async def test_longer_windows_are_made_of_the_panes_that_are_there(two: Fleet) -> None:
    client = await connected(two, 1)
    with busy(two):
        await create(client, f"CREATE JOB shorter AS {asked('product', '2 SECONDS')}")
        watcher = await connected(two, 0)
        async with watched(watcher, "shorter") as first:
            await eventually(lambda: len(first) >= 3, "windows of the job with shorter ones")
        text, told = await explained(client, asked("product", "6 SECONDS"))
        assert told["choice"]["shared"], told["choice"]
        assert (told["choice"]["pane_s"], told["choice"]["own_pane_s"]) == (2, 6)
        assert 0 < told["choice"]["shared_ms_an_hour"] < told["choice"]["own_ms_an_hour"]
        assert "panes of 2 s of a flow that runs, not own ones of 6 s: sharing takes at most" in text
        assert told["flows"][0]["shared_with"] == ["shorter"]
        await client.sql(f"CREATE JOB longer AS {asked('product', '6 SECONDS', 'HAVING clicks > 0')}")
        await client.sql("CREATE JOB over AS SELECT SUM(clicks) AS clicks FROM JOB longer")
        assert set((await flows(client)).values()) == {told["flows"][0]["flow"][:8]}, (
            "one flow, for all three"
        )
        text, told = await explained(client, "longer")
        assert told["choice"]["shared"]
        assert told["panes"].startswith("pane 2 s; 6 s = 3 panes")
        assert told["fragments"][0]["pane_s"] == 2
        windows: Windows
        async with watched(await connected(two, 0), "longer") as windows:
            await eventually(lambda: len(windows) >= 2, "longer windows")
            made = dict(windows)
        await client.sql("DROP JOB over")
        await client.sql(f"ALTER JOB longer AS {asked('product', '6 SECONDS', 'HAVING clicks > 1')}")
        assert len(set((await flows(client)).values())) == 1, "it is altered and keeps its panes"
        text, told = await explained(client, "longer")
        assert told["choice"]["why"] == "panes of 2 s, as the job had them"
        await client.sql(f"CREATE JOB ids AS {asked('id', '2 SECONDS')}")
        async with watched(await connected(two, 0), "ids") as first:
            await eventually(lambda: len(first) >= 2, "windows with a group for almost each row")
        text, told = await explained(client, asked("id", "1 HOUR"))
        assert told["choice"]["pane_s"] == 3600
        assert "of its groups at once, and 1,000,000 at most" in told["choice"]["why"]
    for start, window in made.items():
        got = {row["product"]: int(row["clicks"]) for row in window.table.to_pylist()}
        assert got == by_duckdb(two, start, start + 6 * SECOND_US), window.status
    await client.close()
