"""Archives, and what an agent of a fleet has put into its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from agents.inputs.values import Source
from agents.tasks.archive import Archive
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


def archive_in(
    folder: Path,
    *,
    roll_secs: float = 10,
    roll_bytes: int = 10_000,
    fmt: str = "json",
    changing: Callable[[], Mapping[str, str]] = dict,
) -> Archive:
    return Archive(
        folder / "rolls",
        str(folder / "archive"),
        stream="clicks",
        agent="web-1",
        roll_secs=roll_secs,
        roll_bytes=roll_bytes,
        facts={"format": fmt},
        changing=changing,
    )


def append(archive: Archive, lines: list[str], ts: list[int | None], source: str = "s", at: int = 0) -> None:
    offsets = np.arange(at, at + len(lines), dtype=np.int64)
    archive.append(
        pa.array(lines, pa.string()), pa.array(ts, pa.int64()), Source(source, f"/{source}"), offsets
    )
