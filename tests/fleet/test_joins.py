"""A stream joined with a table, and a job that reads a job, in a fleet of real processes: shared, refreshed,
explained, and what is refused.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from elf.client import Client, Window
from elf.client.results import facts_of
from elf.errors import UserError
from tests.support.fleet import PRODUCTS, STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, connected, create, start_us, watched

QUERY = (
    f"SELECT maker, SUM(clicks_count) AS clicks FROM {STREAM} JOIN '{{}}' AS p ON product = p.name "
    "WHERE clicks_count >= :least GROUP BY maker WINDOWING 1 SECONDS WITH (least = 1)"
)


def write(path: Path, makers: dict[str, str]) -> None:
    path.write_text(
        "\n".join(["name,maker,unused", *(f"{name},{maker},x" for name, maker in makers.items())])
    )


async def facts(client: Client, job: str) -> dict[str, str]:
    return facts_of(await client.sql(f"DESCRIBE {job}"))


async def explained(client: Client, job: str) -> dict[str, Any]:
    told = (await client.sql(f"EXPLAIN {job}")).data
    assert told is not None
    return told


def sums(window: Window) -> dict[str, int]:
    return {row["maker"]: int(row["clicks"]) for row in window.table.to_pylist()}


def met_by_hand(fleet: Fleet, start: int) -> set[tuple[str, int, int | None]]:
    """Clicks of each maker, and how many rows, if there is more than one."""
    rows = [row for agent in fleet.agents for row in agent.written if start <= row[0] < start + SECOND_US]
    found = set()
    for maker in {product[0] for _, product, _ in rows if product in PRODUCTS}:
        counts = [n for _, product, n in rows if product[0] == maker]
        found.add((maker, sum(counts), len(counts) if len(counts) > 1 else None))
    return found


def over(least: int, of: dict[str, int]) -> dict[str, int]:
    return {maker: clicks for maker, clicks in of.items() if clicks > least}


async def some_windows(client: Client, sql: str, count: int) -> list[Window]:
    return [window async for window in client.subscribe(sql, windows=count)]


def same_landmark(read: list[Window], of_job: list[Window]) -> None:
    """The windows of a job that began later are those of the job that it reads."""
    known = {window.end: window for window in of_job}
    both = [(window, known[window.end]) for window in read if window.end in known]
    assert both
    for mine, other in both:
        assert mine.start == other.start
        rows = [row for row in other.table.to_pylist() if row["clicks"] > 3]
        assert [(r["product"], r["clicks"]) for r in mine.table.to_pylist()] == [
            (r["product"], r["clicks"]) for r in rows
        ]


async def test_a_table_goes_with_a_job_and_is_refreshed(two: Fleet, tmp_path: Path) -> None:
    client = await connected(two, 0)
    two.begin_writing()
    makers = [{name: name[0] for name in PRODUCTS}, {name: f"new {name[-1]}" for name in PRODUCTS[1:]}]
    file = tmp_path / "the makers.csv"
    with pytest.raises(UserError, match=r"the makers\.csv cannot be read: no such file"):
        await client.sql(QUERY.format(file))
    write(file, makers[0])
    query = QUERY.format(file)
    await create(client, f"CREATE JOB made AS {query}")
    await client.sql(f"CREATE JOB again AS {query.replace('AS p', 'AS q').replace('p.', 'q.')}")
    assert "read by made, again" in (await facts(client, "made"))["flow"]
    told = await explained(client, "made")
    (joined,) = told["fragments"][0]["tables"]
    assert joined.startswith(f"p of {file} (name, maker; 5 rows, ")
    await client.sql(
        f"CREATE JOB ever AS SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} GROUP BY product "
        "WINDOWING LANDMARK EVERY 1 SECONDS"
    )
    await client.sql("CREATE JOB most AS SELECT maker, clicks FROM JOB again WHERE clicks > 3")
    assert "read by made, again, most" in (await facts(client, "most"))["flow"]
    assert (await facts(client, "most"))["reads"] == "job again"
    with pytest.raises(UserError, match=r"again is read by most .*drop what reads it first"):
        await client.sql("DROP JOB again")
    with pytest.raises(UserError, match="in a circle: again → most → again"):
        await client.sql("ALTER JOB again AS SELECT maker, COUNT(*) FROM JOB most GROUP BY maker")
    mine = r"most joins no table q; tables: none; q is a table of a job that it reads, which stays as it is"
    with pytest.raises(UserError, match=mine):
        await client.sql(f"ALTER JOB most SET TABLE q FROM '{file}'")
    with pytest.raises(UserError, match="again is read by most"):
        await client.sql("ALTER JOB again SET least = 2")
    async with watched(client, "made") as windows, watched(client, "most") as others:
        await eventually(lambda: len(windows) >= 2, "windows of the first table")
        since = "SELECT product, clicks FROM JOB ever WHERE clicks > 3"
        parts = [("ever", 6), (since, 2), (since, 2), (since, 2)]  # at the root of the flow, and elsewhere
        of_job, *read = await asyncio.gather(*(some_windows(client, *part) for part in parts))
        for some in read:
            same_landmark(some, of_job)
        await client.sql(
            f"CREATE JOB counts AS SELECT substr(product, 1, 1) AS m, COUNT(*) AS n FROM {STREAM} GROUP BY m "
            "HAVING COUNT(*) > 1 WINDOWING 1 SECONDS"
        )
        both = "SELECT maker, clicks, n FROM JOB again AS a LEFT JOIN JOB counts AS c ON a.maker = c.m"
        met = await some_windows(client, both, 3)
        await client.sql(f"CREATE JOB both AS {both}")
        with pytest.raises(UserError, match="counts is read by both"):
            await client.sql("DROP JOB counts")
        told = await explained(client, "both")
        assert [flow["shared_with"] for flow in told["flows"]] == [["again", "made", "most"], ["counts"]]
        write(file, makers[1])
        await client.sql("ALTER JOB made SET least = 2")
        assert "is version 3 now" in (await client.sql(f"ALTER JOB made SET TABLE p FROM '{file}'")).text
        await eventually(
            lambda: sum(w.version == 3 for w in windows.values()) >= 2, "windows of the second table"
        )
        with pytest.raises(UserError, match="joins no table x; tables: p"):
            await client.sql(f"ALTER JOB made SET TABLE x FROM '{file}'")
        end_us = two.end_writing() - 3 * SECOND_US
        await eventually(lambda: min(max(windows), max(others)) >= end_us, "the last windows")
        for window in met:
            if not window.status["missing"]:
                assert {
                    (r["maker"], int(r["clicks"]), r["n"]) for r in window.table.to_pylist()
                } == met_by_hand(two, start_us(window))
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
