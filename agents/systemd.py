"""What systemd is told of an agent's process (``Type=notify``, sd_notify(3)): that it has started, what it
waits for, that its loop goes round, that it reads its configuration again, and that it stops.

Rules: elsewhere, where nobody has asked for it (``NOTIFY_SOCKET``), nothing is said. A word that cannot be
said is lost: an agent never waits for who supervises it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

BEAT_SECS: Final = 10.0
"""The longest time between two beats; what the agent waits for is shown as often."""
BEATS: Final = 3
"""So many in the time after which systemd takes the process for dead (``WatchdogSec``)."""
STATUS_CHARS: Final = 300


class Systemd:
    """The one that has started this process. Raises nothing."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self._socket = _connected(env.get("NOTIFY_SOCKET", ""))
        self.beat_secs: Final = min(BEAT_SECS, _watchdog_secs(env) / BEATS)

    @property
    def listens(self) -> bool:
        return self._socket is not None

    def started(self) -> None:
        """It can be reached; it need not be part of its fleet yet."""
        self._tell("READY=1")

    def beat(self, status: str) -> None:
        """The loop goes round; ``status``: what people are shown."""
        self._tell("WATCHDOG=1", f"STATUS={' '.join(status.split())[:STATUS_CHARS]}")

    def reloading(self) -> None:
        """Until ``started`` is said again."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.send("\n".join(lines).encode())

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _connected(address: str) -> socket.socket | None:
    if not address.startswith(("/", "@")):
        return None
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.setblocking(False)
    try:
        found.connect(f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError:
        found.close()
        return None
    return found


def _watchdog_secs(env: Mapping[str, str]) -> float:
    """Infinity: nobody minds."""
    text, of = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", "")
    mine = not of or of == str(os.getpid())
    return int(text) / 1e6 if mine and text.isdecimal() and int(text) else float("inf")
