"""``elf flight`` and ``elf mcp``: doors on this machine, for one person (``elf.doors``)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from importlib import import_module
from typing import Literal

from elf.cli.ask import ask
from elf.cli.serving import asked_to_end, own_host, tell_whose
from elf.client import connect
from elf.doors.budget import Limits
from elf.errors import UserError


def serve_flight(address: str, cluster: str, listen: str, windows: int, creator: str | None) -> int:
    """Until Ctrl-C."""
    host = own_host(listen, "this door", 7074)
    _needs("flight")
    with contextlib.suppress(KeyboardInterrupt):
        ask(_serve(address, cluster, listen, host, windows, creator))
    return 0


async def _serve(
    address: str, cluster: str, listen: str, host: str, windows: int, creator: str | None
) -> None:
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
        await tell_whose(client)
        print(f"grpc://{host}:{server.port}\nauthorization: Bearer {token}", flush=True)
        try:
            await asked_to_end()
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
