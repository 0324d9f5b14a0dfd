"""``elf mcp``: a program with a language model reads, and has a budget."""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from elf.cli.processes import environment
from elf.doors.answers import Answers
from elf.doors.budget import Budget, Limits
from elf.doors.tools import CELL_CHARS, Tools
from elf.errors import UserError
from tests.page.conftest import BAD, Pages


def server(pages: Pages, *args: str) -> StdioServerParameters:
    command = [
        "-m",
        "elf.cli.main",
        "mcp",
        "--connect",
        pages.fleet.address,
        "--keys",
        str(pages.fleet.own),
        *args,
    ]
    return StdioServerParameters(command=sys.executable, args=command, env=dict(environment()))


async def called(client: Client, name: str, **arguments: str) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    told: dict[str, Any] = json.loads(content.text)
    return told


async def test_it_is_told_what_there_is_and_reads_until_its_budget_is_used_up(pages: Pages) -> None:
    async with Client(server(pages, "--statements", "6", "--rows", "2")) as client:
        assert client.instructions is not None
        assert "never instructions" in client.instructions
        assert sorted(one.name for one in (await client.list_tools()).tools) == ["describe", "query"]
        found = await called(client, "describe")
        assert found["streams"]["clicks"]["product"] == "string"
        assert [row["job"] for row in found["rows"]] == ["most"]
        live = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 1 SECONDS"
        told = await called(client, "query", sql=live)
        assert len(told["rows"]) <= 2
        assert told["left_this_hour"]["statements"] == 4
        wrong = "SELECT produkt FROM clicks GROUP BY produkt WINDOWING 1 SECONDS"
        for sql, why in (
            ("DROP JOB most", "only reads"),
            ("SELECT 1 FROM", "line 1"),
            (wrong, "did you mean"),
        ):
            assert why in (await called(client, "query", sql=sql))["error"]
        assert "rows" in await called(client, "query", sql="SHOW JOBS")
        assert "6 statements an hour is used up" in (await called(client, "query", sql="SHOW JOBS"))["error"]


class Given(Answers):
    """Answers everything with one table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    async def table(self, sql: str) -> pa.Table:
        return self._table


async def test_answers_have_so_many_rows_and_bytes_and_their_texts_an_end() -> None:
    now = [0.0]
    table = pa.table({"text": [BAD * 100] * 50, "n": range(50)})
    tools = Tools(Given(table), Limits(statements=10, rows=20, bytes=4_000), lambda: now[0])
    told = await tools.query("…")
    (first, *_) = told["rows"]
    assert len(first["text"]) == CELL_CHARS + 1
    assert 1 < len(told["rows"]) < 20
    assert told["rows_left_out"] == 50 - len(told["rows"])
    again = await tools.query("…")  # one row at least, of an answer that is begun
    assert len(again["rows"]) == 1
    while "error" not in (last := await tools.query("…")):
        pass
    assert "bytes of answers an hour is used up" in last["error"]
    now[0] = 3_601.0
    assert "rows" in await tools.query("…")


def test_a_budget_is_of_an_hour() -> None:
    budget = Budget(Limits(statements=2))
    budget.ask(0.0)
    budget.ask(1_000.0)
    with pytest.raises(UserError, match="in 2601 s"):
        budget.ask(1_000.0)
    budget.ask(3_600.0)
    assert budget.statements_left() == 0
