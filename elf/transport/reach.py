"""Whether an agent can be talked to at an address, also as for its keys; said in a line."""

from __future__ import annotations

import asyncio
from typing import Final

from elf.security.principals import Security
from elf.transport.handshakes import Failure
from elf.transport.probe import has_keys, probe
from elf.transport.zeromq import ZeroMqTransport

HANDSHAKE_SECS: Final = 2.0
_SAID: Final[dict[Failure, str]] = {
    "key": "it does not admit this agent's key: not enrolled there yet, expired, or revoked",
    "mechanism": "of it and this agent one has keys, the other has none",
}
_OTHER_KEY: Final = "it has another key than this agent's fleet, or user, expects"


async def reached(address: str, *, security: Security | None = None) -> str:
    """Why no agent can be talked to at ``host:port`` with these keys; empty when one can. Raises
    ``AddressError``."""
    if why := await probe(address):
        return why
    ended: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()

    def told(_address: str, why: Failure | None) -> None:
        if not ended.done():
            ended.set_result(why)

    transport = await ZeroMqTransport.dial(security=security, told=told)
    try:
        transport.reach(address)
        async with asyncio.timeout(HANDSHAKE_SECS):
            failed = await ended
    except TimeoutError:
        return "it does not shake hands in time"
    finally:
        await transport.close()
    if failed is None:
        return ""
    other = await has_keys(address) != (security is not None)
    return _SAID.get("mechanism" if other else failed, _OTHER_KEY)
