"""Live against offline: what is equal, what is not, and that nothing can hide between the two."""

from __future__ import annotations

import decimal
import io
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from elf.errors import ElfBug
from elf.fields import replace
from spark_backend.compare import EVERYTHING, Comparison, Difference, LiveWindow, compare
from spark_backend.report import last_line, show

SECOND = 1_000_000
STATUS = {"expected": 8, "reported": 7, "late": 3}


def result(
    rows: Sequence[tuple[object, ...]], *, start: int = 0, names: tuple[str, ...] = ("k", "n", "x")
) -> pa.Table:
    """A window's rows (key, number, float), with the window's own columns first."""
    bounds = [pa.array([at] * len(rows), pa.timestamp("us")) for at in (start, start + SECOND)]
    types = {"k": pa.string(), "n": pa.int64(), "x": pa.float64()}
    columns = [pa.array([row[i] for row in rows], types[name]) for i, name in enumerate(names)]
    return pa.table([*bounds, *columns], names=["window_start", "window_end", *names])


def live(rows: Sequence[tuple[object, ...]], *, start: int = 0, revision: int = 0) -> LiveWindow:
    return LiveWindow(start, start + SECOND, revision, STATUS, result(rows, start=start))


def test_equal_whatever_the_order_and_to_the_last_digits_of_floats() -> None:
    rows = [("a", 1, 0.1 + 0.2), ("b", None, float("nan")), (None, 3, None), ("a", 1, 7.0)]
    nearly = [("a", 1, 7.0), (None, 3, None), ("a", 1, 0.3), ("b", None, float("nan"))]
    comparison = compare([live(rows)], result(nearly))
    assert comparison.equal
    assert (comparison.windows[0].live_rows, comparison.windows[0].offline_rows) == (4, 4)
    assert comparison.columns == ("k", "n", "x")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([("a", 1, 1.0)], [("a", 2, 1.0)], {(True, False), (False, True)}),
        ([("a", 1, 1.0)], [("a", 1, 1.0 + 1e-11)], {(True, True)}),
        ([("a", 1, 1.0), ("a", 1, 1.0)], [("a", 1, 1.0)], {(True, False)}),
        ([], [("a", 1, 1.0)], {(False, True)}),
        ([("a", 1, None)], [("a", 1, 0.0)], {(True, False), (False, True)}),
        ([("a", 1, 0.0)], [("a", 1, 1e-300)], {(True, True)}),
        ([("a", 1, float("nan"))], [("a", 1, 1.0)], {(True, True)}),
        ([(None, 1, 1.0)], [("", 1, 1.0)], {(True, False), (False, True)}),
    ],
)
def test_every_kind_of_difference_is_named(
    ours: Sequence[tuple[object, ...]], theirs: Sequence[tuple[object, ...]], expected: set[tuple[bool, bool]]
) -> None:
    comparison = compare([live(ours)], result(theirs))
    assert not comparison.equal
    found = comparison.windows[0].differences
    assert {(one.live is not None, one.offline is not None) for one in found} == expected


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.integers(0, 2),
        st.one_of(st.none(), st.sampled_from([0.0, -1.5, 1e300]), st.floats(-1e300, 1e300)),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, seed=st.integers(0, 99), data=st.data())
def test_rounding_and_order_are_no_difference_but_any_lost_row_is(
    rows: Sequence[tuple[object, ...]], seed: int, data: st.DataObject
) -> None:
    rng = random.Random(seed)
    other = [(k, n, x * (1 + rng.uniform(-4e-13, 4e-13)) if isinstance(x, float) else x) for k, n, x in rows]
    rng.shuffle(other)
    assert compare([live(rows)], result(other)).equal
    if rows:
        other.pop(data.draw(st.integers(0, len(rows) - 1)))
        assert not compare([live(rows)], result(other)).equal


def test_two_float_columns_that_rounding_puts_in_another_order_still_pair() -> None:
    names = ("x", "y")
    types = [pa.float64(), pa.float64()]

    def table(rows: list[tuple[float, float]]) -> pa.Table:
        columns = [pa.array([row[i] for row in rows], types[i]) for i in (0, 1)]
        bounds = [pa.array([at] * len(rows), pa.timestamp("us")) for at in (0, SECOND)]
        return pa.table([*bounds, *columns], names=["window_start", "window_end", *names])

    ours, theirs = [(1.0, 5.0), (1.0 + 1e-15, 3.0)], [(1.0 + 1e-15, 5.0), (1.0, 3.0)]
    assert compare([LiveWindow(0, SECOND, 0, {}, table(ours))], table(theirs)).equal


def test_the_last_revision_counts() -> None:
    windows = [live([("a", 2, None)], revision=1), live([("a", 1, None)]), live([], start=SECOND)]
    comparison = compare(windows, result([("a", 2, None)]))
    assert comparison.equal
    assert [window.revision for window in comparison.windows] == [1, 0]


def test_windows_that_one_side_does_not_know() -> None:
    offline = pa.concat_tables([result([("a", 1, 1.0)]), result([("b", 1, 1.0)], start=SECOND)])
    comparison = compare([live([("a", 1, 1.0)]), live([("c", 1, 1.0)], start=2 * SECOND)], offline)
    assert [(window.revision, window.equal) for window in comparison.windows] == [
        (0, True),
        (None, False),
        (0, False),
    ]
    assert comparison.windows[1].differences == (Difference(None, ("b", 1, 1.0)),)
    assert last_line(comparison) == "live = offline in 1 of 3 windows"


def test_nothing_compared_is_no_success() -> None:
    assert not compare([], result([])).equal
    assert compare([live([])], result([])).equal


def test_the_same_value_in_another_type_is_equal() -> None:
    ours = pa.table(
        {"n": pa.array([decimal.Decimal(7)], pa.decimal128(38, 0)), "t": pa.array([1], pa.timestamp("us"))}
    )
    theirs = pa.table({"n": pa.array([7.0]), "t": pa.array([1_000], pa.timestamp("ns", "UTC"))})
    whole = LiveWindow(*EVERYTHING, 0, {}, ours)
    assert compare([whole], theirs).equal
    assert not compare([whole], theirs.set_column(0, "n", pa.array([7.5]))).equal


def test_other_columns_are_another_query() -> None:
    with pytest.raises(ElfBug):
        compare([live([("a", 1, 1.0)])], result([("a", 1)], names=("k", "n")))


def shown(comparison: Comparison) -> str:
    out = io.StringIO()
    show(comparison, Console(file=out, width=120))
    return out.getvalue()


def test_the_report_ends_with_the_promised_line() -> None:
    windows = [live([("a", 1, 1.0)], start=start * SECOND) for start in (0, 1, 2)]
    offline = pa.concat_tables([result([("a", 1, 1.0)], start=start * SECOND) for start in (0, 1, 2)])
    text = shown(compare(windows, offline))
    assert text.splitlines()[-1] == "live = offline in 3 of 3 windows"
    assert text.count("equal") == 3
    assert text.count("7 of 8") == 3
    assert "1970-01-01T00:00:02.000Z + 1 s" in text


def test_the_report_names_what_is_gone_on_both_sides() -> None:
    window = live([("a", 1, 1.0)])
    gap = {"agent": "web-1", "source": "/l/a.log", "bytes": 40, "from": None, "to": None}
    gapped = replace(window, status={**window.status, "gaps": [gap]})
    text = shown(compare([gapped], result([("a", 1, 1.0)])))
    assert "gap: web-1 /l/a.log, 40 bytes" in text
    assert text.splitlines()[-1] == "live = offline in 1 of 1 windows"


def test_the_report_names_the_rows_that_differ_and_bounds_them() -> None:
    ours = [(f"[red]key{n}", n, None) for n in range(9)]
    text = shown(compare([live(ours)], result([("z", 5, 0.5)], start=SECOND)))
    assert "live     k='[red]key0', n=0, x=None" in text
    assert "offline  no such row" in text
    assert "… and 4 more" in text
    assert "never committed live" in text
    assert text.splitlines()[-1] == "live = offline in 0 of 2 windows"
