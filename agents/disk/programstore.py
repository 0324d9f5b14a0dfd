"""The checkpoints of jobs in Python in an agent's store (``elf.job.program.keeping``)."""

from __future__ import annotations

from agents.disk.store import Store
from elf.job.program.keeping import Checkpoint, read


def checkpoints(store: Store) -> dict[str, Checkpoint]:
    """All of them, by uid."""
    return {uid: read(record) for uid, record in store.programs().items()}


def given(store: Store) -> dict[str, dict[tuple[str, str], int]]:
    """How far they have the rows of their taps, by uid, tap and source."""
    return {uid: kept.ends() for uid, kept in checkpoints(store).items()}
