"""Windows of a store's pane commits: what is kept in memory of the windows before never changes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.committing import panecommits, windowcommits
from agents.committing.kept import Kept
from agents.disk.store import Store
from agents.tasks.engine import Finisher, Mapper
from elf.batch import decode, encode
from elf.job.commits import PaneCommit
from elf.job.effects import CommitPanes, CommitWindows, Coverage
from elf.job.events import PanesCommitted, WindowsCommitted
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow
from elf.job.worker.fitting import arrow_schema
from elf.ql.planner import plan as planned
from elf.ql.statements import Select, parse
from elf.schema import Column, Schema
from lab.chaos.engine import spec_of
from tests.support.window_commits import US, Everything, commit, effect, spec

ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.integers(0, 9),
        st.none() | st.floats(-1e9, 1e9),
        st.none() | st.text(max_size=2),
    ),
    max_size=4,
    unique_by=lambda row: row[0],
)
COMMIT = st.tuples(st.integers(1, 3), ROWS)
"""How many panes there are in a commit, and what the first of them has."""
SHAPES = st.sampled_from([(3, 1), (4, 2), (5, 2), (7, 5), (2, 3), (1, 1)])


def results(done: WindowsCommitted) -> list[list[str]]:
    if done.result is None:
        return []
    return [sorted(map(repr, decode(data).to_pylist())) for data in (done.result.status, done.result.payload)]


@given(st.lists(COMMIT, min_size=3, max_size=12), SHAPES, st.data())
@settings(max_examples=60, deadline=None)
def test_warm_is_cold(
    panes: list[tuple[int, list[tuple[object, ...]]]], shape: tuple[int, int], data: st.DataObject
) -> None:
    job, kept = spec(*shape), Kept()
    made: list[PaneCommit] = []
    _, step = shape
    warm, cold = Store(":memory:"), Store(":memory:")
    at, end = -6, -12
    for count, rows in panes:
        new = [commit(end, count, 0, rows)]
        end += count
        if data.draw(st.booleans(), label="revise"):
            old = data.draw(st.sampled_from(made + new), label="which")
            if all(row.revision <= old.revision for row in made if row.start == old.start):
                new.append(commit(old.start, old.end - old.start, old.revision + 1, rows))
        for row in new:
            made.append(row)
            warm.commit_panes(row)
            cold.commit_panes(row)
        last = end
        first = data.draw(st.sampled_from([at, at, at, at - step]), label="first")
        if last <= first:
            continue
        wanted = effect(job, first, last, made)
        mine = windowcommits.commit_windows(wanted, warm, Everything(), "me", kept)
        assert results(mine) == results(windowcommits.commit_windows(wanted, cold, Everything(), "me"))
        at = last
    warm.close()
    cold.close()


def test_what_has_failed_is_known_while_windows_may_be_made_of_it() -> None:
    job, kept = spec(3, 1), Kept()
    told = []
    for end in (3, 4, 5, 6):
        wanted = effect(job, end - 1, end, [commit(0, 6, 0, [])])
        finisher = Everything()
        sides, _ = kept.resume(wanted, finisher)
        told.append((finisher.failure, finisher.failed))
        sides.rows(wanted.first_us, wanted.last_us, [None], finisher)
        if end == 3:
            finisher.fail("too large", frozenset({(2 * US, 3 * US), (0, US)}))
        kept.keep(sides, wanted, finisher)
    known = "too large", frozenset({(2 * US, 3 * US)})
    assert told == [("", frozenset()), known, known, ("", frozenset())]


def test_a_finite_input_is_one_range() -> None:
    """All of time at once, as ``elf run`` asks for it."""
    job, store = spec(3, 1), Store(":memory:")
    store.commit_panes(
        PaneCommit(
            "flow",
            START_OF_TIME,
            END_OF_TIME,
            0,
            b"\1",
            1,
            b"",
            commit(5, 1, 0, [("a", 2, 0.5, "x")]).payload,
        )
    )
    coverage = (Coverage("flow", START_OF_TIME, END_OF_TIME, 0, 1, 1),)
    done = windowcommits.commit_windows(
        CommitWindows(job, START_OF_TIME, END_OF_TIME, coverage, (), True), store, Everything(), "me"
    )
    assert done.result is not None
    rows = decode(done.result.payload)
    assert rows["window_start"].cast(pa.int64()).to_pylist() == [3 * US, 4 * US, 5 * US]
    assert rows["n"].to_pylist() == [2, 2, 2]
    store.close()


COLUMNS = Schema((Column("ts", "timestamp"), Column("host", "text"), Column("n", "bigint")), "ts")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT COUNT(*), MIN(ts), MAX(host), SUM(n), AVG(n), last_day(MAX(ts)) FROM log",
        "SELECT COUNT(DISTINCT ts), MEDIAN(n), APPROX_PERCENTILE(n, 0.5), APPROX_COUNT_DISTINCT(n) FROM log",
        "SELECT MAX(ts) FROM (SELECT ts, n FROM log GROUP BY 1, 2 ORDER BY ts + INTERVAL 1 MONTH) AS g",
        "SELECT MAX(h), MAX(d) FROM (SELECT host AS h, COUNT(DISTINCT ts) AS d, MIN(ts) AS t FROM log"
        " GROUP BY 1 HAVING date_trunc('month', t) < t) AS g",
        "SELECT MAX(t), MAX(h) FROM (SELECT MAX(ts) AS t, MIN(host) AS h FROM log) AS g",
    ],
)  # fmt: skip
def test_a_result_over_no_rows_has_the_types_of_one_over_rows(query: str) -> None:
    (asked,) = parse(query)
    assert isinstance(asked, Select)
    plan = planned(asked.query, COLUMNS, stream="log")
    flow = Flow("flow", plan.fragment, bytes(16), "")
    mapper, finisher = Mapper(plan.fragment.map_sql, plan.fragment.columns), Finisher(plan)
    names = [column.name for column in plan.fragment.columns]
    row = {"ts": 0, "host": "a", "n": 1}
    typed = arrow_schema(plan.fragment.columns).append(pa.field("_pane", pa.int64()))
    made = mapper.run(pa.table([[row[name]] for name in names] + [[0]], schema=typed))
    found = []
    for payload in (encode(made), b""):
        store = Store(":memory:")
        store.commit_panes(PaneCommit("flow", 0, 1, 0, b"\1", 1, b"", payload))
        wanted = CommitWindows(
            spec_of("job", "me", 1, plan, (flow,)), 0, 0, (Coverage("flow", 0, 1, 0, 1, 1),), ()
        )
        done = windowcommits.commit_windows(wanted, store, finisher, "me")
        assert done.result is not None
        found.append(decode(done.result.payload))
        store.close()
    assert [rows.num_rows for rows in found] == [1, 1]
    assert found[0].schema.types == found[1].schema.types
    finisher.close()
    mapper.close()


def revision_of(start: int, end: int) -> CommitPanes:
    return CommitPanes(spec(1, 1).flows[0], start, end, (), 1, 1, 1)


@pytest.mark.parametrize(("start", "end"), [(0, 2), (1, 4), (3, 7), (-2, 0), (START_OF_TIME, END_OF_TIME)])
def test_panes_that_were_dropped_are_not_revised(start: int, end: int) -> None:
    store = Store(":memory:")
    store.commit_panes(commit(0, 2, 0, []), commit(2, 2, 0, []), commit(4, 2, 0, []))
    store.prune_panes("flow", 2)
    work = revision_of(start, end)
    assert panecommits.commit_panes(work, store) == PanesCommitted(work, 0, gone=True)
    assert panecommits.made_panes(work, store, 4) == (None, PanesCommitted(work, 0, gone=True))
    assert not [name for name in store.committed("flow") if name.revision]
    store.close()


@pytest.mark.parametrize(("start", "end"), [(2, 4), (2, 6), (3, 5)])
def test_panes_that_are_here_are_revised(start: int, end: int) -> None:
    store = Store(":memory:")
    store.commit_panes(commit(0, 2, 0, []), commit(2, 2, 0, []), commit(4, 2, 0, []))
    store.prune_panes("flow", 2)
    done = panecommits.commit_panes(revision_of(start, end), store)
    assert (done.seq, done.gone) == (4, False)
    assert [(name.start, name.end) for name in store.committed("flow") if name.revision] == [(start, end)]
    store.close()
