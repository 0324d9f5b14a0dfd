"""The benchmark: both sides do the same work, and the figures are what they say."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pytest

from elf.errors import ElfError, InputError
from elf.schema import Column, Schema
from lab.bench.duckdb_side import rows_sql
from lab.bench.ingest import Ingest, compare, figures, report
from lab.bench.measure import Run, Task
from lab.cli.generate import GenerateOptions, write

CLICKS = Schema(
    (
        Column("product", "text"),
        Column("clicks_count", "bigint"),
        Column("user.location", "text"),
        Column("created_at", "timestamp"),
    ),
    "created_at",
)
ACCESS = Schema(
    (
        Column("ts", "timestamp"),
        Column("cs_method", "text"),
        Column("cs_uri_stem", "text"),
        Column("cs_uri_query", "text"),
        Column("sc_status", "bigint"),
        Column("sc_bytes", "bigint"),
        Column("cs_user_agent", "text"),
    ),
    "ts",
)


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    return _generated(tmp_path / "clicks.jsonl", "clicks")


@pytest.fixture
def access(tmp_path: Path) -> Path:
    return _generated(tmp_path / "access.log", "access")


def _generated(path: Path, kind: Literal["clicks", "access"]) -> Path:
    write(GenerateOptions(kind, str(path), 3_000, 4, None, None, 100.0, "2026-01-01", 0.5, 0.01))
    return path


def query(path: Path, format: str, schema: Schema, pane_us: int, sql: str) -> list[tuple[Any, ...]]:
    rows = rows_sql(Task(str(path), format, ""), schema, schema.columns, pane_us)
    with duckdb.connect() as connection:
        return connection.execute(sql.replace("ROWS", f"({rows})")).fetchall()


def documents(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            document = json.loads(line.decode())
        except ValueError:
            continue
        if isinstance(document, dict):
            found.append(document)
    return found


def test_duckdb_reads_the_click_stream(clicks: Path) -> None:
    sql = 'SELECT "user.location", SUM(clicks_count)::BIGINT FROM ROWS GROUP BY 1'
    expected: Counter[object] = Counter()
    for document in documents(clicks):
        expected[document["user"]["location"]] += document["clicks_count"]
    assert dict(query(clicks, "json", CLICKS, 5_000_000, sql)) == dict(expected)


def test_duckdb_knows_the_panes(clicks: Path) -> None:
    counted = query(clicks, "json", CLICKS, 5_000_000, "SELECT _pane, count(*) FROM ROWS GROUP BY 1")
    panes = dict(counted)
    assert sum(panes.values()) == len(documents(clicks))
    assert sorted(panes) == list(range(min(panes), max(panes) + 1))
    assert min(panes) == 1_767_225_600 // 5 - 1


def test_duckdb_counts_lines_without_any_column(clicks: Path) -> None:
    for schema in (CLICKS, Schema(CLICKS.columns)):
        rows = rows_sql(Task(str(clicks), "json", ""), schema, (), 0)
        with duckdb.connect() as connection:
            (count,) = connection.execute(f"SELECT count(*) FROM ({rows})").fetchone() or (None,)
        assert count == len(documents(clicks))


def test_duckdb_reads_the_access_log(access: Path) -> None:
    sql = "SELECT sc_status, count(*), sum(sc_bytes), count(cs_method) FROM ROWS GROUP BY 1 ORDER BY 1"
    found = query(access, "combined", ACCESS, 0, sql)
    assert [row[0] for row in found][:2] == [200, 206]
    total = sum(int(str(row[1])) for row in found)
    assert 2_950 < total < 3_000
    methods = sum(int(str(row[3])) for row in found)
    assert total - 40 < methods < total


def test_figures_are_medians() -> None:
    runs = [Run(seconds, 2 * seconds, rss, 0, 0, 1) for seconds, rss in ((1.0, 5), (4.0, 9), (2.0, 7))]
    of = Run(1.0, 1.0, 1, 1_000, 50_000, 1)
    one = figures(runs, of)
    assert one == {
        "events_per_s": 500,
        "bytes_per_s": 25_000,
        "cores": 2.0,
        "peak_rss_bytes": 9,
        "seconds": 2.0,
    }
    said = report({"elf": one, "DuckDB": figures([Run(1.0, 1.0, 1, 0, 0, 1)], of)}, of, 3)
    assert said["ratio"] == 0.5
    assert said["events_per_s"] == 500


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Ingest(tmp_path / "none", "SELECT 1", repeat=1).perform(as_json=False)


def test_answers_are_compared_by_value() -> None:
    one = pa.table({"_pane": [1, 2], "k0": ["a", None], "s0": [1, 2], "s1": [0.1, None]})
    compare(one, one.take([1, 0]))
    compare(one, one.set_column(3, "s1", pa.array([0.1 + 1e-16, None])))
    for other in (one.slice(1), one.set_column(2, "s0", [[1, 3]]), one.set_column(3, "s1", [[0.1, 0.2]])):
        with pytest.raises(ElfError, match="differ"):
            compare(one, other)


def test_jobs_share_fragments(clicks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT product, COUNT(*) FROM * GROUP BY product"
    assert Ingest(clicks, query, repeat=1, jobs=4, distinct=2).perform(as_json=True) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["against_plain"] > 0


def test_a_side_reads_as_it_is_told(
    clicks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In other chunks, without the native reader, with an archive: the same answer."""
    asked: list[Task] = []

    def in_this_process(side: Callable[[Task], Run], task: Task) -> Run:
        asked.append(task)
        with monkeypatch.context() as patch:
            patch.setenv("ELF_NATIVE", "")
            run = side(task)
            assert os.environ["ELF_NATIVE"] == ("" if task.native else "off")
            return run

    monkeypatch.setattr("lab.bench.ingest.ask", in_this_process)
    bench = Ingest(
        clicks, "SELECT COUNT(*) AS n FROM x", repeat=1, chunk=1, without_native=True, archive=True
    )
    assert bench.perform(as_json=True) == 0
    assert "against_plain" in capsys.readouterr().out
    told = {(task.chunk_bytes, task.native, task.archive) for task in asked}
    assert told == {(1 << 20, False, True), (8 << 20, True, False)}
