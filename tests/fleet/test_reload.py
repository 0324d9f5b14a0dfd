"""An agent that is told to read its configuration again (``elf reload``, SIGHUP), as its service is."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elf.cli.reloading import ask_again
from elf.client import connect
from elf.errors import UserError
from tests.support.fleet import PRODUCTS, Fleet
from tests.support.waiting import eventually

AHEAD_US = 3_000_000
SUM = "SELECT SUM(n) AS n FROM JOB counted WINDOWS SINCE '-1 hour'"


def rows(count: int, ahead_us: int = AHEAD_US) -> Iterator[tuple[int, str, int]]:
    """Of after the beginning of a job that has just been made, which is after all that was read before."""
    return ((time.time_ns() // 1000 + ahead_us, PRODUCTS[0], 1) for _ in range(count))


async def test_a_reload_is_all_or_nothing_and_counts_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = Fleet(tmp_path, 1)
    (agent,) = fleet.agents
    data, heard = agent.folder / "data", list[bytes]()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")

        loop = asyncio.get_running_loop()
        loop.add_reader(systemd, lambda: heard.extend(systemd.recv(4096).splitlines()))

        async def reload() -> tuple[int, list[str]]:
            """``elf reload``: its status, and what it says."""
            status = await asyncio.to_thread(ask_again, data)
            said = capsys.readouterr()
            return status, (said.out + said.err).splitlines()

        agent.write_config()
        agent.log.touch()
        agent.start()
        try:
            await eventually(lambda: b"STATUS=web-0: ready" in heard, "that it is ready")
            assert {b"READY=1", b"WATCHDOG=1"} < set(heard)
            agent.append(rows(3, ahead_us=0))
            await eventually(lambda: agent.metric("rows_total") == 3, "rows that tell the columns")
            async with connect(agent.address, cluster="test") as client:
                await client.sql("CREATE JOB counted AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS")
            agent.append(rows(10))
            assert await reload() == (0, ["nothing has changed"])

            agent.more = {"http": {"listen": "127.0.0.1:1"}, "prot": {}}
            agent.write_config()
            status, lines = await reload()
            assert (status, lines[-1]) == (1, "elf: nothing is changed")
            assert "unknown key prot" in lines[0]

            agent.more = {"log": {"level": "debug"}}
            agent.write_config()
            assert await reload() == (0, ["log.level: info → debug (at once)"])

            agent.more, agent.quiet = {}, {"quiet": {"n": "bigint"}}
            agent.write_config()
            status, lines = await reload()
            assert status == 0
            assert "log.level: debug → info (at once)" in lines
            assert "streams.quiet.format: none → json (the agent began anew with it)" in lines
            agent.append(rows(10))

            garbage = tmp_path / "garbage.pem"
            garbage.write_text("no certificate")
            http = {
                "listen": f"127.0.0.1:{agent.http_port}",
                "tls_cert": str(garbage),
                "tls_key": str(garbage),
            }
            agent.more = {"http": http}
            agent.write_config()
            status, lines = await reload()
            assert (status, lines[-1]) == (1, "elf: nothing is changed"), lines
            agent.more = {"data_dir": str(tmp_path / "other")}
            agent.write_config()
            status, lines = await reload()
            assert status == 1
            assert lines[0].endswith("that takes a restart of the process")

            async def counted() -> int:
                async with connect(agent.address, cluster="test") as client:
                    table = (await client.sql(SUM)).table
                    return sum(row["n"] or 0 for row in table.to_pylist()) if table is not None else 0

            while (found := await counted()) < 20:
                await asyncio.sleep(0.2)
            assert found == 20
            assert b"RELOADING=1" in heard
            assert await asyncio.to_thread(agent.terminate) == 0
            await eventually(lambda: b"STOPPING=1" in heard, "that it stops")
        finally:
            fleet.stop()
            loop.remove_reader(systemd)
    with pytest.raises(UserError, match="no agent runs with"):
        ask_again(data)
