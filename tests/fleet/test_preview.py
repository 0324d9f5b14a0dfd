"""ALTER JOB … PREVIEW in a fleet of real processes: the job stays as it is, whoever goes away."""

from __future__ import annotations

import asyncio

import pytest

from elf.cli.previewing import Pending
from elf.client import Client
from elf.client.previews import Costs, Previewed
from elf.errors import UserError
from tests.support.commands import elf_beside
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

CREATE = (
    f"CREATE JOB steered AS SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} "
    "WHERE clicks_count >= :least GROUP BY product WINDOWING 1 SECONDS WITH (least = 1)"
)
READER = "CREATE JOB over AS SELECT COUNT(*) AS n FROM JOB steered WINDOWING 2 SECONDS"


async def previewed(client: Client, change: str) -> tuple[list[Previewed], Costs]:
    found = [one async for one in client.preview(f"ALTER JOB steered {change}")]
    assert isinstance(found[-1], Costs)
    return [one for one in found if isinstance(one, Previewed)], found[-1]


async def flows_of(client: Client) -> int:
    """A SELECT's ends soon after it."""
    flows = (await client.status())["flows"]
    assert isinstance(flows, int)
    return flows


async def test_both_versions_side_by_side_and_the_job_as_it_was(two: Fleet) -> None:
    client = await connected(two, 1)
    two.begin_writing()
    await create(client, CREATE)

    pairs, costs = await previewed(client, "SET least = 3 PREVIEW 3 WINDOWS")
    assert len(pairs) == 3
    assert [one.before is not None for one in pairs] == [True] * 3
    for one in pairs:
        assert one.before is not None
        assert (one.before.start, one.before.end) == (one.window.start, one.window.end)
        changes = one.window.changes
        assert changes is not None
        signs = changes["_op"].to_pylist()
        assert (signs.count("-"), signs.count("+")) == (one.gone, one.come)
        old, new = (
            {r["product"]: r["clicks"] for r in w.table.to_pylist()} for w in (one.before, one.window)
        )
        assert old.keys() >= new.keys()
        assert one.alike == sum(new.get(product) == clicks for product, clicks in old.items())
    rows = {row["cost"]: (row["now"], row["new"]) for row in costs.table.to_pylist()}
    assert min(rows["rows"]) > 0
    assert costs.shared == 0

    _, costs = await previewed(client, "AS SELECT product, SUM(clicks_count) AS clicks, COUNT(*) AS n "
                               f"FROM {STREAM} WHERE clicks_count >= 1 GROUP BY product "
                               "WINDOWING 1 SECONDS PREVIEW 1 WINDOWS")  # fmt: skip
    assert costs.columns_come == ("n",)
    _, costs = await previewed(client, "AS SELECT product, SUM(clicks_count) AS clicks "
                               f"FROM {STREAM} WHERE clicks_count >= 1 GROUP BY product "
                               "ORDER BY clicks LIMIT 2 WINDOWING 1 SECONDS PREVIEW 1 WINDOWS")  # fmt: skip
    assert costs.shared == 1  # the agents do no more for it

    # Nothing has changed, and COMMIT makes it so.
    told = (await client.sql("DESCRIBE steered")).table
    assert told is not None
    assert not any(fact.startswith("version ") for fact in told["fact"].to_pylist())
    done = await elf_beside(
        "sql", "--connect", two.agents[0].address, "--cluster", "test", "--creator", "tests", "-e",
        "ALTER JOB steered SET least = 3 PREVIEW 1 WINDOWS; COMMIT",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "version 1 (-) beside the new one (+); nothing is changed" in done.stderr
    assert "1 of 1 windows are in both" in done.stderr
    assert "job steered is version 2 now" in done.stdout
    with pytest.raises(UserError, match="is version 2 by now, and the preview was beside version 1"):
        await Pending(costs.preview).statement("COMMIT", client)

    await eventually(lambda: client.sql(READER), "version 1 has ended", 20, despite=(UserError,))
    with pytest.raises(UserError, match="is read by over"):
        await client.sql("ALTER JOB steered SET least = 4")
    _, costs = await previewed(client, "SET least = 4 PREVIEW 1 WINDOWS")
    assert costs.preview.readers == ("over",)
    for change, why in (
        ("SET least = 3 PREVIEW 1 WINDOWS", "nothing changes: that is what version 2 does"),
        ("SET least = 4 PREVIEW 0 WINDOWS", "PREVIEW wants 1 to 100 WINDOWS"),
        ("SET most = 4 PREVIEW 1 WINDOWS", "most"),
        ("SET least = 4", "this is no ALTER JOB"),
    ):
        if change == "SET least = 4":
            await client.sql("DROP JOB over")
        with pytest.raises(UserError, match=why):
            await previewed(client, change)
    await client.close()


async def test_who_goes_away_leaves_nothing_of_a_preview(two: Fleet) -> None:
    client = await connected(two, 1)
    two.begin_writing()
    await create(client, CREATE)
    other = await connected(two, 0)
    before = await flows_of(client)

    async def read() -> None:
        async for _ in other.preview("ALTER JOB steered SET least = 3 PREVIEW 100 WINDOWS"):
            pass

    reading = asyncio.create_task(read())
    await eventually(lambda: _more(client, before), "the flow of the preview", 20)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await other.close()
    await eventually(lambda: _as_many(client, before), "the flow has ended", 40)
    async for window in client.subscribe("steered", windows=2):
        assert window.version == 1
    await client.close()


async def _more(client: Client, than: int) -> bool:
    return await flows_of(client) > than


async def _as_many(client: Client, as_then: int) -> bool:
    return await flows_of(client) == as_then
