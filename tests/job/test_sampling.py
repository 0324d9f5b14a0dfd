"""Rows that are left out over a budget: which ones, what stands for them, and what their panes say."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from elf.aggregates import State
from elf.batch import decode
from elf.client.coverage import margin
from elf.fields import replace
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import DropStragglers, Feed, Finish, Install, Outcome, SetWeights, Waited
from elf.job.gaps import BUDGET_TYPE, Gap, budgets_shown, estimate_of, gaps_of, over_budget
from elf.job.sampling import drawn, weighted, why_whole
from elf.job.snapshots import Sealed
from elf.job.work import JobWork
from elf.job.worker.stream import StreamWorker, WorkerSettings
from elf.planning.budgets import WEIGHT_MAX
from elf.ql.plan import Function
from lab.chaos.engine import SECOND, PyEngine
from tests.support.chunks import FLOW, chunk

SETTINGS = WorkerSettings(future_us=None, lateness_us=SECOND, checkpoint_ms=10**9, name="web-1")
PANE = FLOW.fragment.pane_us
ROWS = [(int(n * 0.01 * SECOND), "abc"[n % 3]) for n in range(4_000)]
WHOSE = "job top"


def sums(sealed: list[Sealed]) -> Counter[tuple[int, str]]:
    """Counts by pane and key."""
    found: Counter[tuple[int, str]] = Counter()
    for one in sealed:
        for row in decode(one.payload).to_pylist() if one.payload else ():
            found[row["_pane"], row["k0"]] += int(row["s0"])
    return found


def counted(sealed: list[Sealed], name: str) -> Counter[int]:
    found: Counter[int] = Counter()
    for one in sealed:
        for row in decode(one.counters).to_pylist() if one.counters else ():
            found[row["_pane"]] += row[name]
    return found


def marks(sealed: list[Sealed]) -> dict[int, set[Gap]]:
    return gaps_of(decode(one.counters) for one in sealed if one.counters)


def estimated(rows: list[tuple[int, str]], weights: list[int]) -> Counter[tuple[int, str]]:
    """Each row that is in at its weight, as often as that."""
    found: Counter[tuple[int, str]] = Counter()
    for place, ((ts, key), weight) in enumerate(zip(rows, weights, strict=True)):
        if drawn("log", np.array([place]), weight)[0]:
            found[ts // PANE, key] += weight
    return found


def begun() -> StreamWorker:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    return worker


def fed(worker: StreamWorker, start: int, end: int) -> Outcome:
    return worker.handle(Feed(chunk(ROWS[start:end], start), 0))


def weigh(worker: StreamWorker, weight: int) -> None:
    worker.handle(SetWeights(((FLOW.uid, weight, WHOSE),)))


def test_rows_that_are_in_are_in_at_each_smaller_weight_and_about_as_many_as_are_wanted() -> None:
    offsets = np.arange(0, 2_000_000, 137, dtype=np.int64)
    before = np.ones(len(offsets), np.bool_)
    for exponent in range(7):
        chosen = drawn("12:34", offsets, 1 << exponent)
        assert not (chosen & ~before).any()
        expected = len(offsets) / (1 << exponent)
        assert abs(chosen.sum() - expected) <= 4 * expected**0.5
        before = chosen
    assert (drawn("12:34", offsets, 4) != drawn("12:35", offsets, 4)).any()


@pytest.mark.parametrize(
    "chunks", [(0, 4_000), (0, 500, 1_000, 1_333, 2_500, 4_000), tuple(range(0, 4_001, 100))]
)
def test_sums_are_those_of_the_rows_that_are_in_at_any_weight_and_in_any_chunks(
    chunks: tuple[int, ...],
) -> None:
    """The weight changes in the midst of panes, three times."""
    turns = {500: 4, 1_000: 16, 2_500: 1}
    worker, sealed, weights, weight = begun(), list[Sealed](), [], 1
    for start, end in pairwise(chunks):
        if start in turns:
            weight = turns[start]
            weigh(worker, weight)
        sealed += fed(worker, start, end).sealed
        weights += [weight] * (end - start)
    sealed += worker.handle(Finish()).sealed
    assert sums(sealed) == estimated(ROWS, weights)
    assert counted(sealed, "rows_in") == Counter(ts // PANE for ts, _ in ROWS)
    out = Counter(
        ts // PANE
        for place, (ts, _) in enumerate(ROWS)
        if not drawn("log", np.array([place]), weights[place])[0]
    )
    assert +counted(sealed, "sampled") == out
    for pane in range(ROWS[-1][0] // PANE + 1):
        here = {weights[place] for place, (ts, _) in enumerate(ROWS) if ts // PANE == pane} - {1}
        assert marks(sealed).get(pane, set()) == {over_budget("web-1", WHOSE, weight) for weight in here}


@pytest.mark.parametrize("lost", [0, 700])
def test_a_worker_that_comes_back_goes_on_at_its_weight_with_the_same_rows(lost: int) -> None:
    worker = begun()
    fed(worker, 0, 100)
    weigh(worker, 8)
    sealed = list(fed(worker, 100, 900).sealed)
    data = msgspec.msgpack.encode(worker.checkpoint())
    if lost:  # what came after the checkpoint is read again
        weigh(worker, 1)
        fed(worker, 900, 900 + lost)
    again = StreamWorker("s", SETTINGS, PyEngine(), msgspec.msgpack.decode(data, type=StreamCheckpoint))
    sealed += again.handle(Feed(chunk(ROWS[900:], 900), 0)).sealed
    sealed += again.handle(Finish()).sealed
    assert sums(sealed) == estimated(ROWS, [1] * 100 + [8] * 3_900)


def test_rows_that_are_dropped_with_their_pane_are_leapt_and_no_longer_sampled() -> None:
    worker = begun()
    weigh(worker, 4)
    fed(worker, 0, 100)
    outcome = worker.handle(DropStragglers(FLOW.uid, ROWS[99][0] // PANE + 1))
    assert outcome.counts["leapt"] == 100
    sealed = list(worker.handle(Finish()).sealed)
    assert (counted(sealed, "leapt").total(), counted(sealed, "sampled").total()) == (100, 0)


def test_panes_that_were_open_while_reading_waited_say_so() -> None:
    worker = begun()
    sealed = list(fed(worker, 0, 1_000).sealed)
    now_ms = ROWS[999][0] // 1_000
    worker.handle(Waited("the agent", now_ms))
    worker.handle(Waited("the agent", now_ms))
    open_pane = worker.states()[FLOW.uid].sealed
    sealed += worker.handle(Finish()).sealed
    assert {pane for pane, found in marks(sealed).items() if found} == set(
        range(open_pane, now_ms * 1_000 // PANE + 1)
    )
    assert set.union(*marks(sealed).values()) == {over_budget("web-1", "the agent", 1)}
    assert counted(sealed, "sampled").total() == 0


@pytest.mark.parametrize("weight", [2, 16, 64])
def test_the_margin_of_a_count_holds_the_truth_in_99_of_100_groups(weight: int) -> None:
    """10,000 groups of one row to thousands, of which those are looked at that are in the answer."""
    sizes = (10 ** np.random.default_rng(1).uniform(0, 3.5, 10_000)).astype(np.int64)
    offsets = np.arange(sizes.sum(), dtype=np.int64) * 97
    chosen = drawn("12:34", offsets, weight)
    ends = np.cumsum(sizes)
    counted = np.diff(np.concatenate([[0], np.cumsum(chosen)[ends - 1]])) * weight
    status = {"budgets": [{"weight": weight}]}
    there = counted > 0
    held = [
        abs(estimate - size) <= margin(status, float(estimate))
        for estimate, size in zip(counted[there].tolist(), sizes[there].tolist(), strict=True)
    ]
    assert len(held) > 2_000
    assert sum(held) >= 0.99 * len(held)


def test_what_has_no_estimate_is_whole_at_any_weight() -> None:
    least = replace(FLOW.fragment, states=(State("s0", "min"),))
    distinct = replace(FLOW.fragment, keys=("k0", "c0"), cells=("c0",))
    assert not why_whole(FLOW.fragment)
    assert "COUNT, SUM and AVG" in why_whole(least)
    assert "distinct" in why_whole(distinct)
    assert not why_whole(replace(FLOW.fragment, function=Function("map", TWICE, "f.py")))
    assert "reduce function" in why_whole(replace(FLOW.fragment, reduce=Function("reduce", TWICE, "f.py")))
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(replace(FLOW, fragment=replace(FLOW.fragment, late_of="other"))))
    weigh(worker, 8)
    assert worker.states()[FLOW.uid].weight == 1


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None, (1 << 56)], pa.int64()),
        pa.array([0.1, None, -3.5], pa.float64()),
        pa.array([10**30 + 7, None, -(10**30)], pa.decimal128(38, 0)),
    ],
)
def test_sums_are_multiplied_exactly_in_their_type(values: pa.Array) -> None:
    groups = pa.table({"k0": ["a", "b", "c"], "s0": values})
    found = weighted(groups, (State("s0", "sum"),), WEIGHT_MAX)
    assert found.schema == groups.schema
    for more, value in zip(found["s0"].to_pylist(), values.to_pylist(), strict=True):
        exact = Fraction(value) * WEIGHT_MAX if value is not None else None
        assert (None if more is None else Fraction(more)) == exact


def test_a_window_names_the_highest_weight_of_each_agent_and_budget() -> None:
    told = [over_budget("web-1", WHOSE, 4), over_budget("web-1", WHOSE, 16), over_budget("web-2", WHOSE, 1)]
    assert budgets_shown([*told, Gap(1, 2, "web-1", "log")]) == [
        {"agent": "web-1", "budget": WHOSE, "weight": 16},
        {"agent": "web-2", "budget": WHOSE, "weight": 1},
    ]


def test_whatever_an_agent_says_its_master_can_tell_of_its_work() -> None:
    gaps = [Gap(0, 0, "x" * 9_999, "y" * (1 << 19), -1, 4), Gap(0, 0, "web-1", WHOSE, -1, -4)]
    budgets = pa.array([budgets_shown(gaps)], pa.list_(BUDGET_TYPE))
    estimate = estimate_of(pa.table({"rows_in": [-5], "sampled": [3], "budgets": budgets}))
    work = JobWork("0" * 32 + ".1", estimate=estimate)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(work), type=JobWork) == work
    assert estimate is not None
    assert [one.weight for one in estimate.budgets] == [4]


TWICE = """\
import pyarrow as pa
import pyarrow.compute as pc

def map(batch):
    if "bad" in batch["key"].to_pylist():
        raise ValueError("bad")
    twice = batch.filter(pc.equal(batch["key"], "b"))
    return pa.Table.from_batches([batch, twice]).combine_chunks().to_batches()[0]
"""


def test_each_row_that_a_map_function_makes_of_one_stands_for_as_many() -> None:
    fragment = replace(FLOW.fragment, function=Function("map", TWICE, "twice.py"))
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(replace(FLOW, fragment=fragment)))
    weigh(worker, 8)
    sealed = [*fed(worker, 0, 4_000).sealed, *worker.handle(Finish()).sealed]
    wanted = estimated(ROWS, [8] * len(ROWS))
    assert sums(sealed) == Counter({key: n * (1 + (key[1] == "b")) for key, n in wanted.items()})
    out = sum(not drawn("log", np.array([place]), 8)[0] for place in range(len(ROWS)))
    assert counted(sealed, "sampled").total() == out


def test_where_a_map_function_fails_the_rows_that_were_left_out_are_rejected_with_the_others() -> None:
    fragment = replace(FLOW.fragment, function=Function("map", TWICE, "twice.py"))
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(replace(FLOW, fragment=fragment)))
    weigh(worker, 8)
    bad = next(place for place in range(1_000, 2_000) if drawn("log", np.array([place]), 8)[0])
    rows = [(ts, "bad" if place == bad else key) for place, (ts, key) in enumerate(ROWS)]
    sealed = list[Sealed]()
    for start in range(0, 4_000, 1_000):
        sealed += worker.handle(Feed(chunk(rows[start : start + 1_000], start), 0)).sealed
    sealed += worker.handle(Finish()).sealed
    assert counted(sealed, "rows_in").total() == 3_000
    assert counted(sealed, "rejected").total() == 1_000
    out = [not drawn("log", np.array([place]), 8)[0] for place in (*range(1_000), *range(2_000, 4_000))]
    assert counted(sealed, "sampled").total() == sum(out)


@pytest.mark.parametrize("bad", [1_000, 1_500], ids=["revises", "on time"])
def test_where_a_map_function_fails_all_rows_of_the_chunk_are_rejected(bad: int) -> None:
    """Also those that it has mapped before, or was not given any more: of rows that revise panes, and of
    rows on time."""
    function = Function("map", TWICE, "twice.py")
    worker = StreamWorker("s", SETTINGS, PyEngine())
    fragment = replace(FLOW.fragment, function=function, revise_us=100 * SECOND)
    worker.handle(Install(replace(FLOW, fragment=fragment)))
    sealed = list(fed(worker, 0, 1_000).sealed)
    mixed = [ROWS[0]] * 500 + ROWS[1_000:1_500]
    mixed[bad - 1_000] = (mixed[bad - 1_000][0], "bad")
    sealed += worker.handle(Feed(chunk(mixed, 1_000), 0)).sealed
    sealed += worker.handle(Finish()).sealed
    assert counted(sealed, "rows_in").total() == 1_000
    assert counted(sealed, "rejected").total() == 1_000
