"""What tests do to an agent's database behind the agent's back."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager

from agents.disk.store import Store


def database(store: Store) -> AbstractContextManager[sqlite3.Connection]:
    """A transaction of the store's own connection."""
    return store._file.writing()
