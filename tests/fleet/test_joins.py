"""A stream joined with a table, and a job that reads a job, in a fleet of real processes: shared, refreshed,
explained, and what is refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from elf.client import Client, Window
from elf.errors import ElfError, UserError
from tests.fleet.fleet import PRODUCTS, STREAM, Fleet
from tests.fleet.test_fleet import SECOND_US, connected, until, watched

QUERY = (
    f"SELECT maker, SUM(clicks_count) AS clicks FROM {STREAM} JOIN '{{}}' AS p ON product = p.name "
    "WHERE clicks_count >= :least GROUP BY maker WINDOWING 1 SECONDS WITH (least = 1)"
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, 2)
    fleet.start()
    yield fleet
    fleet.stop()


def write(path: Path, makers: dict[str, str]) -> None:
    path.write_text(
        "\n".join(["name,maker,unused", *(f"{name},{maker},x" for name, maker in makers.items())])
    )


async def facts(client: Client, job: str) -> dict[str, str]:
    table = (await client.sql(f"DESCRIBE {job}")).table
    assert table is not None
    return {row["fact"]: row["value"] for row in table.to_pylist()}


def sums(window: Window) -> dict[str, int]:
    return {row["maker"]: int(row["clicks"]) for row in window.table.to_pylist()}


def over(least: int, of: dict[str, int]) -> dict[str, int]:
    return {maker: clicks for maker, clicks in of.items() if clicks > least}


async def test_a_table_goes_with_a_job_and_is_refreshed(two: Fleet, tmp_path: Path) -> None:
    client = await connected(two, 0)
    two.begin_writing()
    makers = [{name: name[0] for name in PRODUCTS}, {name: f"new {name[-1]}" for name in PRODUCTS[1:]}]
    file = tmp_path / "the makers.csv"
    with pytest.raises(UserError, match=r"the makers\.csv cannot be read: no such file"):
        await client.sql(QUERY.format(file))
    write(file, makers[0])
    create = QUERY.format(file)
    for _ in range(100):
        try:
            await client.sql(f"CREATE JOB made AS {create}")
            break
        except ElfError as error:
            if "has read a line" not in str(error):
                raise
            await asyncio.sleep(0.2)
    await client.sql(f"CREATE JOB again AS {create.replace('AS p', 'AS q').replace('p.', 'q.')}")
    assert "read by made, again" in (await facts(client, "made"))["flow"]
    told = (await client.sql("EXPLAIN made")).data
    assert told is not None
    (joined,) = told["fragments"][0]["tables"]
    assert joined.startswith(f"p of {file} (name, maker; 5 rows, ")
    await client.sql("CREATE JOB most AS SELECT maker, clicks FROM JOB again WHERE clicks > 3")
    assert "read by made, again, most" in (await facts(client, "most"))["flow"]
    assert (await facts(client, "most"))["reads"] == "job again"
    with pytest.raises(UserError, match=r"again is read by most .*drop what reads it first"):
        await client.sql("DROP JOB again")
    with pytest.raises(UserError, match="in a circle: again → most → again"):
        await client.sql("ALTER JOB again AS SELECT maker, COUNT(*) FROM JOB most GROUP BY maker")
    with pytest.raises(UserError, match="again is read by most"):
        await client.sql("ALTER JOB again SET least = 2")
    async with watched(client, "made") as windows, watched(client, "most") as others:
        await until(lambda: len(windows) >= 2, "windows of the first table")
        write(file, makers[1])
        await client.sql("ALTER JOB made SET least = 2")
        assert "is version 3 now" in (await client.sql(f"ALTER JOB made SET TABLE p FROM '{file}'")).text
        await until(lambda: sum(w.version == 3 for w in windows.values()) >= 2, "windows of the second table")
        with pytest.raises(UserError, match="joins no table x; tables: p"):
            await client.sql(f"ALTER JOB made SET TABLE x FROM '{file}'")
        end_us = two.end_writing() - 3 * SECOND_US
        await asyncio.sleep(1)
        of_most = {start: sums(window) for start, window in others.items() if not window.status["missing"]}
        assert len(of_most) > 3
        for start, window in windows.items():
            if start > end_us or window.status["missing"]:
                continue
            known, least = makers[window.version == 3], 1 + (window.version > 1)
            want: dict[str, int] = {}
            for ts, product, n in (row for agent in two.agents for row in agent.written):
                if start <= ts < start + SECOND_US and n >= least and product in known:
                    want[known[product]] = want.get(known[product], 0) + n
            assert window.version > 1 or over(3, want) == of_most.get(start, over(3, want))
            assert sums(window) == want, (window.version, json.dumps(window.status, default=str))
    await client.close()
