"""Product bundling (``elf.examples``) as ``elf bench control`` and ``elf sim control`` measure it: its edges,
and a class below it that says what an epoch takes.

Beside each agent come 50 edges a second, of all users and products alike, so that a window has some 500 edges
an agent, and nearly all products become one bundle.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from elf.examples import product_bundling

USERS: Final = 5_000
PRODUCTS: Final = 500
EVERY_SECS: Final = 0.5
"""Between two looks."""
EDGES: Final = 25
"""Beside each agent, in that time."""
WINDOW_SECS: Final = 10.0
BEFORE: Final = 20
"""Looks before a window is full."""
JOB: Final = (
    Path(product_bundling.__file__).read_text()
    + f"""

import time


class Timed(ProductBundling):
    every, window = {EVERY_SECS}, {WINDOW_SECS}
    wanted, user, line = "clicks > 0", "user", "user"

    def begin(self, message):
        print("begun")
        self.begun_at = time.monotonic()
        super().begin(message)

    def finish(self, message, total, agents):
        begun_at = self.begun_at
        super().finish(message, total, agents)
        print(1e3 * (time.monotonic() - begun_at), agents)
"""
)
"""It prints ``begun`` when an epoch begins, and at its end the milliseconds and of how many agents it is."""


def edge_of(us: int, rng: random.Random) -> bytes:
    """A line of which product bundling makes an edge."""
    ts = datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")
    who, what = rng.randrange(USERS), f"product {rng.randrange(PRODUCTS)}"
    row = {"ts": ts, "product": what, "store": "video_games", "user": who, "clicks": 1}
    return json.dumps(row).encode() + b"\n"
