"""What a window says about itself: whom it covers out of how many, and what was counted beside its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from elf import windows
from elf.fields import replace
from elf.job.commits import PaneCommitName
from elf.job.contributions import numbers
from elf.job.counters import COUNTER_COLUMNS, UNREDUCED
from elf.job.effects import CommitWindows, Coverage, Named
from elf.job.gaps import BUDGET_TYPE, GAP_TYPE, Gap, budgets_shown, gaps_of
from elf.job.openparts import in_part
from elf.job.spec import END_OF_TIME, START_OF_TIME
from elf.windows import Landmark, Session, Spans

Gaps = Mapping[int, AbstractSet[Gap]]
"""By pane."""
STATUS_SCHEMA: Final = pa.schema(
    [
        ("window_start", pa.timestamp("us")),
        ("window_end", pa.timestamp("us")),
        ("revision", pa.int64()),
        ("expected", pa.int64()),
        ("reported", pa.int64()),
        ("missing", pa.list_(pa.string())),
        ("covered", pa.list_(pa.string())),
        *((name, pa.int64()) for name in COUNTER_COLUMNS),
        ("gaps", pa.list_(GAP_TYPE)),
        ("budgets", pa.list_(BUDGET_TYPE)),
        ("skipped", pa.bool_()),
        ("version", pa.int64()),
        ("function_failed", pa.bool_()),
        ("offline", pa.bool_()),
        ("promised_ms", pa.int64()),
        ("took_ms", pa.int64()),
    ]
)


def status_of_all(
    effect: CommitWindows, commits: Sequence[PaneCommitName], counters: pa.Table | None, gaps: Gaps
) -> pa.Table:
    """The one row of a result without windows. ``counters`` has one row; ``gaps``: by pane."""
    counts = {name: counters[name][0].as_py() for name in _counted(counters)} if counters is not None else {}
    row = _status_row(effect, commits, None, None, counts, gaps)
    return pa.Table.from_pylist([row], schema=STATUS_SCHEMA)


def status_of_windows(
    effect: CommitWindows, spans: Spans, commits: Sequence[PaneCommitName], counters: pa.Table | None
) -> pa.Table:
    """A row a window: coverage from the commits, counts from the counters of all of their panes."""
    pane_us = effect.spec.plan.fragment.pane_us
    panes = counters["_pane"].to_numpy() if counters is not None else np.empty(0, np.int64)
    names = _counted(counters)
    values = np.zeros((len(panes), len(names)), np.int64)
    if counters is not None:
        columns = (counters[name] for name in names)
        values = np.stack([(n.fill_null(0) if n.null_count else n).to_numpy() for n in columns], axis=1)
    sums = windows.sums_by_window(panes, values, spans.starts // pane_us, -(-spans.ends // pane_us))
    gaps = gaps_of([counters]) if counters is not None else {}
    rows = [
        _status_row(effect, commits, start, end, dict(zip(names, counts, strict=True)), gaps)
        for start, end, counts in zip(spans.starts.tolist(), spans.ends.tolist(), sums.tolist(), strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=STATUS_SCHEMA)


def _counted(counters: pa.Table | None) -> tuple[str, ...]:
    there = counters is not None and UNREDUCED.name in counters.column_names
    return (*COUNTER_COLUMNS, UNREDUCED.name) if there else COUNTER_COLUMNS


def status_of_skipped(effect: CommitWindows, to_us: int) -> pa.Table:
    """A row for each window that a change of the job has cut off. Landmarks' and sessions have no end of
    their own.
    """
    kinds = tuple(kind for kind in effect.calendar.kinds if not isinstance(kind, Landmark | Session))
    spans = replace(effect.calendar, kinds=kinds).ending(effect.last_us, to_us)
    return status_of_windows(effect, spans, (), None)


def _status_row(
    effect: CommitWindows,
    commits: Sequence[PaneCommitName],
    start: int | None,
    end: int | None,
    counts: dict[str, int],
    gaps: Gaps,
) -> dict[str, object]:
    pane_us = effect.spec.plan.fragment.pane_us
    before, after = effect.spec.plan.reach
    first = START_OF_TIME if start is None else (start - before) // pane_us
    last = END_OF_TIME if end is None else -(-(end + after) // pane_us)
    parts = [part for part in effect.coverage if part.start < last and first < part.end]
    expected, missing = _covered(effect, parts)
    marked = sorted(_within(gaps, first, last))
    return {
        "window_start": start,
        "window_end": end,
        "revision": _revision(effect, commits, first, last),
        "expected": len(expected),
        "reported": len(expected) - len(missing),
        "missing": list(missing.values()),
        "covered": list(_in_part(effect, parts).values()),
        **{name: counts.get(name, 0) for name in COUNTER_COLUMNS},
        "gaps": [gap.shown() for gap in marked if not gap.weight],
        "budgets": budgets_shown(marked),
        "skipped": any(part.lost for part in parts),
        "version": effect.spec.version,
        "function_failed": counts.get(UNREDUCED.name, 0) > 0,
        "offline": False,
    }


def _within(gaps: Gaps, first: int, last: int) -> set[Gap]:
    """Those of panes from ``first`` on and before ``last``."""
    return {gap for pane, here in gaps.items() if first <= pane < last for gap in here}


def _revision(effect: CommitWindows, commits: Sequence[PaneCommitName], first: int, last: int) -> int:
    """How often panes were revised that decide the window: of a session, also those around it, since a row
    there may join it with its neighbour.
    """
    session = effect.calendar.session
    if session is not None:
        around = -(-(session.max_us + 2 * session.gap_us) // effect.calendar.pane_us)
        first, last = first - around, last + around
    return sum(c.revision > 0 and c.start < last and first < c.end for c in commits)


def _covered(effect: CommitWindows, parts: Sequence[Coverage]) -> tuple[dict[str, str], dict[str, str]]:
    """The agents that were expected, and those of them that are missing in at least one pane of one flow:
    names by ids. An agent that has several of the job's streams is one.
    """
    expected: dict[str, int] = {}
    missing: dict[str, int] = {}
    for part in parts:
        expected[part.flow] = expected.get(part.flow, 0) | part.expected
        missing[part.flow] = missing.get(part.flow, 0) | part.expected & ~part.reported
    return _named(effect, expected), _named(effect, missing)


def _in_part(effect: CommitWindows, parts: Sequence[Coverage]) -> dict[str, str]:
    """Agents that are missing in a pane of which copies have what they had read by their last checkpoint
    (``elf.job.openparts``): names by ids."""
    covered: dict[str, int] = {}
    for part in parts:
        if part.parts:
            covered[part.flow] = covered.get(part.flow, 0) | in_part(part.parts) & ~part.reported
    return _named(effect, covered)


def _named(effect: CommitWindows, members: Mapping[str, int]) -> dict[str, str]:
    """Members by flow: names by ids."""
    known = {named.flow: named for named in effect.names}
    found: dict[str, str] = {}
    for flow, bits in members.items():
        found |= _agents(known.get(flow, Named(flow, {})), bits)
    return found


@lru_cache(maxsize=16)
def _agents(named: Named, members: int) -> Mapping[str, str]:
    """Members of a flow: names by ids. Mostly they are the same in one window as in the next."""
    found: dict[str, str] = {}
    for number in numbers(members):
        agent_id, name = named.agents.get(number, (f"{named.flow} {number}", f"member {number}"))
        found[agent_id] = name
    return found
