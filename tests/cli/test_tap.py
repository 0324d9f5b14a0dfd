"""``elf tap``: what it prints of what an agent answers, and how it ends."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pytest

from elf.batch import encode
from elf.cli.tap import CELL_CHARS_MAX, Lines
from elf.wire.base import Message
from elf.wire.clients import Call, Failed, Reply, TapOptions, TapReply
from tests.support.commands import ELF, UNREACHABLE, Here, elf_beside
from tests.support.fleet_of_one import fake_agent
from tests.support.terminal import watch


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "ts": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us")),
            "_agent": [f"web-{n % 2}" for n in numbers],
            "n": pa.array(numbers, pa.int64()),
            "path": [f"/{n}" for n in numbers],
        }
    )


@dataclass
class Answers:
    """What a stream's agents say, wish by wish; after that nothing comes."""

    replies: list[tuple[pa.Table | None, TapReply]]
    wishes: list[TapOptions] = field(default_factory=list)

    def __call__(self, message: Message) -> Iterable[Message]:
        if not isinstance(message, Call):
            return
        assert message.verb == "tap"
        place = len(self.wishes)
        self.wishes.append(msgspec.json.decode(message.argument, type=TapOptions))
        table, told = self.replies[place] if place < len(self.replies) else (None, TapReply())
        payload = encode(table) if table is not None else b""
        yield Reply(request=message.request, body=msgspec.json.encode(told), payload=payload)


def some(*counts: int, told: TapReply | None = None) -> Answers:
    """So many rows an answer."""
    first, replies = 0, []
    for count in counts:
        replies.append((rows(first, count) if count else None, told or TapReply()))
        first += count
    return Answers(replies)


async def test_rows_come_until_there_are_enough_under_one_name() -> None:
    answers = some(0, 2, 0, 5)
    async with fake_agent(answers) as agent:
        tap = ("tap", "access", "--limit", "4", "--connect", agent.address)
        done = await elf_beside(*tap, "--where", "n > 0", "--columns", "n, path")
    assert done.stdout.splitlines() == [
        "ts                        _agent  n  path",
        "1970-01-01T00:00:00.000Z  web-0   0  /0",
        "1970-01-01T00:00:01.000Z  web-1   1  /1",
        "1970-01-01T00:00:02.000Z  web-0   2  /2",
        "1970-01-01T00:00:03.000Z  web-1   3  /3",
    ]
    assert (done.returncode, done.stderr) == (0, "")
    wishes = {(wish.stream, wish.where, wish.columns) for wish in answers.wishes}
    assert wishes == {("access", "n > 0", ("n", "path"))}
    assert len({wish.tap for wish in answers.wishes}) == 1
    assert len(answers.wishes) == 4


async def test_json_and_csv_are_for_programs() -> None:
    async with fake_agent(some(2)) as agent:
        tap = ("tap", "access", "--limit", "2", "--connect", agent.address)
        done = await elf_beside(*tap, "--output", "json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"ts": "1970-01-01T00:00:00.000Z", "_agent": "web-0", "n": 0, "path": "/0"},
        {"ts": "1970-01-01T00:00:01.000Z", "_agent": "web-1", "n": 1, "path": "/1"},
    ]
    async with fake_agent(some(1, 1)) as agent:
        tap = ("tap", "access", "--limit", "2", "--connect", agent.address)
        done = await elf_beside(*tap, "--output", "csv")
    assert done.stdout.splitlines() == [
        "ts,_agent,n,path",
        "1970-01-01T00:00:00.000Z,web-0,0,/0",
        "1970-01-01T00:00:01.000Z,web-1,1,/1",
    ]


async def test_what_is_not_shown_is_said_at_the_end_and_who_is_silent_when_it_is() -> None:
    told = TapReply(hidden=1_000, unseen=234, silent={"web-7": "no answer in time"})
    async with fake_agent(some(1, 1, told=told)) as agent:
        done = await elf_beside("tap", "access", "--limit", "2", "--connect", agent.address)
    assert done.stderr.splitlines() == [
        "elf: no rows of web-7: no answer in time",
        "… 2,468 rows not shown: more than 1,000 a second of an agent",
    ]
    told = TapReply(hidden=3, unseen=7_000, lines_max=10_000)
    async with fake_agent(some(1, told=told)) as agent:
        tap = ("tap", "access", "--limit", "1", "--connect", agent.address)
        done = await elf_beside(*tap, "--where", "n = 0")
    assert done.stderr.splitlines() == [
        "… 3 rows not shown: more than 1,000 a second of an agent",
        "… 7,000 lines not looked at: more than 10,000 a second of an agent",
    ]


async def test_a_stream_of_which_nobody_has_read_a_line_is_waited_for() -> None:
    waiting = TapReply(waiting="no line of stream access has been read yet")
    answers = Answers([(None, waiting), (None, waiting), (rows(0, 1), TapReply())])
    async with fake_agent(answers) as agent:
        done = await elf_beside("tap", "access", "--limit", "1", "--connect", agent.address)
    assert done.stderr == "elf: no line of stream access has been read yet; waiting for one\n"
    assert len(done.stdout.splitlines()) == 2


async def tapping(address: str, *args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *ELF, "tap", "access", "--connect", address, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_ends_it_well(number: signal.Signals) -> None:
    async with fake_agent(some(1, told=TapReply(hidden=5))) as agent:
        process = await tapping(agent.address)
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(number)
        _, stderr = await process.communicate()
    assert process.returncode == 0
    assert stderr.decode() == "… 5 rows not shown: more than 1,000 a second of an agent\n"


async def test_a_reader_that_has_gone_ends_it_quietly() -> None:
    async with fake_agent(some(*[500] * 50)) as agent:
        command = " ".join([*ELF, "tap", "access", "--connect", agent.address, "| head -3"])
        done = await asyncio.to_thread(
            subprocess.run, command, shell=True, capture_output=True, text=True, timeout=30
        )
    assert (len(done.stdout.splitlines()), done.stderr) == (3, "")


async def test_on_a_terminal_a_line_ends_where_the_screen_does_and_names_come_again() -> None:
    async with fake_agent(some(*[4] * 5)) as agent:
        args = ["tap", "access", "--connect", agent.address]
        status, text = await asyncio.to_thread(watch, args, 24, 8, lambda text: text.count("\n") >= 23)
    found = text.splitlines()
    assert status == 0
    names = [place for place, line in enumerate(found[:23]) if line.startswith("ts            _agent ")]
    assert names == [0, 8, 16]
    assert found[1] == "00:00:00.000  web-0   0…"
    assert {len(line) for line in found[:23]} == {24}


async def test_on_a_terminal_columns_come_when_they_hold_something() -> None:
    bare = rows(0, 2).append_column("user", pa.array([None, None], pa.string()))
    full = rows(2, 1).append_column("user", pa.array(["ada"]))
    answers = Answers([(bare, TapReply()), (full, TapReply()), (bare, TapReply())])
    async with fake_agent(answers) as agent:
        args = ["tap", "access", "--connect", agent.address]
        status, text = await asyncio.to_thread(watch, args, 80, 24, lambda text: text.count("\n") >= 7)
    assert status == 0
    assert [line.rstrip() for line in text.splitlines()[:7]] == [
        "ts            _agent  n  path",
        "00:00:00.000  web-0   0  /0",
        "00:00:01.000  web-1   1  /1",
        "ts            _agent  n  path  user",
        "00:00:02.000  web-0   2  /2    ada",
        "00:00:00.000  web-0   0  /0",
        "00:00:01.000  web-1   1  /1",
    ]


def test_a_cell_is_in_one_line_moves_no_cursor_and_does_not_make_its_column_too_wide() -> None:
    out = io.StringIO()
    odd = r"x\ny\x1b[2J"
    Lines(out).table(pa.table({"a": ["x\ny\x1b[2J", "w" * 200, None, "日本"], "b": [1, 22, None, 3]}))
    assert out.getvalue().splitlines() == [
        f"{'a':{CELL_CHARS_MAX}}   b",
        f"{odd:{CELL_CHARS_MAX}}   1",
        f"{'w' * 200}  22",
        "",
        f"{'日本':{CELL_CHARS_MAX - 2}}   3",
    ]


def test_nobody_is_there(here: Here) -> None:
    done = here("tap", "access", "--connect", "127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"elf: {UNREACHABLE}\n")
    done = here("tap", "access", "--limit", "0")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert here("tap").returncode == 2


async def test_what_the_agent_says_against_it_is_one_line() -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Call):
            yield Failed(request=message.request, text="there is no stream access; streams: clicks")

    async with fake_agent(answers) as agent:
        done = await elf_beside("tap", "access", "--connect", agent.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "elf: there is no stream access; streams: clicks\n"
