"""What is said of whatever listens at an address: by real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import pytest

from agents.http import HttpServer
from elf.addresses import AddressError
from elf.transport.probe import ANSWER_SECS, CONNECT_SECS, SIGNATURE_SECS, probe
from elf.transport.zeromq import ZeroMqTransport
from tests.support.facts import Status

LIMIT_SECS = 2.5


@contextlib.asynccontextmanager
async def saying(first: bytes, answer: bytes = b"", *, ends: bool = False) -> AsyncIterator[str]:
    """A server that says this at once, and that when it is asked something; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            writer.write(first)
            while not ends and await reader.read(100):
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_agents_transport_has_nothing_against_it() -> None:
    transport = await ZeroMqTransport.listen("127.0.0.1:0")
    try:
        assert await probe(transport.address) == ""
    finally:
        await transport.close()


async def test_a_busy_one_may_take_its_time() -> None:
    """Here it says nothing until it has been asked something that it does not understand."""
    async with saying(b"", b"\xff" + bytes(8) + b"\x7f") as address:
        assert await probe(address, 0.2) == ""


async def test_the_http_port_of_an_agent_is_told_from_other_servers() -> None:
    server = HttpServer("127.0.0.1:0", Status())
    await server.start()
    try:
        said = await probe(server.address)
    finally:
        await server.stop()
    assert said == (
        "that is the http.listen of an elf-agent; use its agent.listen (port 7071 if it is not set)"
    )
    async with saying(b"", b"HTTP/1.1 200 OK\r\nServer: nginx\r\nX: elf-agent\r\n\r\n") as address:
        assert await probe(address) == "what listens there is an HTTP server and no elf-agent"


@pytest.mark.parametrize(
    ("first", "answer", "ends", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", b"", False, "no elf-agent: it says 'SSH-2.0-OpenSSH_9.6'"),
        (b"220 mail.example\r\n" * 9, b"", False, "no elf-agent: it says '220 mail.example'"),
        (b"\x15\x03\x01\x00\x02", b"", False, "no elf-agent: it says '0x1503010002'"),
        (b"\r\n", b"", False, "no elf-agent: it says ''"),
        (b"", b"\x15\x03", False, "no elf-agent: it says '0x1503'"),
        (b"", b"", True, "no elf-agent: it ends the connection"),
    ],
)
async def test_what_is_no_agent(first: bytes, answer: bytes, ends: bool, said: str) -> None:
    async with saying(first, answer, ends=ends) as address:
        assert (await probe(address)).endswith(said)


async def test_who_says_nothing_is_given_up_soon() -> None:
    """A process that is stopped looks the same: the system takes its connections."""
    assert max(CONNECT_SECS, SIGNATURE_SECS + ANSWER_SECS) <= 2.0
    async with saying(b"") as address:
        began = time.monotonic()
        said = await probe(address, 0.1)
    assert said == "what listens there says nothing: it is no elf-agent, or one that is stopped"
    assert time.monotonic() - began < LIMIT_SECS


async def test_nobody_and_nowhere() -> None:
    assert await probe("127.0.0.1:1") == "connection refused (is elf-agent running there?)"
    assert await probe("nohost.invalid:1") == "no such host: nohost.invalid cannot be resolved"
    assert await probe(f"{'x' * 70}.invalid:1") == f"no such host: {'x' * 70}.invalid cannot be resolved"
    with pytest.raises(AddressError):
        await probe("nowhere")


async def test_a_firewall_that_says_nothing() -> None:
    """A queue of connections that is full drops what comes, as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as opened:
        port = full.getsockname()[1]
        for _ in range(4):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(("127.0.0.1", port))
        said = await probe(f"127.0.0.1:{port}", 0.1)
    assert (
        said == f"no connection within 0.2 s (is the host up, and does a firewall let port {port} through?)"
    )
