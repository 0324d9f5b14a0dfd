"""Commits of panes, and the windows that are made of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from agents.tasks.engine import Finisher
from elf.aggregates import State
from elf.batch import encode
from elf.job.commits import PaneCommit
from elf.job.counters import counters
from elf.job.effects import CommitWindows, Coverage, Named
from elf.job.spec import Flow, JobSpec
from elf.ql.plan import Fragment, Plan
from elf.windows import Sliding
from lab.chaos.engine import spec_of

US = 1_000

ROSTER = Named("flow", {0: ("id", "a")})

STATES = (State("n", "sum", identity_zero=True), State("real", "sum"), State("high", "max"))


class Everything(Finisher):
    """A final fragment that keeps all groups."""

    def __init__(self) -> None:
        super().__init__(spec(1, 1).plan)

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        return groups


def spec(size: int, step: int) -> JobSpec:
    fragment = Fragment("s", (), "", ("k",), STATES, US, None)
    plan = Plan("", fragment, (Sliding(size * US, step * US),), "", (), "")
    return spec_of("job", "me", 1, plan, (Flow("flow", fragment, bytes(16), ""),))


def commit(start: int, panes: int, revision: int, rows: list[tuple[object, ...]]) -> PaneCommit:
    names = ("k", "n", "real", "high")
    types = (pa.string(), pa.int64(), pa.float64(), pa.string())
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    table = pa.table([pa.array([start] * len(rows), pa.int64()), *columns], names=("_pane", *names))
    counts = counters(np.array([start], np.int64), rows_in=len(rows) + revision)
    return PaneCommit("flow", start, start + panes, revision, b"\1", 1, encode(counts), encode(table))


def effect(job: JobSpec, first: int, last: int, made: list[PaneCommit]) -> CommitWindows:
    latest: dict[int, int] = {}
    for row in made:
        latest.update(dict.fromkeys(range(row.start, row.end), row.revision))
    coverage = tuple(
        Coverage("flow", pane, pane + 1, revision, 1, 1) for pane, revision in sorted(latest.items())
    )
    return CommitWindows(job, first * US, last * US, coverage, (ROSTER,))
