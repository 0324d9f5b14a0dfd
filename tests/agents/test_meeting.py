"""Windows of two joined streams, while panes of both are committed and revised: what was said last of each is
what a slow oracle makes of all rows.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict

import duckdb
import pyarrow as pa
import pytest

from agents.committing import windowcommits
from agents.committing.kept import Kept
from agents.disk.store import Store
from agents.tasks.engine import Finisher
from elf.batch import encode
from elf.job.commits import PaneCommit
from elf.job.counters import counters
from elf.job.effects import CommitWindows, Coverage
from elf.job.gaps import Gap, with_gaps
from elf.job.spec import Flow
from elf.ql.planner import plan_streams
from elf.ql.statements import Select, parse
from elf.windows import Calendar
from lab.chaos.engine import spec_of
from tests.support.saying import words
from tests.support.stream_cases import BUYS, CLICKS

SECOND = 1_000_000
SEED = int(os.environ.get("ELF_TEST_SEEDS", "1"))
QUERY = (
    "SELECT c.user, COUNT(*) AS n, COUNT(b.time) AS met FROM clicks AS c {} JOIN buys AS b "
    "ON c.user = b.user AND b.time BETWEEN c.ts - INTERVAL 2 SECONDS AND c.ts + INTERVAL 1 SECOND "
    "GROUP BY c.user WINDOWING 4 SECONDS, 6 SECONDS SLIDE 2 SECONDS"
)
Row = tuple[str, int]
Said = dict[str, tuple[int, int]]


def oracle(clicks: list[Row], buys: list[Row]) -> Said:
    """Rows by user, and those of them that have a partner."""
    found: dict[str, list[bool]] = defaultdict(list)
    for user, at in clicks:
        met = sum(u == user and -2 * SECOND <= t - at <= SECOND for u, t in buys)
        found[user] += [True] * met or [False]
    return {user: (len(rows), sum(rows)) for user, rows in found.items()}


class Job:
    """A job group, without its master: panes are committed and revised by hand."""

    def __init__(self, query: str) -> None:
        (asked,) = parse(query)
        assert isinstance(asked, Select)
        streams = {"clicks": CLICKS, "buys": BUYS} if " buys " in query else {"clicks": CLICKS}
        self.plan = plan_streams(asked.query, streams)
        assert self.plan.join is not None
        self.finisher = Finisher(self.plan)
        flows = [Flow(one.stream, one, bytes(16), "") for one in self.plan.fragments]
        self.spec = spec_of("job", "me", 1, self.plan, tuple(flows))
        self.store, self.kept, self.connection = Store(":memory:"), Kept(), duckdb.connect(":memory:")
        self.rows: dict[str, list[Row]] = {"clicks": [], "buys": []}
        self.revisions: dict[tuple[str, int], int] = {}
        self.said: dict[tuple[int, int], tuple[int, Said]] = {}
        self.gaps: dict[tuple[int, int], list[str]] = {}

    def commit(self, stream: str, pane: int, rows: list[Row], lacks: str = "") -> None:
        """These rows too are in the pane. ``lacks``: the source of a gap there."""
        self.rows[stream] += rows
        revision = self.revisions.get((stream, pane), -1) + 1
        self.revisions[stream, pane] = revision
        inside = [row for row in self.rows[stream] if row[1] // SECOND == pane]
        (fragment,) = (one for one in self.plan.fragments if one.stream == stream)
        table = pa.table(
            {
                "_pane": pa.array([pane] * len(inside), pa.int64()),
                "user": pa.array([user for user, _ in inside], pa.string()),
                "ts" if stream == "clicks" else "time": pa.array([t for _, t in inside], pa.timestamp("us")),
            }
        )
        self.connection.register("rows", table)
        payload = encode(self.connection.sql(fragment.map_sql).to_arrow_table()) if inside else b""
        counted = counters(pa.array([pane]).to_numpy(), rows_in=len(inside))
        if lacks:
            gap = Gap(pane * SECOND, pane * SECOND, "me", lacks)
            counted = with_gaps(counted, {pane: {gap}})
        row = PaneCommit(stream, pane, pane + 1, revision, b"\1", 1, encode(counted), payload)
        self.store.commit_panes(row)

    def windows(self, first_us: int, last_us: int, revised: tuple[int, int] | None = None) -> None:
        known = sorted(self.revisions.items())
        coverage = tuple(Coverage(name, pane, pane + 1, number, 1, 1) for (name, pane), number in known)
        effect = CommitWindows(
            self.spec, first_us, last_us, coverage, (), from_us=2 * SECOND, revised=revised
        )
        done = windowcommits.commit_windows(effect, self.store, self.finisher, "me", self.kept)
        if done.result is None:
            return
        for span, status, rows in words(done.result, self.said, revised is not None):
            assert status["rows_in"] == sum(
                span[0] <= t < span[1] for some in self.rows.values() for _, t in some
            )
            self.gaps[span] = [gap["source"] for gap in status["gaps"]]
            self.said[span] = (status["revision"], {row["user"]: (row["n"], row["met"]) for row in rows})


def test_the_last_word_on_each_window_is_right() -> None:
    chance, panes = random.Random(SEED), 20
    job = Job(QUERY.format("LEFT"))
    assert (job.plan.fragment.pane_us, job.plan.reach) == (SECOND, (2 * SECOND, SECOND))
    calendar = Calendar(job.plan.windows, SECOND, 2 * SECOND)
    rows = {
        name: [(chance.choice("abc"), chance.randrange(panes * SECOND)) for _ in range(50)]
        for name in job.rows
    }
    rows["buys"] += chance.sample(rows["clicks"], 10) * 2
    late = {name: chance.sample(some, 15) for name, some in rows.items()}
    assembled = 2 * SECOND
    for pane in range(panes):
        for name, some in rows.items():
            job.commit(
                name, pane, [row for row in some if row not in late[name] and row[1] // SECOND == pane]
            )
        last = calendar.last_end(pane * SECOND)
        if last > assembled:
            job.windows(assembled, last)
            assembled = last
        for name, some in late.items():
            for row in [row for row in some if row[1] // SECOND <= pane and chance.random() < 0.3]:
                some.remove(row)
                where = row[1] // SECOND
                job.commit(name, where, [row])
                start = max(2 * SECOND, (where - 1) * SECOND)
                end = min(calendar.touched_to(start, (where + 3) * SECOND), assembled)
                if start < end:
                    job.windows(start, end, (where, where + 1))
                if chance.random() < 0.1:
                    job.kept = Kept()
    assert len(job.said) == 9
    for (start, end), (_, counts) in job.said.items():
        inside = [row for row in job.rows["clicks"] if start <= row[1] < end]
        assert counts == oracle(inside, job.rows["buys"]), (start, end)
    job.finisher.close()
    job.store.close()


def test_what_is_kept_is_not_gone_on_from_when_a_partner_came_later() -> None:
    job = Job(QUERY.format("LEFT"))
    for pane in range(9):
        job.commit("clicks", pane, [("a", 7_900_000)] if pane == 7 else [])
        job.commit("buys", pane, [])
    job.windows(2 * SECOND, 8 * SECOND)
    assert job.said[4 * SECOND, 8 * SECOND] == (0, {"a": (1, 0)})
    job.commit("buys", 8, [("a", 8_200_000)])
    job.windows(7 * SECOND, 8 * SECOND, (8, 9))
    assert job.said[4 * SECOND, 8 * SECOND] == (1, {"a": (1, 1)})
    for pane in range(9, 13):
        job.commit("clicks", pane, [])
        job.commit("buys", pane, [])
    job.windows(8 * SECOND, 12 * SECOND)
    assert job.said[4 * SECOND, 10 * SECOND][1] == job.said[6 * SECOND, 12 * SECOND][1] == {"a": (1, 1)}


@pytest.mark.parametrize(
    ("query", "stream", "reach"),
    [
        (QUERY.format("LEFT"), "buys", (2, 1)),
        (
            "SELECT user, COUNT(*) AS n, LAG(COUNT(*), 2) + LEAD(COUNT(*)) AS met FROM clicks GROUP BY user "
            "WINDOWING 5 SECONDS SLIDE 2 SECONDS",
            "clicks",
            (4, 2),
        ),
    ],
)
def test_windows_name_the_gaps_of_the_panes_that_they_reach_for(
    query: str, stream: str, reach: tuple[int, int]
) -> None:
    lacking = (3, 9, 14)
    for again in (False, True):
        job = Job(query)
        assert job.plan.reach == tuple(seconds * SECOND for seconds in reach)
        assert job.plan.fragment.pane_us == SECOND
        for pane in range(20):
            for one in {"clicks", stream}:
                job.commit(one, pane, [], f"at {pane}" if one == stream and pane in lacking else "")
        for start in range(2, 16, 2):
            job.windows(start * SECOND, (start + 2) * SECOND)
            job.kept = Kept() if again else job.kept
        assert len(job.gaps) >= 5
        for (start, end), told in job.gaps.items():
            near = range(start // SECOND - reach[0], end // SECOND + reach[1])
            assert told == [f"at {pane}" for pane in lacking if pane in near], (start, end)
