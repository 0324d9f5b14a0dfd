"""``elf flight`` and ``elf mcp``: doors on this machine, for one person (``elf.doors``)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
import threading
from importlib import import_module
from typing import Literal

from elf.addresses import is_loopback, split_address
from elf.cli.ask import ask
from elf.cli.printing import say
from elf.client import connect
from elf.doors.budget import Limits
from elf.errors import UserError


def serve_flight(address: str, cluster: str, listen: str, windows: int, creator: str | None) -> int:
    """Until Ctrl-C."""
    if not is_loopback(split_address(listen)[0]):
        raise UserError(
            f"--listen {listen}: this door is for this machine alone; from another one it is reached through "
            "ssh -L 7074:127.0.0.1:7074"
        )
    _needs("flight")
    with contextlib.suppress(KeyboardInterrupt):
        ask(_serve(address, cluster, listen, windows, creator))
    return 0


async def _serve(address: str, cluster: str, listen: str, windows: int, creator: str | None) -> None:
    import pyarrow as pa

    from elf.doors.answers import Answers
    from elf.doors.flight import Server

    token = secrets.token_urlsafe(32)
    async with connect(address, cluster=cluster, creator=creator, reads_files=False) as client:
        try:
            server = Server(listen, token, Answers(client, windows), asyncio.get_running_loop())
        except (OSError, pa.ArrowException):  # gRPC has said on standard error what it is
            raise UserError(
                f"--listen {listen}: nothing can listen there; is the port in use? Choose another"
            ) from None
        thread = threading.Thread(target=server.serve, name="flight", daemon=True)
        thread.start()
        agent = (await client.status()).get("agent", client.address)
        host = split_address(listen)[0]
        say(f"the fleet of {agent} ({client.address}), for {client.creator}; Ctrl-C ends it", sys.stdout)
        print(f"grpc://{host}:{server.port}\nauthorization: Bearer {token}", flush=True)
        try:
            await _asked_to_end()
        finally:
            await asyncio.to_thread(server.shutdown)


def serve_tools(address: str, cluster: str, windows: int, limits: Limits, creator: str | None) -> int:
    """Until whoever started it closes its standard input."""
    _needs("mcp")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve_tools(address, cluster, windows, limits, creator))
    return 0


async def _serve_tools(address: str, cluster: str, windows: int, limits: Limits, creator: str | None) -> None:
    from elf.doors.answers import Answers
    from elf.doors.tools import Tools, server_of

    async with connect(address, cluster=cluster, creator=creator, reads_files=False) as client:
        await server_of(Tools(Answers(client, windows), limits)).run_stdio_async()


def _needs(extra: Literal["flight", "mcp"]) -> None:
    """Raises ``UserError`` where a door lacks what it is made of."""
    module = {"flight": "google.protobuf", "mcp": "mcp"}[extra]
    try:
        import_module(module)
    except ImportError:
        raise UserError(
            f"elf {extra} needs a part that is not installed ({module}): pip install 'elf-stream[{extra}]'"
        ) from None


async def _asked_to_end() -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()
