"""The checkpoints of jobs in Python in an agent's store (``elf.job.program.keeping``)."""

from __future__ import annotations

from collections.abc import Mapping

from agents.disk.store import Store
from elf.job.program.keeping import Checkpoint, Tapped, read


def checkpoints(store: Store) -> dict[str, Checkpoint]:
    """All of them, by uid: some MiB each."""
    return {uid: read(record) for uid, record in store.programs().items()}


def given(programs: Mapping[str, Checkpoint]) -> dict[str, dict[Tapped, int]]:
    """How far these have the rows of their taps, by uid."""
    return {uid: kept.ends() for uid, kept in programs.items()}
