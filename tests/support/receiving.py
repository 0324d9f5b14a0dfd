"""A stream's receiver at work in this process, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agents.config import AgentConfig, Config, ReceiveConfig, StreamConfig
from agents.inputs.spooled import Spooled
from agents.metrics import Metrics
from agents.receiving.opening import open_input
from elf.addresses import split_address
from elf.fields import replace
from tests.support.files import drain, lines

CONFIG = Config(agent=AgentConfig(advertise="web-1:7071"))
LINE_BYTES_MAX = 1_000


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
    folder: Path, type: str, format: str = "combined", include: tuple[str, ...] = (), **receive: object
) -> AsyncIterator[Side]:
    settings = replace(ReceiveConfig(), listen="127.0.0.1:0", **receive)
    stream = StreamConfig(format, include, type, receive=settings, max_line_bytes=LINE_BYTES_MAX)
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


# -- who sends


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
