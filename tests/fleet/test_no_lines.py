"""Streams of which no line was read yet, what is declared of them, and queries that say no windows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import elf.client
from elf.client import Client
from elf.errors import ElfError, UserError
from tests.support.fleet import Fleet
from tests.support.waiting import eventually


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Fleet]:
    """One agent with streams whose logs are not there yet."""
    fleet = Fleet(tmp_path, 1)
    told = {"declared": {"ts": "timestamp", "n": "bigint"}, "timeless": {"n": "bigint"}, "plain": {}}
    fleet.agents[0].quiet |= told
    fleet.start()
    yield fleet
    fleet.stop()


async def _client(fleet: Fleet) -> Client:
    async def with_all() -> Client | None:
        client = await elf.client.connect(fleet.agents[0].address, cluster="test", creator="tests").open()
        if len(dict((await client.status())["streams"])) == 4:  # type: ignore[call-overload]
            return client
        await client.close()
        return None

    client = await eventually(with_all, fleet.agents[0].said, 40, despite=(ElfError,))
    assert client is not None
    return client


async def _refused(client: Client, sql: str) -> str:
    with pytest.raises(UserError) as refusal:
        await client.sql(sql)
    return str(refusal.value)


async def test_what_is_declared_is_known_before_the_first_line(quiet: Fleet) -> None:
    async with await _client(quiet) as client:
        described = await client.sql("DESCRIBE declared")
        assert described.table is not None
        assert described.table.to_pylist() == [
            {"column": "n", "type": "bigint"},
            {"column": "ts", "type": "timestamp"},
        ]
        await client.sql("CREATE JOB sums AS SELECT SUM(n) AS s FROM declared WINDOWING 1 SECONDS")
        for number in (1, 2):
            with (quiet.agents[0].folder / "declared.log").open("a") as log:
                now = time.time_ns() // 1_000_000
                log.write("".join(f'{{"ts":{now + later},"n":{number}}}\n' for later in (0, 3_000)))
            if number == 1:
                async for window in client.subscribe("sums", windows=1):
                    assert window.table.to_pylist()[0]["s"] >= 1
        for sql in ("DESCRIBE plain", "CREATE JOB p AS SELECT COUNT(*) AS n FROM plain WINDOWING 1 SECONDS"):
            said = await _refused(client, sql)
            assert "has read a line of stream plain yet" in said
            assert "declare them (columns: of stream plain in the agents' settings)" in said
        assert "this stream has none" in await _refused(
            client, "CREATE JOB p AS SELECT COUNT(*) AS n FROM timeless WINDOWING 1 SECONDS"
        )
        assert "columns: {rare: TYPE} of stream declared" in await _refused(
            client, "CREATE JOB r AS SELECT COUNT(rare) AS n FROM declared WINDOWING 1 SECONDS"
        )


async def test_a_query_without_windows_is_told_which_there_are(quiet: Fleet) -> None:
    """And what it is told to write is taken."""
    async with await _client(quiet) as client:
        said = await _refused(client, "CREATE JOB all_of_it AS SELECT COUNT(*) AS n FROM declared")
        for windows in ("WINDOWING 30 SECONDS", "WINDOWING LANDMARK EVERY 30 SECONDS"):
            assert windows in said
            name = f"j{len(windows)}"
            await client.sql(f"CREATE JOB {name} AS SELECT COUNT(*) AS n FROM declared {windows}")
