"""``elf run`` with an aggregate of one's own: in windows of all kinds it says what built-in ones say."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from tests.support.own import FAILS_AT_13, MEAN, OF_MEANS
from tests.support.run_command import elf_run

BASE = 1_767_225_600
BY_HAND = "exp(AVG(ln(x)))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    rng = random.Random(7)
    for number in range(3):
        rows = [
            {"ts": BASE + n / 7, "k": rng.choice("abc"), "x": rng.choice([1, 2, 5, 40, None])}
            for n in range(600)
        ]
        (folder / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "mean.py").write_text(MEAN)
    return folder


def rows_of(
    folder: Path, capsys: pytest.CaptureFixture[str], sql: str, text: str = MEAN
) -> tuple[int, list[dict[str, float]], str]:
    (folder / "mean.py").write_text(text)
    inputs = [part for number in range(3) for part in ("--input", str(folder / f"{number}.json"))]
    created = f"CREATE AGGREGATE geo FROM '{folder / 'mean.py'}'; "
    status, out, err = elf_run(capsys, *inputs, "--agents", "3", "--output", "json", "-q", created + sql)
    return status, [json.loads(line) for line in out.splitlines()], err


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, {}, COUNT(DISTINCT x) AS d FROM s GROUP BY k HAVING geo(x) > 1 ORDER BY geo(x) DESC "
        "WINDOWING 10 SECONDS, 20 SECONDS SLIDE 5 SECONDS, CUMULATE 30 SECONDS STEP 10 SECONDS, "
        "LANDMARK EVERY 15 SECONDS",
        "SELECT k, {}, COUNT(*) AS d FROM s WHERE x <> 5 GROUP BY k WINDOWING SESSION 1 SECONDS MAX 20 SECONDS",
        "SELECT k, {}, LAG(geo(x)) AS before, LAG(exp(AVG(ln(x)))) AS before_by_hand, COUNT(*) AS d FROM s "
        "GROUP BY k WINDOWING 20 SECONDS SLIDE 10 SECONDS",
        "CREATE JOB small AS SELECT k, {}, COUNT(*) AS d FROM s GROUP BY k WINDOWING 10 SECONDS; "
        "SELECT k, MAX(g) AS g, MAX(by_hand) AS by_hand, SUM(d) AS d FROM JOB small GROUP BY k "
        "WINDOWING 30 SECONDS",
        "SELECT {}, COUNT(*) AS d FROM s WINDOWING 250 ROWS",
        "SELECT k, MAX(g) AS g, MAX(by_hand) AS by_hand, SUM(d) AS d FROM (SELECT k, x AS of, {}, COUNT(*) AS d "
        "FROM s GROUP BY k, x) GROUP BY k WINDOWING 10 SECONDS TREES 2",
    ],
    ids=["many", "sessions", "lags", "jobs", "rows", "trees"],
)
def test_windows_of_all_kinds_are_what_built_in_aggregates_say(
    folder: Path, capsys: pytest.CaptureFixture[str], query: str
) -> None:
    both = f"geo(x) AS g, {BY_HAND} AS by_hand"
    status, rows, err = rows_of(folder, capsys, query.format(both))
    assert (status, err) == (0, "")
    assert len(rows) > 5
    for row in rows:
        assert math.isclose(row["g"], row["by_hand"], rel_tol=1e-9)
        if row.get("before") is not None:
            assert math.isclose(row["before"], row["before_by_hand"], rel_tol=1e-9)
    assert any(row.get("before", 1) is not None for row in rows)


def test_over_no_rows_and_with_a_filter_it_is_as_other_aggregates(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = f"SELECT geo(x) FILTER (WHERE k = 'a') AS g, {BY_HAND} FILTER (WHERE k = 'a') AS h, geo(x) FILTER (WHERE k = 'z') AS no FROM s"  # fmt: skip
    sql = sql.replace(f"{BY_HAND} FILTER (WHERE k = 'a')", "exp(AVG(CASE WHEN k = 'a' THEN ln(x) END))")
    status, (row,), err = rows_of(folder, capsys, sql)
    assert (status, err) == (0, "")
    assert row["no"] is None
    assert math.isclose(row["g"], row["h"], rel_tol=1e-9)


@pytest.mark.parametrize(
    ("text", "sql", "said"),
    [
        (
            OF_MEANS,
            "SELECT geo(x) FROM s",
            "mean.py: GeometricMean: merge() is not associative: of [",
        ),
        (MEAN, "SELECT geo(k) FROM s", "GEO takes a double here, and this is text; CAST it"),
        ("x = 1", "SELECT geo(x) FROM s", "mean.py must define one subclass of elf.paos.PAO"),
        (MEAN.replace("np.log", "np.lag"), "SELECT geo(x) FROM s", "has no attribute 'lag'"),
        (
            FAILS_AT_13,
            "SELECT geo(x + 8) FROM s",
            "mean.py: line 11: GeometricMean fails on rows of its types",
        ),
        (MEAN, "SELECT geo(x) FROM s GROUP BY ROLLUP (k)", "is not supported yet with GROUPING SETS"),
        (MEAN, "DROP AGGREGATE geo", "elf run answers one SELECT"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, sql: str, said: str
) -> None:
    status, rows, err = rows_of(folder, capsys, sql, text)
    assert (status, rows) == (1, [])
    assert said in err, err
    assert len(err.splitlines()) <= 3  # with a caret


@pytest.mark.parametrize(
    "name", ["count", "lower", "first_value", "grouping", "trim", "uniq", "cast", "rank"]
)
def test_a_name_of_the_language_is_taken(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    created = f"CREATE AGGREGATE {name} FROM '{folder / 'mean.py'}'; SELECT COUNT(*) FROM s"
    status, _, err = elf_run(capsys, "--input", str(folder / "0.json"), "-q", created)
    assert status == 1
    assert f"{name.upper()} is a word or a function of ELF-QL: choose another name" in err
