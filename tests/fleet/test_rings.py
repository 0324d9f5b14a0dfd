"""A table with a ring in a fleet of real agents: an agent is killed in each phase of a change of its key."""

from __future__ import annotations

import asyncio

import pytest

from elf.client import Client
from elf.errors import UserError
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

BUSY = (
    f"CREATE JOB busy AS SELECT product, clicks_count AS clicks, COUNT(*) AS n FROM {STREAM} "
    "GROUP BY product, clicks_count WINDOWING 2 SECONDS"
)
KEYS = ("product", "clicks, product", "product", "clicks, product")


async def shown(client: Client) -> dict[str, object]:
    table = (await client.sql("SHOW TABLES")).table
    assert table is not None
    (row,) = table.to_pylist()
    return dict(row)


async def groups(client: Client) -> set[tuple[object, object]]:
    """Those that have a row."""
    table = (await client.sql("SELECT product, clicks FROM ringed")).table
    return set() if table is None else {(row["product"], row["clicks"]) for row in table.to_pylist()}


@pytest.mark.timeout(600)
async def test_an_agent_is_killed_in_each_phase_of_a_change_and_no_row_is_lost(three: Fleet) -> None:
    clients = [await connected(three, n) for n in range(3)]
    three.begin_writing()
    await create(clients[0], BUSY)
    await clients[1].sql("CREATE TABLE ringed FROM JOB busy KEY (product) RING")

    async def has(least: set[tuple[object, object]], rows: int) -> set[tuple[object, object]]:
        """All groups, when these are among them, and so many."""
        found: set[tuple[object, object]] = set()

        async def there() -> bool:
            nonlocal found
            found = await groups(clients[0])
            return least <= found and len(found) >= rows

        await eventually(there, "all rows", 120, despite=(UserError,))
        return found

    async def reached(key: str, *states: str) -> None:
        """The change has got so far. Whoever heard that it is not made asks for it again."""

        async def so_far() -> bool:
            row = await shown(clients[0])
            state = str(row["state"])
            if row["key"] != key and "until" not in state:
                await clients[0].sql(f"ALTER TABLE ringed SET KEY ({key})")
            return row["key"] == key and (not states or state in states)

        await eventually(so_far, f"the key {key}", 180, despite=(UserError,))

    await has(set(), 4)
    with pytest.raises(UserError, match="table ringed is found by product already"):
        await clients[0].sql("ALTER TABLE ringed SET KEY (product)")
    for phase, key in enumerate(KEYS[1:]):
        before = await has(set(), 4)
        killed = three.agents[1 + phase % 2]
        asking = asyncio.create_task(clients[0].sql(f"ALTER TABLE ringed SET KEY ({key})"))
        if phase < 2:  # rows are on their way; then about when results are held
            await asyncio.sleep((0.5, 2)[phase])
        else:  # the new key counts: what came meanwhile is on its way
            await reached(key)
        killed.kill()
        await has(before, 4)
        killed.start()
        await asyncio.gather(asking, return_exceptions=True)
        await reached(key, "up to date")
        await has(before, 4)
    three.end_writing()
    assert (await clients[0].sql("DROP TABLE ringed")).text == "table ringed dropped"
    for client in clients:
        await client.close()
