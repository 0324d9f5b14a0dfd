"""The async client of a fleet: statements to any agent, windows back as they are committed.

async with elf.client.connect("127.0.0.1:7071") as client:
    await client.sql("CREATE JOB busy AS SELECT COUNT(*) AS n FROM access WINDOWING 10 SECONDS")
    async for window in client.subscribe("busy", windows=3):
        print(window.start, window.table.to_pylist())

What it gives is loaded when it is asked for: rooms that write windows down need none of a client's libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from elf.client.client import Client, connect, user_name
    from elf.client.previews import Costs, Previewed
    from elf.client.results import ArchiveStatus, CompareFacts, Result, Tapped
    from elf.client.windows import Window, split

_PLACES: Final = {
    "client": ("Client", "connect", "user_name"),
    "previews": ("Costs", "Previewed"),
    "results": ("ArchiveStatus", "CompareFacts", "Result", "Tapped"),
    "windows": ("Window", "split"),
}
__all__ = [
    "ArchiveStatus",
    "Client",
    "CompareFacts",
    "Costs",
    "Previewed",
    "Result",
    "Tapped",
    "Window",
    "connect",
    "split",
    "user_name",
]


def __getattr__(name: str) -> object:
    for place, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{place}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
