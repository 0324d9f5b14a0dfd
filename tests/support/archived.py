"""What an agent of a fleet has put into its archive."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq

from tests.support.fleet import Agent
from tests.support.waiting import wait_until


def archived(agent: Agent) -> Counter[str]:
    """Lines in the archive by how often they are there."""
    files = sorted((agent.folder / "archive").rglob("*.parquet"))
    return Counter(line for file in files for line in pq.ParquetFile(file).read(["line"])["line"].to_pylist())


def until_archived(agent: Agent, count: int) -> Counter[str]:
    def enough() -> Counter[str] | None:
        return found if len(found := archived(agent)) >= count else None

    found = wait_until(enough, lambda: f"{count} lines, not {len(archived(agent))}: {agent.said()}")
    assert found is not None
    return found
