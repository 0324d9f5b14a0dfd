"""The HTTP port of an agent under attack: connections that say nothing, or take nothing; other names; bodies.
On loopback attacker and probe have the same address, which is the worst case."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agents.connections import Bounds
from agents.http import HttpServer
from tests.support.facts import Status
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually

SLOW = 260
SOON = 10.0


# -- a real agent --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    fleet = Fleet(tmp_path_factory.mktemp("http"), 1)
    fleet.start()
    yield fleet.agents[0]
    fleet.stop()


def asked(port: int, path: str, host: str = "localhost", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SOON)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Host": host, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}


async def is_up(agent: Agent) -> None:
    def ready() -> bool:
        with contextlib.suppress(OSError):
            return asked(agent.http_port, "/ready")[0] == 200
        return False

    await eventually(ready, "the agent is ready")


async def test_health_answers_while_slow_connections_hold_all_they_can(agent: Agent) -> None:
    await is_up(agent)
    with contextlib.ExitStack() as opened:
        for _ in range(SLOW):
            slow = opened.enter_context(socket.create_connection(("127.0.0.1", agent.http_port)))
            with contextlib.suppress(OSError):  # it was cut already
                slow.sendall(b"GET /health HTTP/1.1\r\nX: ")
        for path in ("/health", "/ready"):
            assert asked(agent.http_port, path)[0] == 200
    _, metrics, _ = asked(agent.http_port, "/metrics")
    cut = [line for line in metrics.splitlines() if line.startswith(b'elf_http_refused_total{reason="full"}')]
    assert cut, "what is cut is counted"
    assert float(cut[0].split()[-1]) >= SLOW - 64


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:7072", "[::1]:7072", "127.8.9.1", "web"]
)
async def test_its_own_names_are_answered(agent: Agent, host: str) -> None:
    await is_up(agent)
    assert asked(agent.http_port, "/health", host)[0] == (421 if host == "web" else 200)


# -- a server in this process, with small bounds -------------------------------------------------------------


class Refused(Counter[str]):
    def __call__(self, reason: str) -> None:
        self[reason] += 1


@pytest.fixture
def refused() -> Refused:
    return Refused()


@pytest.fixture
async def server(refused: Refused) -> AsyncIterator[HttpServer]:
    bounds = Bounds(connections=12, an_address=8, wait_secs=0.5, answers=10_000)
    names = frozenset({"web-1.example"})
    made = HttpServer("127.0.0.1:0", Status(), names=names, bounds=bounds, refused=refused)
    await made.start()
    yield made
    await made.stop()


async def of(server: HttpServer, path: str, host: str = "localhost", **headers: str) -> tuple[int, bytes]:
    return (await asyncio.to_thread(asked, server.port, path, host, **headers))[:2]


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "[", "@localhost", "127.1"]
)
async def test_another_name_is_not_answered(server: HttpServer, refused: Refused, host: str) -> None:
    for path in ("/health", "/api/v1/jobs", "/nothing"):
        status, body = await of(server, path, host)
        assert status == 421
        assert json.loads(body)["error"].endswith("http.hosts adds names")
        assert host not in body.decode()
    assert refused == {"host": 3}


async def test_a_name_of_the_configuration_is_answered(server: HttpServer) -> None:
    assert (await of(server, "/health", "Web-1.Example.:80"))[0] == 200


async def test_who_sends_no_host_is_no_browser(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /health HTTP/1.0\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), SOON)).startswith(b"HTTP/1.1 200")
    writer.close()


@pytest.mark.parametrize("headers", [{"Content-Length": "9000000000"}, {"Transfer-Encoding": "chunked"}])
async def test_a_body_is_refused_before_it_is_read(
    server: HttpServer, refused: Refused, headers: dict[str, str]
) -> None:
    status, body = await of(server, "/health", **headers)
    assert (status, json.loads(body)) == (413, {"error": "a request has no body here"})
    assert refused["body"] == 1


async def test_headers_without_an_end_are_refused(server: HttpServer, refused: Refused) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 50_000)
    with contextlib.suppress(ConnectionError):
        assert (await asyncio.wait_for(reader.read(12), SOON)) == b"HTTP/1.1 400"
    writer.close()
    assert refused["http"] == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Never: ",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HT",
        b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
    ],
)
async def test_a_request_that_does_not_come_is_not_waited_for(server: HttpServer, sent: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    feeding = asyncio.create_task(drip(writer))
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(
            reader.read(), 4.0
        )  # to the end, which comes although a byte does now and then
    feeding.cancel()
    writer.close()


async def drip(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.sleep(0.1)
            writer.write(b"x")


async def test_who_takes_no_answers_is_cut(server: HttpServer, refused: Refused) -> None:
    """A thousand requests in one go, and none of their answers taken."""
    with socket.socket() as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.connect(("127.0.0.1", server.port))
        greedy.setblocking(False)
        asking = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000
        with contextlib.suppress(BlockingIOError):
            while asking:
                asking = asking[greedy.send(asking) :]
        await eventually(lambda: refused["slow"] == 1, "it is cut")
    assert (await of(server, "/health"))[0] == 200


async def test_streams_leave_room_for_probes(server: HttpServer, refused: Refused) -> None:
    path, readers = "/api/v1/jobs/top%20ten/windows", []
    ask = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    said = []
    for _ in range(7):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(ask)
        readers.append(writer)
        said.append((await asyncio.wait_for(reader.readline(), SOON)).split()[1])
    assert said == [b"200"] * 6 + [b"503"], "a quarter of eight is left"
    assert (await of(server, "/health"))[0] == 200
    assert (await of(server, "/ready"))[0] == 200
    assert (await of(server, "/api/v1/jobs"))[0] == 503
    assert refused["busy"] == 2
    for writer in readers:
        writer.close()
    await eventually(lambda: asked_sync(server), "the places are free again")


async def test_many_addresses_keep_nobody_out(server: HttpServer) -> None:
    """Of twelve connections six are read by one reader, and six say nothing, each from somewhere else."""
    writers = []
    for number in range(12):
        where = "127.0.0.1" if number < 6 else f"127.0.0.{number}"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(where, 0))
        writers.append(writer)
        if number < 6:
            writer.write(b"GET /api/v1/jobs/top%20ten/windows HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await asyncio.wait_for(reader.readline(), SOON)).split()[1] == b"200"
    reader, probe = await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.99", 0))
    probe.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), SOON)).startswith(b"HTTP/1.1 200")
    for writer in (*writers, probe):
        writer.close()


def asked_sync(server: HttpServer) -> bool:
    return not server._door._answered


async def test_who_asks_too_often_waits(refused: Refused) -> None:
    """Wherever they say that they ask from."""
    server = HttpServer("127.0.0.1:0", Status(), bounds=Bounds(answers=3), refused=refused)
    await server.start()

    def flood() -> list[int]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SOON)
        with contextlib.closing(connection):
            said = []
            for number in range(100):
                connection.request("GET", "/api/v1/jobs", headers={"X-Forwarded-For": f"10.0.0.{number}"})
                answer = connection.getresponse()
                answer.read()
                said.append(answer.status)
                if answer.status == 429:
                    return said
            return said

    try:
        assert (await asyncio.to_thread(flood))[-1] == 429
        assert refused["often"] == 1
        assert (await of(server, "/health"))[0] == 200
        await eventually(lambda: not server._door._asked, "the next second")
        assert (await of(server, "/api/v1/jobs"))[0] == 200
    finally:
        await server.stop()


async def test_no_page_may_read_or_run_an_answer(server: HttpServer) -> None:
    path = "/api/v1/jobs/%3Cscript%3Ealert(1)/notices"
    headers = {"Origin": "http://evil.example"}
    status, body, told = await asyncio.to_thread(asked, server.port, path, "localhost", **headers)
    assert status == 404
    assert json.loads(body)["error"] == "there is no job <script>alert(1)"
    assert told["content-type"] == "application/json"
    assert told["x-content-type-options"] == "nosniff"
    assert told["content-security-policy"].startswith("default-src 'none'")
    assert not [name for name in told if name.startswith("access-control")]


def test_the_hosts_of_a_configuration(tmp_path: Path) -> None:
    from agents.loading import load
    from agents.settings.tree import ConfigProblems

    file = tmp_path / "elf.yaml"
    file.write_text("http: {hosts: [web-1.example, 10.0.0.7], connections_max: 9}\n")
    assert load(file, {}).http.hosts == ("web-1.example", "10.0.0.7")
    file.write_text("http: {hosts: ['web-1.example:80']}\n")
    with pytest.raises(ConfigProblems, match="the name of a host, without a port"):
        load(file, {})
