"""A table of a fleet of real agents: asked by key through any of them, in SQL and over HTTP, when the job's
master is killed too."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
from typing import Any

import pytest

from elf.client import Client
from elf.errors import UserError
from tests.support.fleet import STREAM, Agent, Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

BUSY = (
    f"CREATE JOB busy AS SELECT product, clicks_count AS clicks, COUNT(*) AS n FROM {STREAM} "
    "GROUP BY product, clicks_count WINDOWING 2 SECONDS"
)


async def newest_of(client: Client, product: str, as_of: str = "") -> dict[str, Any]:
    """When the newest window of a product's rows ends, and up to which number the table has all windows."""
    result = await client.sql(f"SELECT * FROM seen{as_of} WHERE product = '{product}'")
    assert result.data is not None
    rows = [] if result.table is None else result.table.to_pylist()
    assert all(row["product"] == product for row in rows)
    return {
        "number": result.data["number"],
        "window_end": max((row["window_end"] for row in rows), default=None),
    }


def over_http(agent: Agent, query: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(agent.fetched(f"/api/v1/tables/seen?{query}"))
    return told


async def test_a_key_is_asked_of_any_agent_and_never_goes_back(three: Fleet) -> None:
    clients = [await connected(three, n) for n in range(3)]
    three.begin_writing()
    await create(clients[0], BUSY)
    await clients[1].sql("CREATE TABLE seen FROM JOB busy KEY (product) RETAIN 1 HOUR")

    async def filled() -> str:
        result = await clients[2].sql("SELECT product FROM seen LIMIT 1")
        return "" if result.table is None else str(result.table["product"][0].as_py())

    product = await eventually(filled, "a row", 30, despite=(UserError, IndexError))
    agent = three.agents[2]
    told = over_http(agent, f"product={urllib.parse.quote(product)}")
    assert {row["product"] for row in told["rows"]} == {product}
    assert over_http(agent, "product=none")["rows"] == []
    with pytest.raises(urllib.error.HTTPError, match="400"):
        over_http(agent, "n=3")

    most = " AND ".join(f"{'n' * (number + 1)} = 1" for number in range(17))
    for client in clients:  # two of them ask another agent
        found = await client.sql(f"SELECT product FROM seen WHERE clicks = {10**23}")
        assert found.table is None or not found.table.num_rows
        with pytest.raises(UserError, match='"nn"'):
            await client.sql(f"SELECT product FROM seen WHERE {most}")

    (job,) = [one for one in json.loads(agent.fetched("/api/v1/jobs"))["jobs"] if one["name"] == "busy"]
    master = three.agent_at(job["master"])
    left = [n for n, one in enumerate(three.agents) if one is not master]
    last = await newest_of(clients[left[0]], product)
    master.kill()

    killed_at = last["number"]

    async def grew() -> bool:
        """Windows of after the death are told by both who are left, and nothing of before."""
        nonlocal last
        for as_of in (" AS OF ANY", ""):
            found = await newest_of(clients[left[0]], product, as_of)
            assert found["number"] >= last["number"]
            if found["window_end"] is not None and last["window_end"] is not None:
                assert found["window_end"] >= last["window_end"]
            last = found
        told = over_http(three.agents[left[1]], f"product={urllib.parse.quote(product)}&as_of=any")
        return bool(min(told["number"], last["number"]) > killed_at + 2)

    await eventually(grew, "windows after the master's death", 60, despite=(UserError,))
    master.start()
    three.end_writing()
    shown = await clients[left[1]].sql("SHOW TABLES")
    assert shown.table is not None
    assert shown.table["table"].to_pylist() == ["seen"]
    client = clients[left[0]]
    with pytest.raises(UserError, match="n is no column that the job groups by; those are clicks, product"):
        await client.sql("ALTER TABLE seen SET KEY (n)")
    with pytest.raises(UserError, match="table seen is found by product already"):
        await client.sql("ALTER TABLE seen SET KEY (product)")
    for word in ("PAUSE", "RESUME"):
        with pytest.raises(UserError, match="found by product: no change of its key is under way"):
            await client.sql(f"ALTER TABLE seen {word}")
    explained = (await client.sql("EXPLAIN ALTER TABLE seen SET KEY (clicks)")).table
    assert explained is not None
    assert explained["value"].to_pylist()[1] == "product now, then clicks"
    assert (await client.sql("ALTER TABLE seen SET KEY (clicks)")).text == "table seen is found by clicks now"
    every = (await client.sql("SELECT product, clicks FROM seen")).table
    assert every is not None
    clicks = every["clicks"][0].as_py()
    found = await clients[left[1]].sql(f"SELECT product, clicks FROM seen WHERE clicks = {clicks}")
    assert found.table is not None
    assert "all" not in found.text
    wanted = {row["product"] for row in every.to_pylist() if row["clicks"] == clicks}
    assert {row["product"] for row in found.table.to_pylist()} >= wanted
    assert (await client.sql("DROP TABLE seen")).text == "table seen dropped"
    for client in clients:
        await client.close()
