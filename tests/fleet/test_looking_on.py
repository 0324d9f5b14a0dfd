"""``elf top`` and ``elf tap`` over real agents: people see what was written, and who is away is named."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from typing import Any

from agents.answering.fleet import PATIENCE_MS
from elf.cli.processes import environment
from elf.client import Client
from tests.support.fleet import STREAM, Fleet
from tests.support.terminal import BACK, HOME, OTHER_SCREEN, plain, watch
from tests.support.watching import connected, create

ELF = [sys.executable, "-m", "elf.cli.main"]


class Person:
    """Who runs commands on another machine than the agents'."""

    def __init__(self, fleet: Fleet) -> None:
        self.options = ["--connect", fleet.agents[0].address, "--cluster", "test"]

    def start(self, *args: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*ELF, *args, *self.options], stdout=pipe, stderr=pipe, text=True, env=environment()
        )

    async def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*args)
        out, errors = await asyncio.to_thread(process.communicate, timeout=40)
        return subprocess.CompletedProcess(args, process.returncode, out, errors)

    async def top(self, rounds: int = 1) -> list[dict[str, Any]]:
        done = await self.run("top", "--rounds", str(rounds), "--every", "1", "--output", "json")
        assert (done.returncode, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]


async def test_top_shows_what_agents_do_and_which_do_not_answer(three: Fleet) -> None:
    person = Person(three)
    async with await connected(three, 0) as client:
        three.begin_writing()
        await create(client)
        three.agents[1].log.open("a").write("no json\n")
        await asyncio.sleep(3)  # for the rates, which are of the last seconds
        first, second = await person.top(2)
        names = {agent.name: agent.address for agent in three.agents}
        for one in (first, second):
            assert {row["agent"]: row["address"] for row in one["agents"]} == names
            assert {row["state"] for row in one["agents"]} == {"live"}
            assert {tuple(row["streams"]) for row in one["agents"]} == {(STREAM,)}
            assert (one["jobs"], one["silent"]) == (1, 0)
            assert 5 < one["rows_per_sec"] < 80  # three agents write 15 a second each
            assert 5 < one["bytes_per_sec"] / 125 < 80
            assert sorted(row["jobs"] for row in one["agents"]) == [0, 0, 1]
            assert all(10 << 20 < row["memory_bytes"] < 1 << 30 for row in one["agents"])
            assert all(0 <= row["cpu"] < 3 for row in one["agents"])
            rates = [row["rows_per_sec"] for row in one["agents"]]
            assert rates == sorted(rates, reverse=True)
        assert {row["agent"]: row["rejected"] for row in second["agents"]} == {
            "web-0": 0,
            "web-1": 1,
            "web-2": 0,
        }
        four = await person.top(4)
        assert any(one["windows_per_sec"] > 0 for one in four)

        three.agents[2].kill()
        began = time.monotonic()
        (after,) = await person.top()
        assert time.monotonic() - began < 10 + 2 * PATIENCE_MS / 1000
        (gone,) = [row for row in after["agents"] if row["state"] == "no answer"]
        assert (gone["agent"], gone["rows_per_sec"], after["silent"]) == ("web-2", None, 1)
        await on_a_terminal(person)
        tapped = await person.run("tap", STREAM, "--limit", "5", "--output", "csv")
        assert tapped.stderr == "elf: no rows of web-2: no answer in time\n"
        assert len(tapped.stdout.splitlines()) == 6
    three.end_writing()


async def on_a_terminal(person: Person) -> None:
    args = ["top", "--every", "1", *person.options]
    status, text = await asyncio.to_thread(watch, args, 120, 12, lambda text: text.count(HOME) > 3)
    assert status == 0
    assert text.startswith(OTHER_SCREEN)
    assert text.rstrip().endswith(BACK)
    lines = plain(text.split(HOME)[2]).splitlines()
    assert lines[0].startswith("3 agents (1 without an answer), 1 job")
    (gone,) = [line.split() for line in lines if line.startswith("web-2")]
    assert gone[2:] == [STREAM, "no", "answer"]


async def test_tap_shows_the_rows_that_come_and_counts_those_that_it_does_not(three: Fleet) -> None:
    person = Person(three)
    async with await connected(three, 0) as client:
        done = await person.run("tap", "nope")
        assert (done.returncode, done.stdout, done.stderr) == (
            1,
            "",
            f"elf: there is no stream nope; streams: {STREAM}\n",
        )
        await before_the_first_line(three, person)
        await each_row_once(three, client)
        await rows_at_once(client)
        await conditions(person)
        await columns(three, client, person)
        await more_than_is_shown(three, client)


async def before_the_first_line(fleet: Fleet, person: Person) -> None:
    """It waits, and then shows what comes."""
    process = person.start("tap", STREAM, "--limit", "1", "--output", "json")
    assert process.stderr is not None
    said = await asyncio.to_thread(process.stderr.readline)
    assert said == f"elf: no line of stream {STREAM} has been read yet; waiting for one\n"
    while process.poll() is None:
        fleet.agents[1].append([(time.time_ns() // 1000, "Doom", 1)])
        await asyncio.sleep(0.2)  # five rows a second
    out, _ = process.communicate()
    row = json.loads(out)
    assert list(row)[:2] == ["created_at", "_agent"]
    assert (row["_agent"], row["product"], row["clicks_count"]) == ("web-1", "Doom", 1)


async def each_row_once(fleet: Fleet, client: Client) -> None:
    """All rows of all agents, while there are few enough."""
    found: list[dict[str, Any]] = []
    wanted: set[tuple[str, int]] = set()
    async with asyncio.timeout(30), contextlib.aclosing(client.tap(STREAM)) as taps:
        async for tapped in taps:
            assert (tapped.told.hidden, tapped.told.unseen, tapped.told.silent) == (0, 0, {})
            if not wanted:  # the agents look from now on
                for agent in fleet.agents:
                    agent.append([(time.time_ns() // 1000, "Pong", 3)] * 50)
                    numbers = range(len(agent.written) - 49, len(agent.written) + 1)
                    wanted |= {(agent.name, number) for number in numbers}
            found += tapped.rows.to_pylist() if tapped.rows is not None else []
            if len(found) >= len(wanted):
                break
    assert sorted((row["_agent"], row["id"]) for row in found) == sorted(wanted)


async def rows_at_once(client: Client) -> None:
    """A SELECT without groups, of what agents have read."""
    asked = f"SELECT product, clicks_count * 2 AS twice, _agent, _source FROM {STREAM} WHERE clicks_count = 3"
    found = await client.sql(f"{asked} LIMIT 100")
    assert found.table is not None
    rows = found.table.to_pylist()
    assert {(row["product"], row["twice"]) for row in rows} == {("Pong", 6)}
    assert {row["_agent"] for row in rows} == {"web-0", "web-1", "web-2"}
    assert all(row["_source"].endswith(".log") for row in rows)
    assert found.text.startswith(f"a sample: the last {len(rows)} rows that match, of ")
    assert " lines that 3 of 3 agents keep; " in found.text
    last = await client.sql(f"{asked} LIMIT 2")
    assert last.table is not None
    assert last.table.to_pylist() == rows[-2:]


async def conditions(person: Person) -> None:
    for wrong, said in (
        ("produkt = 'x'", 'unknown column "produkt"; did you mean "product"? (line 1, column 1)'),
        ("SUM(clicks_count) > 3", "SUM is an aggregate, which cannot be in WHERE (line 1, column 1)"),
        ("product =", "one condition is wanted, as after WHERE; not: product ="),
        ("1 = 1; DROP JOB x", "one condition is wanted, as after WHERE; not: 1 = 1; DROP JOB x"),
        ("1 = 1 GROUP BY id", "one condition is wanted, as after WHERE; not: 1 = 1 GROUP BY id"),
    ):
        done = await person.run("tap", STREAM, "--where", wrong)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[0] == f"elf: {said}"


async def columns(fleet: Fleet, client: Client, person: Person) -> None:
    """Time and agent are always there; a condition may be over others."""
    done = await person.run("tap", STREAM, "--columns", "product, price")
    known = "created_at, id, store, product, clicks_count, _line, _agent, _source"
    assert done.stderr == f"elf: stream {STREAM} has no column price; columns: {known}\n"
    assert done.returncode == 1
    async with asyncio.timeout(30), contextlib.aclosing(client.tap(STREAM, "ID > 0", ["Product"])) as taps:
        async for tapped in taps:
            fleet.agents[0].append([(time.time_ns() // 1000, "Tetris", 2)])
            if tapped.rows is not None:
                assert tapped.rows.column_names == ["created_at", "_agent", "product"]
                assert set(tapped.rows["product"].to_pylist()) == {"Tetris"}
                break


async def more_than_is_shown(fleet: Fleet, client: Client) -> None:
    """An agent whose rows are too many says how many it has not shown, and reads on as ever."""
    agent, burst = fleet.agents[2], 5_000
    shown = hidden = unseen = 0
    written = False
    async with asyncio.timeout(30), contextlib.aclosing(client.tap(STREAM, "product = 'Myst'")) as taps:
        async for tapped in taps:
            if not written:
                agent.append(
                    (time.time_ns() // 1000, "Myst" if n % 2 else "Tetris", n % 5) for n in range(burst)
                )
                written = True
            shown += 0 if tapped.rows is None else tapped.rows.num_rows
            hidden, unseen = hidden + tapped.told.hidden, unseen + tapped.told.unseen
            assert tapped.rows is None or set(tapped.rows["product"].to_pylist()) == {"Myst"}
            if shown + hidden >= burst // 2:
                break
    assert (shown + hidden, unseen) == (burst // 2, 0)
    assert hidden > 0
    fleet_now = await client.fleet()
    (stats,) = [one.stats for one in fleet_now.agents if one.agent == agent.name]
    assert stats is not None
    assert (stats.streams[0].rows, stats.streams[0].backlog_bytes) == (len(agent.written), 0)
