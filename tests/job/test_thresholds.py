"""Agents that leave groups out: what is committed are the first rows all the same, or the root is unsure."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.aggregates import merge_tables
from elf.job.approximate import CUT
from elf.job.counters import COUNTER_STATES, counters
from elf.job.snapshots import Threshold
from elf.job.thresholds import (
    CALM,
    LEFT,
    LEFT_STATES,
    RENEWED,
    RESTED,
    SEEN,
    SEEN_STATE,
    Asking,
    Unsure,
    excerpt,
    first_rows,
    left,
    seen,
    threshold_of,
)
from elf.job.tops import cut_panes, not_thresholds, strategy
from elf.ql.plan import Fragment
from elf.ql.planner import plan_text
from elf.schema import Column, Schema
from lab.chaos.jobs import query_of
from lab.chaos.judge import Judge
from lab.chaos.ledger import Ledger
from lab.chaos.world import World

SCHEMA = Schema((Column("k", "bigint"), Column("v", "double"), Column("n", "bigint")), event_time="ts")
WINDOWS = "WINDOWING 2 SECONDS STRAGGLERS LEAP"
Tables = tuple[pa.Table, pa.Table]


def fragment_of(value: str, rows: int) -> Fragment:
    text = f"SELECT k, {value} AS most FROM x GROUP BY k ORDER BY most DESC LIMIT {rows} {WINDOWS}"
    fragment = plan_text(text, SCHEMA).fragment
    assert fragment.first is not None
    assert fragment.first.rows == rows
    return fragment


def leaf(rng: np.random.Generator, values: str, fashion: np.ndarray) -> Tables:
    """One agent's groups of panes 7 and 8, and their counters; not all panes have rows."""
    rows = int(rng.choice([0, 3, 40, 200]))
    panes = rng.choice([7, 8], rows)
    keys = fashion[np.minimum(rng.zipf(1.4, rows), len(fashion)) - 1]
    draw: dict[str, Callable[[], np.ndarray]] = {
        "counts": lambda: np.ones(rows, np.int64),
        "doubles": lambda: rng.exponential(0.01, rows),
        "strange": lambda: rng.choice(STRANGE, rows, p=[0.6, 0.36, 0.01, 0.01, 0.01, 0.01]),
    }
    amounts: list[object] = draw[values]().tolist()
    if values == "strange":
        amounts = [None if rng.random() < 0.1 else amount for amount in amounts]
    kind = pa.int64() if values == "counts" else pa.float64()
    (state,) = fragment_of(VALUES[values], 1).states
    table = pa.table({"_pane": panes, "k0": keys, state.name: pa.array(amounts, kind)})
    numbers, counted = np.unique(panes, return_counts=True)
    groups = merge_tables([table], ("_pane", "k0"), (state,))
    return groups, counters(numbers, rows_in=counted)


STRANGE = [1.0, 5.0, -3.0, np.nan, np.inf, 1e300]
VALUES = {"counts": "COUNT(*)", "doubles": "SUM(v)", "strange": "SUM(v)"}


def merged(parts: list[Tables], fragment: Fragment, *, some: bool) -> tuple[pa.Table, pa.Table]:
    groups, counted = [one for one, _ in parts], [one for _, one in parts]
    states, counts = fragment.states, COUNTER_STATES
    if some:
        groups, counted = [seen(one) for one in groups], [left(one) for one in counted]
        states, counts = (*states, SEEN_STATE), (*counts, *LEFT_STATES)
    return merge_tables(groups, ("_pane", "k0"), states), merge_tables(counted, ("_pane",), counts)


def rows_of(table: pa.Table) -> dict[tuple[int, int], float | None]:
    return {(pane, key): value for pane, key, value in zip(*table.to_pydict().values(), strict=True)}


@pytest.mark.parametrize("values", VALUES)
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_first_rows_are_those_of_all_groups_or_the_root_is_unsure(values: str, seed: int) -> None:
    """Through two levels, with thresholds that were right once and are wrong now."""
    rng = np.random.default_rng(seed)
    fragment = fragment_of(VALUES[values], int(rng.choice([1, 3])))
    fashion = rng.permutation(60)
    before, _ = merged([leaf(rng, values, fashion) for _ in range(4)], fragment, some=False)
    threshold = threshold_of(before, 4, fragment)
    if rng.random() < 0.4:
        fashion = rng.permutation(fashion)
    if threshold is None or rng.random() < 0.3:
        threshold = Threshold(float(rng.choice([0.005, 1.5, 4, 50])), b"")
    agents = [leaf(rng, values, fashion) for _ in range(4)]
    parts = [excerpt(*agent, threshold, fragment) or agent for agent in agents]
    inner = [merged(parts[:2], fragment, some=True), merged(parts[2:], fragment, some=True)]
    whole, _ = merged(agents, fragment, some=False)
    groups, counted = merged(inner, fragment, some=True)
    told = () if rng.random() < 0.3 else (threshold, Threshold(9, b""))
    try:
        found, tallied = first_rows(groups, counted, fragment, told)
    except Unsure:
        assert sum(counted[LEFT].to_pylist()) > 0
        return
    assert found.column_names == whole.column_names
    assert tallied is not None
    assert not {CUT, LEFT} & set(tallied.column_names)
    assert fragment.first is not None
    right = cut_panes(whole, fragment.first, fragment.states)
    have, want = rows_of(found), rows_of(right)
    assert {key for key, value in want.items() if value is not None} <= have.keys() <= want.keys()
    for key, value in have.items():
        same = None if want[key] is None else pytest.approx(want[key], rel=1e-12, nan_ok=True)
        assert value == same, key


def test_a_threshold_that_holds_leaves_most_groups_out() -> None:
    """Enough of the time to be of use, also where agents have no row of what is first."""
    rng, fragment, sure, sent, groups = np.random.default_rng(5), fragment_of("COUNT(*)", 5), 0, 0, 0

    def leaf(pane: int) -> pa.Table:
        rows = {"_pane": np.full(900, pane), "k0": rng.zipf(1.2, 900) % 5_000, "s0_count": np.ones(900, int)}
        return merge_tables([pa.table(rows)], ("_pane", "k0"), fragment.states)

    for _ in range(40):
        before, now = [leaf(3) for _ in range(20)], [leaf(4) for _ in range(20)]
        threshold = threshold_of(merge_tables(before, ("_pane", "k0"), fragment.states), 20, fragment)
        assert threshold is not None
        parts = [excerpt(one, counters(np.array([4]), rows_in=900), threshold, fragment) for one in now]
        kept = [part for part in parts if part is not None]
        assert len(kept) == 20
        sent += sum(part[0].num_rows for part in kept)
        groups += sum(one.num_rows for one in now)
        assert all(max(part[0][SEEN].to_pylist()) == 1 for part in kept)
        with suppress(Unsure):
            first_rows(*merged(kept, fragment, some=True), fragment, (threshold,))
            sure += 1
    assert sure >= 38
    assert sent < groups / 8


def test_groups_are_left_out_only_if_that_is_worth_it() -> None:
    fragment = fragment_of("COUNT(*)", 1)
    table = pa.table({"_pane": [5, 5, 5, 5], "k0": [1, 2, 3, 4], "s0_count": [9, 8, 7, 1]})
    assert excerpt(table, None, Threshold(2, b""), fragment) is None
    groups, counted = excerpt(table, None, Threshold(8, b""), fragment) or pytest.fail("it is half of them")
    assert groups["k0"].to_pylist() == [1, 2]
    assert (counted[CUT].to_pylist(), counted[LEFT].to_pylist()) == ([7.0], [1])
    assert threshold_of(table, 3, fragment) is None, "so few groups are all watched"


def test_what_is_told_to_agents_and_when() -> None:
    def threshold(least: float, *keys: int) -> Threshold:
        return Threshold(least, np.array(keys, "<u8").tobytes())

    asking, first = Asking(), threshold(8, 1, 2, 3, 4)
    assert asking.committed(None) is None
    assert asking.committed(first) is first
    assert asking.committed(threshold(9, 2, 1, 5, 6)) is None, "about the same"
    assert asking.committed(threshold(9, 7, 1, 2, 3)) is not None, "another is first"
    assert asking.committed(threshold(20, 7, 1, 2, 3)) is not None, "there is more of all"
    told = sum(asking.committed(threshold(20, 7, 1, 2, 3)) is not None for _ in range(2 * RENEWED))
    assert told == 2, "for those that have just come"
    assert asking.unsure()
    assert not asking.unsure(), "they know"
    waits = []
    for _ in range(9):
        waits.append(next(n for n in range(200) if asking.committed(first) is not None))
        asking.unsure()
    assert waits[:4] == [1, 3, 7, 15]
    assert waits[-1] == RESTED
    for _ in range(CALM + RESTED):
        asking.committed(first)
    asking.unsure()
    assert asking.committed(first) is first, "that was long ago"


@pytest.mark.parametrize(
    ("text", "how", "why_not"),
    [
        ("SELECT k, COUNT(*) c FROM x GROUP BY k ORDER BY c DESC LIMIT 2 WINDOWING 2 SECONDS STRAGGLERS LEAP",
         "thresholds", ""),
        ("SELECT k, COUNT(*) c FROM x GROUP BY k ORDER BY c DESC LIMIT 2 WINDOWING 2 SECONDS",
         "cut at the roots", "STRAGGLERS LEAP"),
        ("SELECT k, MAX(v) c FROM x GROUP BY k ORDER BY c DESC LIMIT 2 WINDOWING 2 SECONDS STRAGGLERS LEAP",
         "cut at the roots", "COUNT(…) DESC"),
        ("SELECT k, COUNT(*) c FROM x GROUP BY k ORDER BY c LIMIT 2 WINDOWING 2 SECONDS STRAGGLERS LEAP",
         "cut at the roots", "COUNT(…) DESC"),
        ("SELECT k, COUNT(*) c FROM x GROUP BY k ORDER BY c DESC LIMIT 2 WINDOWING 4 SECONDS SLIDE 2 SECONDS "
         "STRAGGLERS LEAP", "all keys", "several"),
        ("SELECT k, COUNT(*) c FROM x GROUP BY k HAVING COUNT(*) > 1 ORDER BY c DESC LIMIT 2 "
         "WINDOWING 2 SECONDS STRAGGLERS LEAP", "all keys", ""),
        ("SELECT k, COUNT(*) c FROM x GROUP BY k ORDER BY c DESC LIMIT 2 WINDOWING 2 SECONDS "
         "EMIT CHANGES EVERY 1 SECOND STRAGGLERS LEAP", "cut at the roots", "early results"),
    ],
)  # fmt: skip
def test_which_queries_have_thresholds(text: str, how: str, why_not: str) -> None:
    plan = plan_text(text, SCHEMA)
    assert strategy(plan)[0] == how
    assert (plan.fragment.first is not None) == (how == "thresholds")
    assert why_not in not_thresholds(plan)
    assert bool(not_thresholds(plan)) == bool(why_not)


@pytest.mark.parametrize(("seed", "changes_ms"), [(1, 60_000), (2, 9_000), (5, 3_000)])
def test_a_fleet_commits_the_first_rows_whatever_is_the_fashion(seed: int, changes_ms: int) -> None:
    """Keys change; sometimes the root has to ask for all of a pane, and is never wrong."""
    ledger, people = Ledger(), random.Random(seed)
    world = World(seed, 6, ledger=ledger)
    world.start_all()

    def fashion() -> None:
        letters = people.sample("abcdefgh", 8)
        world.keys = "".join(key * n for key, n in zip(letters, (12, 4, 2, 1, 1, 1, 1, 1), strict=True))
        world.at(world.now + changes_ms, fashion)

    fashion()
    spec, until = world.create(0, query_of("first")), world.now + 40_000
    for agent in world.agents:
        world.write(agent, until, rate_ms=100)
    world.run(until - world.now + 6_000)
    judge = Judge(world, ledger, until)
    assert [one.text for one in judge.open()] == []
    judge.close()
    assert ledger.findings == []
    (flow,) = spec.flows
    root = world.leader(spec).node.job_groups.roots.counts(flow.uid) or {}
    tasks = [agent.node.sender.counts(flow.uid)[0] or {} for agent in world.agents]
    assert sum(task.get("left_out", 0) for task in tasks) > 30
    assert root["commits"] >= 20
    unsure = root.get("unsure", 0)
    assert unsure < root["commits"] / 2
    assert unsure or changes_ms > 3_000
