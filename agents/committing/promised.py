"""What a window says of the promise of its job (WITHIN): how long after it was due it is committed.

The row is made before its commit, so what commits have taken here lately is added
(``elf.job.group.commits``). What a job has kept in all is counted when its windows are committed
(``elf.job.promised``).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from agents.committing.status import STATUS_SCHEMA
from elf.job.effects import CommitWindows
from elf.job.promised import is_promised, took_ms

Moment = Callable[[], int]
"""When windows that are made now will be committed, in µs."""


def stamped(effect: CommitWindows, status: pa.Table, at: Moment | None) -> pa.Table:
    """The status of windows, with what was promised (ms) and how long they took."""
    plan = effect.spec.plan
    if at is None or not is_promised(effect) or plan.promise is None:
        return status
    rows, now_us = status.to_pylist(), at()
    for row, end in zip(rows, status["window_end"].cast(pa.int64()).to_pylist(), strict=True):
        if not row["archived"]:
            row["promised_ms"] = plan.promise.within_us // 1000
            row["took_ms"] = took_ms(plan, end, now_us)
    return pa.Table.from_pylist(rows, schema=STATUS_SCHEMA)
