"""A job that is reconfigured while it runs, in a fleet of real processes: parameters, functions, failures."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elf.client import Client, Window
from elf.client.results import facts_of
from elf.errors import UserError
from tests.support.confined import needs_confinement
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, clicks, connected, create, watched

pytestmark = needs_confinement

CREATE = (
    f"CREATE JOB steered AS SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} "
    "WHERE clicks_count >= :least GROUP BY product WINDOWING 1 SECONDS WITH (least = 1)"
)
TENFOLD = """\
import pyarrow.compute as pc
def map(batch):
    if "{bomb}" in batch["product"].to_pylist():
        raise ValueError("no {bomb}, please")
    place = batch.schema.get_field_index("clicks_count")
    return batch.set_column(place, "clicks_count", pc.multiply(batch["clicks_count"], 10))
"""

FINAL = """\
def final(batch):
    products = batch["product"].to_pylist()
    if "{bomb}" in products:
        raise ValueError("no {bomb} at the end")
    return batch.take([place for place, product in enumerate(products) if product != "{dropped}"])
"""


async def described(client: Client) -> dict[str, str]:
    return facts_of(await client.sql("DESCRIBE steered"))


async def test_parameters_functions_and_functions_that_raise(three: Fleet, tmp_path: Path) -> None:
    client = await connected(three, 1)
    three.begin_writing()
    await create(client, CREATE)
    watcher = await connected(three, 2)
    async with watched(watcher, "steered") as windows:

        def of(version: int) -> dict[int, Window]:
            return {start: w for start, w in windows.items() if w.version == version}

        await eventually(lambda: len(of(1)) >= 1, "a window of version 1")
        assert "is version 2 now" in (await client.sql("ALTER JOB steered SET least = 3")).text
        await eventually(lambda: len(of(2)) >= 2, "windows of version 2")

        file = tmp_path / "tenfold.py"
        alter = f"ALTER JOB steered SET FUNCTION map FROM '{file}'"
        file.write_text("def map(batch)\n    return batch\n")
        with pytest.raises(UserError, match=r"tenfold\.py:1: SyntaxError"):
            await client.sql(alter)
        await client.sql("ALTER JOB steered SET least = 1")
        three.agents[2].append([(time.time_ns() // 1000, "bomb", 4)])  # functions are tried on the last lines
        await eventually(lambda: any("bomb" in clicks(w) for w in windows.values()), "a window with the bomb")
        file.write_text(TENFOLD.format(bomb="bomb"))
        with pytest.raises(
            UserError, match=r"tenfold\.py:4: ValueError: no bomb.* at row \d+.*the line .*bomb"
        ) as why:
            await client.sql(alter)
        assert "on agent web-2" in str(why.value)
        assert "nothing is changed" in str(why.value)
        assert (await described(client))["version 4"].startswith("aborted: ALTER JOB steered SET FUNCTION")
        assert "function" not in await described(client)

        file.write_text(TENFOLD.format(bomb="petard"))
        assert "is version 5 now" in (await client.sql(alter)).text
        await eventually(lambda: len(of(5)) >= 2, "windows of version 5")
        assert "map of tenfold.py" in (await described(client))["function"]
        lit_us = time.time_ns() // 1000
        three.agents[2].append([(lit_us, "petard", 1)])
        await eventually(
            lambda: len(of(6)) >= 2, "windows of version 6, to which the job went back by itself"
        )
        told = (await described(client))["version 6"]
        assert "rolled back by itself to what version 3 did" in told
        assert "no petard" in told
        assert f"of {three.agents[2].log}" in told

        file = tmp_path / "ends.py"
        alter = f"ALTER JOB steered SET FUNCTION final FROM '{file}'"
        common = next(row["product"] for row in windows[max(windows)].table.to_pylist())
        file.write_text(FINAL.format(bomb=common, dropped=""))
        with pytest.raises(UserError, match=r"ends\.py:4: ValueError: no .* at row \d+ of the window") as why:
            await client.sql(alter)
        assert "nothing is changed" in str(why.value)
        assert ", on its master web-" in str(why.value)
        file.write_text(FINAL.format(bomb="mortar", dropped=common))
        assert "is version 7 now" in (await client.sql(alter)).text
        await eventually(lambda: len(of(7)) >= 2, "windows of version 7")
        assert (await described(client))["function"].startswith("final of ends.py (")
        assert "final of ends.py (" in (await client.sql("EXPLAIN steered")).text
        with pytest.raises(UserError, match="has a function of its own, which Spark does not run"):
            await client.compare_facts("steered")
        fired_us = time.time_ns() // 1000
        three.agents[2].append([(fired_us, "mortar", 1)])
        await eventually(lambda: len(of(8)) >= 2, "windows of version 8, without the function")
        told = (await described(client))["version 8"]
        assert "dropped its final function by itself: ends.py:4: ValueError: no mortar at the end" in told
        assert "function" not in await described(client)
        end_us = three.end_writing() - 3 * SECOND_US
        await eventually(lambda: max(windows) >= end_us, "the last windows")
        for start, window in windows.items():
            if start > end_us or window.status["rejected"] or window.status["missing"]:
                continue
            rows = [row for agent in three.agents for row in agent.written]
            least, times = {2: 3}.get(window.version, 1), {5: 10}.get(window.version, 1)
            want: dict[str, int] = {}
            for ts, product, n in rows:
                if start <= ts < start + SECOND_US and n >= least:
                    want[product] = want.get(product, 0) + n * times
            if window.version == 7 and not window.status["function_failed"]:
                want.pop(common, None)
            assert clicks(window) == want, (window.version, window.status)
        assert {w.status["version"] for w in windows.values()} == {1, 2, 3, 5, 6, 7, 8}
        (shot,) = (w for start, w in windows.items() if start <= fired_us < start + SECOND_US)
        assert shot.version == 8 or shot.status["function_failed"], "it is there, and says so"
        assert clicks(shot)["mortar"] == 1
        (hit,) = (w for start, w in windows.items() if start <= lit_us < start + SECOND_US)
        assert hit.version == 6 or hit.status["rejected"], "what was lost is counted"
    await client.close()


REDUCE = """\
import pyarrow.compute as pc
def reduce(batch):
    if "{bomb}" in batch["product"].to_pylist():
        raise ValueError("no {bomb} in a pane")
    return batch.filter(pc.greater(batch["hits"], 1))
"""
RANGED = (
    f"CREATE JOB steered AS SELECT product, SUM(clicks_count) AS clicks, COUNT(*) AS hits FROM {STREAM} "
    "GROUP BY product WINDOWING 2 SECONDS SLIDE 1 SECONDS TREES 2"
)


async def test_a_partitioned_reduce_function_and_what_becomes_of_it_when_it_raises(
    three: Fleet, tmp_path: Path
) -> None:
    client = await connected(three, 1)
    three.begin_writing()
    await create(client, RANGED)
    watcher = await connected(three, 2)
    file = tmp_path / "several.py"
    alter = f"ALTER JOB steered SET FUNCTION reduce FROM '{file}'"
    async with watched(watcher, "steered") as windows:

        def of(version: int) -> dict[int, Window]:
            return {start: w for start, w in windows.items() if w.version == version}

        await eventually(lambda: len(of(1)) >= 2, "windows of version 1")
        file.write_text(REDUCE.format(bomb="x").replace("reduce", "fold"))
        with pytest.raises(UserError, match=r"several\.py has no `def reduce\(batch\)` at its top level"):
            await client.sql(alter)
        file.write_text("def reduce(batch):\n    raise ValueError('no panes')\n")
        with pytest.raises(UserError, match=r"several\.py:2: ValueError: no panes .*of the pane from") as why:
            await client.sql(alter)
        assert "nothing is changed" in str(why.value)
        assert "on its master web-" in str(why.value)
        file.write_text(REDUCE.format(bomb="petard"))
        assert "is version 2 now" in (await client.sql(alter)).text
        await eventually(lambda: len(of(2)) >= 3, "windows of version 2")
        facts = await described(client)
        assert facts["function"].startswith("reduce of several.py (")
        assert "reduce of several.py (" in (await client.sql("EXPLAIN steered")).text
        with pytest.raises(UserError, match="has a function of its own, which Spark does not run"):
            await client.compare_facts("steered")
        lit_us = time.time_ns() // 1000
        three.agents[2].append([(lit_us, "petard", 1)])
        await eventually(
            lambda: len(of(3)) >= 3, "windows of version 3, to which the job went back by itself"
        )
        told = (await described(client))["version 3"]
        assert "rolled back by itself to what version 1 did: several.py:4: ValueError: no petard" in told
        assert "key range " in told
        assert " of 2; its input is in " in told
        assert " on agent web-" in told
        end_us = three.end_writing() - 3 * SECOND_US
        await eventually(lambda: max(windows) >= end_us, "the last windows")
        for start, window in windows.items():
            if start + 2 * SECOND_US > end_us or window.status["missing"]:
                continue
            panes: dict[tuple[int, str], list[int]] = {}
            for ts, product, n in (row for agent in three.agents for row in agent.written):
                if start <= ts < start + 2 * SECOND_US:
                    panes.setdefault((ts // SECOND_US, product), []).append(n)
            least = 2 if window.version == 2 and not window.status["function_failed"] else 1
            want: dict[str, int] = {}
            for (_, product), found in panes.items():
                if len(found) >= least:
                    want[product] = want.get(product, 0) + sum(found)
            if not window.status["function_failed"]:
                assert clicks(window) == want, (window.version, window.status)
            else:  # of its panes those are not reduced that came after the failure
                assert all(n <= want[product] for product, n in clicks(window).items())
        assert {w.version for w in windows.values()} == {1, 2, 3}
        hit = [w for start, w in windows.items() if start <= lit_us < start + 2 * SECOND_US]
        assert hit
        assert all(w.version == 3 or (w.status["function_failed"] and clicks(w)["petard"] == 1) for w in hit)
    await client.close()


async def test_a_job_that_scales_by_itself_takes_no_query_that_cannot(three: Fleet) -> None:
    """And says which setting is in the way, and how to end it; a query that is wrong is quoted as it is."""
    client = await connected(three, 1)
    three.begin_writing()
    await create(client, RANGED)
    await client.sql("ALTER JOB steered SCALE AUTO (1, 3)")
    grouped = f"SELECT product, COUNT(*) AS hits FROM {STREAM} GROUP BY product WINDOWING"
    for query, why in (
        (f"{grouped} SESSION 1 SECONDS", "its sessions hold rows that"),
        (f"SELECT COUNT(*) AS hits FROM {STREAM} WINDOWING 1 SECONDS", "TREES spreads groups"),
    ):
        with pytest.raises(UserError) as refused:
            await client.sql(f"ALTER JOB steered AS {query}")
        assert str(refused.value).startswith(
            "job steered scales by itself (SCALE AUTO (1, 3)), and what it is to do can't have other trees: "
            + why
        )
        assert str(refused.value).endswith("; ALTER JOB steered TREES 2 ends SCALE AUTO")
    with pytest.raises(UserError, match="nowhere") as wrong:
        await client.sql(f"ALTER JOB steered AS {grouped.replace('COUNT(*)', 'MAX(nowhere)')} 1 SECONDS")
    assert "TREES" not in str(wrong.value)
    await client.sql(f"ALTER JOB steered AS {grouped} 1 SECONDS")
    assert (await described(client))["scale"] == "by itself, 1 to 3 trees"
    await client.sql("ALTER JOB steered TREES 2")
    await client.sql(f"ALTER JOB steered AS {grouped} SESSION 1 SECONDS")
    assert "scale" not in await described(client)
    three.end_writing()
    await client.close()
