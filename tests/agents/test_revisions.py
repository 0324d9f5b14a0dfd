"""Windows of every kind, while panes are committed and revised: what was said last of each window is what a
slow oracle makes of all rows, and nothing else is left standing.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from agents.committing import windowcommits
from agents.committing.kept import Kept
from agents.disk.store import Store
from elf.aggregates import State, merge_tables
from elf.batch import encode
from elf.job.commits import PaneCommit
from elf.job.counters import counters
from elf.job.effects import CommitWindows, Coverage
from elf.job.spec import END_OF_TIME, Flow
from elf.ql.plan import Fragment, Plan
from elf.windows import Calendar, Cumulative, Kind, Landmark, Session, Sliding
from lab.chaos.engine import spec_of
from tests.support.saying import words
from tests.support.window_commits import Everything
from tests.support.window_oracle import Row, Window, oracle

STATES = (State("n", "sum", identity_zero=True), State("first", "min"), State("last", "max"))
PANE = 1_000
KINDS: dict[str, tuple[Kind, ...]] = {
    "sessions": (Session(2_500, 8_000),),
    "long sessions": (Session(4_000, 40_000),),
    "many": (Sliding(2_000, 2_000), Sliding(6_000, 6_000), Sliding(10_000, 10_000), Sliding(7_000, 3_000)),
    "growing": (Cumulative(12_000, 3_000), Landmark(4_000), Sliding(3_000, 3_000)),
}


class Job:
    """A job group, without its master: panes are committed and revised by hand."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        fragment = Fragment("s", (), "", ("k",), STATES, PANE, None)
        plan = Plan("", fragment, kinds, "", (), "", session_states=("first", "last"))
        self.spec = spec_of("job", "me", 1, plan, (Flow("flow", fragment, bytes(16), ""),))
        self.store = Store(":memory:")
        self.kept = Kept()
        self.rows: list[Row] = []
        self.revisions: dict[int, int] = {}
        self.said: dict[tuple[int, int], tuple[int, dict[str, int]]] = {}

    def commit(self, pane: int, rows: list[Row]) -> None:
        """These rows too are in the pane."""
        self.rows += rows
        revision = self.revisions.get(pane, -1) + 1
        self.revisions[pane] = revision
        inside = [(k, t) for k, t in self.rows if t // PANE == pane]
        table = pa.table(
            {
                "_pane": pa.array([pane] * len(inside), pa.int64()),
                "k": pa.array([k for k, _ in inside], pa.string()),
                "n": pa.array([1] * len(inside), pa.int64()),
                **{name: pa.array([t for _, t in inside], pa.timestamp("us")) for name in ("first", "last")},
            }
        )
        payload = encode(merge_tables([table], ("_pane", "k"), STATES)) if inside else b""
        counts = counters(pa.array([pane]).to_numpy(), rows_in=len(inside))
        self.store.commit_panes(
            PaneCommit("flow", pane, pane + 1, revision, b"\1", 1, encode(counts), payload)
        )

    def windows(self, first_us: int, last_us: int, revised: tuple[int, int] | None = None) -> None:
        coverage = tuple(
            Coverage("flow", pane, pane + 1, revision, 1, 1)
            for pane, revision in sorted(self.revisions.items())
        )
        effect = CommitWindows(self.spec, first_us, last_us, coverage, (), from_us=0, revised=revised)
        done = windowcommits.commit_windows(effect, self.store, Everything(), "me", self.kept)
        if done.result is None:
            return
        for span, status, rows in words(done.result, self.said, revised is not None):
            self.said[span] = (status["revision"], {row["k"]: row["n"] for row in rows})

    def standing(self) -> dict[Window, int]:
        return {(*span, key): n for span, (_, counts) in self.said.items() for key, n in counts.items()}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_the_last_word_on_each_window_is_right(name: str, seed: int) -> None:
    chance, kinds, panes = random.Random(seed), KINDS[name], 60
    job, calendar = Job(kinds), Calendar(kinds, PANE, 0)
    rows = [(chance.choice("abc"), chance.randrange(panes * PANE)) for _ in range(chance.choice([40, 150]))]
    rows += [("d", t) for t in range(3_000, 55_000, 1_900)]
    late = chance.sample(rows, 15)
    assembled = 0
    for pane in range(panes):
        now = [row for row in rows if row not in late and row[1] // PANE == pane]
        job.commit(pane, now)
        last = calendar.last_end((pane + 1) * PANE)
        if last > assembled:
            job.windows(assembled, last)
            assembled = last
        for row in [row for row in late if row[1] // PANE <= pane and chance.random() < 0.1]:
            late.remove(row)
            where = row[1] // PANE
            job.commit(where, [row])
            end = min(calendar.touched_to(where * PANE, (where + 1) * PANE), assembled)
            if where * PANE < end:
                job.windows(where * PANE, end, (where, where + 1))
            if chance.random() < 0.3:
                job.kept = Kept()
    assert job.standing() == oracle(job.rows, kinds, assembled)
    job.store.close()


@pytest.mark.parametrize("name", KINDS)
def test_a_finite_input_is_one_range(name: str) -> None:
    chance, kinds = random.Random(9), KINDS[name]
    job = Job(kinds)
    for pane in range(40):
        job.commit(pane, [(chance.choice("ab"), pane * PANE + chance.randrange(PANE)) for _ in range(3)])
    first = CommitWindows(job.spec, -END_OF_TIME, END_OF_TIME, (), (), True, 0)
    assert first.calendar.needs_from(0) == 0
    job.windows(-END_OF_TIME, END_OF_TIME)
    end = max(end for _, end, _ in job.standing())
    assert job.standing() == {window: n for window, n in oracle(job.rows, kinds, end + 60_000).items() if n}
