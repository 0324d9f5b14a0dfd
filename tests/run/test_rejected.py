"""What ``elf run`` says of lines that it could not read, and of files."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.files import zstd
from tests.support.run_command import elf_run
from tests.support.run_oracle import SAMPLE

COUNT = "SELECT COUNT(*) AS n FROM log"
CUT = "(compressed file ended before the end-of-stream marker was reached)"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """More junk than a chunk takes before the first row, and a file of nothing else."""
    folder = tmp_path_factory.mktemp("rejected")
    junk = [f"junk {number:040d}\n" for number in range(8_000)]
    good = [json.dumps({"ts": 1_700_000_000 + number, "v": number}) + "\n" for number in range(40)]
    (folder / "a.json").write_text("".join([*junk, *good, *junk[:3]]))
    (folder / "b.json").write_text("".join(junk[:500]))
    return str(folder / "a.json"), str(folder / "b.json")


@pytest.mark.parametrize("agents", ["1", "2"])
@pytest.mark.parametrize("windows", ["10 SECONDS", "20 ROWS", "SESSION 10 SECONDS", ""])
def test_lines_before_the_first_row_count_in_the_first_window(
    windows: str, agents: str, logs: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT COUNT(*) AS n FROM log" + (f" WINDOWING {windows}" if windows else "")
    inputs = [part for path in logs for part in ("--input", path)]
    args = ("-q", query, *inputs, "--format", "json", "--agents", agents, "--output", "json", "--status")
    status, out, _ = elf_run(capsys, *args)
    assert status == 0
    said = [json.loads(line) for line in out.splitlines()]
    assert sum(row["n"] for row in said if "n" in row) == 40
    told = [row["status"] for row in said if "status" in row]
    assert {one["window_start"][:16] for one in told if "window_start" in one} <= {"2023-11-14T22:13"}
    assert told[0]["rejected"] >= 8_500
    assert sum(one["rejected"] for one in told) == 8_503


def test_no_row_at_all_makes_no_window(logs: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT COUNT(*) AS n FROM log WINDOWING 10 SECONDS"
    for agents in ("1", "2"):
        args = ("-q", query, "--input", logs[1], "--format", "combined", "--agents", agents)
        status, out, err = elf_run(capsys, *args, "--output", "json", "--status")
        assert (status, out) == (1, "")
        assert err == (
            "elf: nothing was read: all 500 lines are rejected; they are not of the format (--format), "
            "or have no time (--timestamp COLUMN); one has no date, such as [10/Oct/2000:13:55:36 -0700], before "
            "the request\n"
        )


def test_how_many_lines_were_rejected_of_which_files_is_said_once(
    logs: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = logs
    inputs = ("-q", COUNT, "--input", a, "--input", b)
    for agents in ("1", "3"):
        status, _, err = elf_run(capsys, *inputs, "--format", "json", "--agents", agents)
        assert status == 0
        lost = "8,503 of 8,543 lines rejected: they do not parse, or have no time"
        assert err == f"elf: {lost} ({a}: 8,003, {b}: 500)\n"
    paths = [tmp_path / f"{number}.json" for number in range(5)]
    for path in paths:
        path.write_text('{"ts": 1700000000}\n{"ts": 1700000001}\nno\n')
    given = [part for path in paths for part in ("--input", str(path))]
    status, _, err = elf_run(capsys, "-q", COUNT, *given)
    assert (status, err[:29]) == (0, "elf: 5 of 15 lines rejected: ")
    assert err.endswith(f"({', '.join(f'{path}: 1' for path in paths[:3])} and 2 more)\n")
    paths[0].write_text('{"ts": 1700000000}\n')
    assert elf_run(capsys, "-q", COUNT, "--input", str(paths[0]))[2] == ""


def test_standard_input_has_no_path() -> None:
    command = [sys.executable, "-m", "elf.cli.main", "run", "-q", COUNT, "--input", "-"]
    text = '{"ts": 1700000000}\n{"ts": 1700000001}\nno\n'
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.endswith("(standard input: 1)\n")


@pytest.mark.parametrize("agents", ["1", "2"])
def test_a_cut_gzip_gives_the_rows_before_and_fails(
    agents: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(1)
    text = "".join(json.dumps({"ts": 1_700_000_000 + n, "v": rng.random()}) + "\n" for n in range(3_000))
    packed, path = gzip.compress(text.encode()), tmp_path / "a.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    args = ("-q", COUNT, "--input", str(path), "--agents", agents, "--output", "json")
    status, out, err = elf_run(capsys, *args)
    assert status == 1
    assert 1_000 < json.loads(out)["n"] < 2_000
    lacks = "the answer lacks what follows: copy it again, or leave it out"
    assert err == f"elf: not read to the end: {path} {CUT}; {lacks}\n"


@pytest.mark.parametrize("format_", [(), ("--format", "combined")])
@pytest.mark.parametrize("pack", [lzma.compress, bz2.compress, zstd])
def test_other_compression_is_read_too(
    pack: Callable[[bytes], bytes],
    format_: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "access.log.z"
    path.write_bytes(pack(SAMPLE.read_bytes()))
    status, out, _ = elf_run(capsys, "-q", COUNT, "--input", str(path), *format_, "--output", "json")
    assert (status, json.loads(out)) == (0, {"n": 1_488})


def test_what_has_no_line_of_text_is_refused_and_what_is_empty_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a"
    for content in (b"\xff\xfe\n" * 50, b"\0" * 5_000):
        path.write_bytes(content)
        status, out, err = elf_run(capsys, "-q", COUNT, "--input", str(path))
        assert (status, out) == (1, "")
        assert err == "elf: cannot read the input: where it was looked at, no line of it is text (UTF-8)\n"
    for content in (b"", b"\n\n", gzip.compress(b"")):
        path.write_bytes(content)
        status, out, _ = elf_run(capsys, "-q", COUNT, "--input", str(path), "--output", "json")
        assert (status, out) == (0, '{"n":0}\n')
    path.write_bytes(os.urandom(50_000))
    assert elf_run(capsys, "-q", COUNT, "--input", str(path))[0] == 1
    path.write_text("no\n")
    status, _, err = elf_run(capsys, "-q", COUNT, "--input", str(path), "--format", "json")
    assert (status, err) == (1, "elf: no line of the input is of format json, where it was looked at\n")


def test_lines_that_are_late_and_values_that_do_not_fit_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [json.dumps({"ts": 1_700_000_000 + number // 5, "v": 1}) for number in range(300_000)]
    late = [json.dumps({"ts": 1_700_000_000, "v": 1})] * 3
    odd = [json.dumps({"ts": 1_700_014_950, "v": 1.5})] * 7  # in no place where it is looked at
    (tmp_path / "a.json").write_text("\n".join([*whole[:74_750], *odd, *whole[74_750:], *late]))
    query = "SELECT COUNT(*) AS n, SUM(v) AS s FROM log WINDOWING 1 HOUR LATENESS 1 SECONDS"
    status, _, told = elf_run(capsys, "--input", str(tmp_path / "a.json"), "-q", query)
    assert status == 0
    assert told.splitlines() == [
        "elf: 3 of 300,010 lines are in no window: they came later than LATENESS allows",
        "elf: 7 values are NULL: they are not of their column's type (v bigint); "
        "--column NAME=TYPE declares another",
    ]
    status, out, told = elf_run(
        capsys, "--input", str(tmp_path / "a.json"), "-q", query, "--column", "v=double"
    )
    assert (status, told.count("\n")) == (0, 1)  # of the late lines
    assert "300,010.5" not in out


def test_a_column_that_shows_its_fractions_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is looked at all over each file, and in each of them."""
    rows = [json.dumps({"v": number + (0.5 if number >= 12_000 else 0)}) for number in range(20_000)]
    (tmp_path / "a.json").write_text("\n".join([*rows[:5_000], *rows[12_000:12_010], *rows[5_000:12_000]]))
    (tmp_path / "b.json").write_text("\n".join(rows[:10]))
    paths = ("--input", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    args = (*paths, "-q", "SELECT COUNT(v) AS n, SUM(v) AS s FROM log", "--output", "csv")
    status, out, told = elf_run(capsys, *args)
    assert (status, told) == (0, "")
    total = 12_000 * 11_999 / 2 + sum(range(12_000, 12_010)) + 5 + 45
    assert out == f"n,s\n12020,{total}\n"


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("v", "--column wants NAME=TYPE, not 'v'"),
        ("v=float", "--column v=float: there is no type 'float'; types: bigint, double, text, boolean, timestamp"),
        ("ts=text", "--column ts=text: it is the time of the lines, a timestamp; --timestamp COLUMN names another "
         "column for that"),
    ],
)  # fmt: skip
def test_what_is_declared_wrongly(
    column: str, said: str, logs: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--input", logs[0], "--format", "json", "-q", COUNT, "--column", column)
    assert elf_run(capsys, *args) == (1, "", f"elf: {said}\n")


def test_declared_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of any type, whether a sample has them or not; access logs have theirs."""
    path = tmp_path / "a.json"
    path.write_text('{"v":1,"at":"2026-01-01T00:00:00Z"}\n{"v":2,"at":"2026-01-02T00:00:00Z"}\n')
    query = "SELECT MAX(v) AS v, MAX(at) AS at, SUM(rare) AS rare FROM log"
    kinds = ("--column", "v=text", "--column", "at=TIMESTAMP", "--column", "rare=double")
    status, out, told = elf_run(capsys, "--input", str(path), "-q", query, *kinds, "--output", "json")
    assert (status, told) == (0, "")
    assert json.loads(out) == {"v": "2", "at": "2026-01-02T00:00:00.000Z", "rare": None}
    status, out, told = elf_run(capsys, "--input", str(SAMPLE), "-q", COUNT, "--column", "sc_statu=text")
    assert (status, out) == (1, "")
    assert told == "elf: --column sc_statu=text: the input has no column sc_statu; did you mean sc_status?\n"


def test_a_format_that_is_not_the_inputs(
    logs: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.json").write_text('{"v":1}\n' * 50)
    said = "elf: hardly any line of the input is of format {}, where it was looked at; it looks like {} (--format {})\n"
    args = ("-q", COUNT, "--output", "csv", "--input")
    wrong = elf_run(capsys, *args, str(tmp_path / "a.json"), "--format", "combined")
    assert wrong == (1, "", said.format("combined", "json", "json"))
    wrong = elf_run(capsys, *args, str(SAMPLE), "--format", "json")
    assert wrong == (1, "", said.format("json", "combined", "combined"))
    status, out, told = elf_run(capsys, *args, str(SAMPLE), "--format", "common")
    assert (status, out.splitlines()[0]) == (0, "n")
    more = "elf: the lines have more fields than format common takes: they look like combined (--format combined)"
    assert told.splitlines()[0] == more
