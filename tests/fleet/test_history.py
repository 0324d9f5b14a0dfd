"""What is over, asked of a fleet of real agents: past windows as a table, and the rows of a cell, which
counted again give the cell."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from elf.client import Client
from elf.errors import UserError
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

BUSY = (
    f"CREATE JOB busy AS SELECT product, COUNT(*) AS n, SUM(clicks_count) AS clicks FROM {STREAM} "
    "WHERE product <> 'Pong' GROUP BY product WINDOWING 2 SECONDS EMIT FINAL REVISE 60 SECONDS"
)
Cells = Mapping[tuple[datetime, str], int]


async def cells(client: Client) -> dict[tuple[datetime, str], int]:
    """COUNT of each cell of all windows, as they are kept."""
    result = await client.sql("SELECT window_start, product, n FROM JOB busy WINDOWS ORDER BY ALL")
    rows = [] if result.table is None else result.table.to_pylist()
    return {(row["window_start"], row["product"]): row["n"] for row in rows}


async def newest(client: Client, version: int) -> datetime:
    """Where the last window begins that a version has committed."""
    result = await client.sql(
        f"SELECT max(window_start) AS m FROM JOB busy WINDOWS WHERE version = {version}"
    )
    assert result.table is not None
    start: datetime = result.table["m"][0].as_py()
    return start


def to_us(moment: datetime) -> int:
    return int(moment.replace(tzinfo=UTC).timestamp() * 1e6)


def at(start: datetime) -> str:
    return f"{start.isoformat()}Z"


async def recounted(client: Client, start: datetime) -> tuple[Counter[str], dict[str, object]]:
    """The rows of a window by product, and what is said of them."""
    result = await client.sql(f"ROWS OF busy WINDOW '{at(start)}' LIMIT 100000")
    assert result.table is not None
    assert result.data is not None
    lines = result.table["_line"].to_pylist()
    return Counter(line.split('"product": "')[1].split('"')[0] for line in lines), result.data


async def all_recounted(client: Client, starts: Sequence[datetime]) -> str:
    """Why rows do not give their cells; empty: they do."""
    known = await cells(client)
    for start in starts:
        found, said = await recounted(client, start)
        wanted = {product: n for (at, product), n in known.items() if at == start}
        if found != wanted or not said["complete"]:
            return f"{start}: {found} of {wanted}, {said}"
    return ""


async def test_rows_of_a_cell_are_counted_again(three: Fleet, tmp_path: Path) -> None:
    async with await connected(three, 0) as client:
        three.begin_writing()
        await create(client, BUSY)
        await asyncio.sleep(5)
        await client.sql(BUSY.replace("CREATE", "ALTER").replace("'Pong'", "'Myst'"))
        three.agents[1].kill()
        await asyncio.sleep(1)
        three.agents[1].start()
        # a late row revises windows of the version of now alone: those of the one before are over
        start = await eventually(lambda: newest(client, 2), "a window of version 2", 30, despite=(UserError,))
        three.agents[2].append([(to_us(start) + 10_000 * n, "Riven", 1) for n in range(40)])

        async def revised() -> bool:
            answer = await client.sql(
                "SELECT n FROM JOB busy WINDOWS ALL REVISIONS SINCE '-10 minutes' "
                f"WHERE product = 'Riven' AND revision > 0 AND window_start = '{start}' AND n = 40"
            )
            return answer.table is not None and answer.table.num_rows > 0

        await eventually(revised, "a window that late rows revise", 30, despite=(UserError,))

        async def several() -> bool:
            return len({start for start, _ in await cells(client)}) >= 5

        await eventually(several, "five windows", 30)
        end = three.end_writing()

        async def kept() -> bool:
            known = await cells(client)
            return bool(known) and to_us(max(start for start, _ in known)) > end - 4e6

        await eventually(kept, "windows up to the last rows", 30)
        versions = await client.sql("SELECT DISTINCT version FROM JOB busy WINDOWS ORDER BY version")
        assert versions.table is not None
        assert versions.table["version"].to_pylist() == [1, 2]
        starts = sorted({start for start, _ in await cells(client)})
        await eventually(lambda: same(client, starts), lambda: "rows that give the cells", 30)

        # the same windows in a file
        path = tmp_path / "busy.parquet"
        until = at(starts[-2])
        words = ["offline", "export", "busy", "--out", str(path), "--from", "-1 hour", "--to", until]
        options = ["--connect", three.agents[0].address, "--cluster", "test"]
        command = [sys.executable, "-m", "elf.cli.main", *words, *options]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        exported = pq.read_table(path)
        every = await client.sql(f"SELECT * FROM JOB busy WINDOWS UNTIL '{until}'")
        assert every.table is not None
        assert exported.column_names == every.table.column_names
        assert sorted(map(str, exported.to_pylist())) == sorted(map(str, every.table.to_pylist()))

        # a condition, a bound, and who has what
        start = starts[len(starts) // 2]
        doom = await client.sql(f"ROWS OF busy WINDOW '{at(start)}' WHERE product = 'Doom' LIMIT 2")
        assert doom.table is not None
        assert doom.data is not None
        assert doom.data["rows"] == (await cells(client)).get((start, "Doom"), 0)
        assert doom.table.num_rows == min(2, int(str(doom.data["rows"])))
        assert doom.table.column_names == ["time", "_agent", "_source", "_offset", "_line"]

        # an agent that is away, and archives that are gone, are said
        master = (await client.tree("busy"))["master"]
        away = next(agent for agent in three.agents[1:] if agent.address != master)
        away.kill()
        _, said = await recounted(client, starts[0])  # of all agents
        assert not said["complete"]
        assert away.name in str(said["why"])
        away.start()
        await eventually(lambda: same(client, starts[:1]), lambda: "the agent is back", 30)
        for path in (three.agents[0].folder / "archive").rglob("*.parquet"):
            path.unlink()
        _, said = await recounted(client, starts[0])
        assert not said["complete"]
        assert "are not in its archive" in str(said["why"])

        for sql, text in (
            ("ROWS OF busy WINDOW 'soon'", "that is no time"),
            ("ROWS OF busy WINDOW '2020-01-01'", "no committed window of job busy starts at"),
            ("ROWS OF nothing WINDOW '2020-01-01'", "there is no job nothing"),
            (f"ROWS OF busy WINDOW '{at(start)}' WHERE nothing = 1", "nothing"),
            ("SELECT * FROM JOB busy WINDOWS SINCE 'soon'", "that is no time"),
            ("SELECT nothing FROM JOB busy WINDOWS", "over past windows DuckDB says"),
            ("SELECT * FROM JOB busy WINDOWS, read_csv('/etc/passwd')", "over past windows DuckDB says"),
            ("SELECT 1 FROM JOB busy WINDOWS SINCE '-1 hour' UNTIL '-2 hours'", "there is no time between"),
        ):
            with pytest.raises(UserError, match=text):
                await client.sql(sql)


async def same(client: Client, starts: Sequence[datetime]) -> bool:
    why = await all_recounted(client, starts)
    if why:
        print(why)
    return not why
