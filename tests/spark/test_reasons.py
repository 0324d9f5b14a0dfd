"""Reasons from counts alone: what accounts for a difference, and what does not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.ql.planner import plan_text
from spark_backend.compare import Bounds, Difference, Outcome, Row, Verdict
from spark_backend.reasons import Census, Hole, Shape, explain, shape_of, waits
from tests.support.offline import CLICKS

COLUMNS = ("page", "n")
SHAPE = Shape(keys=("page",), counts=("n",), sizes=frozenset({1}))
GONE = Difference(None, ("/cart", 1))


def window(at: int, *differences: Difference, **status: object) -> Verdict:
    return Verdict(at, at + 1, 0, status, 4, 4, differences, COLUMNS)


def reasons(
    verdicts: list[Verdict],
    census: Mapping[int, Mapping[str, int]],
    later: Mapping[int, Mapping[str, object]] = {},
    shape: Shape = SHAPE,
    holes: tuple[Hole, ...] = (),
) -> list[list[tuple[str, int | None]]]:
    counted = Census({(at, at + 1): rows for at, rows in census.items()})
    statuses: dict[Bounds, Mapping[str, object]] = {(at, at + 1): status for at, status in later.items()}
    explained = explain(verdicts, statuses, counted, shape, holes)
    return [[(reason.name, reason.rows) for reason in one.reasons] for one in explained]


@pytest.mark.parametrize(
    ("counter", "reason", "where"),
    [
        ("late", "late", 1),
        ("shed", "shed", 1),
        ("leapt", "leapt", 1),
        ("unrostered", "outside the roster", 1),
        ("future", "ahead of the clock", -1),
    ],
)
def test_each_counter_serves_its_own_window_and_those_on_one_side_of_it(
    counter: str, reason: str, where: int
) -> None:
    one = [window(5, GONE, rows_in=9)]
    assert reasons(one, {5: {"a": 10}}, {5 + where: {counter: 1}}) == [[(reason, 1)]]
    assert reasons(one, {5: {"a": 10}}, {5 - where: {counter: 1}}) == [[("unexplained", 1)]]
    own = [window(5, GONE, rows_in=9, **{counter: 1})]
    assert reasons(own, {5: {"a": 10}}) == [[(reason, 1)]]


def test_a_row_explains_one_row_of_one_window() -> None:
    """The one that an earlier window needs is not there for a later one; the windows that are equal count
    too, and what they counted serves none after them."""
    verdicts = [window(0, GONE, rows_in=9), window(1, GONE, rows_in=9), window(2, rows_in=4, late=1)]
    census = {0: {"a": 10}, 1: {"a": 10}, 2: {"a": 4}}
    assert reasons(verdicts, census) == [[("late", 1)], [("unexplained", 1)], []]
    equal = [window(0, rows_in=9), *verdicts[1:]]
    assert reasons(equal, census) == [[], [("unexplained", 1)], []]
    assert reasons([window(0, rows_in=4, late=1), *verdicts[1:2]], {**census, 0: {"a": 4}}) == [
        [],
        [("unexplained", 1)],
    ]


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 3), st.sampled_from(["late", "shed", "leapt"])),
        max_size=8,
    ),
    st.data(),
)
def test_what_was_left_out_later_explains_every_window_and_one_row_fewer_does_not(
    left_out: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    counts: dict[int, dict[str, int]] = {at: {} for at in range(10)}
    lacking = dict.fromkeys(range(10), 0)
    for at, later, name in left_out:
        lacking[at] += 1
        counts[at + later][name] = counts[at + later].get(name, 0) + 1
    verdicts = [window(at, *[GONE] * min(n, 1), rows_in=7, **counts[at]) for at, n in lacking.items()]
    census = {at: {"a": 7 + n} for at, n in lacking.items()}
    drawn = explain(verdicts, {}, Census({(at, at + 1): rows for at, rows in census.items()}), SHAPE)
    assert {one.outcome for one in drawn} <= {Outcome.EQUAL, Outcome.EXPLAINED}
    assert sum(reason.rows or 0 for one in drawn for reason in one.reasons) == len(left_out)
    if left_out:
        worse = data.draw(st.sampled_from(sorted({at for at, _, _ in left_out})))
        census[worse] = {"a": 8 + lacking[worse]}
        drawn = explain(verdicts, {}, Census({(at, at + 1): rows for at, rows in census.items()}), SHAPE)
        assert Outcome.UNEXPLAINED in {one.outcome for one in drawn}


def test_rows_that_are_not_there_explain_no_row_that_is() -> None:
    """A hole in the archive explains rows that the archive lacks, in its time."""
    hole = (Hole("hour=00", 0, 10),)
    assert reasons([window(5, GONE, rows_in=12)], {5: {"a": 10}}, holes=hole) == [[("archive", -2)]]
    assert reasons([window(15, GONE, rows_in=12)], {15: {"a": 10}}, holes=hole) == [[("unexplained", -2)]]
    assert reasons([window(5, GONE, rows_in=8)], {5: {"a": 10}}, holes=hole) == [[("unexplained", 2)]]


def test_rows_of_a_missing_agent_are_its_own() -> None:
    away = window(0, GONE, rows_in=7, missing=["web-2"])
    assert reasons([away], {0: {"web-1": 7, "web-2": 3}}) == [[("not covered", 3)]]
    assert reasons([away], {0: {"web-1": 8, "web-2": 3}}) == [[("not covered", 3), ("unexplained", 1)]]
    assert reasons([away], {0: {"web-1": 9}}) == [[("unexplained", 2)]]


@pytest.mark.parametrize(
    ("live", "offline", "right"),
    [(960, 1_000, True), (1_000, 960, True), (400, 1_000, False), (None, 30, True), (None, 1_000, False)],
)
def test_estimates_are_explained_by_their_weight_as_far_as_that_goes(
    live: int | None, offline: int, right: bool
) -> None:
    budgets = [{"agent": "a", "budget": "job top", "weight": 4}]
    differs = Difference(None if live is None else ("/", live), ("/", offline))
    verdict = window(0, differs, rows_in=1_000, sampled=750, budgets=budgets)
    (found,) = explain([verdict], {}, Census({(0, 1): {"a": 1_000}}), SHAPE)
    assert found.outcome is (Outcome.EXPLAINED if right else Outcome.UNEXPLAINED)
    if right:
        assert [reason.text for reason in found.reasons] == ["750 rows of 1,000 left out over a budget"]
    (short,) = explain([verdict], {}, Census({(0, 1): {"a": 1_001}}), SHAPE)
    assert short.outcome is Outcome.UNEXPLAINED


@pytest.mark.parametrize(
    ("live", "offline", "why"),
    [
        (("/", 8), ("/", 10), ""),
        (("/", 8), ("/", 11), "n is 3 too low, with 2 rows left out"),
        (("/", 8), ("/", 7), "n is 1 too high in a row"),
        (None, ("/", 2), ""),
        (("/", 1), None, "n is 1 too high in a row"),
    ],
)
def test_rows_that_were_left_out_lower_a_count_and_by_no_more_than_they_are(
    live: Row | None, offline: Row | None, why: str
) -> None:
    verdict = window(0, Difference(live, offline), rows_in=8, late=2)
    (found,) = explain([verdict], {}, Census({(0, 1): {"a": 10}}), SHAPE)
    assert [reason.text for reason in found.reasons] == ["2 rows late", *([why] if why else [])]
    (found,) = explain([verdict], {}, Census({(0, 1): {"a": 10}}), Shape(keys=("page",)))
    assert found.outcome is Outcome.EXPLAINED, "nothing is said of counts of a query with a LIMIT"


def test_values_that_did_not_fit_explain_two_rows_each() -> None:
    verdict = window(0, GONE, Difference((None, 1), None), rows_in=5, uncast=1)
    assert reasons([verdict], {0: {"a": 5}}) == [[("uncast", None)]]
    verdict = window(0, GONE, GONE, GONE, rows_in=5, uncast=1)
    assert reasons([verdict], {0: {"a": 5}}) == [[("unexplained", None)]]


@pytest.mark.parametrize(
    ("live", "offline", "expected"),
    [
        (("/", 10, 3.0), ("/", 10, 0.0), None),
        (("/", 10, 3.0), ("/", 13, 0.0), "approximate"),
        (("/", 10, 3.0), ("/", 14, 0.0), "unexplained"),
        (("/", 10, 3.0), ("/", 9, 0.0), "unexplained"),
        (("/", 10, 3.0), None, "approximate"),
        (("/", 12, 3.0), None, "unexplained"),
    ],
)
def test_approximate_values_are_within_the_bound_that_they_state(
    live: Row, offline: Row | None, expected: str | None
) -> None:
    """A row that Spark has not among its first ones states no more than the least of these (11)."""
    differences = [Difference(live, offline)]
    if offline is None:
        differences.append(Difference(None, ("/other", 11, 0.0)))
    columns = ("page", "n", "error_bound")
    verdict = Verdict(0, 1, 0, {"rows_in": 30}, 4, 4, tuple(differences), columns)
    shape = Shape(keys=("page",), bounded="n", sizes=frozenset({1}))
    (found,) = explain([verdict], {}, Census({(0, 1): {"a": 30}}), shape)
    assert [reason.name for reason in found.reasons] == ([] if expected is None else [expected])
    assert found.equal == (expected is None)


def test_where_rows_cannot_be_counted_out_there_must_be_some_at_least() -> None:
    sessions = Shape(keys=("page",), countable=False, sessions=True)
    assert reasons([window(0, GONE)], {}, shape=sessions) == [[("unexplained", None)]]
    assert reasons([window(0, GONE)], {}, {3: {"late": 2}}, sessions) == [[("late", 2)]]
    assert reasons([window(0, *[GONE] * 7)], {}, {3: {"late": 2}}, sessions) == [[("unexplained", None)]]
    assert reasons([window(0, GONE, missing=["web-2"])], {}, shape=sessions) == [[("not covered", None)]]


def test_only_what_later_windows_may_count_is_waited_for() -> None:
    (over,) = explain([window(0, GONE, rows_in=9)], {}, Census({(0, 1): {"a": 10}}), SHAPE)
    (equal,) = explain([window(0, GONE, rows_in=9)], {}, Census({(0, 1): {"a": 9}}), SHAPE)
    (lacks,) = explain([window(0, GONE, rows_in=9)], {}, Census({(0, 1): {"a": 8}}), SHAPE)
    assert [waits(over), waits(equal), waits(lacks)] == [True, False, False]


@pytest.mark.parametrize(
    ("query", "keys", "counts", "countable"),
    [
        (
            "SELECT product, COUNT(*) AS n FROM c GROUP BY product WINDOWING 5 SECONDS",
            ("product",),
            ("n",),
            True,
        ),
        ("SELECT COUNT(*) AS n, SUM(clicks) AS s FROM c WINDOWING 5 SECONDS", (), ("n",), True),
        ("SELECT COUNT(*) AS n FROM c GROUP BY product WINDOWING 5 SECONDS", None, ("n",), True),
        (
            "SELECT product, COUNT(*) AS n FROM c GROUP BY product ORDER BY n DESC LIMIT 3 WINDOWING 5 DAYS",
            ("product",),
            (),
            True,
        ),
        (
            "SELECT product, COUNT(*) AS n FROM c GROUP BY product WINDOWING SESSION 5 SECONDS",
            ("product",),
            ("n",),
            False,
        ),
        (
            "SELECT MAX(n) AS n FROM (SELECT product, COUNT(*) AS n FROM c GROUP BY product) AS x "
            "WINDOWING 5 SECONDS",
            None,
            (),
            True,
        ),
    ],
)
def test_what_a_query_tells(
    query: str, keys: tuple[str, ...] | None, counts: tuple[str, ...], countable: bool
) -> None:
    shape = shape_of(plan_text(query, CLICKS, stream="c"))
    assert (shape.keys, shape.counts, shape.countable) == (keys, counts, countable)


def test_the_bounded_column_of_an_approximate_query() -> None:
    query = "SELECT product, COUNT(*) AS hits FROM c GROUP BY product ORDER BY hits DESC LIMIT 3 APPROXIMATE"
    assert shape_of(plan_text(f"{query} WINDOWING 5 SECONDS", CLICKS, stream="c")).bounded == "hits"
