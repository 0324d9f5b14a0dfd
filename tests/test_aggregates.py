"""The laws of partial aggregates, with DuckDB as the oracle for what they must come to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.aggregates import SUM_TYPE, State, SumOverflow, identity_row, merge_tables
from elf.paos.builtin import AGGREGATES

# Whole numbers and halves: sums of them are exact in any order.
REALS = st.integers(-(2**20), 2**20).map(lambda n: n / 2) | st.sampled_from([math.nan, math.inf, 0.0, -0.0])
BIGINTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "BIGINT": (pa.int64(), BIGINTS),
    "DOUBLE": (pa.float64(), REALS),
    "VARCHAR": (pa.string(), st.text(max_size=5)),
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "TIMESTAMP": (pa.timestamp("us"), st.integers(-(2**50), 2**50)),
}
NUMERIC = ["avg", "count", "count_star", "max", "min", "sum"]
NAMES = {"BIGINT": NUMERIC, "DOUBLE": NUMERIC}
CASES = [(kind, name) for kind in KINDS for name in NAMES.get(kind, ["count", "min", "max"])]
CASE_IDS = [f"{name}-{kind}" for kind, name in CASES]


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    yield connection
    connection.close()


def same(left: object, right: object) -> bool:
    """Equal values of equal types; NaN is itself, doubles up to the last bits of a quotient."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=1e-15)
    return type(left) is type(right) and left == right


class Query:
    """SELECT k, <aggregate>(x) GROUP BY k, in one piece and through partial states."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, kind: str, name: str) -> None:
        self.connection = connection
        self.rule = AGGREGATES[name]
        self.states = [rule.state("s") for rule in self.rule.states]
        self.type = {"avg": "DOUBLE", "sum": "HUGEINT" if kind == "BIGINT" else "DOUBLE"}.get(name, kind)

    def _run(self, sql: str, rows: pa.Table) -> pa.Table:
        self.connection.register("rows", rows)
        table = self.connection.sql(sql).to_arrow_table()
        self.connection.unregister("rows")
        return table

    def partials(self, rows: pa.Table) -> pa.Table:
        columns = zip(self.rule.states, self.states, strict=True)
        states = ", ".join(f"{rule.partial.format(x='x')} AS {state.name}" for rule, state in columns)
        return self._run(f"SELECT k, {states} FROM rows GROUP BY k", rows)

    def final(self, merged: pa.Table) -> dict[object, object]:
        value = self.rule.final_sql([state.name for state in self.states], self.type)
        return self._pairs(self._run(f"SELECT k, {value} AS v FROM rows", merged))

    def whole(self, rows: pa.Table) -> dict[object, object]:
        call = "COUNT(*)" if self.rule.name == "count_star" else f"{self.rule.name}(x)"
        return self._pairs(self._run(f"SELECT k, {call} AS v FROM rows GROUP BY k", rows))

    @staticmethod
    def _pairs(table: pa.Table) -> dict[object, object]:
        return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def rows_of(kind: str) -> st.SearchStrategy[pa.Table]:
    arrow, values = KINDS[kind]
    row = st.tuples(st.sampled_from(["a", "b", "", None]), st.none() | values)
    return st.lists(row, max_size=12).map(
        lambda rows: pa.table(
            {"k": pa.array([r[0] for r in rows], pa.string()), "x": pa.array([r[1] for r in rows], arrow)}
        )
    )


@pytest.mark.parametrize(("kind", "name"), CASES, ids=CASE_IDS)
def test_split_anywhere_then_merge_is_the_whole(
    duck: duckdb.DuckDBPyConnection, kind: str, name: str
) -> None:
    query = Query(duck, kind, name)

    @given(rows_of(kind), st.lists(st.integers(0, 12), max_size=3))
    @settings(max_examples=25, deadline=None)
    def check(rows: pa.Table, checkpoints: list[int]) -> None:
        edges = [0, *sorted(checkpoints), 12]
        parts = [rows.slice(a, b - a) for a, b in pairwise(edges)]
        merged = merge_tables([query.partials(part) for part in parts], ["k"], query.states)
        got, expected = query.final(merged), query.whole(rows)
        assert got.keys() == expected.keys()
        assert all(same(got[key], expected[key]) for key in expected), (got, expected)

    check()


STATES = (
    State("n", "sum", identity_zero=True),
    State("total", "sum"),
    State("real", "sum"),
    State("low", "min"),
    State("high", "max"),
    State("first", "min"),
)
SCHEMA = pa.schema(
    [
        ("pane", pa.int64()),
        ("key", pa.float64()),
        ("n", pa.int64()),
        ("total", SUM_TYPE),
        ("real", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.timestamp("us")),
        ("first", pa.string()),
    ]
)
KEYS = ("pane", "key")
HALVES = st.integers(-1000, 1000).map(lambda n: n / 2)
PARTIALS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from([0.0, -0.0, math.nan, 1.5, None]),
        st.integers(0, 2**40),
        st.none() | st.integers(-(10**30), 10**30).map(Decimal),
        st.none() | HALVES,
        st.none() | REALS,
        st.none() | st.integers(-(2**50), 2**50),
        st.none() | st.text(max_size=3),
    ),
    max_size=8,
).map(lambda rows: pa.table([[row[i] for row in rows] for i in range(8)], schema=SCHEMA))


def canonical(table: pa.Table) -> list[str]:
    """Rows in an order of their own, -0.0 and 0.0 told apart: merging must choose one."""
    assert table.schema.types == SCHEMA.types
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def merge(*tables: pa.Table) -> pa.Table:
    return merge_tables(tables, KEYS, STATES)


@given(PARTIALS, PARTIALS, PARTIALS)
@settings(max_examples=150, deadline=None)
def test_laws(a: pa.Table, b: pa.Table, c: pa.Table) -> None:
    whole = canonical(merge(a, b, c))
    assert canonical(merge(merge(a, b), c)) == whole
    assert canonical(merge(a, merge(b, c))) == whole
    assert canonical(merge(c, b, a)) == whole
    assert canonical(merge(merge(a, b, c))) == whole
    assert canonical(merge(a, b, c, SCHEMA.empty_table())) == whole


@given(PARTIALS, PARTIALS, PARTIALS, st.booleans())
@settings(deadline=None)
def test_tables_that_are_alike_are_merged_together_as_others_one_by_one(
    a: pa.Table, b: pa.Table, c: pa.Table, large: bool
) -> None:
    coded = b.set_column(1, "key", b["key"].dictionary_encode())
    with pytest.MonkeyPatch.context() as patch:
        if large:
            patch.setattr("elf.aggregates.SMALL_BYTES", -1)
        alike = canonical(merge(a, b, c))
        assert alike == canonical(merge(a, coded, c))
    assert canonical(merge(coded, coded)) == canonical(merge(b, b))


@given(PARTIALS)
@settings(deadline=None)
def test_identity_row_changes_nothing(a: pa.Table) -> None:
    identity = identity_row(SCHEMA, STATES)
    keys = merge(a).select(KEYS)
    neutral = pa.concat_tables([identity] * keys.num_rows) if keys.num_rows else identity.slice(0, 0)
    with_keys = pa.table([*keys.columns, *neutral.columns], names=SCHEMA.names)
    assert canonical(merge(a, with_keys)) == canonical(merge(a))


def test_identity_of_counts_is_zero() -> None:
    assert identity_row(SCHEMA, STATES).to_pylist() == [
        {"n": 0, "total": None, "real": None, "low": None, "high": None, "first": None}
    ]


def test_no_keys_is_one_row_or_none() -> None:
    state = State("s", "sum")
    rows = pa.table({"s": pa.array([1, None, 2], pa.int64())})
    assert merge_tables([rows, rows], (), [state]).to_pylist() == [{"s": Decimal(6)}]
    assert merge_tables([rows.slice(0, 0)], (), [state]).num_rows == 0


def test_integer_sums_widen() -> None:
    rows = pa.table({"k": ["a"] * 3, "s": [2**63 - 1] * 3})
    assert merge_tables([rows], ["k"], [State("s", "sum")])["s"].to_pylist() == [Decimal(3 * (2**63 - 1))]


def test_sums_that_only_pass_through_overflow_are_exact() -> None:
    big = Decimal(10**38 - 1)
    rows = pa.table({"k": ["a"] * 3, "s": pa.array([big, big, Decimal(1 - 10**38)], SUM_TYPE)})
    assert merge_tables([rows], ["k"], [State("s", "sum")])["s"].to_pylist() == [big]


@pytest.mark.parametrize(
    ("values", "state"),
    [
        (pa.array([Decimal(10**38 - 1)] * 2, SUM_TYPE), State("s", "sum")),
        (pa.array([2**63 - 1] * 2), State("s", "sum", identity_zero=True)),
        (pa.array([-(2**63)] * 3), State("s", "sum", identity_zero=True)),
    ],
)
def test_overflow_is_an_error_and_never_wraps(values: pa.Array, state: State) -> None:
    with pytest.raises(SumOverflow):
        merge_tables([pa.table({"k": ["a"] * len(values), "s": values})], ["k"], [state])


COUNTS = (State("n", "sum", identity_zero=True), State("m", "sum", identity_zero=True))
COUNTED = st.lists(
    st.tuples(st.integers(-2, 2), st.integers(-9, 9), st.integers(0, 2**62)), min_size=1, max_size=6
)


@given(st.lists(COUNTED, min_size=1, max_size=3))
@settings(deadline=None)
def test_counts_by_a_number_are_added_up_as_others_are(parts: list[list[tuple[int, int, int]]]) -> None:
    tables = [pa.table({name: [row[i] for row in part] for i, name in enumerate("knm")}) for part in parts]
    others = [table.set_column(0, "k", table["k"].cast(pa.int32())) for table in tables]
    try:
        expected = merge_tables(others, "k", COUNTS).sort_by("k").to_pylist()
    except SumOverflow:
        with pytest.raises(SumOverflow):
            merge_tables(tables, "k", COUNTS)
        return
    merged = merge_tables(tables, "k", COUNTS)
    assert merged.schema == tables[0].schema
    assert merged.sort_by("k").to_pylist() == expected


def test_sums_of_slices_know_their_own_values() -> None:
    big = Decimal(10**38 - 1)
    rows = pa.table({"k": ["a"] * 5, "s": pa.array([1, big, big, 2, None], SUM_TYPE)})
    assert merge_tables([rows.slice(3)], ["k"], [State("s", "sum")])["s"].to_pylist() == [Decimal(2)]
    with pytest.raises(SumOverflow):
        merge_tables([rows.slice(1, 2)], ["k"], [State("s", "sum")])


def test_names_of_keys_and_states_do_not_interfere() -> None:
    rows = pa.table({"s_sum": ["x", "x"], "s": [1, 2]})
    assert merge_tables([rows], ["s_sum"], [State("s", "sum")]).to_pylist() == [
        {"s_sum": "x", "s": Decimal(3)}
    ]


def test_tables_of_nulls_only_merge_with_typed_ones() -> None:
    nulls = pa.table({"k": pa.nulls(1), "s": pa.nulls(1)})
    typed = pa.table({"k": ["x"], "s": [1]})
    merged = merge_tables([nulls, typed, nulls], ["k"], [State("s", "sum")])
    assert sorted(map(str, merged.to_pylist())) == ["{'k': 'x', 's': Decimal('1')}", "{'k': None, 's': None}"]
