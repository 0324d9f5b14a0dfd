"""The laws of every aggregate's memory, over tables, the buffer tree and sliding windows; approximations'
bounds.

Over rows split anywhere the memories of the parts merge to that of the whole: in any order, in any
grouping, with or without parts that saw no rows. Memories are compared to the last bit. (Doubles that are
summed are halves here, whose sums have no rounding; those that are not summed may be anything.)
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.committing.sides import met, within
from agents.tasks.engine import Finisher, Mapper
from elf.aggregates import State, merge_tables
from elf.cbt import BufferTree
from elf.job.assembly.windows import Assembly
from elf.job.worker.fitting import arrow_schema
from elf.keys import UInt64s, hash_keys
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from elf.schema import Column, Schema
from elf.windows import Calendar
from tests.support.long import cases

SCHEMA = Schema(
    (
        Column("ts", "timestamp"),
        Column("k", "text"),
        Column("n", "bigint"),
        Column("half", "double"),
        Column("x", "double"),
        Column("s", "text"),
        Column("b", "boolean"),
    ),
    event_time="ts",
)
CALLS = {
    "count": [
        "COUNT(*)", "COUNT(s)", "COUNT(DISTINCT s)", "COUNT(DISTINCT x)", "COUNT(DISTINCT b)",
        "COUNT(DISTINCT ts)",
    ],
    "sum": ["SUM(n)", "SUM(half)", "SUM(DISTINCT n)", "SUM(n) FILTER (WHERE b)"],
    "avg": ["AVG(n)", "AVG(DISTINCT half)"],
    "min": ["MIN(x)", "MIN(s)", "MIN(DISTINCT n)"],
    "max": ["MAX(x)", "MAX(ts)"],
    "bool_and": ["BOOL_AND(b)"],
    "every": ["EVERY(n > 0)"],
    "bool_or": ["BOOL_OR(b)"],
    "stddev": ["STDDEV(n)"],
    "stddev_samp": ["STDDEV_SAMP(half)"],
    "stddev_pop": ["STDDEV_POP(n)"],
    "variance": ["VARIANCE(half)"],
    "var_samp": ["VAR_SAMP(n)"],
    "var_pop": ["VAR_POP(n)"],
    "first": ["FIRST(n)", "FIRST(x)", "FIRST(s)", "FIRST(b)", "FIRST(ts)"],
    "last": ["LAST(n)", "LAST(x)", "LAST(s)", "LAST(b)"],
    "approx_count_distinct": ["APPROX_COUNT_DISTINCT(s)", "APPROX_COUNT_DISTINCT(n)"],
    "median": ["MEDIAN(x)"],
    "percentile": ["PERCENTILE(n, 0.3)"],
    "approx_percentile": ["APPROX_PERCENTILE(x, 0.9)"],
    "approx_top_k": ["APPROX_TOP_K(s, 2)", "APPROX_TOP_K(n, 3)"],
    "max_by": ["MAX_BY(s, n)", "MAX_BY(n, x)", "MAX_BY(x, s)"],
    "min_by": ["MIN_BY(b, n)", "MIN_BY(ts, s)"],
    "arg_max": ["ARG_MAX(s, ts)"],
    "arg_min": ["ARG_MIN(n, b) FILTER (WHERE b)"],
    "histogram": ["HISTOGRAM(s)", "HISTOGRAM(x, 10)"],
    "array_agg": [
        "ARRAY_AGG(s)", "ARRAY_AGG(n ORDER BY x DESC LIMIT 3)", "ARRAY_AGG(DISTINCT b ORDER BY b DESC)",
    ],
}  # fmt: skip
ALL = [call for calls in CALLS.values() for call in calls]
INTEGERS = st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**63 - 1, -(2**63)])
HALVES = st.integers(-(2**10), 2**10).map(lambda n: n / 2) | st.sampled_from([math.nan, math.inf, -0.0])
DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, math.nan, -math.inf, 1.5e300, 5e-324, 0.1])
TEXTS = st.sampled_from(["", '"', "日本", "a\\b"]) | st.text(
    st.characters(exclude_characters="\0", codec="utf-8"), max_size=3
)
ROW = st.tuples(
    st.none() | st.integers(-20, 40).map(lambda n: n * 500_000),
    st.sampled_from(["a", "é\U0001f986", "", None]),
    st.none() | INTEGERS,
    st.none() | HALVES,
    st.none() | DOUBLES,
    st.none() | TEXTS,
    st.none() | st.booleans(),
)  # fmt: skip
ROWS = st.lists(ROW, max_size=24)
CUTS = st.lists(st.integers(0, 24), min_size=2, max_size=2).map(sorted)


def test_every_aggregate_is_here() -> None:
    assert CALLS.keys() == AGGREGATES.keys()


class Engine:
    """One query: its map over rows, and its value over merged memories."""

    def __init__(self, sql: str) -> None:
        self.plan: Plan = plan_text(sql, SCHEMA)
        fragment = self.plan.fragment
        self.keys, self.states = ("_pane", *fragment.keys), fragment.states
        self._mapper = Mapper(fragment.map_sql, fragment.columns)
        self._finisher = Finisher(self.plan)

    def map(self, rows: list[tuple[Any, ...]]) -> pa.Table:
        timed = [row for row in rows if row[0] is not None or not self.plan.windows]
        columns = zip(*timed, strict=True) if timed else [()] * len(SCHEMA.columns)
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, arrow_schema(SCHEMA.columns), strict=True)
        ]
        pane_us = self.plan.fragment.pane_us
        panes = [row[0] // pane_us if pane_us else 0 for row in timed]
        table = pa.table(arrays, names=SCHEMA.names()).append_column("_pane", pa.array(panes, pa.int64()))
        return self._mapper.run(table.select([*(c.name for c in self.plan.fragment.columns), "_pane"]))

    def merge(self, *parts: pa.Table) -> pa.Table:
        return merge_tables(parts, self.keys, self.states)

    def final(self, groups: pa.Table) -> list[str]:
        return [repr(row) for row in self._finisher.run(groups).to_pylist()]

    def close(self) -> None:
        self._mapper.close()
        self._finisher.close()


def bits(table: pa.Table) -> list[str]:
    """The rows in a fixed order, written to the last bit."""
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


@pytest.fixture(scope="module", params=ALL)
def grouped(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """By key, one aggregate."""
    engine = Engine(f"SELECT k, {request.param} FROM x GROUP BY k")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def together() -> Iterator[Engine]:
    """By key, all aggregates."""
    engine = Engine(f"SELECT k, {', '.join(ALL)} FROM x GROUP BY k")
    yield engine
    engine.close()


def test_merging_is_commutative_associative_and_has_an_identity(grouped: Engine) -> None:
    @given(ROWS, CUTS, st.permutations([0, 1, 2]))
    @settings(max_examples=cases(5, 100), deadline=None)
    def check(rows: list[tuple[object, ...]], cuts: list[int], order: list[int]) -> None:
        a, b, c = parts = [grouped.map(rows[i:j]) for i, j in zip([0, *cuts], [*cuts, 24], strict=True)]
        merged = grouped.merge(a, b, c)
        want = bits(merged)
        assert bits(grouped.merge(*(parts[i] for i in order))) == want
        assert bits(grouped.merge(grouped.merge(a, b), c)) == want
        assert bits(grouped.merge(a, grouped.merge(b, c))) == want
        assert bits(grouped.merge(merged, grouped.map([]))) == want
        whole = grouped.map(rows)
        assert bits(grouped.merge(whole)) == want
        names = ["_pane"]
        assert grouped.final(merged.drop_columns(names)) == grouped.final(
            grouped.merge(whole).drop_columns(names)
        )

    check()


def test_sums_invert(together: Engine) -> None:
    """What one part added can be taken away again: integers, to the last digit."""
    sums = [state for state in together.states if state.merge == "sum"]

    @given(ROWS, ROWS)
    @settings(max_examples=cases(12, 250), deadline=None)
    def check(rows: list[tuple[object, ...]], more: list[tuple[object, ...]]) -> None:
        a, b = together.map(rows), together.map(more)
        tables = (together.merge(*parts) for parts in ((a, b), (a,), (b,)))
        both, mine, added = (_sums(table, together.keys, sums) for table in tables)
        for key, values in both.items():
            taken = [
                total - other
                for total, other in zip(values, added.get(key, [Decimal(0)] * len(sums)), strict=True)
            ]
            assert taken == mine.get(key, [Decimal(0)] * len(sums))

    check()


def _sums(table: pa.Table, keys: tuple[str, ...], sums: list[State]) -> dict[str, list[Decimal]]:
    found = {}
    for row in table.to_pylist():
        values = [row[state.name] for state in sums]
        exact = [
            Decimal(0) if value is None or isinstance(value, float) else Decimal(value) for value in values
        ]
        found[repr([row[key] for key in keys])] = exact
    return found


def one_hash(columns: Sequence[pa.Array | pa.ChunkedArray]) -> UInt64s:
    return np.zeros(len(columns[0]), np.uint64)


def test_the_tree_merges_alike(together: Engine) -> None:
    @given(ROWS, CUTS, st.booleans())
    @settings(max_examples=cases(12, 250), deadline=None)
    def check(rows: list[tuple[object, ...]], cuts: list[int], collide: bool) -> None:
        hashing = one_hash if collide else hash_keys
        tree = BufferTree.of_partials(
            together.keys, together.states, node_bytes_max=300, fanout=4, hash_keys=hashing
        )
        parts = [together.map(rows[i:j]) for i, j in zip([0, *cuts], [*cuts, 24], strict=True)]
        for part in parts:
            tree.insert_partials(part)
            tree.work(10)
        tree.check()
        want = together.merge(*parts)
        got = tree.partials()
        assert bits(got.select(want.column_names)) == bits(want) if want.num_rows else got.num_rows == 0

    check()


@pytest.fixture(
    scope="module", params=["SELECT k, {} FROM x GROUP BY k", "SELECT {} FROM x"], ids=["by key", "all"]
)
def sliding(request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = Engine(request.param.format(", ".join(ALL)) + " WINDOWING 3 SECONDS SLIDE 1 SECOND")
    yield engine
    engine.close()


def test_sliding_windows_merge_alike(sliding: Engine) -> None:
    """Two stacks against merging each window's panes: the same memories, and the same values."""
    plan = sliding.plan
    calendar = Calendar(plan.windows, plan.fragment.pane_us)

    @given(ROWS)
    @settings(max_examples=cases(12, 250), deadline=None)
    def check(rows: list[tuple[object, ...]]) -> None:
        panes = sliding.merge(sliding.map(rows))
        if not panes.num_rows:
            return
        numbers = panes["_pane"].to_numpy()
        windows = []
        for first in range(-13, 22):
            inside = panes.filter(pa.array((numbers >= first) & (numbers < first + 3)))
            if inside.num_rows:
                merged = merge_tables([inside], plan.fragment.keys, sliding.states)
                for name, second in (("window_start", first), ("window_end", first + 3)):
                    times = pa.array([second * 1_000_000] * merged.num_rows, pa.timestamp("us"))
                    merged = merged.append_column(name, times)
                windows.append(merged)
        want = pa.concat_tables(windows)
        assembled = Assembly(plan, calendar).windows(-12_000_000, 27_000_000, panes)
        got = pa.concat_tables([table for table in assembled if table.num_rows])
        assert bits(got.select(want.column_names)) == bits(want)
        assert sliding.final(got) == sliding.final(want)

    check()


# -- other windows -------------------------------------------------------------------------------------------

OWN = ["COUNT(*)", "MAX_BY(s, n)", "SUM(DISTINCT n)"]
SLIDES = "GROUP BY k WINDOWING 3 SECONDS SLIDE 1 SECOND"


@pytest.fixture(scope="module")
def lagged() -> Iterator[tuple[Engine, Engine]]:
    """The same without and with other windows: those of the window before, and of the second after."""
    others = [f"{name}({call}{step})" for call in OWN for name, step in (("LAG", ""), ("LEAD", ", 2"))]
    engines = (Engine(f"SELECT k, {', '.join(part)} FROM x {SLIDES}") for part in (OWN, [*OWN, *others]))
    plain, whole = engines
    yield plain, whole
    plain.close()
    whole.close()


def windows_of(engine: Engine, panes: pa.Table) -> dict[tuple[datetime, object], list[object]]:
    """The values of each window and key."""
    assembled = Assembly(engine.plan, Calendar(engine.plan.windows, engine.plan.fragment.pane_us))
    tables = [table for table in assembled.windows(-30_000_000, 40_000_000, panes) if table.num_rows]
    rows = [list(row.values()) for row in engine._finisher.run(pa.concat_tables(tables)).to_pylist()]
    return {(start, key): values for start, _, key, *values in rows}


def test_other_windows_are_those_of_the_same_group(lagged: tuple[Engine, Engine]) -> None:
    """LAG and LEAD against the windows by themselves. And panes that are made some at a time are those that
    are made at once, if as many are there around them as the plan says, and not if one is missing."""
    plain, whole = lagged
    join, (before, after) = whole.plan.join, whole.plan.reach
    assert join is not None
    assert (before, after) == (1_000_000, 2_000_000)
    assert whole.plan.fragment == plain.plan.fragment
    missed = []

    @given(ROWS, st.lists(st.integers(-12, 24), min_size=2, max_size=2, unique=True).map(sorted))
    @settings(max_examples=cases(8, 250), deadline=None, derandomize=True)
    def check(rows: list[tuple[object, ...]], cuts: list[int]) -> None:
        panes = whole.merge(whole.map(rows))
        if not panes.num_rows:
            return
        made = met(join, panes, (-20, 40), whole._finisher)
        edges = [-20, *cuts, 40]
        parts: list[pa.Table] = []
        fewer: list[pa.Table] = []
        for start, end in pairwise(edges):
            for found, reach in ((parts, (1, 2)), (fewer, (1, 1)), (fewer, (0, 2))):
                near = panes.filter(within(panes, (start - reach[0], end + reach[1])))
                made_here = met(join, near, (start, end), whole._finisher)
                found += [made_here] if made_here is not None else []
        together = pa.concat_tables(parts)
        assert bits(together) == bits(made)
        assert made is not None
        missed.append(sum(part.num_rows for part in fewer) < 2 * made.num_rows)
        alone, beside = windows_of(plain, panes), windows_of(whole, made)
        assert alone.keys() == beside.keys()
        for (began, key), values in beside.items():
            assert values[: len(OWN)] == alone[began, key]
            for place in range(len(OWN)):
                for step, got in zip((-1, 2), values[len(OWN) + 2 * place :], strict=False):
                    other = alone.get((began + timedelta(seconds=step), key), [None] * len(OWN))
                    assert repr(got) == repr(other[place])

    check()
    assert any(missed)


# -- approximations ------------------------------------------------------------------------------------------


def answer(sql: str, rows: list[tuple[object, ...]], parts: int = 3) -> list[dict[str, object]]:
    """Of the rows spread over that many maps."""
    engine = Engine(sql)
    merged = engine.merge(*(engine.map(rows[part::parts]) for part in range(parts))).drop_columns(["_pane"])
    found: list[dict[str, object]] = engine._finisher.run(merged).to_pylist()
    engine.close()
    return found


def row(n: int | None = None, x: float | None = None, s: str | None = None) -> tuple[object, ...]:
    return (0, "k", n, None, x, s, None)


@pytest.mark.parametrize("distinct", [0, 1, 2, 10, 100, 1_000, 5_000, 50_000])
def test_distinct_estimates_stay_within_three_standard_errors(distinct: int) -> None:
    """1.6 % each; 10 independent sets of values, and the mean of their errors is a third of that."""
    errors = []
    for seed in range(1 if distinct > 5_000 else 10):
        rows = [row(s=f"{seed}/{n}") for n in range(distinct)] * 2
        (found,) = answer("SELECT APPROX_COUNT_DISTINCT(s) AS d FROM x", rows) if rows else [{"d": 0}]
        errors.append((int(str(found["d"])) - distinct) / max(distinct, 1))
    assert all(abs(error) <= max(3 * 0.01625, 0.02) for error in errors) or distinct <= 100
    if distinct <= 100:
        assert all(abs(error) * distinct <= 4 for error in errors)
    if len(errors) > 1:
        assert abs(sum(errors) / len(errors)) <= 0.01625 or distinct <= 100


@given(st.lists(DOUBLES | st.floats(0.001, 1e6), min_size=1, max_size=60), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_approximate_percentiles_are_within_their_bound(values: list[float], thousandths: int) -> None:
    """Of the value of that rank (its own exact form beside it), NaN being the greatest."""
    (found,) = answer(
        f"SELECT APPROX_PERCENTILE(x, {thousandths / 1000}) AS p, MEDIAN(x) AS m FROM x",
        [row(x=x) for x in values],
    )
    ranked = sorted(values, key=lambda x: (math.isnan(x), 0.0 if math.isnan(x) else x))
    true = ranked[max(0, -(-len(values) * thousandths // 1000) - 1)]
    got = float(str(found["p"]))
    assert math.isnan(got) if math.isnan(true) else got == true or abs(got - true) <= 2**-7 * abs(true)


@pytest.mark.parametrize("seed", range(3))
def test_exact_percentiles_are_those_of_duckdb(seed: int) -> None:
    rng = random.Random(seed)
    values = [
        rng.choice([rng.lognormvariate(3, 2), float(rng.randrange(9))]) for _ in range(rng.randrange(1, 200))
    ]
    connection = duckdb.connect()
    connection.register("t", pa.table({"x": values}))
    for p in ("0", "0.07", "0.25", "0.5", "0.9", "0.999", "1"):
        (found,) = answer(f"SELECT PERCENTILE(x, {p}) AS p FROM x", [row(x=x) for x in values])
        want = connection.sql(f"SELECT quantile_cont(x, {p}) FROM t").fetchall()[0][0]
        assert found["p"] == pytest.approx(want, rel=1e-12)
    connection.close()


@pytest.mark.parametrize("offset", [0, 10**6, 2**40, 2**62, -(2**63) + 10**4, 2**63 - 10**4])
def test_variances_of_integers_are_exact_wherever_they_lie(offset: int) -> None:
    """Where doubles have no digits left, and beyond 128 bits."""
    values = [offset + n for n in random.Random(1).choices(range(-1000, 1000), k=500)]
    (found,) = answer("SELECT VAR_POP(n) AS v, STDDEV(n) AS s FROM x", [row(n=n) for n in values])
    mean = Decimal(sum(values)) / len(values)
    squares = sum((n - mean) ** 2 for n in values)
    assert found["v"] == pytest.approx(float(squares / len(values)), rel=1e-14)
    assert found["s"] == pytest.approx(float(squares / (len(values) - 1)) ** 0.5, rel=1e-14)


def test_variances_of_the_widest_integers() -> None:
    values = [2**63 - 1, -(2**63), 2**63 - 1, -(2**63), 5] * 300
    (found,) = answer("SELECT VAR_POP(n) AS v FROM x", [row(n=n) for n in values])
    mean = Decimal(sum(values)) / len(values)
    assert found["v"] == pytest.approx(float(sum((n - mean) ** 2 for n in values) / len(values)), rel=1e-14)
