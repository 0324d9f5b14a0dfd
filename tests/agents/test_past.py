"""Past windows as a table: what counts of revisions, what is bounded, and what a SELECT may not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from agents.committing import past
from agents.committing.past import evaluate
from elf.batch import decode, encode
from elf.client.past import last_of, past_of
from elf.errors import QueryError, UserError
from elf.job.effects import PastQuestion
from elf.ql.past import PastSelect, RowsOf
from elf.ql.statements import parse
from elf.wire.clients import WindowResult

MINUTE_US = 60_000_000
ALL = (-(1 << 62), 1 << 62)


def result(
    number: int, start: int, rows: Mapping[str, Sequence[object]], revision: int = 0, late: int = 0
) -> WindowResult:
    """A window of one minute, the ``start``-th since the epoch."""
    count = len(next(iter(rows.values())))
    bounds = {
        name: pa.array([at * MINUTE_US], pa.timestamp("us"))
        for name, at in (("window_start", start), ("window_end", start + 1))
    }
    said = {"revision": [revision], "expected": [3], "late": [late], "missing": [["web-2"]]}
    each = pa.array([0] * count, pa.int64())
    table = pa.table({name: one.take(each) for name, one in bounds.items()} | dict(rows))
    return WindowResult(
        job=f"{1:032x}.1",
        name="busy",
        version=1,
        master="",
        first_us=(start + 1) * MINUTE_US - 1,
        last_us=(start + 1) * MINUTE_US,
        revision=revision,
        status=encode(pa.table({**bounds, **said})),
        payload=encode(table),
        number=number,
    )


RESULTS = (
    result(1, 0, {"page": ["/", "/cart"], "n": [3, 1]}),
    result(2, 1, {"page": ["/"], "n": [5]}, late=2),
    result(3, 0, {"page": ["/", "/cart"], "n": [4, 1]}, revision=1),
    result(4, 2, {"page": [], "n": []}),
)


def asked(select: str, results: Sequence[WindowResult] = RESULTS, **more: object) -> pa.Table:
    found = evaluate(PastQuestion(select, "busy", tuple(results), *ALL, **more))  # type: ignore[arg-type]
    return pa.concat_tables(map(decode, found.portions))


def test_the_last_revision_counts_or_all_of_them() -> None:
    select = 'SELECT page, n, revision FROM "busy" ORDER BY window_start, revision, page'
    assert asked(select).to_pylist() == [
        {"page": "/", "n": 4, "revision": 1},
        {"page": "/cart", "n": 1, "revision": 1},
        {"page": "/", "n": 5, "revision": 0},
    ]
    assert asked(select, all_revisions=True)["n"].to_pylist() == [3, 1, 4, 1, 5]
    found = evaluate(PastQuestion(select, "busy", RESULTS, *ALL))
    assert (found.rows, found.windows, found.empty) == (3, 3, 1)


def test_windows_start_in_the_time_that_is_asked_for() -> None:
    found = evaluate(PastQuestion('SELECT n FROM "busy"', "busy", RESULTS, MINUTE_US, 2 * MINUTE_US))
    assert [decode(portion)["n"].to_pylist() for portion in found.portions] == [[5]]


def test_a_window_says_what_it_covers_beside_its_rows() -> None:
    (row,) = asked('SELECT * FROM "busy" WHERE late > 0').to_pylist()
    assert list(row) == ["window_start", "window_end", "revision", "page", "n", "expected", "late", "missing"]
    assert (row["expected"], row["late"], row["missing"]) == (3, 2, ["web-2"])
    assert row["window_start"] == datetime(1970, 1, 1, 0, 1, tzinfo=UTC).replace(tzinfo=None)
    named = asked('SELECT late, _late FROM "busy"', [result(1, 0, {"late": ["no"]}, late=7)])
    assert named.to_pylist() == [{"late": "no", "_late": 7}]


def test_columns_of_several_versions_are_one() -> None:
    both = [result(1, 0, {"n": [1]}), result(2, 1, {"n": [1.5]}), result(3, 2, {"m": ["x"]})]
    assert asked('SELECT n, m FROM "busy" ORDER BY window_start', both).to_pylist() == [
        {"n": 1.0, "m": None},
        {"n": 1.5, "m": None},
        {"n": None, "m": "x"},
    ]
    other = [result(1, 0, {"n": [1]}), result(2, 1, {"n": ["a"]})]
    assert asked('SELECT n FROM "busy" ORDER BY window_start', other)["n"].to_pylist() == ["1", "a"]


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", "DuckDB says"),
        ("SELECT * FROM '/etc/passwd'", "DuckDB says"),
        ("SELECT getenv('HOME')", "DuckDB says"),
        ("COPY busy TO '/tmp/x.csv'", "one SELECT is wanted"),
        ('SELECT 1 FROM "busy"; DROP TABLE busy', "one SELECT is wanted"),
        ("SET memory_limit = '1TB'", "one SELECT is wanted"),
        ('SELECT nothing FROM "busy"', "nothing"),
    ],
)
def test_what_it_may_not_see_or_do(select: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        asked(select)
    assert "\n" not in str(refused.value)


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="comes to more than"):
        asked('SELECT x FROM "busy", range(2000000) AS r(x)')
    monkeypatch.setattr(past, "SECS_MAX", 0.05)
    with pytest.raises(UserError, match="takes more than"):
        asked('SELECT sum(a.x * b.x) FROM range(100000) AS a(x), range(1000000) AS b(x), "busy"')


def test_what_is_large_comes_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PORTION_BYTES", 1 << 16)
    found = evaluate(PastQuestion("SELECT x FROM range(50000) AS r(x)", "busy", RESULTS, *ALL))
    assert len(found.portions) > 2
    assert pa.concat_tables(map(decode, found.portions))["x"].to_pylist() == list(range(50_000))


def test_an_export_has_the_last_word_on_each_window_once() -> None:
    last = last_of(RESULTS)
    found = [past_of(RESULTS[a:b], ALL, last=last) for a, b in ((0, 2), (2, 4))]
    assert [one.table["n"].to_pylist() for one in found] == [[5], [4, 1]]
    assert past_of(RESULTS[:2], ALL, all_revisions=True).table["n"].to_pylist() == [3, 1, 5]


def test_how_they_are_said() -> None:
    (select,) = parse(
        "SELECT n FROM JOB busy WINDOWS UNTIL 'now' SINCE '-1 day' ALL REVISIONS AS b WHERE b.n > 1"
    )
    assert isinstance(select, PastSelect)
    assert select.select == 'SELECT n FROM "busy" AS b WHERE b.n > 1'
    assert select.span(86_400_000_000) == (0, 86_400_000_000)
    assert select.all_revisions
    (with_cte,) = parse("WITH w AS (SELECT * FROM JOB busy WINDOWS) SELECT count(*) FROM w")
    assert isinstance(with_cte, PastSelect)
    assert with_cte.select == 'WITH w AS (SELECT * FROM "busy") SELECT count(*) FROM w'
    (rows,) = parse("ROWS OF busy WINDOW '1970-01-01' TO '1970-01-02' WHERE a = 'LIMIT 3' AND b > 1 LIMIT 7")
    assert rows == RowsOf(rows.sql, "busy", "1970-01-01", "1970-01-02", "a = 'LIMIT 3' AND b > 1", 7)
    assert rows.span(0) == (0, 86_400_000_000)
    assert parse("rows of job busy window '1970-01-01'")[0] == RowsOf(
        "rows of job busy window '1970-01-01'", "busy", "1970-01-01"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM JOB busy WINDOWS SINCE yesterday", "expected a time in quotes"),
        ("SELECT * FROM JOB busy WINDOWS SINCE '1' SINCE '2'", "SINCE is said twice"),
        ("SELECT * FROM JOB a WINDOWS, JOB b WINDOWS", "expected one JOB"),
        ("ROWS OF busy", "expected WINDOW"),
        ("ROWS OF busy WINDOW '1970-01-01' WHERE", "expected a condition"),
        ("ROWS OF busy WINDOW '1970-01-01' LIMIT 1000000", "rows at most"),
        ("ROWS OF busy WINDOW '1970-01-01' ORDER BY a", "unexpected"),
    ],
)
def test_what_is_said_wrong(text: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        parse(text)


def test_a_time_that_is_none_is_named() -> None:
    with pytest.raises(QueryError, match="SINCE 'soon': that is no time"):
        PastSelect("", "busy", "", since="soon").span(0)
