"""What the ledger writes down: findings, what an agent has sealed of a flow, pane commits; and how the tables
of snapshots and windows are read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

import numpy as np

from agents.committing.sides import Flows, flows_of_sides
from elf.batch import decode
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.counters import UNREDUCED
from elf.job.gaps import Gap
from elf.job.openparts import is_open
from elf.job.spec import JobSpec
from elf.wire.clients import WindowResult
from lab.chaos.reference import Counts, Span

PaneCounts = dict[int, Counter[str]]
WindowsName = tuple[str, int, int, int, int]
"""Job, first start, last end, revision and version."""
WRONG, LOST, DOUBLED, BROKEN = "wrong", "lost", "doubled", "broken"


@dataclass(frozen=True)
class Finding:
    """Something that must not be. ``kind``: wrong, lost, doubled, or broken (an invariant, or an error that
    would have stopped an agent)."""

    kind: str
    text: str
    at_ms: int


@dataclass
class Book:
    """What one agent has sealed of one flow. ``live_from``: where it first began."""

    live_from: int
    rows: PaneCounts = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    """The counters, over all panes."""
    rows_in: Counter[int] = field(default_factory=Counter)
    """Rows on time by pane, wanted or not."""
    ranges: list[tuple[int, int, bytes]] = field(default_factory=list)
    parts: dict[tuple[int, int], Counter[str]] = field(default_factory=dict)
    """(Pane, part) of late rows, and of panes that were open."""
    counter_tables: dict[int, Counter[str]] = field(default_factory=dict)
    """By pane, of what is no part."""
    gaps: dict[int, set[Gap]] = field(default_factory=lambda: defaultdict(set))
    """The gaps that its panes name."""
    part_gaps: dict[tuple[int, int], set[Gap]] = field(default_factory=lambda: defaultdict(set))
    """The same of parts."""
    leapt: set[int] = field(default_factory=set)
    """Panes that it has dropped durably: its rows of these are in no commit, and counted."""

    def covers(self, pane: int) -> bool:
        return any(start <= pane < end for start, end, _ in self.ranges)

    def opened(self, pane: int) -> list[int]:
        """The open parts of a pane."""
        return [part for at, part in self.parts if at == pane and is_open(part)]


@dataclass(frozen=True)
class PaneWord:
    """A pane commit."""

    start: int
    end: int
    revision: int
    members: int
    parts: frozenset[tuple[int, int]]
    rows: PaneCounts
    row: PaneCommit
    failed: frozenset[int] = frozenset()
    """Panes on which a reduce function has failed, as the commit itself says."""
    gaps: Mapping[int, Set[Gap]] = field(default_factory=dict)
    """The gaps that its panes name."""
    before: PaneCounts = field(default_factory=dict)
    """Its rows before the root did a later stage with them."""


def name_of_commit(row: WindowCommit) -> WindowsName:
    return row.job, row.first_start, row.last_end, row.revision, row.version


def name_of_result(result: WindowResult) -> WindowsName:
    return result.job, result.first_us, result.last_us, result.revision, result.version


def flows_by_side(spec: JobSpec) -> list[Flows]:
    return [flows for _, flows, _ in flows_of_sides(spec)]


def counts_of(payload: bytes, start: int, end: int) -> PaneCounts:
    """The rows by pane and key of an encoded table."""
    found: PaneCounts = {}
    table = decode(payload) if payload else None
    if table is not None:
        columns = (table[name].to_pylist() for name in ("_pane", "k0", "s0"))
        for pane, key, count in zip(*columns, strict=True):
            if start <= pane < end:
                found.setdefault(pane, Counter())[key] += count
    return found


def unreduced(row: PaneCommit) -> frozenset[int]:
    """The panes of a commit on which a reduce function has failed."""
    counted = decode(row.counters).to_pylist() if row.counters else []
    return frozenset(one["_pane"] for one in counted if one.get(UNREDUCED.name))


Window = tuple[Span, Mapping[str, object], Counts]


def windows_of(row: WindowCommit) -> Iterable[Window]:
    """(span, status, counts) of each window of a commit."""
    table = decode(row.rows)
    found: dict[tuple[int, int], Counts] = defaultdict(Counter)
    for one in table.to_pylist() if table.num_rows else ():
        found[us_of(one["window_start"]), us_of(one["window_end"])][one["k0"]] += one["s0"]
    for status in decode(row.status).to_pylist():
        span = us_of(status["window_start"]), us_of(status["window_end"])
        yield span, status, found[span]


def us_of(moment: object) -> int:
    return int(np.datetime64(moment, "us").astype(np.int64))  # type: ignore[call-overload]


def bootstrapped(name: str) -> str:
    """The flow that a name in a store is of: copies have names of their own
    (``elf.job.rollup.mirrors.copy_of``)."""
    return name.partition(".")[0]


def short(flow: str) -> str:
    return flow[:6]


def plain(rows: PaneCounts) -> str:
    return "; ".join(f"{pane}: {dict(sorted(counts.items()))}" for pane, counts in sorted(rows.items()))
