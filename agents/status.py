"""What a window says about itself: whom it covers out of how many, and what was counted beside its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from agents.store import PaneCommitName
from elf import windows
from elf.errors import ElfBug
from elf.job.contributions import numbers
from elf.job.effects import CommitWindows, Coverage
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.job.tally import TALLY_COLUMNS

STATUS_ROWS_MAX: Final = 1_000
"""Windows without any row get a status of their own up to this many at a time; beyond, only those with rows
do.
"""

STATUS_SCHEMA: Final = pa.schema(
    [
        ("window_start", pa.timestamp("us")),
        ("window_end", pa.timestamp("us")),
        ("revision", pa.int64()),
        ("expected", pa.int64()),
        ("reported", pa.int64()),
        ("missing", pa.list_(pa.string())),
        *((name, pa.int64()) for name in TALLY_COLUMNS),
        ("skipped", pa.bool_()),
    ]
)


def status_of_all(
    effect: CommitWindows, commits: Sequence[PaneCommitName], tally: pa.Table | None
) -> pa.Table:
    """The one row of a result without windows. ``tally`` has one row."""
    counts = {name: tally[name][0].as_py() for name in TALLY_COLUMNS} if tally is not None else {}
    return pa.Table.from_pylist([_status_row(effect, commits, None, None, counts)], schema=STATUS_SCHEMA)


def status_of_windows(
    effect: CommitWindows, commits: Sequence[PaneCommitName], tally: pa.Table | None
) -> pa.Table:
    """A row a window: coverage from the commits, counts from the tally of all of their panes."""
    window = effect.spec.plan.window
    if window is None:
        raise ElfBug("a job without windows")
    pane_us = effect.spec.plan.fragment.pane_us
    size, step = window.size_us // pane_us, window.slide_us // pane_us
    panes = tally["_pane"].to_numpy() if tally is not None else np.empty(0, np.int64)
    if effect.last_us - effect.first_us <= STATUS_ROWS_MAX * window.slide_us:
        starts = np.arange(effect.first_us, effect.last_us, window.slide_us, dtype=np.int64) // pane_us
    else:
        starts = windows.windows_with(panes, size, step)
        starts = starts[(starts * pane_us >= effect.first_us) & (starts * pane_us < effect.last_us)]
    values = np.zeros((len(panes), len(TALLY_COLUMNS)), np.int64)
    if tally is not None:
        values = np.stack([tally[name].to_numpy() for name in TALLY_COLUMNS], axis=1)
    sums = windows.sums_by_window(panes, values, starts, size)
    rows = [
        _status_row(
            effect, commits, start, start + window.size_us, dict(zip(TALLY_COLUMNS, counts, strict=True))
        )
        for start, counts in zip((starts * pane_us).tolist(), sums.tolist(), strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=STATUS_SCHEMA)


def _status_row(
    effect: CommitWindows,
    commits: Sequence[PaneCommitName],
    start: int | None,
    end: int | None,
    counts: dict[str, int],
) -> dict[str, object]:
    pane_us = effect.spec.plan.fragment.pane_us
    first = START_OF_TIME if start is None else start // pane_us
    last = END_OF_TIME if end is None else end // pane_us
    parts = [part for part in effect.coverage if part.start < last and first < part.end]
    expected, missing = _covered(effect, parts)
    return {
        "window_start": start,
        "window_end": end,
        "revision": sum(c.revision > 0 and c.start < last and first < c.end for c in commits),
        "expected": len(expected),
        "reported": len(expected) - len(missing),
        "missing": list(missing.values()),
        **{name: counts.get(name, 0) for name in TALLY_COLUMNS},
        "skipped": any(part.lost for part in parts),
    }


def _covered(effect: CommitWindows, parts: Sequence[Coverage]) -> tuple[set[str], dict[str, str]]:
    """The agents that were expected, and those of them that are missing in at least one pane of one flow,
    with their names. An agent that has several of the job's streams is one.
    """
    expected: dict[str, int] = {}
    missing: dict[str, int] = {}
    for part in parts:
        expected[part.flow] = expected.get(part.flow, 0) | part.expected
        missing[part.flow] = missing.get(part.flow, 0) | part.expected & ~part.reported
    known = {(one.flow, one.number): one for one in effect.names}

    def agents(members: dict[str, int]) -> dict[str, str]:
        found: dict[str, str] = {}
        for flow, bits in members.items():
            for number in numbers(bits):
                one = known.get((flow, number))
                found[one.agent_id if one else f"{flow} {number}"] = one.name if one else f"member {number}"
        return found

    return set(agents(expected)), agents(missing)
