"""A helper maps the rows of a web server with real processes: a Python map function, one archive for all,
and a helper that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import elf.client
from elf.client import Client
from elf.client.results import facts_of
from elf.errors import ElfError, UserError
from tests.support.confined import needs_confinement
from tests.support.fleet import STREAM, Fleet
from tests.support.waiting import eventually
from tests.support.watching import SECOND_US, Windows, clicks, create, watched

pytestmark = needs_confinement

CREATE = (
    f"CREATE JOB heavy AS SELECT product, SUM(clicks_count) AS clicks FROM {STREAM} "
    "GROUP BY product WINDOWING 2 SECONDS"
)
SAME = """\
def map(batch):
    return batch
"""


@pytest.fixture
def helped(tmp_path: Path) -> Iterator[Fleet]:
    """Two agents that read lines and one that has none; all archive to one place."""
    fleet = Fleet(tmp_path, 3)
    for agent in fleet.agents:
        agent.more = {"archive": {"path": str(tmp_path / "archive"), "roll_secs": 1}}
    fleet.agents[2].more["streams"] = {}
    fleet.start()
    yield fleet
    fleet.stop()


def wrong(fleet: Fleet, windows: Windows, until_us: int) -> list[int]:
    """The starts of windows that end before and are not right (yet)."""
    return [
        start
        for start, one in sorted(windows.items())
        if start + 2 * SECOND_US <= until_us
        and (
            one.status["missing"]
            or clicks(one) != fleet.truth(start, start + 2 * SECOND_US, without=("web-2",))
        )
    ]


async def connected(fleet: Fleet) -> Client:
    """A client, as soon as both agents with lines are members."""

    async def with_both() -> Client | None:
        client = await elf.client.connect(fleet.agents[0].address, cluster="test", creator="tests").open()
        if (await client.status())["streams"] == {STREAM: 2}:
            return client
        await client.close()
        return None

    client = await eventually(with_both, fleet.agents[0].said, 60, despite=(ElfError,))
    assert client is not None
    return client


async def test_a_helper_maps_what_a_web_server_has_archived(helped: Fleet, tmp_path: Path) -> None:
    client, watcher = await connected(helped), await connected(helped)
    helped.begin_writing()
    await create(client, CREATE)
    file = tmp_path / "same.py"
    file.write_text(SAME)
    await client.sql(f"ALTER JOB heavy SET FUNCTION map FROM '{file}'")
    with pytest.raises(UserError, match="web-1 would be its own helper"):
        await client.sql("ALTER JOB heavy OFFLOAD 'web-1' TO 'web-1'")
    with pytest.raises(UserError, match="no agent web-2 is expected"):
        await client.sql("ALTER JOB heavy OFFLOAD 'web-2' TO 'web-1'")
    async with watched(watcher, "heavy") as windows:

        def archived() -> int:
            return sum(int(str(one.status["archived"])) > 0 for one in windows.values())

        helper = helped.agents[2].address
        with pytest.raises(UserError, match=r"no agent answers at 127\.0\.0\.1:1: start it first"):
            await client.sql("ALTER JOB heavy OFFLOAD 'web-1' TO '127.0.0.1:1'")
        moved = f"ALTER JOB heavy OFFLOAD 'web-1' TO '{helper}'"
        said = await eventually(lambda: client.sql(moved), "it has joined", 60, despite=(UserError,))
        assert f"{helper} maps the rows of web-1, from its archive: windows come later" in said.text
        await eventually(lambda: archived() >= 3, "windows with rows that the helper has mapped", 90)
        described = facts_of(await client.sql("DESCRIBE JOB heavy"))
        assert described["offloaded"].startswith(f"the rows of web-1 are mapped by {helper} since")
        assert f"the rows of web-1 are mapped by {helper}" in (await client.sql("EXPLAIN heavy")).text
        decided = (await client.sql("SHOW DECISIONS")).table
        assert decided is not None
        assert decided["changes"].to_pylist() == ["map of web-1"]
        helped.agents[2].kill()
        helped.agents[2].start()
        had = archived()
        await eventually(lambda: archived() >= had + 3, "the helper goes on", 120)
        await client.sql("ALTER JOB heavy OFFLOAD 'web-1' BACK")
        last = max(windows)
        await eventually(
            lambda: any(not w.status["archived"] and start > last for start, w in windows.items()), "live", 90
        )
        end_us = helped.end_writing()
        await eventually(lambda: max(windows) + 4 * SECOND_US > end_us - 2 * SECOND_US, "the last ones", 90)
        await eventually(lambda: not wrong(helped, windows, end_us - 2 * SECOND_US), "all are right", 60)
    assert "offloaded" not in facts_of(await client.sql("DESCRIBE JOB heavy"))
    await client.close()
