"""Whose job it is: others may read it, and nobody else changes it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from elf.client import Client, connect
from elf.errors import ElfError, UserError
from tests.support.commands import elf_beside
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually

QUERY = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
PROGRAM = """
from elf.job import Job

class Quiet(Job):
    pass
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    fleet = Fleet(tmp_path_factory.mktemp("owner"), 1)
    fleet.start()
    fleet.agents[0].append([(time.time_ns() // 1000, "Myst", 1)])
    yield fleet.agents[0]
    fleet.stop()


@contextlib.asynccontextmanager
async def as_(creator: str, agent: Agent) -> AsyncIterator[Client]:
    async with connect(agent.address, cluster=agent.cluster, creator=creator) as client:
        yield client


async def begun(agent: Agent) -> None:
    async def made() -> bool:
        async with as_("ada", agent) as ada:
            if "top" not in await names(ada):
                await ada.sql(f"CREATE JOB top AS {QUERY}")
                await ada.submit(PROGRAM, "quiet.py", "quiet")
            return True

    await eventually(made, "ada's jobs", despite=(ElfError,))


async def names(client: Client) -> list[str]:
    table = (await client.sql("SHOW JOBS")).table
    return [] if table is None else table["job"].to_pylist()


CHANGES = (
    "DROP JOB top",
    "PAUSE JOB top",
    "RESUME JOB top",
    "EMPTY JOB top",
    "ROLLBACK JOB top TO VERSION 1",
    f"ALTER JOB top AS {QUERY}",
    "ALTER JOB top SET least = 1",
    "NOTIFY JOB top 'half price'",
)


@pytest.mark.parametrize("change", [*CHANGES, "DROP JOB quiet"])
async def test_nobody_changes_the_job_of_another(agent: Agent, change: str) -> None:
    await begun(agent)
    name = "quiet" if "quiet" in change else "top"
    async with as_("eve", agent) as eve:
        with pytest.raises(UserError) as refused:
            await eve.sql(change)
        assert str(refused.value) == f"job {name} is ada's, and only ada may change it (this is eve)"
        assert {"top", "quiet"} <= {*await names(eve)}
        assert "ada" in str((await eve.sql("DESCRIBE top")).table), "others may read it"
        assert "master" in (await eve.sql("EXPLAIN top")).text


async def test_replacing_makes_a_job_of_ones_own(agent: Agent) -> None:
    await begun(agent)
    async with as_("eve", agent) as eve:
        await eve.sql(f"CREATE OR REPLACE JOB top AS {QUERY}")
        await eve.submit(PROGRAM, "quiet.py", "quiet", replace=True)
        assert sorted(await names(eve)) == ["quiet", "quiet", "top", "top"]
        async with as_("bob", agent) as bob:
            with pytest.raises(UserError, match="jobs top of ada, eve, none of bob: --creator says whose"):
                await bob.sql("DROP JOB top")
        await eve.sql("DROP JOB top")
        await eve.sql("DROP JOB quiet")
        with pytest.raises(UserError, match="job top is ada's"):
            await eve.sql("DROP JOB top")
        assert sorted(await names(eve)) == ["quiet", "top"]


async def test_the_commands_say_whose(agent: Agent, tmp_path: Path) -> None:
    await begun(agent)
    where = ("--connect", agent.address, "--cluster", agent.cluster)
    async with as_("ada", agent) as ada:
        await ada.sql(f"CREATE JOB mine AS {QUERY}")
    refused = await elf_beside("sql", "DROP JOB mine", "--creator", "eve", *where)
    assert (refused.returncode, refused.stderr) == (
        1,
        "elf: job mine is ada's, and only ada may change it (this is eve)\n",
    )
    dropped = await elf_beside("sql", "DROP JOB mine", "--creator", "ada", *where)
    assert (dropped.returncode, dropped.stdout) == (0, "job mine dropped\n")
