"""Where the rows of two streams meet: at the master, pane by pane (``elf.ql.streamjoins``)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from elf.job.ports import FinisherPort
from elf.ql.plan import StreamJoin


def met(
    join: StreamJoin, rows: pa.Table | None, panes: tuple[int, int], finisher: FinisherPort
) -> pa.Table | None:
    """These panes ``[start, end)`` of joined rows. ``rows``: both flows' panes, as far as partners may be."""
    if rows is None:
        return None
    numbers = rows["_pane"].to_numpy()
    inside = pa.array((numbers >= panes[0]) & (numbers < panes[1]))
    return finisher.join(rows.filter(pc.or_(pc.equal(rows[join.side], 1), inside)).combine_chunks())
