"""The public API says what it takes, gives and raises, and its examples run."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

from elf.client import Client, connect
from elf.errors import ElfError
from tests.support import graph_examples, two_agents
from tests.support.confined import needs_confinement
from tests.support.fleet import Fleet
from tests.support.public_api import all_faults, cases_of, public, run_examples

PUBLIC = {
    "elf.job": "Job JobError QueryFailed Rounds all_lines lines_of",
    "elf.job.graphs": "Algorithm Components GraphJob KMeans MultiSourcePaths PageRank ShortestPaths",
    "elf.client": "ArchiveStatus Client CompareFacts Costs Previewed Result Tapped Window connect split "
    "user_name",
    "elf.client.files": "files_of tables_of",
    "elf.client.coverage": "coverage is_whole",
    "elf.client.tables": "read_table",
    "elf.client.values": "cell for_terminal json_column plain rfc3339",
    "elf.client.windows": "Changes",
    "elf.wire.clients": "AgentStats FleetStats Stats StreamStats TapReply",
    "elf.paos": "Groups PAO",
    "elf.examples.correlation": "Correlation",
    "elf.errors": "ConfigError ElfError InputError PeerError QueryError UserError",
    "elf.examples.micro_promotion": "MicroPromotion",
    "elf.examples.product_bundling": "ProductBundling",
    "elf.examples.sale_prediction": "SalePrediction forecast",
    "elf.examples.spam_campaign": "SpamCampaign",
}
"""Modules, and the classes and functions that users import from them; ``docs/api.md`` names them all."""
NAMES = [(module, name) for module, names in PUBLIC.items() for name in names.split()]
OF_A_FLEET = {
    "ArchiveStatus", "Client", "CompareFacts", "Costs", "Previewed", "Result", "Tapped", "connect",
    "user_name",
}  # fmt: skip
BUSY = """CREATE JOB busy AS SELECT product, SUM(clicks_count) AS clicks FROM clicks GROUP BY product
    WINDOWING 1 SECONDS"""
PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_it_is_documented(module: str, name: str) -> None:
    assert not [*all_faults(name, public(module, name))]


def test_what_is_not_said_is_found() -> None:
    class Silent:
        def call(self, argument: int) -> int:
            return argument

    assert [*all_faults("Silent", Silent)] == [
        "Silent: no summary",
        "Silent: no example",
        "Silent.call: no summary",
        "Silent.call: nothing about its argument argument",
        "Silent.call: no Returns:",
        "Silent.call: no Raises:",
        "Silent.call: no example",
    ]


@pytest.mark.parametrize("module", ["elf.job", "elf.client"])
def test_all_of_a_room_is_public(module: str) -> None:
    """But types of values, which are no classes and no functions."""
    names = importlib.import_module(module).__all__
    ours = [name for name in names if inspect.isclass(public(module, name)) or callable(public(module, name))]
    assert {*ours} - {"Lines", "Message"} == {*PUBLIC[module].split()}


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_the_page_names_it(module: str, name: str) -> None:
    text = PAGE.read_text()
    assert f"`{module}`" in text
    assert re.search(rf"`{name}\b", text)


@pytest.mark.parametrize(("module", "name"), [one for one in NAMES if one[1] not in OF_A_FLEET])
def test_its_examples_run(module: str, name: str, tmp_path: Path) -> None:
    names = ("two_agents", "Popular", "Adds")
    given = {name: vars(two_agents)[name] for name in names} | {"folder": tmp_path} | graph_examples.NAMES
    loop = asyncio.new_event_loop()
    run_examples(cases_of(module, name, given), loop)
    loop.close()


def test_the_examples_of_the_page_run() -> None:
    case = doctest.DocTestParser().get_doctest(PAGE.read_text(), {}, PAGE.name, str(PAGE), 0)
    assert case.examples
    loop = asyncio.new_event_loop()
    run_examples([case], loop)
    loop.close()


@needs_confinement
def test_examples_of_the_client_run_against_an_agent(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1)
    fleet.agents[0].cluster = "elf"
    address = fleet.agents[0].address
    loop = asyncio.new_event_loop()
    try:
        fleet.start()
        fleet.begin_writing()
        client = loop.run_until_complete(asyncio.wait_for(ready(address), 60))
        for name in sorted(OF_A_FLEET, key=lambda name: name == "Client"):
            run_examples(cases_of("elf.client", name, {"address": address, "client": client}), loop)
        loop.run_until_complete(client.close())
    finally:
        fleet.stop()
        loop.close()


async def ready(address: str) -> Client:
    """A client of the agent, when its job has a window."""
    client = connect(address)
    while True:
        try:
            await client.open()
            await client.sql(BUSY)
        except ElfError:
            await asyncio.sleep(0.2)
        else:
            async for _ in client.subscribe("busy", windows=1):
                pass
            return client
