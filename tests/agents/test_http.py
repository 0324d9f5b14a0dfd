"""The HTTP side of an agent, by real requests on a real port; its metrics; its logs."""

from __future__ import annotations

import asyncio
import datetime
import io
import json
import logging
import re
import signal
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from http.client import HTTPConnection, HTTPResponse

import pyarrow as pa
import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from agents import logs
from agents.exposition import exposition
from agents.http import HttpServer, _json
from agents.metrics import LABEL_VALUES_MAX, Metrics
from agents.status import Aside, _facts
from elf.batch import encode
from elf.errors import UserError
from elf.transport.memory import MemoryNetwork
from elf.wire.clients import WindowResult
from tests.support.facts import Status
from tests.support.waiting import eventually

SOON = 10.0


@pytest.fixture
def facts() -> Status:
    return Status()


@pytest.fixture
async def server(facts: Status) -> AsyncIterator[HttpServer]:
    made = HttpServer("127.0.0.1:0", facts, keep_alive_secs=0.05)
    await made.start()
    yield made
    await made.stop()


async def ask(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    """Status, content type, body; asked from another thread, as the loop is the server's."""

    def request() -> tuple[int, str, bytes]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=SOON)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.headers["content-type"], response.read()
        finally:
            connection.close()

    return await asyncio.to_thread(request)


# -- answers -------------------------------------------------------------------------------------------------


async def test_health_and_trouble(server: HttpServer, facts: Status) -> None:
    assert await ask(server, "/health") == (200, "application/json", b'{"ok":true}')
    facts.leaving = True
    body = b'{"ok":false,"reason":"the agent is on its way out"}'
    assert await ask(server, "/health") == (503, "application/json", body)
    body = body.replace(b'"ok":false,', b'"ok":false,"ready":false,')
    assert (await ask(server, "/ready"))[::2] == (503, body)


async def test_an_agent_that_stands_aside_says_why_and_nothing_else() -> None:
    made = HttpServer("127.0.0.1:0", Aside("it waits for room"))
    await made.start()
    try:
        assert (await ask(made, "/health"))[::2] == (503, b'{"ok":false,"reason":"it waits for room"}')
        assert (await ask(made, "/ready"))[::2] == (
            503,
            b'{"ok":false,"ready":false,"reason":"it waits for room"}',
        )
        for path in ("/metrics", *(f"/api/v1/{name}" for name in ("jobs", "members", "streams"))):
            assert (await ask(made, path))[::2] == (503, b'{"error":"it waits for room"}')
        for path in ("/api/v1/jobs/top/notices", "/api/v1/jobs/top/windows", "/api/v1/tables/seen?ip=a"):
            assert (await ask(made, path))[::2] == (503, b'{"error":"it waits for room"}')
    finally:
        await made.stop()


async def test_ready_is_about_joining(server: HttpServer, facts: Status) -> None:
    assert (await ask(server, "/ready"))[::2] == (200, b'{"ok":true,"ready":true}')
    facts.joined = False
    body = b'{"ok":false,"ready":false,"reason":"it looks for its fleet"}'
    assert (await ask(server, "/ready"))[::2] == (503, body)
    assert (await ask(server, "/health"))[0] == 200


async def test_facts_are_json(server: HttpServer) -> None:
    status, kind, body = await ask(server, "/api/v1/jobs")
    assert (status, kind) == (200, "application/json")
    assert json.loads(body) == {"jobs": [{"name": "top", "state": "active", "sum": 10**20}]}
    assert (await ask(server, "/api/v1/streams"))[2] == b'{"streams":[]}'


async def test_notices_of_a_job(server: HttpServer) -> None:
    assert (await ask(server, "/api/v1/jobs/top/notices"))[2] == b'{"notices":[{"text":"half price"}]}'


async def test_rows_of_a_table(server: HttpServer) -> None:
    told = b'{"rows":[{"ip":"a b"}],"number":3,"anywhere":false}'
    assert (await ask(server, "/api/v1/tables/seen?ip=a%20b"))[::2] == (200, told)
    told = b'{"rows":[{"ip":"a","n":"1"}],"number":3,"anywhere":true}'
    assert (await ask(server, "/api/v1/tables/seen?ip=a&as_of=any&n=1"))[::2] == (200, told)
    told = b'{"rows":[{"ip":"a"}],"number":3,"anywhere":false,"creator":"ann"}'
    assert (await ask(server, "/api/v1/tables/seen?ip=a&creator=ann"))[::2] == (200, told)


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "/api/v1/tables/none?ip=a", 404, "there is no table none"),
        ("GET", "/api/v1/tables/seen", 400, "a row is found by its key: add ip=… to the question"),
        (
            "GET",
            "/api/v1/tables/seen?ip=a&ip=b",
            400,
            "a column is given once, and as_of is 'any' or not there",
        ),
        (
            "GET",
            "/api/v1/tables/seen?as_of=now",
            400,
            "a column is given once, and as_of is 'any' or not there",
        ),
        ("GET", "/api/v1/jobs/none/notices", 404, "there is no job none"),
        ("GET", "/nothing", 404, "Not Found"),
        ("POST", "/health", 405, "Method Not Allowed"),
        ("DELETE", "/api/v1/jobs", 405, "Method Not Allowed"),
        ("GET", "/api/v1/jobs/no%20such/windows", 404, "there is no job no such"),
    ],
)
async def test_what_is_refused(server: HttpServer, method: str, path: str, status: int, error: str) -> None:
    answer = await ask(server, path, method)
    assert (answer[0], json.loads(answer[2])) == (status, {"error": error})


async def test_a_failure_of_ours_is_a_500_and_the_server_goes_on(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    status, _, body = await ask(server, "/api/v1/members")
    assert (status, body) == (500, b'{"error":"internal error"}')
    assert "ZeroDivisionError" in caplog.text
    assert (await ask(server, "/health"))[0] == 200


async def test_bytes_that_are_no_http(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"\xff\x00 not http at all\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), SOON)).startswith(b"HTTP/1.1 400")
    writer.close()
    assert (await ask(server, "/health"))[0] == 200


# -- streams -------------------------------------------------------------------------------------------------


class Reader:
    """Reads server-sent events in a thread."""

    def __init__(self, server: HttpServer) -> None:
        self.connection = HTTPConnection("127.0.0.1", server.port, timeout=SOON)
        self.connection.request("GET", "/api/v1/jobs/top%20ten/windows")
        self.response: HTTPResponse = self.connection.getresponse()
        self.comments = 0

    def event(self) -> tuple[str, object] | None:
        """The next event; None at the end of the stream."""
        kind = ""
        while line := self.response.readline():
            if line.startswith(b":"):
                self.comments += 1
            elif line.startswith(b"event: "):
                kind = line[7:].decode().strip()
            elif line.startswith(b"data: "):
                return kind, json.loads(line[6:])
        return None

    def close(self) -> None:
        self.response.close()
        self.connection.close()


async def test_windows_as_server_sent_events(server: HttpServer, facts: Status) -> None:
    reader = await asyncio.to_thread(Reader, server)
    assert reader.response.headers["content-type"].startswith("text/event-stream")
    at = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    facts.queue.put_nowait({"window_start": at, "rows": [{"product": "a\nb", "clicks": Decimal(3)}]})
    assert await asyncio.to_thread(reader.event) == (
        "window",
        {"window_start": "2026-03-01T00:00:00Z", "rows": [{"product": "a\nb", "clicks": 3}]},
    )
    await asyncio.sleep(0.2)  # the stream says nothing for so long
    facts.queue.put_nowait({"n": 2})
    assert await asyncio.to_thread(reader.event) == ("window", {"n": 2})
    assert reader.comments >= 2, "a silent stream says that it is still there"
    facts.queue.put_nowait(None)
    assert await asyncio.to_thread(reader.event) == ("end", {})
    assert await asyncio.to_thread(reader.event) is None
    await eventually(lambda: facts.readers == 0)
    reader.close()


def test_times_in_windows_have_their_zone() -> None:
    at = datetime.datetime(2026, 3, 1)
    row = {
        "window_start": at,
        "last": at.replace(microsecond=5),
        "ts": [at],
        "n": Decimal(2**70),
        "none": None,
    }
    status = pa.Table.from_pylist([{"window_start": at, "rows_in": 3}])
    result = WindowResult(
        job="u",
        name="top",
        version=1,
        master="m",
        first_us=0,
        last_us=1,
        revision=0,
        status=encode(status),
        payload=encode(pa.Table.from_pylist([row])),
    )
    (fact,) = _facts(result)
    told = json.loads(_json(fact))
    assert told["status"] == {"window_start": "2026-03-01T00:00:00.000Z", "rows_in": 3}
    assert told["rows"] == [
        {
            "window_start": "2026-03-01T00:00:00.000Z",
            "last": "2026-03-01T00:00:00.000005Z",
            "ts": ["2026-03-01T00:00:00.000Z"],
            "n": 2**70,
            "none": None,
        }
    ]


async def test_a_reader_that_vanishes_is_let_go(server: HttpServer, facts: Status) -> None:
    reader = await asyncio.to_thread(Reader, server)
    await eventually(lambda: facts.readers == 1)
    reader.close()
    await eventually(lambda: facts.readers == 0)


async def test_stop_ends_open_streams(server: HttpServer, facts: Status) -> None:
    reader = await asyncio.to_thread(Reader, server)
    await eventually(lambda: facts.readers == 1)
    async with asyncio.timeout(SOON):
        await server.stop()
        await server.stop()
    assert await asyncio.to_thread(reader.event) is None
    assert facts.readers == 0
    reader.close()


# -- life ----------------------------------------------------------------------------------------------------


async def test_a_port_in_use(server: HttpServer, facts: Status) -> None:
    with pytest.raises(UserError, match=rf"cannot serve HTTP on 127.0.0.1:{server.port}: the port is in use"):
        await HttpServer(f"127.0.0.1:{server.port}", facts).start()


@pytest.mark.parametrize("listen", ["192.0.2.1:0", "nohost.invalid:0", "127.0.0.1", "127.0.0.1:70000"])
async def test_places_where_one_cannot_serve(listen: str, facts: Status) -> None:
    with pytest.raises(UserError) as caught:
        await HttpServer(listen, facts).start()
    assert "\n" not in str(caught.value)


async def test_the_port_is_free_after_stop(facts: Status) -> None:
    server = HttpServer("127.0.0.1:0", facts)
    await server.start()
    assert (await ask(server, "/health"))[0] == 200
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await ask(server, "/health")
    again = HttpServer(f"127.0.0.1:{server.port}", facts)
    await again.start()
    await again.stop()


async def test_signals_stay_the_agents(facts: Status) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    server = HttpServer("127.0.0.1:0", facts)
    await server.start()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    await server.stop()


# -- metrics -------------------------------------------------------------------------------------------------


def samples(text: bytes) -> dict[str, float]:
    return {
        sample.name + "".join(f",{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


async def test_metrics_over_http(server: HttpServer, facts: Status) -> None:
    facts.measured.rows("clicks", 10, 1000)
    status, kind, body = await ask(server, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert samples(body)["elf_rows_total,clicks"] == 10


def test_every_measurement_shows() -> None:
    metrics = Metrics()
    metrics.rows("clicks", 10, 1000)
    metrics.rows("clicks", 5, 10)
    metrics.rejected("clicks", "utf8", 2)
    metrics.left_out("clicks", "late", 3)
    metrics.uncast("clicks", 4)
    metrics.answered("clicks", 5)
    metrics.mapped("clicks", 0.5)
    metrics.lost("input_bytes", 6)
    metrics.checkpoint(0.03)
    metrics.windows_committed()
    metrics.panes_committed(7)
    metrics.snapshots_retained(8)
    metrics.replicas(
        wanting=3,
        copied=4,
        held=5,
        held_bytes=6_000,
        sent_bytes=7_000,
        mirrored=7,
        run_again=8,
        not_run_again=9,
    )
    metrics.members_live(9)
    metrics.jobs(2)
    metrics.refused("checksum")
    seen = samples(exposition(metrics))
    expected = {
        "elf_rows_total,clicks": 15,
        "elf_input_bytes_total,clicks": 1010,
        "elf_rows_rejected_total,utf8,clicks": 2,
        "elf_rows_left_out_total,late,clicks": 3,
        "elf_values_uncast_total,clicks": 4,
        "elf_rows_answered_total,clicks": 5,
        "elf_map_seconds_total,clicks": 0.5,
        "elf_losses_total,input_bytes": 6,
        "elf_cut_seconds_count": 1,
        "elf_cut_seconds_sum": 0.03,
        "elf_windows_committed_total": 1,
        "elf_panes_committed_total": 7,
        "elf_snapshots_retained": 8,
        "elf_snapshots_wanting_copies": 3,
        "elf_snapshots_copied": 4,
        "elf_copies_held": 5,
        "elf_copies_held_bytes": 6_000,
        "elf_copies_sent_bytes_total": 7_000,
        "elf_snapshots_mirrored_total": 7,
        "elf_panes_run_again_total": 8,
        "elf_panes_not_run_again_total": 9,
        "elf_members_live": 9,
        "elf_jobs": 2,
        "elf_messages_refused_total,checksum": 1,
    }
    assert {name: seen[name] for name in expected} == expected
    assert seen["elf_resident_memory_bytes"] > 1 << 20
    assert seen["elf_cpu_seconds_total"] > 0
    assert all(name.startswith("elf_") for name in seen)


async def test_a_transports_counters_show() -> None:
    network = MemoryNetwork()
    one, other = network.listen("a:1"), network.listen("b:1")
    metrics = Metrics()
    metrics.watch(one.counters)
    one.send("b:1", [b"12345"])
    one.send("nobody:1", [b"1"])
    other.send("a:1", [b"123"])
    await one.receive()
    one.counters.refused["size"] += 1
    seen = samples(exposition(metrics))
    assert seen["elf_messages_sent_total"] == seen["elf_messages_received_total"] == 1
    assert (seen["elf_sent_bytes_total"], seen["elf_received_bytes_total"]) == (5, 3)
    assert seen["elf_messages_dropped_total,unroutable"] == 1
    assert seen["elf_messages_misshapen_total,size"] == 1


def test_labels_take_a_bounded_number_of_values() -> None:
    metrics = Metrics()
    for number in range(LABEL_VALUES_MAX * 3):
        metrics.rows(f"stream-{number}", 1, 1)
        metrics.rejected("stream-0", f"reason {number}")
        metrics.refused(f"other reason {number}")
    names = [name for name in samples(exposition(metrics)) if not name.startswith("elf_cut")]
    assert len(names) < 8 * LABEL_VALUES_MAX
    assert samples(exposition(metrics))["elf_rows_total,other"] == 2 * LABEL_VALUES_MAX


def test_two_nodes_of_a_process_do_not_share() -> None:
    one, other = Metrics(), Metrics()
    one.windows_committed()
    assert samples(exposition(other))["elf_windows_committed_total"] == 0


# -- logs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def quiet_after() -> Iterator[None]:
    """Logging is the process's: put it back."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.usefixtures("quiet_after")
def test_logs_are_json_lines_with_the_agent_in_them() -> None:
    out = io.StringIO()
    logs.configure("info", "json", stream=out, agent="web-1", address="a:1")
    log = structlog.get_logger("agents.driver")
    log.debug("not this")
    log.info("joined", peers=3, name="\nö")
    logging.getLogger("some.library").warning("it says %s", "so")
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["joined", "it says so", "failed"]
    assert all((line["agent"], line["address"]) == ("web-1", "a:1") for line in lines)
    assert [line["level"] for line in lines] == ["info", "warning", "error"]
    assert (lines[0]["peers"], lines[0]["name"]) == (3, "\nö")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line["timestamp"]) for line in lines)
    assert "ValueError: no" in lines[2]["exception"]


@pytest.mark.usefixtures("quiet_after")
def test_logs_for_people() -> None:
    out = io.StringIO()
    logs.configure("warning", "console", stream=out, agent="web-1")
    structlog.get_logger().info("not this")
    structlog.get_logger().warning("look here", rows=7)
    line = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
    assert "look here" in line
    assert "rows=7" in line
    assert "agent=web-1" in line
    assert line.count("\n") == 1
