"""An aggregate of one's own in a fleet of real processes: sent, called, replaced and dropped."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from elf.client import Client, Result
from elf.client.results import facts_of
from elf.errors import UserError
from tests.support.confined import needs_confinement
from tests.support.fleet import STREAM, Fleet
from tests.support.own import MEAN, OF_MEANS
from tests.support.waiting import eventually
from tests.support.watching import connected, create, watched

pytestmark = needs_confinement

JOB = (
    f"CREATE JOB own AS SELECT product, geo(clicks_count) AS g, exp(AVG(ln(clicks_count))) AS by_hand "
    f"FROM {STREAM} WHERE clicks_count > 0 GROUP BY product WINDOWING 2 SECONDS SLIDE 1 SECONDS"
)


async def shown(client: Client) -> list[dict[str, str]]:
    found: Result = await client.sql("SHOW AGGREGATES")
    return [] if found.table is None else found.table.to_pylist()


async def test_it_is_sent_called_replaced_and_dropped(three: Fleet, tmp_path: Path) -> None:
    client, other = await connected(three, 1), await connected(three, 2)
    file = tmp_path / "mean.py"
    sent = f"CREATE AGGREGATE geo FROM '{file}'"
    three.begin_writing()
    file.write_text(OF_MEANS)
    with pytest.raises(UserError, match=r"mean\.py: GeometricMean: merge\(\) is not associative: of \["):
        await client.sql(sent)
    assert await shown(other) == []
    file.write_text(MEAN)
    said = (await client.sql(sent)).text
    assert said.startswith("aggregate geo created: geo(double) gives double; its laws hold on drawn rows")
    with pytest.raises(UserError, match="aggregate geo exists already"):
        await client.sql(sent)
    await create(client, JOB)
    async with watched(other, "own") as windows:
        await eventually(
            lambda: sum(w.whole and w.table.num_rows > 0 for w in windows.values()) > 4, "windows"
        )
        for row in (row for window in windows.values() for row in window.table.to_pylist()):
            assert math.isclose(row["g"], row["by_hand"], rel_tol=1e-9)
        assert not any(window.status["function_failed"] for window in windows.values())
        (row,) = await shown(other)
        assert (row["aggregate"], row["takes"], row["used by"]) == ("geo", "double", "job own")
        with pytest.raises(UserError, match="aggregate geo is used by job own: drop or alter that first"):
            await client.sql("DROP AGGREGATE geo")
        file.write_text(MEAN.replace("np.exp", "-np.exp"))
        again = (await client.sql(sent.replace("CREATE", "CREATE OR REPLACE"))).text
        assert again.startswith("aggregate geo replaced")
        assert again.endswith("; jobs that run keep the one before: job own")
        before = max(windows)
        await eventually(lambda: max(windows) > before + 2_000_000, "windows after it was replaced")
        assert all(row["g"] > 0 for row in windows[max(windows)].table.to_pylist())
    told = facts_of(await client.sql("DESCRIBE own"))
    assert told["aggregates"].startswith("geo of mean.py (")
    assert "DROP JOB" not in (await client.sql("DROP JOB own")).text
    assert (await client.sql("DROP AGGREGATE geo")).text == "aggregate geo dropped"
    assert await shown(client) == []
    with pytest.raises(UserError, match="function GEO is not supported yet"):
        await client.sql(JOB)
