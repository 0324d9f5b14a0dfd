"""What comes of lines: typed columns, and which lines they are of."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from elf.job.ports import Int64s, Mask


@dataclass(frozen=True, eq=False)
class Extracted:
    """``table``: ``_ts`` (int64, µs, nullable), then the asked columns, one row for each accepted line, in
    order.

    ``accepted`` and ``rejected``: numbers of lines; ``uncast``: values that did not fit their column and
    are NULL; ``wanted`` and ``beyond``: see ``elf.job.ports.ExtractedLike``.
    """

    table: pa.Table
    accepted: Int64s
    rejected: Int64s
    uncast: int
    wanted: Mask | None = None
    beyond: int = 0
