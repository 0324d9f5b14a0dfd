"""What ``elf run`` answers beside queries, and what it says of what it was not meant to be asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.run_command import elf_run
from tests.support.run_oracle import SAMPLE

COUNT = "SELECT COUNT(*) AS n FROM log"


def test_describe_shows_the_columns_of_the_input_whatever_it_is_called(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("log", "input"):
        status, out, err = elf_run(
            capsys, "--input", str(SAMPLE), "-q", f"DESCRIBE {name}", "--output", "csv", "--column", "sc_bytes=double"
        )  # fmt: skip
        assert (status, err) == (0, "")
        assert out.splitlines()[:3] == ["column,type", "ts,timestamp", "c_ip,text"]
        assert "sc_bytes,double" in out
    streams = ("--stream", f"one={SAMPLE}", "--stream", f"two={SAMPLE}")
    assert elf_run(capsys, *streams, "-q", "DESCRIBE two")[0] == 0
    status, _, err = elf_run(capsys, *streams, "-q", "DESCRIBE three")
    assert (status, err.count("\n")) == (1, 1)
    assert "three" in err


def test_explain_shows_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = elf_run(capsys, "--input", str(SAMPLE), "-q", f"EXPLAIN {COUNT} WINDOWING 1 HOUR")
    assert (status, err) == (0, "")
    assert "windows  1 h" in out
    assert "map (DuckDB)" in out


def test_explain_offline_is_what_spark_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--input", str(SAMPLE), "-q", f"EXPLAIN OFFLINE {COUNT} WINDOWING 1 HOUR", "--output", "json")
    status, out, err = elf_run(capsys, *asked)
    assert (status, err) == (0, "")
    assert "pmod(r._ts, 3600000000L)" in json.loads(out)["offline"]
    status, out, err = elf_run(
        capsys, "--input", str(SAMPLE), "-q", f"EXPLAIN OFFLINE {COUNT} WINDOWING 5 ROWS"
    )
    assert (status, out) == (1, "")
    assert "only the live engine answers this query: where windows of rows began" in err


@pytest.mark.parametrize(
    "asked", ["SHOW JOBS", "SUBSCRIBE x", f"CREATE JOB a AS {COUNT}", f"{COUNT}; {COUNT}"]
)
def test_all_else_is_refused_in_a_line(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert elf_run(capsys, "--input", str(SAMPLE), "-q", asked) == (
        1,
        "",
        "elf: elf run answers one SELECT (after CREATE JOB for each job that it reads, and CREATE AGGREGATE), "
        "EXPLAIN SELECT or DESCRIBE; all other statements are for a fleet: elf sql\n",
    )


def test_a_time_that_no_line_has_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text('{"at":1700000000,"v":1}\n')
    for path, near in (
        (str(SAMPLE), "; columns: ts, c_ip"),
        (str(tmp_path / "a.json"), "; did you mean at?"),
    ):
        asked = (capsys, "--input", path, "-q", f"{COUNT} WINDOWING 1 HOUR", "--timestamp", "att")
        status, out, err = elf_run(*asked)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert err.startswith(f"elf: --timestamp att: the input has no column att{near}")
    args = ("--input", str(tmp_path / "a.json"), "-q", f"{COUNT} WINDOWING 1 HOUR", "--timestamp", "at")
    assert elf_run(capsys, *args)[0] == 0


def test_a_file_that_is_named_twice_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, link = tmp_path / "a.json", tmp_path / "b.json"
    path.write_text('{"v":1}\n')
    link.symlink_to(path)
    args = ("-q", COUNT, "--output", "csv", "--input", str(path))
    assert elf_run(capsys, *args, str(path)) == (
        0, "n\n2\n", f"elf: warning: the lines of {path} count twice: it is named twice\n"
    )  # fmt: skip
    assert elf_run(capsys, *args, str(link)) == (
        0, "n\n2\n", f"elf: warning: the lines of {link} count twice: it is the same file as {path}\n"
    )  # fmt: skip
