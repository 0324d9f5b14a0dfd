"""An owner's budget with real processes: rows are left out on the agent that is over it, and nowhere else; it
is killed meanwhile. Each window says how many rows it stands for, and no row is twice."""

from __future__ import annotations

import json

import pytest

import elf.client
from elf.client import Window
from elf.client.coverage import weight_of
from elf.errors import ElfError
from tests.support.fleet import Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, Windows, clicks, connected, create, watched

NOTHING = {"cpu_share": 0.000001}
"""Who takes anything is over it."""


@pytest.fixture
def guests(two: Fleet) -> Fleet:
    """Of which one is lent next to nothing."""
    two.agents[1].kill()
    two.agents[1].more = {"budgets": {"jobs": {"tests/popular": NOTHING}, "creators": {"ada": NOTHING}}}
    two.agents[1].start()
    return two


async def test_rows_are_left_out_where_the_budget_is_and_each_window_says_so(guests: Fleet) -> None:
    client = await connected(guests, 0)
    guests.begin_writing()
    await create(client)
    async with watched(client, "popular") as windows:
        await eventually(lambda: any(weight_of(w.status) > 1 for w in windows.values()), "rows left out", 60)
        guests.agents[1].kill()
        guests.agents[1].start()
        last = max(windows)
        await eventually(lambda: _weighed_after(windows, last), "it goes on so", 60)
        end_us = guests.end_writing()
        await eventually(lambda: max(windows) >= end_us - 4 * SECOND_US, "the last windows", 40)
    for start, window in sorted(windows.items()):
        if start + 2 * SECOND_US > end_us - 2 * SECOND_US:
            continue
        truth = [guests.truth(start, start + 2 * SECOND_US, without) for without in ((), ("web-1",))]
        _check(guests, window, start, *truth)
    client = await connected(guests, 0)
    explained = await client.sql("EXPLAIN ANALYZE popular")
    assert "web-1: job tests/popular takes" in (explained.text or "")
    assert "web-0: job tests/popular" not in (explained.text or "")
    table = (await client.sql("DESCRIBE popular")).table
    assert table is not None
    facts = {row["fact"]: row["value"] for row in table.to_pylist()}
    assert "left out over job tests/popular on web-1" in facts["estimates"]
    assert "web-1: job tests/popular takes" in facts["budgets"]
    jobs = (await client.sql("SHOW JOBS")).table
    assert jobs is not None
    (row,) = jobs.to_pylist()
    assert "rows of the last window left out over job tests/popular on web-1 (one row in " in row["budget"]
    warnings = json.loads(guests.agents[1].fetched("/health"))["warnings"]
    assert any("job tests/popular takes" in one for one in warnings)
    assert guests.agents[1].metric("budgets_over") >= 1
    assert guests.agents[1].metric("rows_sampled_total", stream="clicks") > 0


def _weighed_after(windows: Windows, start: int) -> bool:
    return any(weight_of(w.status) > 1 for at, w in windows.items() if at > start + 4 * SECOND_US)


def _check(fleet: Fleet, window: Window, start: int, truth: dict[str, int], others: dict[str, int]) -> None:
    """All rows are in it, or stood for; what the other agent has is whole."""
    status = window.status
    if status["missing"]:
        return
    rows = [ts for agent in fleet.agents for ts, _, _ in agent.written if start <= ts < start + 2 * SECOND_US]
    assert status["rows_in"] == len(rows), status
    assert {one["agent"] for one in status["budgets"]} <= {"web-1"}  # type: ignore[attr-defined]
    found = clicks(window)
    if weight_of(status) == 1:
        assert (found, status["sampled"]) == (truth, 0)
    else:
        assert all(found.get(product, 0) >= count for product, count in others.items())


async def test_who_is_over_a_budget_gets_no_new_job_there(guests: Fleet) -> None:
    client = await connected(guests, 1)
    guests.begin_writing()
    ada = await elf.client.connect(guests.agents[1].address, cluster="test", creator="ada").open()
    query = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 2 SECONDS"
    await ada.sql(f"CREATE JOB mine AS {query}")  # before another one tells what it costs
    await create(client)

    async def refused() -> str:
        try:
            await ada.sql(f"CREATE JOB more AS {query}")
            await ada.sql("DROP JOB more")
        except ElfError as error:
            return str(error)
        return ""

    said = str(await eventually(refused, "it is refused", 40))
    assert "creator ada takes" in said
    assert "drop or pause a job first" in said
    assert "\n" not in said


async def test_what_a_job_would_cost_is_told_before_by_those_that_run(guests: Fleet) -> None:
    client = await connected(guests, 1)
    like = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 4 SECONDS"
    guests.begin_writing()

    async def before() -> bool:
        return "not known before some job" in (await client.sql(f"EXPLAIN {like}")).text

    await eventually(before, "a line, and no job", 30, despite=(ElfError,))
    await create(client, "CREATE JOB one AS SELECT COUNT(*) AS n FROM clicks WINDOWING 2 SECONDS")
    await create(client)

    async def told() -> str:
        _, _, cost = (await client.sql(f"EXPLAIN {like}")).text.partition("cost at the agents")
        known = "a job with the same groups (popular); 2 of 2 agents asked" in cost
        return cost if known and "web-0" in cost and "web-1" in cost else ""

    await eventually(told, "panes tell what it costs, at both", 30)
    same = (await client.sql("EXPLAIN SELECT COUNT(*) AS n FROM clicks WINDOWING 2 SECONDS")).text
    assert "nothing more, all that it reads is computed already" in same
    ada = await elf.client.connect(guests.agents[1].address, cluster="test", creator="ada").open()

    async def refused() -> str:
        with pytest.raises(ElfError, match=r"job dear would take some .* told by .*; ada has") as refusal:
            await ada.sql(f"CREATE JOB dear AS {like}")
        return str(refusal.value) if "told by a job with the same groups" in str(refusal.value) else ""

    await eventually(refused, "panes tell what it costs, where it is created", 30)
