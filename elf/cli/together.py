"""``elf sql --wait N``: a statement that is for a whole fleet waits until the fleet is there."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from elf.client import connect
from elf.errors import ElfError, UserError

WAIT_SECS: Final = 120.0
LOOK_SECS: Final = 0.25


async def until_live(address: str, cluster: str, agents: int) -> None:
    """Until so many agents are live members of some stream. Raises ``UserError`` where that takes longer than
    ``WAIT_SECS``."""
    deadline = time.monotonic() + WAIT_SECS
    while True:
        try:
            async with connect(address, cluster=cluster) as client:
                found = (await client.sql("SHOW MEMBERS")).table
            rows = [] if found is None else found.to_pylist()
            live = {row["address"] for row in rows if row["state"] == "live"}
            if len(live) >= agents:
                return
            why = f"{len(live)} of {agents} agents are live"
        except ElfError as error:
            why = str(error)
        if time.monotonic() > deadline:
            raise UserError(f"{why}; waited for {WAIT_SECS:g} s")
        await asyncio.sleep(LOOK_SECS)
