"""Why a flow gives nothing for a while, in a sentence for the person who waits.

Its root knows: members say every second how far they have sealed, and how many rows they have counted, late
ones and those from the future apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from elf.job.messages import FlowProgress

RECENT_MS: Final = 6_000
"""A little more than the time after which people are told."""
NAMED_MAX: Final = 3


@dataclass
class Told:
    """What a member last said of a flow, and when each of its counts last grew (None: not since)."""

    progress: FlowProgress
    at_ms: int
    rows_ms: int | None = None
    late_ms: int | None = None
    future_ms: int | None = None

    def hear(self, progress: FlowProgress, now_ms: int) -> None:
        before = self.progress
        self.rows_ms = now_ms if progress.rows > before.rows else self.rows_ms
        self.late_ms = now_ms if progress.late > before.late else self.late_ms
        self.future_ms = now_ms if progress.future > before.future else self.future_ms
        self.progress, self.at_ms = progress, now_ms


def why(
    told: dict[str, Told],
    silent: list[str],
    next_pane: int,
    time_of: Callable[[int], int | None],
    now_ms: int,
) -> str:
    """``told``: what the members that are waited for say, by name; ``silent``: members that are not waited
    for, or have said nothing; ``next_pane``: the first that is not committed; ``time_of``: when a pane begins
    (µs).
    """

    def recently(at_ms: int | None) -> bool:
        return at_ms is not None and now_ms - at_ms <= RECENT_MS

    found = []
    rows = [name for name, one in told.items() if recently(one.rows_ms)]
    late = [name for name, one in told.items() if recently(one.late_ms)]
    future = [name for name, one in told.items() if recently(one.future_ms)]
    behind = [name for name, one in told.items() if one.progress.sealed <= next_pane]
    if not told:
        found.append("no agent that has the stream answers")
    elif not rows and late:
        found.append(f"all rows that come are late (on {_names(late)})")
    elif not rows and future:
        found.append(
            f"all rows that come are from the future (on {_names(future)}): see SHOW MEMBERS for clocks"
        )
    elif not rows:
        found.append(f"no row has come for {RECENT_MS // 1000} s on any of {len(told)} agents")
    elif len(behind) < len(told):
        found.append(f"waiting for {_names(behind)}" if behind else "the panes are on their way")
    else:
        found.append("the window is not over yet")
    if silent:
        found.append(f"nothing is heard of {_names(silent)}")
    slowest = min((one.progress.sealed for one in told.values()), default=None)
    at = None if slowest is None else time_of(slowest)
    if at is not None:
        found.append(f"event time is past {_clock(at)} everywhere")
    committed = time_of(next_pane)
    if committed is not None:
        found.append(f"committed to {_clock(committed)}")
    return "; ".join(found)


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(sorted(names)[:NAMED_MAX]) + more


def _clock(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
