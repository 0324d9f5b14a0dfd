"""What an attacker writes into a log, or calls an agent, steers no terminal, spreadsheet or log of ours."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import signal
import sys
from collections.abc import Iterable

import msgspec
import pyarrow as pa
import pytest
import structlog

from agents import logs
from elf.cli.printing import console, printer, say
from elf.client.values import printable_json
from elf.wire.base import Message
from elf.wire.clients import AgentStats, Call, Execute, FleetStats, Reply
from tests.support.fleet_of_one import STATUS, fake_agent

ESC = "\x1b[31m\x1b]0;owned\x07\x9b2J\u202egnp.exe\r\b"
"""Colour, title, screen, direction, and a line written over."""
ORDERS = frozenset("\x1b\x07\x9b\u202e\r\b")
FORMULAS = ("=cmd|' /C calc'!A0", "+1+cmd", "-2+3+cmd", "@SUM(1)", "\t=1", "\r=1", "\uff1d1")


def written(output: str, table: pa.Table) -> str:
    out = io.StringIO()
    printer(output, out=out).table(table)  # type: ignore[arg-type]
    return out.getvalue()


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_nothing_that_is_printed_steers_a_terminal(output: str) -> None:
    text = written(output, pa.table({ESC: [ESC], "list": [[ESC]]}))
    assert not ORDERS.difference("\r" if output == "csv" else "") & {*text}
    assert "owned" in text


def test_csv_computes_nothing() -> None:
    import csv

    text = written("csv", pa.table({"=1": [*FORMULAS, "-", "-1", "+1.5e3", "plain", "a=b"]}))
    cells = [row[0] for row in csv.reader(io.StringIO(text, newline=""))]
    assert cells == ["'=1", *(f"'{one}" for one in FORMULAS), "-", "-1", "+1.5e3", "plain", "a=b"]


def test_raw_csv_is_as_it_was_logged() -> None:
    assert written("csv-raw", pa.table({"a": [FORMULAS[0], "\x1b"]})) == f"a\n{FORMULAS[0]}\n\x1b\n"


def test_json_says_the_same_in_other_words() -> None:
    value = {ESC: [ESC, "😀ö\U000e0001\x7f"]}
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert not ORDERS & {*text}
    assert "ö" in text
    assert "\\u007f" in text


def test_brackets_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console(sys.stdout).print("[red]a[/red] [link=file:///etc]b[/] :warning:")
    say("[bold]c[/]", sys.stdout)
    assert capsys.readouterr().out == "[red]a[/red] [link=file:///etc]b[/] :warning:\n[bold]c[/]\n"


@pytest.mark.parametrize("format_", ["console", "json"])
def test_the_log_of_an_agent_is_one_line_an_event(format_: logs.Format) -> None:
    out = io.StringIO()
    forged = f"{ESC}\n2026-01-01 [info] agent is ready"
    logs.configure("info", format_, stream=out)
    try:
        structlog.get_logger().info(forged, path=forged, paths=[forged], **{forged: 1})
        try:
            raise ValueError(ESC)
        except ValueError:
            structlog.get_logger().exception("failed")
    finally:
        logs.configure()
    first, *rest = out.getvalue().splitlines()
    assert not ORDERS & {*out.getvalue()}
    assert first.count("agent is ready") == 4
    assert "Traceback" in "".join(rest)


@pytest.mark.parametrize(
    "command",
    [["jobs"], ["sql", "-e", "SELECT 1"], ["top", "--every", "0.1", "--rounds", "1"]],
)
async def test_a_fleet_steers_no_terminal(command: list[str]) -> None:
    """The real command on a terminal, and an agent that says nothing but orders."""

    def answers(message: Message) -> Iterable[Message]:
        request = message.request  # type: ignore[attr-defined]
        if isinstance(message, Execute) and "SHOW" not in message.sql:
            return [Reply(request=request, text=ESC)]
        if isinstance(message, Call):
            fleet = FleetStats(1, (AgentStats(ESC, ESC, (ESC,), None),))
            return [Reply(request=request, body=msgspec.json.encode(fleet))]
        return [Reply(request=request, text=ESC, payload=table_of({ESC: ESC, "query": ESC, "agent": ESC}))]

    async with fake_agent(answers) as agent:
        agent.status = {**STATUS, "agent": ESC, "jobs": [ESC]}
        said = await on_a_terminal([*command, "--connect", agent.address])
    assert ("cannot be read" if command[0] == "top" else "owned") in said, "no agent has such a name"
    assert "\x1b]" not in said, "no title is set"
    assert not {"\x9b", "\x07", "\u202e", "\b"} & {*said}


def table_of(row: dict[str, str]) -> bytes:
    from elf.batch import encode

    return encode(pa.table({name: [value] for name, value in row.items()}))


async def on_a_terminal(command: list[str]) -> str:
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "elf.cli.main", *command])

    def read() -> bytes:
        said = b""
        while True:
            try:
                piece = os.read(terminal, 4096)
            except OSError:
                return said
            if not piece:
                return said
            said += piece

    try:
        return (await asyncio.wait_for(asyncio.to_thread(read), 30)).decode()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
