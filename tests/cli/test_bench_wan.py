"""``elf bench wan``: what its fleets found, and the links between its regions."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from elf.cli.processes import Processes, environment, free_ports
from elf.errors import ElfError, UserError
from lab.bench import wan_side
from lab.bench.wan import MODES, Wan
from lab.bench.wan_side import REGIONS, Fleet, Found, Wanted, joined, until
from lab.wan.loopback import Loopback
from lab.wan.proxy import PIECE_BYTES, Address, Link, Proxy
from lab.wan.spaces import UNSHARE, check

FOUND = Found(
    latencies_s=[2.0, 2.1, 4.0],
    windows=3,
    incomplete=1,
    slow_bytes=122_880,
    all_bytes=500_000,
    probes_bytes=0,
    rows_wrong=0,
    route="",
)


def test_bytes_and_times_of_each_fleet_are_told() -> None:
    runs = {mode: [FOUND] for mode in MODES}
    runs["act"] = [replace(FOUND, slow_bytes=6_144, route="eu → ap → us")]
    report = Wan(seconds=60).report(runs)
    slow = next(one for one in report.figures if "slow link" in one.what)
    assert (slow.elf, slow.beside) == (0.1, {"flat": 2.0, "heads": 2.0})
    late = next(one for one in report.figures if one.what == "lateness of whole windows, heads")
    assert late.elf == (2_100.0, 4_000.0)
    assert report.facts["act"]["route"] == "eu → ap → us"  # type: ignore[index]
    assert not report.problems


def test_rows_that_are_wrong_are_a_problem_and_so_are_no_windows() -> None:
    runs = {mode: [FOUND] for mode in MODES}
    runs["heads"] = [replace(FOUND, rows_wrong=3)]
    assert Wan().report(runs).problems == ["heads: windows differ by 3 rows from what was written"]
    runs["heads"] = [replace(FOUND, latencies_s=[])]
    with pytest.raises(ElfError, match="no window came with all agents"):
        Wan().report(runs)


def test_a_machine_without_namespaces_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "tc" else name)
    with pytest.raises(UserError, match=r"tc is not here: install .*\(or --proxy\)"):
        check()


def test_bytes_leave_a_link_one_after_the_other_and_are_there_after_its_delay() -> None:
    link = Link(0.5, 100.0)
    assert [link.take(50, 10.0), link.take(100, 10.0), link.take(0, 10.2)] == [11.0, 12.0, 12.0]
    assert link.waits_s(10.5) == 1.0
    assert link.take(10, 20.0) == pytest.approx(20.6), "it has been idle"
    assert (link.sent, link.waits_s(30.0)) == (160, 0.0)
    assert Link(0.5).take(1_000_000, 3.0) == 3.5


@asynccontextmanager
async def echoing(at: Address) -> AsyncIterator[Address]:
    """A server that says all that it has heard, once its client has ended."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.read())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, *at) as server:
        host, port = server.sockets[0].getsockname()[:2]
        yield host, port


async def said(at: Address, text: bytes) -> tuple[bytes, float]:
    """What is heard there when this is said, and how long that took (s)."""
    clock = asyncio.get_running_loop().time
    began = clock()
    reader, writer = await asyncio.open_connection(*at)
    writer.write(text)
    writer.write_eof()
    heard = await reader.read()
    writer.close()
    return heard, clock() - began


async def test_a_proxy_delays_both_ways_and_neither_loses_nor_swaps_a_byte() -> None:
    there, back = Link(0.2, 400_000.0), Link(0.3)
    text = random.Random(1).randbytes(200_000)
    async with echoing(("127.0.0.1", 0)) as target, Proxy() as proxy:
        at = await proxy.listen(("127.0.0.1", 0), target, lambda _: (there, back))
        heard, took = await said(at, text)
        assert heard == text
        assert took >= 0.2 + 0.5 + 0.3, "a delay, the bytes at their rate, and the delay back"
        assert (there.sent, back.sent) == (len(text), len(text))
        there.rate = 40 * PIECE_BYTES
        both = await asyncio.gather(*(said(at, text[: 10 * PIECE_BYTES]) for _ in range(2)))
        assert max(took for _, took in both) >= 0.2 + 0.5 + 0.3, "connections share the rate"


async def test_where_nobody_listens_a_proxy_ends_the_connection() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with Proxy() as proxy:
            at = await proxy.listen(("127.0.0.1", 0), closed.getsockname(), lambda _: (Link(), Link()))
            reader, writer = await asyncio.open_connection(*at)
            with suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
async def test_without_namespaces_a_process_is_in_the_region_that_it_was_put_into() -> None:
    regions = Loopback(["eu", "us"])
    async with (
        echoing((regions.listens("us"), 0)) as (_, port),
        echoing((regions.listens("eu"), port)),
        AsyncExitStack() as opened,
    ):
        stands: dict[int, str] = {}
        await regions.carry([port], lambda: stands, opened)
        assert (await said((regions.address("us"), port), b"nobody's"))[0] == b"nobody's"
        assert regions.sent("eu", "us") == 0
        stands[os.getpid()] = "eu"
        assert (await said((regions.address("us"), port), b"afar"))[0] == b"afar"
        assert (await said((regions.address("eu"), port), b"near"))[0] == b"near"
        assert (regions.sent("eu", "us"), regions.sent("us", "eu")) == (4, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
async def test_agents_of_other_regions_are_as_far_as_links_are_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, port in zip(("PORT", "HTTP_PORT"), free_ports(2), strict=True):
        monkeypatch.setattr(wan_side, name, port)
    regions, processes = Loopback(REGIONS, 0.15), Processes()
    fleet = Fleet(regions, processes, tmp_path, Wanted("heads", 20, 1, 10, 0.2, 150, True))
    trips: list[float | None] = []

    async def measured() -> bool:
        told: Any = (await client.sql("EXPLAIN ROUTES")).data
        trips[:] = [one["rtt_s"] for one in told.get("links", ())]
        return len(trips) == 6 and None not in trips

    try:
        async with joined(fleet) as client:
            await until(measured)
        assert min(trip for trip in trips if trip is not None) >= 0.3
        assert all(regions.sent(a, b) > 0 for a, b in permutations(REGIONS, 2))
    finally:
        processes.stop()


@pytest.fixture
def namespaces() -> None:
    try:
        check()
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("namespaces")
def test_a_link_carries_what_it_is_said_to_and_the_others_more() -> None:
    script = """
        import subprocess, sys, time
        from lab.wan.spaces import Spaces

        SERVE = "import socket; s = socket.socket(); s.bind(('', 7000)); s.listen()\\n"
        SERVE += "print('up', flush=True)\\n"
        SERVE += "for _ in range(2):\\n c, _ = s.accept()\\n while c.recv(65536): pass\\n c.close()"
        SEND = "import socket, sys; s = socket.create_connection((sys.argv[1], 7000))\\n"
        SEND += "s.sendall(b'x' * 125000); s.shutdown(1); s.recv(1)"
        with Spaces(["eu", "us", "ap"]) as spaces:
            spaces.shape("eu", "us", 1)
            command = spaces.inside("us", sys.executable, "-c", SERVE)
            server = subprocess.Popen(command, stdout=subprocess.PIPE)
            server.stdout.readline()
            took = []
            for region in ("eu", "ap"):
                began = time.monotonic()
                send = spaces.inside(region, sys.executable, "-c", SEND, spaces.address("us"))
                subprocess.run(send, check=True)
                took.append(time.monotonic() - began)
            server.wait()
            print(took[0], spaces.sent("eu", "us"), spaces.sent("eu", "ap"))
    """
    command = [*UNSHARE, sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    took, sent, other = done.stdout.split()
    assert float(took) > 0.8, "a second, and less what may go at once"
    assert 125_000 < int(sent) < 140_000
    assert int(other) < 5_000


@pytest.mark.usefixtures("namespaces")
def test_a_side_that_is_killed_leaves_no_region_behind() -> None:
    """Else whoever waits for what it says would wait for ever."""
    script = """
        import os
        from lab.wan.spaces import Spaces

        spaces = Spaces(["eu", "us"])
        spaces.__enter__()
        print(*(holder.pid for holder in spaces._holders.values()), flush=True)
        os.kill(os.getpid(), 9)
    """
    command = [*UNSHARE, sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60)
    assert len(done.stdout.split()) == 2, done.stderr


@pytest.mark.usefixtures("namespaces")
def test_links_with_a_delay_lead_over_the_kernels() -> None:
    script = """
        import asyncio, subprocess, sys, time
        from contextlib import AsyncExitStack
        from lab.wan.spaces import Spaces

        SERVE = "import socket, sys; s = socket.socket(); s.bind((sys.argv[1], 7000)); s.listen()\\n"
        SERVE += "print('up', flush=True)\\n"
        SERVE += "for _ in range(2):\\n c, _ = s.accept()\\n while c.recv(65536): pass\\n c.close()"
        SEND = "import socket, sys; s = socket.create_connection((sys.argv[1], 7000))\\n"
        SEND += "s.sendall(b'x' * 10000); s.shutdown(1); s.recv(1)"
        with Spaces(["eu", "us"], 0.3) as spaces:
            asyncio.run(spaces.carry([7000], dict, AsyncExitStack()))
            command = spaces.inside("us", sys.executable, "-c", SERVE, spaces.listens("us"))
            server = subprocess.Popen(command, stdout=subprocess.PIPE)
            server.stdout.readline()
            subprocess.run(spaces.inside("us", sys.executable, "-c", SEND, spaces.address("us")), check=True)
            before = spaces.sent("eu", "us")
            began = time.monotonic()
            subprocess.run(spaces.inside("eu", sys.executable, "-c", SEND, spaces.address("us")), check=True)
            print(time.monotonic() - began, before, spaces.sent("eu", "us"))
            server.wait()
    """
    command = [*UNSHARE, sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    took, before, after = done.stdout.split()
    assert float(took) > 0.6, "there and back"
    assert int(before) < 5_000, "who is near does not go over it"
    assert int(after) > 10_000
