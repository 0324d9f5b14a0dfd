"""What ``elf run`` says of lines that it could not read, and of files."""

from __future__ import annotations

import json

import pytest

from tests.run.test_run import elf_run


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
        status, out, _ = elf_run(capsys, *args, "--output", "json", "--status")
        assert (status, out) == (0, "")
