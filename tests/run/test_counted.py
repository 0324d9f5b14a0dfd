"""Windows of rows in ``elf run``: DuckDB numbers the lines of each file; the same with 1 and 3 agents."""

from __future__ import annotations

import json
import random
from pathlib import Path

import duckdb
import pytest

from tests.support.run_command import elf_run

SIZE = 40
NUMBERED = f"""
SELECT *, file AS window_source, (ROW_NUMBER() OVER (PARTITION BY file ORDER BY place) - 1) // {SIZE} + 1 AS
window_number FROM lines WHERE ts IS NOT NULL
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, in no order of time, with lines that have none."""
    folder, rng = tmp_path_factory.mktemp("counted"), random.Random(5)
    for name, count in (("a", 330), ("b", 90), ("c", 3)):
        lines = [
            {"ts": rng.choice([None, *[1_700_000_000 + rng.randrange(900)] * 9]), "host": rng.choice("xyz"),
             "n": rng.randrange(50), "ok": rng.random() < 0.7}
            for _ in range(count)
        ]  # fmt: skip
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "hosts.csv").write_text("host,city\nx,Oslo\ny,Bonn\n")
    return folder


@pytest.fixture(scope="module")
def lines(folder: Path) -> duckdb.DuckDBPyConnection:
    """Read in DuckDB, with file and place."""
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE lines (file VARCHAR, place BIGINT, ts BIGINT, host VARCHAR, n BIGINT, ok BOOLEAN)"
    )
    for path in sorted(folder.glob("*.jsonl")):
        found = [json.loads(line) for line in path.read_text().splitlines()]
        for place, one in enumerate(found):
            row = [str(path), place, one["ts"], one["host"], one["n"], one["ok"]]
            connection.execute("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?)", row)
    return connection


@pytest.mark.parametrize(
    ("query", "oracle"),
    [
        (
            f"SELECT host, COUNT(*) AS c, SUM(n) AS s, COUNT(DISTINCT n) AS d FROM log WHERE ok GROUP BY host "
            f"ORDER BY s DESC LIMIT 2 WINDOWING {SIZE} ROWS",
            f"SELECT window_source, window_number, host, count(*) AS c, sum(n) AS s, count(DISTINCT n) AS d FROM "
            f"({NUMBERED} AND ok) GROUP BY 1, 2, 3 QUALIFY row_number() OVER (PARTITION BY window_source, "
            f"window_number ORDER BY s DESC, host) <= 2 ORDER BY window_source, window_number, s DESC, host",
        ),
        (
            "SELECT COUNT(*) AS hosts, MAX(c) AS most FROM (SELECT host, COUNT(*) AS c FROM log GROUP BY host) "
            f"WINDOW TUMBLING (SIZE {SIZE} ROWS)",
            "SELECT window_source, window_number, count(*) AS hosts, max(c) AS most FROM (SELECT window_source, "
            f"window_number, host, count(*) AS c FROM ({NUMBERED}) GROUP BY ALL) GROUP BY ALL ORDER BY ALL",
        ),
        (
            "SELECT city, COUNT(*) AS c FROM log JOIN '{folder}/hosts.csv' AS h ON log.host = h.host "
            f"GROUP BY city WINDOWING {SIZE} ROWS",
            "SELECT window_source, window_number, CASE host WHEN 'x' THEN 'Oslo' ELSE 'Bonn' END AS city, "
            f"count(*) AS c FROM ({NUMBERED} AND host <> 'z') GROUP BY ALL ORDER BY ALL",
        ),
    ],
)  # fmt: skip
def test_as_duckdb_numbers_the_lines(
    query: str,
    oracle: str,
    folder: Path,
    lines: duckdb.DuckDBPyConnection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cursor = lines.execute(oracle)
    names = [column[0] for column in cursor.description]
    wanted = [dict(zip(names, map(int_of, row), strict=True)) for row in cursor.fetchall()]
    inputs = [part for path in sorted(folder.glob("*.jsonl")) for part in ("--input", str(path))]
    told = []
    for agents in ("1", "3"):
        args = ("-q", query.replace("{folder}", str(folder)), *inputs, "--agents", agents, "--output", "json")
        status, out, err = elf_run(capsys, *args)
        assert status == 0, err
        told.append([json.loads(line) for line in out.splitlines()])
    assert told[0] == told[1]
    seconds = [(row.pop("window_start"), row.pop("window_end")) for row in told[0]]
    assert seconds == sorted(seconds)  # those in which the windows were full
    found = sorted(told[0], key=lambda row: (row["window_source"], row["window_number"]))
    assert found == wanted


def int_of(value: object) -> object:
    return value if isinstance(value, str) else int(str(value))
