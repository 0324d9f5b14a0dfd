"""Whether a job keeps what it promises (``WITHIN``, ``elf.ql.promises``), as its master sees it.

A window is due at its end and LATENESS, or at those of its last pane. It took until its commit was applied,
by the master's clock; so what clocks differ by is in it. Not promised are windows of before: revisions, what
a change of the job has cut off, and what comes from archives (SINCE).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from elf.job.effects import CommitWindows
from elf.job.work import PromiseWork
from elf.ql.plan import Plan
from elf.ql.promises import Promise

LAST: Final = 1_000
"""Windows by which a promise is judged: 99.9 per cent is one of them."""
FEW: Final = 20
"""Of fewer windows nobody is told that a share is missed."""


def is_promised(effect: CommitWindows) -> bool:
    """Whether the windows of a commit are those that a promise is about."""
    plain = effect.revised is None and effect.skipped_to is None and not effect.portion
    return effect.spec.plan.promise is not None and plain and not effect.final


def took_ms(plan: Plan, end_us: int, now_us: int) -> int:
    """How long a window that ends then has taken by now. One that is committed before it is due, as clocks
    differ, took nothing."""
    return max(0, (now_us - plan.due_us(end_us) + 999) // 1000)


class Kept:
    """What one job's master has seen of one version, in memory alone: another one begins anew."""

    def __init__(self) -> None:
        self._took: deque[int] = deque(maxlen=LAST)

    def committed(self, plan: Plan, promise: Promise, ends_us: Sequence[int], now_ms: int) -> int:
        """Windows that end then are committed now; how many of them came too late."""
        took = [took_ms(plan, end_us, 1000 * now_ms) for end_us in ends_us]
        self._took.extend(took)
        return sum(1000 * one > promise.within_us for one in took)

    def work(self, promise: Promise) -> PromiseWork:
        took = sorted(self._took)
        if not took:
            return PromiseWork()
        share = 50.0 if promise.percent is None else promise.percent
        rank = -(-len(took) * share // 100)
        kept = sum(1000 * one <= promise.within_us for one in took)
        return PromiseWork(len(took), kept, round(sum(took) / len(took)), took[max(0, int(rank) - 1)])


def promised_ends(status: pa.Table) -> list[int]:
    """The ends (µs) of those windows of a status that a promise is about."""
    rows = status.filter(pc.is_valid(status["promised_ms"]))
    return [int(end) for end in rows["window_end"].cast(pa.int64()).to_pylist()]


def is_kept(promise: Promise, work: PromiseWork) -> bool | None:
    """None: too few windows to tell."""
    if work.windows < FEW:
        return None
    if promise.percent is None:
        return 1000 * work.mean_ms <= promise.within_us
    return 100 * work.kept >= promise.percent * work.windows


def promise_told(promise: Promise, work: PromiseWork | None) -> str:
    """For people."""
    if work is None:
        return f"{promise.text}: its master does not answer"
    if not work.windows:
        return f"{promise.text}: no window of this version since its master began"
    kept = is_kept(promise, work)
    how = "too few to tell" if kept is None else "kept" if kept else "broken"
    share = 50.0 if promise.percent is None else promise.percent
    return (
        f"{promise.text}: {how}; {work.kept:,} of the last {work.windows:,} windows were within it, "
        f"mean {work.mean_ms:,} ms, {share:g} per cent within {work.quantile_ms:,} ms"
    )
