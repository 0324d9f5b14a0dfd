"""Windows out of panes against recomputing every window from all of its panes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf import windows
from elf.aggregates import SUM_TYPE, State, SumOverflow, merge_tables
from elf.job.assembly import twostacks
from elf.job.assembly.windows import Assembly
from elf.ql.plan import Fragment, Plan, Top
from elf.windows import Calendar, Cumulative, Kind, Landmark, Sliding

STATES = (
    State("n", "sum", identity_zero=True),
    State("total", "sum"),
    State("real", "sum"),
    State("low", "min"),
    State("high", "max"),
    State("first", "min"),
    State("last", "max"),
    State("any", "max"),
)
KEYS = ("k0", "k1")
SCHEMA = pa.schema(
    [
        ("_pane", pa.int64()),
        ("k0", pa.string()),
        ("k1", pa.float64()),
        ("n", pa.int64()),
        ("total", SUM_TYPE),
        ("real", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.timestamp("us")),
        ("first", pa.string()),
        ("last", pa.int64()),
        ("any", pa.bool_()),
    ]
)
REALS = st.floats(allow_nan=True, allow_infinity=True, width=64) | st.sampled_from([0.0, -0.0, 0.1, 1e300])
INTS = st.integers(-9, 9) | st.integers(-(10**36), 10**36) | st.integers(-(2**63), 2**63 - 1)
ROW = st.tuples(
    st.integers(-25, 25) | st.sampled_from([-400, 400, 403]),
    st.sampled_from(["a", "b", "", None]),
    st.sampled_from([0.0, -0.0, math.nan, 1.5, None]),
    st.integers(0, 2**40),
    st.none() | INTS.map(Decimal),
    st.none() | REALS,
    st.none() | REALS,
    st.none() | st.integers(-(2**50), 2**50),
    st.none() | st.text(max_size=3),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.booleans(),
)
PANES = st.lists(ROW, max_size=40).map(
    lambda rows: merge_tables(
        [pa.table([[row[i] for row in rows] for i in range(len(SCHEMA))], schema=SCHEMA)],
        ("_pane", *KEYS),
        STATES,
    )
)
PANE_US = 1_000
Shape = tuple[tuple[str, int, int], ...]
SLIDING = st.tuples(st.just("sliding"), st.integers(1, 12), st.integers(1, 15)).filter(
    lambda shape: math.gcd(*shape[1:]) == 1
)
"""(panes a window, panes a slide): any sliding window, with gaps too, is a multiple of one of these."""
TUMBLING = st.integers(1, 12).map(lambda size: ("sliding", size, size))
CUMULATIVE = st.tuples(st.just("cumulative"), st.integers(1, 5), st.integers(1, 4)).map(
    lambda shape: (shape[0], shape[1] * shape[2], shape[2])
)
LANDMARK = st.integers(1, 9).map(lambda every: ("landmark", every, every))
SHAPES = SLIDING.map(lambda one: (one,)) | st.lists(
    SLIDING | TUMBLING | CUMULATIVE | LANDMARK, min_size=1, max_size=5, unique=True
).map(tuple)


def kinds(shape: Shape) -> tuple[Kind, ...]:
    make: dict[str, Callable[[int, int], Kind]] = {
        "sliding": Sliding,
        "cumulative": Cumulative,
        "landmark": lambda every, _: Landmark(every),
    }
    return tuple(make[name](a * PANE_US, b * PANE_US) for name, a, b in shape)


def plan(shape: Shape, keys: Sequence[str] = KEYS, top: Top | None = None) -> Plan:
    fragment = Fragment("s", (), "", tuple(keys), STATES, PANE_US, None)
    return Plan("", fragment, kinds(shape), "", (), "", top)


def made(job: Plan) -> Assembly:
    return Assembly(job, Calendar(job.windows, PANE_US))


def bounds(shape: Shape, busy: list[int], first: int, last: int) -> set[tuple[int, int]]:
    """The windows that end in ``(first, last]``, in panes, one after the other."""
    found = set()
    marks = [every for name, every, _ in shape if name == "landmark"]
    for name, size, step in shape:
        for end in range(first + 1, last + 1):
            if name == "sliding" and (end - size) % step == 0:
                found.add((end - size, end))
            if name == "cumulative" and end % step == 0:
                found.add(((end - 1) // size * size, end))
            if name == "landmark" and end % size == 0 and any(end - size <= p < end for p in busy):
                found.add((min(busy) // max(marks) * max(marks), end))
    return found


def recomputed(
    panes: pa.Table, shape: Shape, first: int, last: int, keys: Sequence[str] = KEYS
) -> pa.Table | None:
    """The windows that end in ``(first, last]``, each merged from all of its panes."""
    found = []
    numbers = panes["_pane"].to_numpy()
    for start, end in bounds(shape, numbers[numbers < last].tolist(), first, last):
        inside = panes.filter(pa.array((numbers >= start) & (numbers < end)))
        if inside.num_rows:
            merged = merge_tables([inside], keys, STATES)
            times = [pa.array([t * PANE_US] * merged.num_rows, pa.timestamp("us")) for t in (start, end)]
            names = ["window_start", "window_end", *merged.column_names]
            found.append(pa.table([*times, *merged.columns], names=names))
    return pa.concat_tables(found) if found else None


def assembled(assembly: Assembly, panes: pa.Table, first: int, last: int) -> pa.Table | None:
    """The same of an assembly."""
    tables = [t for t in assembly.windows(first * PANE_US, last * PANE_US, panes) if t.num_rows]
    return pa.concat_tables(tables) if tables else None


def by_name(table: pa.Table | None) -> dict[object, dict[str, object]]:
    rows = [] if table is None else table.to_pylist()
    found: dict[object, dict[str, object]] = {
        repr((row["window_start"], row["window_end"], row.get("k0"), row.get("k1"))): row for row in rows
    }
    assert len(found) == len(rows)
    return found


def assert_same(got: pa.Table | None, want: pa.Table | None, terms: pa.Table) -> None:
    """Equal rows; sums of doubles to 1 part in 10¹² of what was added."""
    mine, theirs = by_name(got), by_name(want)
    assert mine.keys() == theirs.keys()
    scale = sum(abs(x) for x in terms["real"].to_pylist() if x is not None and math.isfinite(x))
    for name, row in mine.items():
        for column, value in row.items():
            other = theirs[name][column]
            if column == "real" and value is not None and other is not None:
                assert isinstance(value, float)
                assert isinstance(other, float)
                near = abs(value - other) <= 1e-12 * scale
                assert near or not math.isfinite(scale) or repr(value) == repr(other)
            else:
                assert repr(value) == repr(other), (name, column)


def exact(table: pa.Table | None) -> list[str]:
    """Rows to the last bit."""
    return [] if table is None else sorted(map(repr, table.to_pylist()))


@given(PANES, SHAPES, st.integers(-30, 20), st.integers(1, 60), st.sampled_from([1, 7, 1 << 18]))
@settings(max_examples=60, deadline=None)
def test_every_window_is_its_panes(panes: pa.Table, shape: Shape, first: int, count: int, cells: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(twostacks, "CELLS", cells)
        got = assembled(made(plan(shape)), panes, first, first + count)
    assert_same(got, recomputed(panes, shape, first, first + count), panes)


@given(PANES, SHAPES, st.lists(st.integers(1, 30), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_kept_changes_nothing(
    panes: pa.Table, shape: Shape, steps: list[int], data: st.DataObject
) -> None:
    """Warm, window by window, is cold, to the last bit; and all at once."""
    warm, at, found = made(plan(shape)), -40, []
    for step in steps:
        mine = assembled(warm, panes, at, at + step)
        assert exact(mine) == exact(assembled(made(plan(shape)), panes, at, at + step))
        found += exact(mine)
        at += step
    assert sorted(found) == exact(assembled(made(plan(shape)), panes, -40, at))


@given(PANES, SHAPES)
@settings(max_examples=50, deadline=None)
def test_without_keys(panes: pa.Table, shape: Shape) -> None:
    job = plan(shape, keys=())
    merged = merge_tables([panes], ("_pane",), STATES)
    got = assembled(made(job), merged, -500, 500)
    assert_same(got, recomputed(merged, shape, -500, 500, ()), panes)


TOPS = st.builds(
    Top, st.sampled_from([s.name for s in STATES]), st.booleans(), st.booleans(), st.integers(1, 4)
)


@given(PANES, SHAPES, TOPS)
@settings(max_examples=60, deadline=None)
def test_the_first_rows_of_a_window_are_all_there(panes: pa.Table, shape: Shape, top: Top) -> None:
    """What a LIMIT would keep, with all that tie with its last row, of the rows of each window."""
    job = plan(shape, top=top)
    whole = by_name(assembled(made(plan(shape)), panes, -500, 500))
    some = by_name(assembled(made(job), panes, -500, 500))
    assert all(repr(whole[name]) == repr(row) for name, row in some.items())
    spans = {(row["window_start"], row["window_end"]) for row in whole.values()}
    for span in spans:
        mine = [
            (name, row) for name, row in whole.items() if (row["window_start"], row["window_end"]) == span
        ]
        rows = [(name, row[top.state]) for name, row in mine]
        valid = sorted((_order(v), name) for name, v in rows if v is not None)
        if top.descending:
            valid = valid[::-1]
        nulls = [(None, name) for name, v in rows if v is None]
        ordered = [*nulls, *valid] if top.nulls_first else [*valid, *nulls]
        last = ordered[: top.rows][-1][0]
        kept = ordered[: top.rows] + [item for item in ordered[top.rows :] if item[0] == last]
        assert {str(name) for _, name in kept} <= set(map(str, some))


def _order(value: object) -> tuple[bool, object]:
    return (isinstance(value, float) and math.isnan(value), 0.0 if value != value else value)


def test_sums_beyond_38_digits_are_an_error_and_those_that_come_back_are_not() -> None:
    big = Decimal(10**38 - 1)
    job = Plan(
        "", Fragment("s", (), "", (), (State("s", "sum"),), 1_000, None), (Sliding(3_000, 1_000),), "", (), ""
    )
    back = pa.table({"_pane": [0, 1, 2], "s": pa.array([big, big, Decimal(1 - 10**38)], SUM_TYPE)})
    (table,) = [t for t in made(job).windows(2_000, 3_000, back) if t.num_rows]
    assert table["s"].to_pylist() == [big]
    with pytest.raises(SumOverflow):
        list(made(job).windows(2_000, 3_000, back.slice(0, 2)))


@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=12), SHAPES, st.integers(-30, 20), st.integers(1, 40)
)
def test_tallies_by_window(numbers: list[int], shape: Shape, first: int, count: int) -> None:
    panes = np.array(numbers, np.int64)
    calendar = Calendar(kinds(shape), PANE_US).beginning_at(min(numbers) * PANE_US)
    last = first + count
    spans = calendar.holding(panes, first * PANE_US, last * PANE_US)
    known = bounds(shape, numbers, first, last)
    want = sorted((a, b) for a, b in known if any(a <= pane < b for pane in numbers))
    starts, ends = spans.starts // PANE_US, spans.ends // PANE_US
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == want
    every = calendar.ending(first * PANE_US, last * PANE_US)
    assert set(want) <= set(
        zip((every.starts // PANE_US).tolist(), (every.ends // PANE_US).tolist(), strict=True)
    )
    values = np.arange(2 * len(panes), dtype=np.int64).reshape(-1, 2)
    sums = windows.sums_by_window(panes, values, starts, ends)
    for start, end, found in zip(starts, ends, sums, strict=True):
        assert found.tolist() == values[(panes >= start) & (panes < end)].sum(axis=0).tolist()
