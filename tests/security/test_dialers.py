"""Whoever connects to an agent whose connection is damaged, or whose agent lies: it goes on, and says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from elf.security.loopback import make_loopback
from elf.transport.zeromq import ZeroMqTransport

DIALS = """
import asyncio, sys
from pathlib import Path
from elf.security.loopback import read_loopback
from elf.transport import zeromq

zeromq.HEARTBEAT_MS = 100  # then libzmq looks at a connection again

async def main():
    told = []
    security = read_loopback(Path(sys.argv[2]))
    dialled = [
        await zeromq.ZeroMqTransport.dial(security=security, told=lambda to, why: told.append(why))
        for _ in range(8)
    ]
    for number in range(60):
        for one in dialled:
            one.send(sys.argv[1], [b"hello"])
        await asyncio.sleep(0.05)
    for one in dialled:
        await one.close()
    print(*sorted(set(map(str, told))))

asyncio.run(main())
"""
"""As clients do, and an agent that looks whether others can be reached."""


@asynccontextmanager
async def damaging(address: str, whole: int) -> AsyncIterator[str]:
    """An address that leads to another one. Of what comes back over a connection so many bytes are left
    whole, and the piece that comes then has its last byte changed; soon after it the connection ends."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
        while data := bytearray(await reader.read(1 << 16)):
            if left < len(data):
                data[-1] ^= 1
            left -= len(data)
            writer.write(data)
            if left < 0:
                await asyncio.sleep(0.2)
                break
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        its_reader, its_writer = await asyncio.open_connection(host, int(port))
        both = pipe(reader, its_writer, 1 << 60), pipe(its_reader, writer, whole)
        tasks.update(map(asyncio.create_task, both))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(("whole", "says"), [(100, "protocol"), (300, "protocol"), (400, "None")])
async def test_a_connection_that_is_damaged_ends_nobody(tmp_path: Path, whole: int, says: str) -> None:
    """In the handshake, or in the messages after it: libzmq 4.3.5 aborts a process whose monitor is told of
    the latter."""
    file = tmp_path / "loopback.key"
    agent = await ZeroMqTransport.listen("127.0.0.1:0", security=make_loopback(file))

    async def answer() -> None:
        while True:
            origin, _, _ = await agent.receive()
            agent.send(origin, [b"welcome"])

    answering = asyncio.create_task(answer())
    async with damaging(agent.address, whole) as address:
        dialer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DIALS, address, str(file), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(dialer.communicate(), 60)
    assert (dialer.returncode, said.decode().split()) == (0, [says])
    answering.cancel()
    await agent.close()
