"""Aggregates of people's own on an agent: rows to states, states to fewer states, states to values."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from agents.committing.making import Sandboxed
from agents.tasks.aggregating import OwnFinisher, OwnMapper, merging
from agents.tasks.direct import mapper_of, types_of
from agents.tasks.streams import FunctionsAt
from elf.aggregates import merge_tables
from elf.batch import encode
from elf.fields import replace
from elf.job.effects import TryAggregate
from elf.job.ports import MapFailed
from elf.job.reexecution import can_run
from elf.ql.own import OwnAggregate
from elf.ql.plan import Plan
from elf.ql.planner import plan_streams
from elf.ql.statements import parse_query
from elf.schema import Column, Schema
from tests.support.confined import needs_confinement
from tests.support.own import FAILS_AT_13, FAILS_AT_THE_END, MEAN, OF_MEANS

pytestmark = needs_confinement

SCHEMA = Schema((Column("k", "text"), Column("x", "bigint"), Column("ts", "timestamp")), "ts")
QUERY = (
    "SELECT k, geo(x) AS g, exp(AVG(ln(x))) AS by_hand, COUNT(*) AS n FROM s GROUP BY k WINDOWING 10 SECONDS"
)


def planned(text: str = MEAN, query: str = QUERY) -> Plan:
    asked = parse_query(query)
    assert asked is not None
    return plan_streams(asked, {"s": SCHEMA}, owns={"geo": OwnAggregate("geo", text, "geo.py")})


def rows(count: int, seed: int = 0) -> pa.Table:
    rng = random.Random(seed)
    made = [(rng.choice("abc"), rng.choice([1, 2, 7, None]), rng.randrange(2)) for _ in range(count)]
    k, x, pane = zip(*made, strict=True)
    ts = pa.array([n * 1000 for n in range(count)], pa.timestamp("us"))
    return pa.table({"k": k, "x": pa.array(x, pa.int64()), "ts": ts, "_pane": pa.array(pane, pa.int64())})


@pytest.fixture
def mapper(at: FunctionsAt) -> Iterator[OwnMapper]:
    plan = planned()
    made = OwnMapper(plan.fragment, mapper_of(plan.fragment), at)
    yield made
    made.close()


def merged(plan: Plan, tables: list[pa.Table]) -> pa.Table:
    return merge_tables(tables, ("_pane", *plan.fragment.keys), plan.fragment.states)


def valued(plan: Plan, groups: pa.Table, at: FunctionsAt) -> list[dict[str, float]]:
    """Of one window with all panes."""
    bounds = [pa.array([at_us] * groups.num_rows, pa.timestamp("us")) for at_us in (0, 10_000_000)]
    rest = groups.drop_columns(["_pane"])
    whole = pa.table([*bounds, *rest.columns], names=["window_start", "window_end", *rest.column_names])
    whole = merge_tables([whole], ("window_start", "window_end", *plan.fragment.keys), plan.fragment.states)
    finisher = OwnFinisher(plan, at)
    found: list[dict[str, float]] = finisher.run(whole).to_pylist()
    finisher.close()
    return found


def test_rows_become_a_state_for_each_group_and_whoever_merges_them_the_value_is_the_same(
    mapper: OwnMapper, at: FunctionsAt
) -> None:
    plan, parts = planned(), [mapper.run(rows(200, seed)) for seed in range(4)]
    for part in parts:
        assert merged(plan, [part]).schema.equals(types_of(plan.fragment))
        assert len(part["c0"].drop_null()) == 6
    apart = merged(plan, parts)
    with merging(plan.fragment, at, pytest.fail, set()) as merge:
        assert merge is not None
        halves = [merge(merged(plan, parts[:2])), merge(merged(plan, parts[2:]))]
        together = merge(merged(plan, [mapper.merged(half) for half in halves]))
    assert len(apart["c0"].drop_null()) > len(together["c0"].drop_null()) == 6
    assert merged(plan, [together]).num_rows == together.num_rows
    for groups in (apart, merged(plan, halves), together):
        for row in valued(plan, groups, at):
            assert row["g"] == pytest.approx(row["by_hand"], rel=1e-9)
            assert row["n"] > 200


def test_a_state_that_is_there_several_times_counts_so_often(mapper: OwnMapper, at: FunctionsAt) -> None:
    plan, part = planned(), mapper.run(rows(50))
    thrice = merged(plan, [part, part, part])
    assert set(thrice["cell_count"].to_pylist()) == {0, 3}
    (one, *_), (three, *_) = valued(plan, part, at), valued(plan, mapper.merged(thrice), at)
    assert three["g"] == pytest.approx(one["g"], rel=1e-9)


def test_rows_that_it_fails_on_fail_the_map_and_a_law_that_is_broken_is_told_before(at: FunctionsAt) -> None:
    unlucky = rows(40).set_column(1, "x", pa.array([13] * 40))
    for text, said in ((FAILS_AT_13, "geo.py:11: ValueError: unlucky"), (MEAN, "")):
        plan = planned(text)
        made = OwnMapper(plan.fragment, mapper_of(plan.fragment), at)
        made.prepare()
        if said:
            with pytest.raises(MapFailed, match=said):
                made.run(unlucky)
        made.run(rows(40))
        made.close()
    plan = planned(OF_MEANS)
    made = OwnMapper(plan.fragment, mapper_of(plan.fragment), at)
    with pytest.raises(MapFailed, match=r"geo.py: GeometricMean: merge\(\) is not associative: of \["):
        made.try_out(rows(40))
    made.close()


def test_a_value_that_cannot_be_made_is_null_and_said_so(mapper: OwnMapper, at: FunctionsAt) -> None:
    plan = planned(FAILS_AT_THE_END)
    few = rows(60).set_column(1, "x", pa.array([5] * 60))
    of_13 = few.set_column(0, "k", pa.array(["a"] * 13 + ["b"] * 47))
    finisher = OwnFinisher(plan, at)
    groups = mapper.run(of_13.set_column(3, "_pane", pa.array([0] * 60, pa.int64())))
    bounds = [pa.array([0] * groups.num_rows, pa.timestamp("us"))] * 2
    rest = groups.drop_columns(["_pane"])
    whole = pa.table([*bounds, *rest.columns], names=["window_start", "window_end", *rest.column_names])
    assert [row["g"] for row in finisher.run(whole).to_pylist()] == [None, None]
    assert finisher.failure.startswith("geo.py:17: ValueError: unlucky")
    good = whole.filter(pa.array([k == "b" for k in whole["k0"].to_pylist()]))
    finisher.run(good)
    assert finisher.failure, "windows are made in several runs"
    finisher.failure = ""
    finisher.run(good)
    assert finisher.failure == ""
    finisher.close()
    joined = OwnFinisher(replace(plan, beside=(plan,)), at)
    joined.side(1).run(whole)
    assert "unlucky" in joined.failure
    joined.close()


def test_what_is_slow_to_merge_is_not_tried_again(mapper: OwnMapper, at: FunctionsAt) -> None:
    """Not for the next commit either, in a process of its own."""
    head = "def merge(self, groups, states):\n"
    plan = planned(MEAN.replace(head, f"{head}        import os; os.abort()\n"))
    tried, said, known = list[str](), list[str](), set[OwnAggregate]()
    whole = merged(plan, [mapper.run(rows(50, seed)) for seed in range(2)])

    def allowed(text: str) -> str:
        tried.append(text)
        return ""

    for _ in range(3):
        with merging(plan.fragment, replace(at, allowed=allowed), said.append, known) as merge:
            assert merge is not None
            assert merge(whole).equals(whole)
    assert len(tried) == len(said) == 1, "a process is begun once"
    assert said[0].startswith("states stay unmerged: ")


def test_an_agent_that_runs_no_code_passes_states_on_and_makes_none(
    mapper: OwnMapper, at: FunctionsAt
) -> None:
    plan, never = planned(), replace(at, allowed=lambda _: "agent a1 runs no users' code")
    said, slow = list[str](), set[OwnAggregate]()
    parts = [mapper.run(rows(50, seed)) for seed in range(2)]
    for _ in range(2):
        with merging(plan.fragment, never, said.append, slow) as merge:
            assert merge is not None
            assert merge(merged(plan, parts)).equals(merged(plan, parts))
    assert said == ["states stay unmerged: geo.py: agent a1 runs no users' code"]
    made = OwnMapper(plan.fragment, mapper_of(plan.fragment), never)
    with pytest.raises(MapFailed, match="runs no users' code"):
        made.prepare()
    finisher = OwnFinisher(plan, never)
    assert finisher.failure == ""


def test_laws_are_tried_on_rows_that_are_given(at: FunctionsAt) -> None:
    """A million is no row that is drawn."""
    seldom = MEAN.replace('groups.sum(states["logs"])', 'np.minimum(groups.sum(states["logs"]), 60.0)')
    own, there = OwnAggregate("geo", seldom, "geo.py"), Sandboxed("a1", at)
    large = encode(pa.table({"x0": [1e9] * 30}))
    assert there.broken_law(TryAggregate(1, own, encode(pa.table({})))) == ""
    assert "merge() changes a state that is alone: of [" in there.broken_law(TryAggregate(1, own, large))


def test_nobody_runs_it_again_for_an_agent_that_is_behind() -> None:
    assert not can_run(planned(query=f"{QUERY} STRAGGLERS MIRROR").fragment)
