"""The event times of some rows, and which of these count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from elf.job.ports import Int64s, Mask


class Times(NamedTuple):
    """``ts``: 0 where a row has none. A row that has one is ``known``, or it is from the ``future``. Those
    that are ``rostered`` are known, and of the agent's time in the stream. ``earliest_us``: the least of
    their times where all rows are, None where one is not, or there is none."""

    ts: Int64s
    known: Mask
    rostered: Mask
    future: Mask
    earliest_us: int | None = None

    @property
    def unrostered(self) -> int:
        """Known rows from before the agent was in the stream."""
        if self.earliest_us is not None:
            return 0
        return int(np.count_nonzero(self.known) - np.count_nonzero(self.rostered))


def times_of(column: pa.ChunkedArray, since_us: int, until_us: int | None) -> Times:
    """``column``: int64. The agent is in the stream ``since_us``; after ``until_us`` is the future (None:
    there is none)."""
    rows = len(column)
    if rows and not column.null_count:  # as in most chunks: then the first and the last of them say it all
        ts = np.asarray(column.chunk(0) if column.num_chunks == 1 else column, dtype=np.int64)
        earliest_us, latest_us = int(ts.min()), int(ts.max())
        if since_us <= earliest_us and (until_us is None or latest_us <= until_us):
            every = np.ones(rows, dtype=np.bool_)
            return Times(ts, every, every, np.zeros(rows, dtype=np.bool_), earliest_us)
    there = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    ts = np.asarray(column.fill_null(0).to_numpy(), dtype=np.int64)
    future = np.zeros(rows, dtype=np.bool_) if until_us is None else there & (ts > until_us)
    known = there & ~future
    return Times(ts, known, known & (ts >= since_us), future)
