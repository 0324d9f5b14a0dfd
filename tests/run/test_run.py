"""``elf run`` over the bundled log, through its command line: exactly DuckDB's rows, with 1, 3 and 16
agents."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import duckdb
import pytest

from elf.errors import ElfBug
from elf.job.rollup.flowroots import FlowRoots
from elf.ql import planner
from tests.support.long import cases
from tests.support.run_command import elf_run, expected, same
from tests.support.run_oracle import SAMPLE, connect, rows
from tests.support.run_queries import QUERIES


@pytest.fixture(scope="module")
def log() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect()
    yield connection
    connection.close()


MANY_AGENTS = cases(
    (
        "top pages", "average size", "having", "first and last", "tumbling by key", "top of each window",
        "sliding by key, pane below the slide", "deviation", "last in sliding windows", "all and any",
        "visitors of sliding windows", "percentiles", "top methods of each status", "filters",
    ),
    tuple(QUERIES),
)  # fmt: skip
"""Sixteen agents, who merge in a tree, are asked for each way to merge: the rest of a query is as with
three."""


@pytest.mark.parametrize(
    ("name", "agents"),
    [(name, agents) for name in QUERIES for agents in (1, 3, 16) if agents < 16 or name in MANY_AGENTS],
)
def test_as_duckdb(
    name: str, agents: int, log: duckdb.DuckDBPyConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    query, oracle = QUERIES[name]
    status, out, err = elf_run(
        capsys, "-q", query, "--input", str(SAMPLE), "--agents", str(agents), "--output", "json"
    )
    assert status == 0, err
    got = [json.loads(line) for line in out.splitlines()]
    want = expected(log, oracle)
    assert [list(row) for row in got[:1]] == [list(row) for row in want[:1]]
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert all(same(mine[column], theirs[column]) for column in theirs), (mine, theirs)


@pytest.mark.parametrize(
    ("rest", "count", "said"),
    [
        ("LIMIT 3", 3, "the first 3 rows that match; reading ended there"),
        ("WHERE sc_status = 404 AND cs_uri_stem ~ '^/' LIMIT 1000", None, "all {} rows that match"),
    ],
)
def test_rows_without_groups(
    rest: str,
    count: int | None,
    said: str,
    log: duckdb.DuckDBPyConnection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first rows of the file, with expressions; and what they are."""
    query = f"SELECT *, sc_bytes // 2 AS half, _source FROM log {rest}"
    status, out, err = elf_run(capsys, "-q", query, "--input", str(SAMPLE), "--output", "json")
    assert status == 0
    got = [json.loads(line) for line in out.splitlines()]
    want = expected(
        log,
        f"SELECT sc_bytes // 2 AS half, c_ip FROM log {rest.replace('~', 'SIMILAR TO').replace('^/', '/.*')}",
    )
    assert err.startswith(f"elf: {said.format(len(want))}; ")
    assert err.endswith(" of the lines that were read do not parse\n")
    assert len(got) == (count or len(want))
    assert [(row["half"], row["c_ip"]) for row in got] == [(row["half"], row["c_ip"]) for row in want]
    assert {row["_source"] for row in got} == {str(SAMPLE)}
    assert list(got[0])[-2:] == ["half", "_source"]


def test_the_same_with_more_trees(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a flow of its own, with a root on some agent."""
    query = (
        "SELECT sc_status, COUNT(DISTINCT c_ip) AS ips, COUNT(*) AS n FROM log GROUP BY sc_status "
        "ORDER BY n DESC WINDOWING 20 MINUTES SLIDE 10 MINUTES"
    )
    told = []
    for trees in (1, 5):
        args = ("-q", f"{query} TREES {trees}", "--input", str(SAMPLE), "--agents", "3")
        status, out, err = elf_run(capsys, *args, "--output", "json", "--status")
        assert status == 0, err
        told.append(out)
    assert told[0].count("\n") > 3
    assert told[0] == told[1]


def test_status_and_summary_tell_what_was_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    status, out, _ = elf_run(
        capsys, "-q", "SELECT COUNT(*) AS n FROM log", "--input", str(SAMPLE), "--agents", "3",
        "--output", "json", "--status", "--summary", str(summary),
    )  # fmt: skip
    assert status == 0
    lines = SAMPLE.read_bytes().count(b"\n")
    parsed = len(rows())
    said = [json.loads(line) for line in out.splitlines()]
    assert said[0] == {"n": parsed}
    told = said[1]["status"]
    assert (told["expected"], told["reported"], told["late"]) == (3, 3, 0)
    assert (told["rows_in"], told["rejected"]) == (parsed, lines - parsed)
    figures = json.loads(summary.read_text())
    assert figures["rows_in"] == lines
    assert figures["rows_rejected"] == lines - parsed
    assert figures["bytes_in"] == SAMPLE.stat().st_size
    assert figures["windows"] == 1
    assert figures["peak_rss_bytes"] > 0
    assert figures["seconds"] > 0
    assert figures["tree_depth"] >= 1
    assert figures["messages"] > 0


def test_lateness_decides_by_the_file_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A row is late when its own file had come further than its window's end plus the lateness before it."""
    times = [0, 5, 12, 8, 21, 11, 19, 30, 3]
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps({"ts": 1_700_000_000 + t, "v": t}) + "\n" for t in times))
    highest, kept = -1, []
    for t in times:
        if not (t // 10 + 1) * 10 + 1 <= highest:
            kept.append(t)
        highest = max(highest, t)
    want = {w: sum(t for t in kept if t // 10 == w) for w in sorted({t // 10 for t in kept})}
    for agents in ("1", "3"):
        status, out, err = elf_run(
            capsys, "-q", "SELECT SUM(v) AS s FROM rows WINDOWING 10 SECONDS LATENESS 1 SECOND",
            "--input", str(path), "--agents", agents, "--output", "json", "--status",
        )  # fmt: skip
        assert status == 0, err
        said = [json.loads(line) for line in out.splitlines()]
        assert [row["s"] for row in said if "s" in row] == list(want.values())
        assert sum(row["status"]["late"] for row in said if "status" in row) == len(times) - len(kept)


def test_without_lateness_nothing_is_late_however_disordered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(
        "".join(json.dumps({"ts": t, "v": 1}) + "\n" for t in (1_700_000_900, 1_600_000_000, 1_700_000_000))
    )
    status, out, _ = elf_run(
        capsys,
        "-q",
        "SELECT COUNT(*) AS n FROM x WINDOWING 1 MINUTE",
        "--input",
        str(path),
        "--output",
        "json",
    )
    assert status == 0
    assert [json.loads(line)["n"] for line in out.splitlines()] == [1, 1, 1]


def test_several_streams_and_gzip(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    zipped = tmp_path / "access.log.gz"
    zipped.write_bytes(gzip.compress(SAMPLE.read_bytes()))
    status, out, err = elf_run(
        capsys, "-q", "SELECT COUNT(*) AS n FROM web", "--stream", f"web={zipped}",
        "--stream", f"other={SAMPLE}", "--output", "json",
    )  # fmt: skip
    assert status == 0, err
    assert json.loads(out) == {"n": len(rows())}
    status, out, err = elf_run(
        capsys, "-q", "SELECT COUNT(*) AS n FROM *", "--stream", f"web={zipped}", "--stream", f"other={SAMPLE}",
        "--output", "csv",
    )  # fmt: skip
    assert out.splitlines() == ["n", str(2 * len(rows()))]


@pytest.mark.parametrize("agents", ["1", "3"])
def test_streams_of_different_formats_in_one_query(
    capsys: pytest.CaptureFixture[str], log: duckdb.DuckDBPyConnection, tmp_path: Path, agents: str
) -> None:
    times = [0, 5, 12, 31, 33, 64]
    (tmp_path / "a.json").write_text(
        "".join(json.dumps({"ts": 1_700_000_000 + t, "sc_status": t % 2, "n": t}) + "\n" for t in times)
    )
    query = "SELECT sc_status AS s, COUNT(*) AS k, SUM(n) AS n FROM a, web GROUP BY s ORDER BY s"
    status, out, err = elf_run(
        capsys, "-q", query, "--stream", f"web={SAMPLE}", "--stream", f"a={tmp_path / 'a.json'}", "--stream",
        f"not_this={SAMPLE}", "--output", "json", "--agents", agents,
    )  # fmt: skip
    assert status == 0, err
    found = {row["s"]: (row["k"], row["n"]) for row in map(json.loads, out.splitlines())}
    statuses = log.execute("SELECT sc_status, COUNT(*) FROM log GROUP BY 1").fetchall()
    assert found == {status: (count, None) for status, count in statuses} | {0: (3, 76), 1: (3, 69)}
    query = (
        "SELECT kind, COUNT(*) AS n, SUM(v) AS v FROM (SELECT 'slow' AS kind, n AS v FROM a WHERE n > 5 "
        "UNION ALL SELECT cs_method, sc_status FROM web) GROUP BY kind WINDOWING 20000 DAYS"
    )
    status, out, err = elf_run(
        capsys, "-q", query, "--stream", f"web={SAMPLE}", "--stream", f"a={tmp_path / 'a.json'}",
        "--output", "json", "--agents", agents,
    )  # fmt: skip
    assert status == 0, err
    by_kind = {row["kind"]: (row["n"], row["v"]) for row in map(json.loads, out.splitlines())}
    methods = log.execute("SELECT cs_method, COUNT(*), SUM(sc_status) FROM log GROUP BY 1").fetchall()
    assert by_kind == {"slow": (4, 140), **{method: (n, int(v)) for method, n, v in methods}}
    status, _, err = elf_run(capsys, "-q", "SELECT COUNT(*) FROM a, b", "--input", str(SAMPLE))
    assert "there is no stream a; streams: input (--stream NAME=PATH makes one)" in err


BAD = {
    "no such file": (["-q", "SELECT COUNT(*) FROM x", "--input", "/no/such/file"], "/no/such/file"),
    "unknown format": (
        ["-q", "SELECT COUNT(*) FROM x", "--input", str(SAMPLE), "--format", "combine"], 'did you mean "combined"?'
    ),
    "unknown column": (["-q", "SELECT cs_metod FROM x GROUP BY 1", "--input", str(SAMPLE)], "cs_method"),
    "no input": (["-q", "SELECT COUNT(*) FROM x"], "--input"),
    "no query": (["--input", str(SAMPLE)], "-q"),
    "no agents": (["-q", "SELECT COUNT(*) FROM x", "--input", str(SAMPLE), "--agents", "0"], "--agents"),
    "unknown stream": (
        ["-q", "SELECT COUNT(*) FROM z", "--stream", f"a={SAMPLE}", "--stream", f"b={SAMPLE}"], "streams: a, b"
    ),
    "two streams joined": (
        ["-q", "SELECT COUNT(*) FROM x JOIN y ON TRUE", "--stream", f"x={SAMPLE}", "--stream", f"y={SAMPLE}"],
        "any row of one stream could meet any row of the other: say which keys are equal",
    ),
    "a stream joined that is not there": (
        ["-q", "SELECT COUNT(*) FROM x JOIN y ON x.c_ip = y.c_ip", "--input", str(SAMPLE)], "there is no stream"
    ),
    "no such table": (
        ["-q", "SELECT COUNT(*) FROM x JOIN 'no.csv' AS y USING (a)", "--input", str(SAMPLE)],
        "no.csv cannot be read: no such file",
    ),
    "too many rows": (["-q", "SELECT * FROM x LIMIT 1001", "--input", str(SAMPLE)], "1,000 rows at most"),
    "raw rows": (["-q", "SELECT c_ip FROM x", "--input", str(SAMPLE)], "gives raw rows"),
    "two statements": (["-q", "SHOW JOBS", "--input", str(SAMPLE)], "SELECT"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_message(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    args, said = BAD[name]
    status, out, err = elf_run(capsys, *args)
    assert status != 0
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_bad_lines_are_counted_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    good = b'{"v": 1}\n'
    long = b'{"v": "' + b"x" * (10 << 20) + b'"}\n'
    path.write_bytes(good + b"\xff\xfe\n" + good + b'{"v": "a\x00b"}\n' + long + b"no json\n" + b"\n" + good)
    empty = tmp_path / "empty.json"
    empty.touch()
    status, out, err = elf_run(
        capsys, "-q", "SELECT COUNT(*) AS n FROM x", "--input", str(path), str(empty), "--format", "json",
        "--output", "json", "--status",
    )  # fmt: skip
    assert status == 0, err
    counted, told = (json.loads(line) for line in out.splitlines())
    assert counted == {"n": 3}
    assert told["status"]["rejected"] == 5


@pytest.mark.parametrize("windows", ["LANDMARK EVERY 10 SECONDS", "SESSION 10 SECONDS"])
def test_windows_that_no_row_begins_end_with_the_input(
    windows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sql = f"SELECT COUNT(*) AS n FROM x WHERE FALSE WINDOWING {windows}"
    status, out, err = elf_run(capsys, "-q", sql, "--input", str(SAMPLE))
    assert (status, out) == (0, "")
    assert err.count("\n") == 1  # of rejected lines


def test_an_aggregate_over_the_groups_of_no_rows_has_a_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "log.json"
    path.write_text('{"ts": "2026-01-01T00:00:00Z", "host": "a", "n": 1}\n')
    inner = "SELECT host, year(ts) AS y, MAX(n) AS most FROM log WHERE n = 2 GROUP BY 1, 2"
    by_day = "SELECT ts, last_day(ts) AS b FROM log WHERE n = 2 GROUP BY 1, 2 ORDER BY b - INTERVAL 1 MONTH"
    for sql, count in (
        (f"SELECT COUNT(*) AS n, MAX(upper(host)) AS h, SUM(y + most) AS s FROM ({inner}) AS g", 1),
        (f"SELECT DISTINCT COUNT(*) AS n, MAX(host) AS h, SUM(y) AS s FROM ({inner}) AS g", 1),
        (f"SELECT COUNT(*) AS n, MAX(y) AS h, NULL AS s FROM ({inner} HAVING month(MIN(ts)) = 1) AS g", 1),
        (f"SELECT COUNT(*) AS n, MAX(b) AS h, NULL AS s FROM ({by_day}) AS g", 1),
        (f"SELECT DISTINCT 0 AS n, NULL AS h FROM ({inner}) AS g", 0),
        (f"SELECT y, COUNT(*) AS n FROM ({inner}) AS g GROUP BY y", 0),
        (inner, 0),
    ):
        status, out, err = elf_run(capsys, "--input", str(path), "--output", "json", "-q", sql)
        assert (status, err) == (0, "")
        assert [json.loads(line) for line in out.splitlines()] == [{"n": 0, "h": None, "s": None}] * count


def test_an_agent_that_fails_inside_ends_the_run_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bug of ours while the outcome of work is handled must stop the agent, not leave it waiting for
    ever."""

    calls = []

    def broken(*_: object) -> NoReturn:
        calls.append(1)
        raise ElfBug("a bug that was planted")

    monkeypatch.setattr(FlowRoots, "committed", broken)
    log = tmp_path / "log.json"
    log.write_text('{"ts": "2026-01-01T00:00:01Z", "n": 1}\n')
    query = "SELECT COUNT(*) AS c FROM log"
    status, _, err = elf_run(capsys, "--input", str(log), "-q", query, "--agents", "2")
    assert status != 0
    assert "a bug that was planted" in err
    assert len(calls) == 1


def test_a_bug_in_a_statement_fails_that_statement_and_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> NoReturn:
        raise KeyError("planted")

    monkeypatch.setattr(planner, "plan_streams", broken)
    log = tmp_path / "log.json"
    log.write_text('{"ts": "2026-01-01T00:00:01Z", "n": 1}\n')
    status, _, err = elf_run(capsys, "--input", str(log), "-q", "SELECT COUNT(*) AS c FROM log")
    assert status != 0
    assert "this agent has a bug, its log has more: KeyError('planted')" in err
    assert "agent stops" not in err


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("GROUP BY v", "v,n"),
        ("GROUP BY v WINDOWING 10 SECONDS", "window_start,window_end,v,n"),
        ("GROUP BY v WINDOWING SESSION 10 SECONDS", "window_start,window_end,v,n"),
        ("GROUP BY v WINDOWING 7 ROWS", "window_start,window_end,window_source,window_number,v,n"),
        (
            "GROUP BY v ORDER BY n DESC LIMIT 3 APPROXIMATE WINDOWING 10 SECONDS",
            "window_start,window_end,v,n,error_bound",
        ),
    ],
)
def test_csv_has_its_header_without_rows_too(
    query: str, columns: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_text('{"ts": 1700000000, "v": 1}\n')
    for least in (0, 5):
        sql = f"SELECT v, COUNT(*) AS n FROM x WHERE v >= {least} {query}"
        status, out, err = elf_run(capsys, "-q", sql, "--input", str(path), "--output", "csv")
        assert (status, err) == (0, "")
        assert out.splitlines()[0] == columns
        assert len(out.splitlines()) == (2 if least == 0 else 1)
