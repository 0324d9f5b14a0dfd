"""Waiting for the disk, in one place, and counted: that is what durability costs.

``archive``: a roll, its folder, what is shipped, the rejects; ``state``: a transaction of the state file,
which is one fsync of SQLite's log (checkpoints, one in some hundred, are not counted); ``audit``: what has
gathered of that.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path
from typing import Literal, get_args

Kind = Literal["archive", "state", "audit"]

_counts: Counter[Kind] = Counter()
_lock = threading.Lock()


def waited(kind: Kind) -> None:
    """The disk was waited for."""
    with _lock:
        _counts[kind] += 1


def waits() -> dict[Kind, int]:
    """How often this process has waited for the disk."""
    with _lock:
        return {kind: _counts[kind] for kind in get_args(Kind)}


def sync(descriptor: int) -> None:
    """Makes a file of the archive durable."""
    os.fsync(descriptor)
    waited("archive")


def sync_path(path: Path) -> None:
    """Makes a file's contents, or a folder's names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)
