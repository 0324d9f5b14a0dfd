"""``elf run`` where no row is counted: SQL gives the empty grouping set its one row there too, as DuckDB
shows."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from tests.support.run_command import elf_run

LINE = '{"ts":"2025-10-10T00:00:00Z","k":"a","v":1}\n'
TOTALS = (
    "ROLLUP (k)",
    "CUBE (k, v)",
    "GROUPING SETS ((k), ())",
    "GROUPING SETS (())",
    "GROUPING SETS ((), (k), ())",
    "ROLLUP (k), ROLLUP (v)",
    "()",
    "k",
    "GROUPING SETS ((k), (v))",
)
AFTER = ("", "HAVING COUNT(*) = 0", "HAVING COUNT(*) > 0", "ORDER BY n DESC LIMIT 1", "LIMIT 0")


@pytest.mark.parametrize("group", TOTALS)
def test_the_grand_total_is_that_of_duckdb(
    group: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text(LINE)
    table = "(SELECT 'a' AS k, 1 AS v) AS log"
    for after in AFTER if group == TOTALS[0] else AFTER[:1]:
        sql = "SELECT COUNT(*) AS n, SUM(v) AS s, COUNT(DISTINCT v) AS d FROM {} WHERE v > 100 GROUP BY {} {}"
        wanted = duckdb.execute(sql.format(table, group, after)).fetchall()
        status, out, err = elf_run(
            capsys, "--input", str(tmp_path / "a.json"), "--agents", "2", "--output", "json", "-q", sql.format("log", group, after)
        )  # fmt: skip
        assert (status, err) == (0, "")
        assert [tuple(json.loads(line).values()) for line in out.splitlines()] == wanted


def test_windows_without_rows_have_no_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As COUNT(*) alone has none there: a window is a key of every grouping set."""
    (tmp_path / "a.json").write_text(LINE)
    for group in ("", "GROUP BY ROLLUP (k)", "GROUP BY GROUPING SETS ((), ())"):
        sql = f"SELECT COUNT(*) AS n FROM log WHERE v > 100 {group} WINDOWING 10 SECONDS"
        assert elf_run(capsys, "--input", str(tmp_path / "a.json"), "--output", "json", "-q", sql) == (
            0,
            "",
            "",
        )
