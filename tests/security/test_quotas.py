"""One creator cannot fill a fleet, nor keep an agent busy: what is over a quota is refused and counted."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from agents.answering.quotas import (
    BURST_SECS,
    CREATORS_MAX,
    LOOK_MS,
    MINUTE_MS,
    Creators,
    OverQuota,
    Quotas,
)
from elf.client import connect
from elf.errors import ElfError, UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.program.spec import ProgramSpec
from elf.planning.budgets import BudgetKeeper
from elf.planning.lent import Budgets
from lab.chaos.engine import plan, spec_of
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually

QUERY = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
PROGRAM = """
from elf.job import Job

class Quiet(Job):
    pass
"""
QUOTAS = {"jobs": 2, "selects": 1, "bytes": 1_000, "statements_per_sec": 4}


@contextlib.contextmanager
def agent_with(quotas: Mapping[str, float], folder: Path) -> Iterator[Agent]:
    fleet = Fleet(folder, 1)
    (agent,) = fleet.agents
    path = agent.write_config()
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"quotas": dict(quotas)}))
    agent.write_config = lambda: path  # type: ignore[method-assign]
    agent.append([(time.time_ns() // 1000, "Myst", 1)])
    agent.fork()
    yield agent
    fleet.stop()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agent_with(QUOTAS, tmp_path_factory.mktemp("quotas")) as agent:
        yield agent


def counted(agent: Agent, reason: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", agent.http_port, timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    start = f'elf_over_quota_total{{reason="{reason}"}} '
    return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))


async def test_a_creator_has_so_much(agent: Agent, tmp_path: Path) -> None:
    async def made() -> bool:
        async with connect(agent.address, cluster=agent.cluster, creator="ada") as ada:
            await ada.sql(f"CREATE JOB one AS {QUERY}")
        return True

    await eventually(made, "a job", despite=(ElfError,))
    async with (
        connect(agent.address, cluster=agent.cluster, creator="ada") as ada,
        connect(agent.address, cluster=agent.cluster, creator="bob") as bob,
    ):
        await ada.submit(PROGRAM, "quiet.py", "two")
        with pytest.raises(UserError) as refused:
            await ada.sql(f"CREATE JOB three AS {QUERY}")
        said = "ada has 2 jobs, the most of one creator (quotas.jobs); drop one first"
        assert str(refused.value) == said
        with pytest.raises(UserError, match=r"\(quotas\.jobs\)"):
            await ada.submit(PROGRAM, "quiet.py", "three")
        await ada.sql(f"CREATE OR REPLACE JOB one AS {QUERY}")
        await bob.sql(f"CREATE JOB three AS {QUERY}")
        table = tmp_path / "big.csv"
        table.write_text("product,kind\n" + "".join(f"p{n},{n * 7919}\n" for n in range(2_000)))
        joined = f"SELECT kind, COUNT(*) AS n FROM clicks JOIN '{table}' USING (product) GROUP BY kind"
        with pytest.raises(
            UserError, match=r"would be [0-9,]+ bytes; 1,000 are the most .*\(quotas\.bytes\)"
        ):
            await bob.sql(f"ALTER JOB three AS {joined} WINDOWING 1 SECONDS")
        with pytest.raises(UserError, match=r"\(quotas\.bytes\)"):
            await bob.sql(f"CREATE JOB four AS {joined} WINDOWING 1 SECONDS")
        async with contextlib.aclosing(ada.subscribe(QUERY)) as running:
            await anext(running)
            with pytest.raises(UserError, match=r"ada has 1 SELECTs that run.*\(quotas\.selects\)"):
                await anext(ada.subscribe(QUERY))
    assert (counted(agent, "jobs"), counted(agent, "bytes"), counted(agent, "selects")) == (2, 2, 1)


async def test_a_creator_asks_so_often(agent: Agent) -> None:
    async with connect(agent.address, cluster=agent.cluster, creator="eve") as eve:
        answers = await asyncio.gather(*(eve.sql("SHOW JOBS") for _ in range(80)), return_exceptions=True)
        refused = [one for one in answers if isinstance(one, UserError)]
        assert 20 <= len(refused) <= 40
        assert "eve asks more than 4 statements a second" in str(refused[0])
        assert counted(agent, "statements") == len(refused)
    async with connect(agent.address, cluster=agent.cluster, creator="bob") as bob:
        await bob.sql("SHOW JOBS")


async def test_who_looks_on_asks_all_agents_so_often(agent: Agent) -> None:
    async with connect(agent.address, cluster=agent.cluster, creator="dora") as dora:
        answers = await asyncio.gather(*(dora.fleet() for _ in range(80)), return_exceptions=True)
        assert 20 <= sum(isinstance(one, ElfError) for one in answers) <= 40


def test_what_is_remembered_of_creators_is_bounded() -> None:
    creators = Creators(CatalogLog(), Quotas(statements_per_sec=1), BudgetKeeper(Budgets()))
    for _ in range(BURST_SECS):
        creators.statement("ada", 0)
    with pytest.raises(OverQuota):
        creators.statement("ada", 999)
    creators.statement("ada", 1_999)
    for number in range(2 * CREATORS_MAX):
        creators.statement(f"c{number}", 2_000)
    assert len(creators._asked) == CREATORS_MAX


SHARES = {"cpu_share": 0.0002}
"""Of a core, for a minute: 12 ms."""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with agent_with(SHARES, tmp_path_factory.mktemp("shares")) as agent:
        yield agent


async def test_who_has_taken_too_much_of_an_agent_gets_no_new_jobs_there(busy: Agent) -> None:
    async def made() -> bool:
        async with connect(busy.address, cluster=busy.cluster, creator="ada") as ada:
            await ada.sql(f"CREATE JOB one AS {QUERY}")
        return True

    await eventually(made, "a job", despite=(ElfError,))
    async with (
        connect(busy.address, cluster=busy.cluster, creator="ada") as ada,
        connect(busy.address, cluster=busy.cluster, creator="bob") as bob,
    ):

        async def is_over() -> bool:
            busy.append([(time.time_ns() // 1000 + n, f"game {n}", 1) for n in range(2_000)])
            shares = (await ada.status())["cpu_shares"]
            assert isinstance(shares, dict)
            return bool(shares.get("ada", 0) > SHARES["cpu_share"])

        await eventually(is_over, "ada's job takes more than her share", 40)
        with pytest.raises(UserError, match=r"of one creator \(quotas\.cpu_share\); drop or pause one"):
            await ada.sql(f"CREATE JOB two AS {QUERY}")
        await ada.sql(f"CREATE OR REPLACE JOB one AS {QUERY}")
        await bob.sql("CREATE JOB three AS SELECT MAX(product) AS p FROM clicks WINDOWING 1 SECONDS")
        assert counted(busy, "cpu_share") == 1


def test_what_a_flow_takes_is_divided_among_its_creators_and_forgotten_after_a_minute() -> None:
    spec = spec_of("one", "ada", 1, plan(2), ())
    log, flow = CatalogLog(), "f" * 24
    log.readers = lambda uid: (spec, replace(spec, creator="bob")) if uid == flow else (spec,)  # type: ignore[method-assign]
    creators = Creators(log, Quotas(cpu_share=0.5), BudgetKeeper(Budgets()))
    creators.look(lambda: {flow: 20_000_000, "e" * 24: 30_000_000}, 0)
    assert creators.shares() == pytest.approx({"ada": 40 / 60, "bob": 10 / 60})
    creators.look(lambda: {flow: 26_000_000}, LOOK_MS - 1)
    creators.look(lambda: {flow: 26_000_000}, LOOK_MS)
    assert creators.shares() == pytest.approx({"ada": 43 / 60, "bob": 13 / 60})
    with pytest.raises(OverQuota, match=r"jobs of ada have taken 72% of a core .* 50% are the most"):
        creators.job("two", "ada")
    creators.job("two", "bob")
    program = ProgramSpec("burns", "eve", 1, "x = 1", "job.py")
    log.program = {program.uid: program}.get  # type: ignore[method-assign,assignment]
    creators.look(lambda: {flow: 26_000_000, program.uid: 30_000_000}, 2 * LOOK_MS)
    assert creators.shares()["eve"] == pytest.approx(0.5)
    creators.look(lambda: {flow: 26_000_000}, MINUTE_MS)
    assert creators.shares() == pytest.approx({"ada": 3 / 60, "bob": 3 / 60, "eve": 30 / 60})
    creators.job("two", "ada")
