"""What ``elf ui`` and ``elf flight`` have in common: they serve one person, on this machine, until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import sys

from elf.addresses import is_loopback, split_address
from elf.cli.printing import say
from elf.client import Client
from elf.errors import UserError


def own_host(listen: str, what: str, port: int, also: str = "") -> str:
    """The host of the address to listen at, which must be of this machine. ``what`` is served there, mostly
    at that ``port``; ``also``: how else it is reached from others. Raises ``UserError``."""
    host = split_address(listen)[0]
    if not is_loopback(host):
        raise UserError(
            f"--listen {listen}: {what} is for this machine alone; from another one it is reached through "
            f"ssh -L {port}:127.0.0.1:{port}{also}"
        )
    return host


async def tell_whose(client: Client) -> None:
    """Which fleet is served, and to whom."""
    agent = (await client.status()).get("agent", client.address)
    say(f"the fleet of {agent} ({client.address}), for {client.creator}; Ctrl-C ends it", sys.stdout)


async def asked_to_end() -> None:
    """Until Ctrl-C, or SIGTERM, which is taken for one (``elf.cli.errors``)."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await ended.wait()
