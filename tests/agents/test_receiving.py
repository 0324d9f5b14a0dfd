"""Receivers, one contract for all: what they take comes as lines in order, once, and what they do not take is
refused, counted, or waits."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agents.config import AgentConfig, Config, ReceiveConfig, StreamConfig
from agents.inputs.spooled import Spooled
from agents.metrics import Metrics
from agents.receiving import intake, listening
from agents.receiving.opening import open_input
from elf.addresses import split_address
from elf.fields import replace
from tests.support.files import drain, lines

CONFIG = Config(agent=AgentConfig(advertise="web-1:7071"))
MAX = 1_000
"""Bytes of a line."""


@dataclass
class Side:
    """A receiver at work, and what it has come to."""

    read: Spooled
    receiver: object
    metrics: Metrics
    got: list[str] = field(default_factory=list)

    @property
    def at(self) -> tuple[str, int]:
        host, port = split_address(self.receiver.address)  # type: ignore[attr-defined]
        return host, port

    def look(self) -> list[str]:
        """All lines that have come."""
        self.got += lines(drain(self.read, 0))
        return self.got

    async def until(self, *expected: str) -> None:
        async with asyncio.timeout(10):
            while len(self.look()) < len(expected):
                await asyncio.sleep(0.002)
        assert self.got == list(expected)

    async def refused(self, reason: str, times: int = 1) -> None:
        """It is counted so."""
        async with asyncio.timeout(10):
            while self.refusals().get(reason, 0) < times:
                await asyncio.sleep(0.002)

    def refusals(self) -> dict[str, float]:
        (family,) = [one for one in self.metrics.families() if one.name == "elf_receive_refused"]
        return {reason: count for (_, reason), count in family.values()}

    def fill(self) -> None:
        """Until there is no room."""
        for size in (900, 30, 1):
            while (done := self.read.spool.take("", b"x" * size + b"\n")) is not None:
                done.result(10)

    def free(self) -> None:
        drain(self.read, 0)
        self.read.kept(self.read.positions())


@asynccontextmanager
async def receiving(
    folder: Path, type: str, format: str = "combined", **receive: object
) -> AsyncIterator[Side]:
    settings = replace(ReceiveConfig(), listen="127.0.0.1:0", **receive)
    stream = StreamConfig(format=format, type=type, receive=settings, max_line_bytes=MAX)
    metrics = Metrics()
    read, receiver = open_input(CONFIG, "s", stream, folder, (), metrics)
    task = asyncio.ensure_future(receiver.serve())
    try:
        while split_address(getattr(receiver, "address", "x:1"))[1] == 0 and not task.done():
            await asyncio.sleep(0.002)
        if task.done():
            task.result()
        yield Side(read, receiver, metrics)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        read.close()


async def talk(side: Side, data: bytes, tls: ssl.SSLContext | None = None) -> None:
    """Send it and close."""
    _, writer = await asyncio.open_connection(*side.at, ssl=tls)
    writer.write(data)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def post(
    side: Side, body: bytes, path: str = "/", *, chunked: bool = False, **headers: str
) -> tuple[int, dict[str, object]]:
    """The status and the answer."""
    reader, writer = await asyncio.open_connection(*side.at)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    head += "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    if chunked:
        writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    else:
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    top, _, rest = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), json.loads(rest) if rest else {}


async def ended(reader: asyncio.StreamReader) -> bool:
    """The other side has closed, without a word."""
    with contextlib.suppress(ConnectionError):
        return await reader.read() == b""
    return True


# -- the contract --------------------------------------------------------------------------------------------


async def syslog_lines(side: Side, texts: list[str]) -> bool:
    await talk(side, "".join(f"<13>Nov 26 20:00:00 web-1 nginx: {text}\n" for text in texts).encode())
    return True


async def syslog_counted(side: Side, texts: list[str]) -> bool:
    messages = [f"<13>1 2026-11-26T20:00:00Z web-1 nginx 1 - - {text}" for text in texts]
    await talk(side, "".join(f"{len(one.encode())} {one}" for one in messages).encode())
    return True


async def http(side: Side, texts: list[str]) -> bool:
    status, _ = await post(side, "".join(f"{text}\n" for text in texts).encode())
    return status == 202


async def http_gzip(side: Side, texts: list[str]) -> bool:
    body = gzip.compress("\n".join(texts).encode())
    status, _ = await post(side, body, chunked=True, content_encoding="gzip")
    return status == 202


Send = Callable[[Side, list[str]], Awaitable[bool]]
SENDERS: list[tuple[str, Send]] = [
    ("syslog", syslog_lines),
    ("syslog", syslog_counted),
    ("http", http),
    ("http", http_gzip),
]


@pytest.mark.parametrize(("type", "send"), SENDERS)
async def test_the_contract(tmp_path: Path, type: str, send: Send) -> None:
    async with receiving(tmp_path, type, body_bytes_max=1 << 20, spool_bytes_max=200_000) as side:
        texts = [f"line {number} é" for number in range(200)]
        assert await send(side, texts[:150])
        assert await send(side, texts[150:])
        await side.until(*texts)
        assert {chunk.source.log for chunk in drain(side.read, 0)} <= {f"{type}:127.0.0.1"}
        assert side.read.positions()[1].path == f"{type}:127.0.0.1"
        # A line that is too long is rejected, and those beside it are not.
        before = side.read.counters
        assert await send(side, ["short", "x" * (MAX + 9_000), "y" * (MAX + 1), "after"])
        await side.until(*texts, "short", "after")
        assert before.lost_bytes == 0
        # No room: either it says so, or it waits until there is some.
        side.fill()
        sending = asyncio.ensure_future(send(side, ["waits"]))
        await side.refused("full")
        if type == "http":
            assert not await sending
            side.free()
            sending = asyncio.ensure_future(send(side, ["waits"]))
        else:
            await asyncio.sleep(0.06)
            assert side.read.spool.take("x", b"x" * 900 + b"\n") is None
            side.free()
        assert await sending
        side.got = []
        await side.until("waits")


async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with receiving(tmp_path, "syslog", transport=("tcp",), address_connections_max=2) as side:
        held = [await asyncio.open_connection(*side.at) for _ in range(2)]
        reader, third = await asyncio.open_connection(*side.at)
        assert await ended(reader)
        await side.refused("connections")
        third.close()
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.01)
        await syslog_lines(side, ["fine"])
        await side.until("fine")


async def test_who_begins_and_does_not_go_on_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "WAIT_SECS", 0.05)
    async with receiving(tmp_path, "syslog") as side:
        reader, writer = await asyncio.open_connection(*side.at)
        await asyncio.sleep(0.1)  # between messages nobody need say anything
        writer.write(b"<13>Nov 26 20:00:00 a b: whole\n<13>half")
        assert await ended(reader)
        await side.refused("slow")
        await side.until("whole")
        writer.close()


# -- syslog --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("<190>Nov 26 20:00:00 web-1 nginx: 1.2.3.4 - - [x]", "1.2.3.4 - - [x]"),
        ("<190>Nov 26 20:00:00 nginx: 1.2.3.4: a", "1.2.3.4: a"),
        ("<190>Nov  6 20:00:00 fe80::1 nginx[12]: a: b", "a: b"),
        ("<34>2026-11-26T20:00:00.1+01:00 web-1 app[1]: text", "text"),
        ("<34>1 2026-11-26T20:00:00Z web-1 app 1 id - text", "text"),
        ('<34>1 - - - - - [a b="]\\" "][c] \ufefftext', "text"),
        ("<34>1 - - - - - -", ""),
        ("no syslog at all", "no syslog at all"),
    ],
)
async def test_headers(tmp_path: Path, message: str, text: str) -> None:
    async with receiving(tmp_path, "syslog") as side:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        host, port = split_address(side.receiver.udp_address)  # type: ignore[attr-defined]
        udp.sendto(f"{message}\0\n".encode(), (host, port))
        udp.close()
        await side.until(text)
        if text:
            await talk(side, f"{message}\n{message}\n".encode())
            await side.until(text, text, text)


async def test_a_whole_message_is_a_line_and_its_newlines_are_written_out(tmp_path: Path) -> None:
    async with receiving(tmp_path, "syslog", "syslog5424") as side:
        await talk(side, b"8 <1>1 a\nb12 <1>1 - - - -")
        await side.until("<1>1 a#012b", "<1>1 - - - -")


@pytest.mark.parametrize("data", [b"5 <1>1 x6 <1>1", b"12345678901 <", b"9" * 40, b"3 <1>xx"])
async def test_a_length_that_is_none_ends_the_connection(tmp_path: Path, data: bytes) -> None:
    async with receiving(tmp_path, "syslog", "syslog") as side:
        reader, writer = await asyncio.open_connection(*side.at)
        writer.write(data + b"zz")
        assert await ended(reader)
        await side.refused("framing")
        writer.close()


async def test_what_udp_loses_is_counted_and_a_gap(tmp_path: Path) -> None:
    async with receiving(tmp_path, "syslog", spool_bytes_max=100_000) as side:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        host, port = split_address(side.receiver.udp_address)  # type: ignore[attr-defined]
        side.fill()
        udp.sendto(b"<1>Nov 26 20:00:00 a b: lost", (host, port))
        await side.refused("lost")
        side.free()
        udp.sendto(b"<1>Nov 26 20:00:00 a b: here", (host, port))
        await side.until("here")
        (gap,) = side.read.gaps()
        assert (gap.path, gap.bytes) == ("syslog:127.0.0.1", 5)
        assert side.read.counters.lost_bytes == 5
        udp.close()


async def test_more_senders_than_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "ORIGINS_MAX", 0)
    async with receiving(tmp_path, "syslog") as side:
        await syslog_lines(side, ["one"])
        await side.until("one")
        assert side.read.positions()[1].path == "syslog:other"


# -- HTTP ----------------------------------------------------------------------------------------------------


async def test_what_is_refused_over_http(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o600)
    bomb = gzip.compress(b"x" * 3_000_000)
    async with receiving(tmp_path, "http", token_file=str(token), body_bytes_max=2_000_000) as side:
        good = {"authorization": "Bearer 0123456789abcdef"}
        assert (await post(side, b"a\n"))[0] == 401
        assert (await post(side, b"a\n", authorization="Bearer 0123456789abcdeX"))[0] == 401
        assert (await post(side, b"a\n", "/other", **good))[0] == 404
        assert (await post(side, b"a" * 2_000_001, **good))[0] == 413
        assert (await post(side, b"a" * 2_000_001, chunked=True, **good))[0] == 413
        assert (await post(side, bomb, content_encoding="gzip", **good))[0] == 413
        assert (await post(side, b"no gzip", content_encoding="gzip", **good))[0] == 400
        assert (await post(side, gzip.compress(b"half")[:-9], content_encoding="gzip", **good))[0] == 400
        assert (await post(side, b"a\n", content_encoding="br", **good))[0] == 415
        assert (await post(side, b"", **good)) == (202, {"lines": 0})
        assert (await post(side, gzip.compress(b"a\n") * 2, content_encoding="gzip", **good))[0] == 202
        assert side.look() == ["a", "a"]
        assert side.refusals() == {"token": 2, "path": 1, "large": 3, "encoding": 3}
    async with receiving(tmp_path / "b", "http") as side:
        assert (await post(side, b"a\n", origin="http://evil.example"))[0] == 403
        assert (await post(side, b"a\n", idempotency_key="one"))[0] == 202
        assert (await post(side, b"a\n", idempotency_key="one"))[0] == 202
        assert side.look() == ["a"]
