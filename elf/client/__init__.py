"""The async client of a fleet: statements to any agent, windows back as they are committed.

async with elf.client.connect("127.0.0.1:7071") as client:
    await client.sql("CREATE JOB busy AS SELECT COUNT(*) AS n FROM access WINDOWING 10 SECONDS")
    async for window in client.subscribe("busy", windows=3):
        print(window.start, window.table.to_pylist())
"""

from __future__ import annotations

from elf.client.client import Client, connect, user_name
from elf.client.results import ArchiveStatus, CompareFacts, Result, Tapped
from elf.client.windows import Window, split

__all__ = [
    "ArchiveStatus",
    "Client",
    "CompareFacts",
    "Result",
    "Tapped",
    "Window",
    "connect",
    "split",
    "user_name",
]
