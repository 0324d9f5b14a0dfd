"""Chunks of rows for workers, and the flow that they are for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elf.job.spec import Flow
from lab.chaos.engine import Chunk, Source, plan

FLOW = Flow("f" * 24, plan(2).fragment, bytes(16), "home")

Rows = list[tuple[int, str]]


def chunk(rows: Rows, start: int, source: str = "log") -> Chunk:
    lines = pa.array([f"{ts},{key}" for ts, key in rows], pa.string())
    offsets = np.arange(start, start + len(rows), dtype=np.int64)
    return Chunk(Source(source), start, start + len(rows), lines, offsets)
