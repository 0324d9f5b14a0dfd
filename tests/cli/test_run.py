"""``elf run`` and ``elf bench ingest`` as a person runs them, on generated logs, against DuckDB on the same
lines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from lab.cli.generate import GenerateOptions, write
from tests.support.commands import Here

TOP = (
    "SELECT product, SUM(clicks_count) AS clicks FROM clicks WHERE store == 'video_games' "
    "GROUP BY product ORDER BY clicks DESC LIMIT 3 WINDOWING 5 SECONDS"
)
ORACLE = """
    WITH rows AS (
        SELECT product, clicks_count, epoch_us(TRY_CAST(created_at AS TIMESTAMP)) // 5000000 * 5000 AS w
        FROM read_json($1, format='newline_delimited') WHERE store = 'video_games'
    )
    SELECT w, product, SUM(clicks_count)::BIGINT AS clicks FROM rows GROUP BY w, product
    QUALIFY row_number() OVER (PARTITION BY w ORDER BY clicks DESC, product) <= 3
    ORDER BY w, clicks DESC, product
"""


def elf(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "elf.cli.main", *args]
    env = {key: value for key, value in os.environ.items() if not key.startswith("ELF_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("logs")
    paths = [str(folder / f"shop {number}.jsonl") for number in range(3)]
    for seed, path in enumerate(paths):
        write(GenerateOptions("clicks", path, 4_000, seed, None, None, 200.0, "2026-01-01", 0.5, 0.0))
    return paths


def moment(ms: int) -> str:
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def test_windows_of_several_inputs_over_several_agents(logs: list[str], tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    done = elf(
        "run", "-q", TOP, "--input", *logs, "--agents", "3", "--output", "json", "--summary", str(summary)
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    with duckdb.connect() as connection:
        expected = connection.execute(ORACLE, [logs]).fetchall()
    assert [(row["window_start"], row["product"], row["clicks"]) for row in rows] == [
        (moment(start), product, clicks) for start, product, clicks in expected
    ]
    assert list(rows[0]) == ["window_start", "window_end", "product", "clicks"]
    facts = json.loads(summary.read_text())
    assert facts["rows_in"] == 12_000
    assert facts["bytes_in"] == sum(Path(path).stat().st_size for path in logs)
    assert set(facts) >= {"seconds", "windows", "peak_rss_bytes", "tree_depth", "messages", "bytes_sent"}


def test_one_result_over_everything_as_csv(logs: list[str], tmp_path: Path) -> None:
    query = tmp_path / "q.sql"
    query.write_text("SELECT COUNT(*) AS n, AVG(clicks_count) > 1 AS many\nFROM *;\n")
    done = elf("run", "-f", str(query), "--input", logs[0], "--output", "csv")
    assert (done.returncode, done.stdout, done.stderr) == (0, "n,many\n4000,true\n", "")


def test_status_rows(logs: list[str]) -> None:
    query = "SELECT COUNT(*) AS n FROM s WINDOWING 10 SECONDS"
    done = elf("run", "-q", query, "--stream", f"s={logs[0]}", "--status", "--output", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    counted = [line["n"] for line in lines if "n" in line]
    status = [line["status"]["rows_in"] for line in lines if "status" in line]
    assert counted == status
    assert sum(counted) == 4_000


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_reader_that_goes_ends_it_without_a_word(output: str, logs: list[str]) -> None:
    """Before it has read all: a pipe holds 64 KiB."""
    query = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 9 SECONDS SLIDE 1 SECONDS"
    words = ["run", "-q", query, "--input", *logs, "--output", output]
    with subprocess.Popen(
        [sys.executable, "-m", "elf.cli.main", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.read(100)
        run.stdout.close()
        assert run.stderr.read() == b""
        assert run.wait(60) == 1


def test_standard_input_and_pipes_are_read_like_files(logs: list[str], tmp_path: Path) -> None:
    query = "SELECT store, COUNT(*) AS n FROM clicks GROUP BY store"
    wanted = elf("run", "-q", query, "--input", logs[0], "--output", "csv")
    assert wanted.returncode == 0
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, out in (("-", subprocess.PIPE), (str(pipe), None)):
        command = [
            sys.executable,
            "-m",
            "elf.cli.main",
            "run",
            "-q",
            query,
            "--input",
            path,
            "--output",
            "csv",
        ]
        with subprocess.Popen(command, stdin=out, stdout=subprocess.PIPE, text=True) as run:
            if out is None:
                pipe.write_bytes(Path(logs[0]).read_bytes())
            got, _ = run.communicate(Path(logs[0]).read_text() if out else None, timeout=60)
        assert (run.returncode, got) == (0, wanted.stdout)


def test_standard_input_is_read_once(here: Here, logs: list[str]) -> None:
    done = here("run", "-q", TOP, "--input", "-", "--stream", "more=-")
    assert (done.returncode, done.stderr) == (1, "elf: standard input (-) can be read once\n")


@pytest.mark.parametrize("words", [(), ("bench",), ("sim",)])
def test_no_command_is_answered_with_those_there_are(words: tuple[str, ...]) -> None:
    done = elf(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == " ".join(["Usage: elf", *words, "[OPTIONS] COMMAND [ARGS]..."])
    assert len(done.stderr.splitlines()) > 5


def test_a_wrong_query_has_its_line_column_and_caret(here: Here, logs: list[str]) -> None:
    done = here("run", "-q", "SELECT produkt\nFROM clicks", "--input", logs[0])
    assert done.returncode == 1
    assert done.stdout == ""
    first, line, caret = done.stderr.splitlines()
    assert first.startswith("elf: ")
    assert "(line 1, column 8)" in first
    assert "product" in first
    assert (line, caret) == ("  SELECT produkt", "         ^")


def test_an_unknown_format_is_one_line(here: Here, logs: list[str]) -> None:
    done = here("run", "-q", TOP, "--input", logs[0], "--format", "jsn")
    assert done.returncode == 78
    assert done.stderr.startswith("elf: ")
    assert done.stderr.count("\n") == 1
    assert "json" in done.stderr


@pytest.mark.parametrize("as_json", [True, False])
def test_the_benchmark_says_how_fast(logs: list[str], as_json: bool) -> None:
    args = ["bench", "ingest", "--input", logs[0], "--query", TOP, "--repeat", "1"]
    done = elf(*args, *(["--json"] if as_json else []))
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    if not as_json:
        assert last.startswith("elf runs at ")
        return
    facts = json.loads(last)
    assert facts["events"] == 4_000
    assert facts["events_per_s"] > 0
    assert facts["bytes_per_s"] > facts["events_per_s"]
    assert facts["peak_rss_bytes"] > 10_000_000
    assert facts["ratio"] == pytest.approx(facts["events_per_s"] / facts["duckdb"]["events_per_s"], rel=0.01)


def test_the_benchmark_refuses_what_is_no_query(here: Here, logs: list[str]) -> None:
    done = here("bench", "ingest", "--input", logs[0], "--query", "SHOW JOBS")
    assert (done.returncode, done.stderr) == (1, "elf: the benchmark takes one SELECT\n")
