"""What ``elf run`` reads as a timestamp, value by value: as a declared column, in a CAST and as a
constant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.run_command import elf_run

READ = {
    # RFC 3339
    "2025-10-10T13:55:36Z": "2025-10-10T13:55:36.000Z",
    "2025-10-10t13:55:36z": "2025-10-10T13:55:36.000Z",
    "2025-10-10 13:55:36Z": "2025-10-10T13:55:36.000Z",
    "2025-10-10T13:55:36.1Z": "2025-10-10T13:55:36.100Z",
    "2025-10-10T13:55:36.12Z": "2025-10-10T13:55:36.120Z",
    "2025-10-10T13:55:36.123Z": "2025-10-10T13:55:36.123Z",
    "2025-10-10T13:55:36.123456Z": "2025-10-10T13:55:36.123456Z",
    "2025-10-10T13:55:36.1234567Z": "2025-10-10T13:55:36.123456Z",
    "2025-10-10T13:55:36.123456789Z": "2025-10-10T13:55:36.123456Z",
    "2025-10-10T13:55:36.1234567899999Z": "2025-10-10T13:55:36.123456Z",
    "2025-10-10T13:55:36+00:00": "2025-10-10T13:55:36.000Z",
    "2025-10-10T13:55:36-00:00": "2025-10-10T13:55:36.000Z",
    "2025-10-10T00:30:00+02:00": "2025-10-09T22:30:00.000Z",
    "2025-10-10T23:30:00-09:30": "2025-10-11T09:00:00.000Z",
    "2025-10-10T00:00:00+14:00": "2025-10-09T10:00:00.000Z",
    "2025-10-10T00:00:00+18:01": "2025-10-09T05:59:00.000Z",
    "2025-10-10T00:00:00+23:59": "2025-10-09T00:01:00.000Z",
    "2024-02-29T00:00:00Z": "2024-02-29T00:00:00.000Z",
    "1969-12-31T23:59:59.999999Z": "1969-12-31T23:59:59.999999Z",
    # leap seconds and ends of days
    "2016-12-31T23:59:60Z": "2017-01-01T00:00:00.000Z",
    "2016-12-31T23:59:60.5Z": "2017-01-01T00:00:00.500Z",
    "2016-12-31T15:59:60-08:00": "2017-01-01T00:00:00.000Z",
    "2017-01-01T05:29:60+05:30": "2017-01-01T00:00:00.000Z",
    "2025-10-10T24:00:00Z": "2025-10-11T00:00:00.000Z",
    "2025-10-10T24:00": "2025-10-11T00:00:00.000Z",
    # years
    "0001-01-01T00:00:00Z": "0001-01-01T00:00:00.000Z",
    "0999-12-31T00:00:00Z": "0999-12-31T00:00:00.000Z",
    "1582-10-10T00:00:00Z": "1582-10-10T00:00:00.000Z",
    "3000-01-01T00:00:00Z": "3000-01-01T00:00:00.000Z",
    "9999-12-31T23:59:59.999999Z": "9999-12-31T23:59:59.999999Z",
    # what is commonly written
    "2025-10-10": "2025-10-10T00:00:00.000Z",
    "2025-10-10T13:55": "2025-10-10T13:55:00.000Z",
    "2025-10-10 13:55:36": "2025-10-10T13:55:36.000Z",
    "2025-10-10 13:55:36,771": "2025-10-10T13:55:36.771Z",
    "2025-10-10 13:55:36 UTC": "2025-10-10T13:55:36.000Z",
    "2025-10-10 13:55:36 GMT": "2025-10-10T13:55:36.000Z",
    "2025-10-10 13:55:36 Z": "2025-10-10T13:55:36.000Z",
    "2025-10-10 13:55:36 +0200": "2025-10-10T11:55:36.000Z",
    "2025-10-10T13:55:36+02": "2025-10-10T11:55:36.000Z",
    " 2025-10-10T13:55:36Z\t": "2025-10-10T13:55:36.000Z",
    # logs
    "10/Oct/2025:13:55:36 +0000": "2025-10-10T13:55:36.000Z",
    "[10/Oct/2025:13:55:36 -0700]": "2025-10-10T20:55:36.000Z",
    "31/Dec/2016:23:59:60 +0000": "2017-01-01T00:00:00.000Z",
    # numbers
    "0": "1970-01-01T00:00:00.000Z",
    "-1": "1969-12-31T23:59:59.000Z",
    "1760104536": "2025-10-10T13:55:36.000Z",
    "1760104536.25": "2025-10-10T13:55:36.250Z",
    "1760104536771": "2025-10-10T13:55:36.771Z",
    "1760104536771001": "2025-10-10T13:55:36.771001Z",
}
UNREAD = (
    "", "soon", "-", "now", "13:55:36", "2025-10", "2025-10-10Z", "2025-13-01", "2025-02-29", "2025-09-31T00:00:00Z",
    "2025-10-10T24:00:01Z", "2025-10-10T25:00:00Z", "2025-10-10T12:60:00Z", "2025-10-10T12:00:60Z",
    "2025-10-10T23:59:61Z", "2025-10-10T23:59:60-08:00", "2025-10-10T00:00:00+24:00", "2025-10-10T00:00:00+02:60",
    "2025-10-10T00:00:00.Z", "2025-10-10T00:00:00 CET", "2025-10-10  00:00:00", "2025-1-1", "0000-01-01", "10000-01-01",
    "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:60Z", "30/Feb/2025:00:00:00 +0000", "10/oct/2025:00:00:00 +0000",
    "[10/Oct/2025:13:55:36 +0000", "10/Oct/2025:24:00:00 +0000", "100000000000000000", "1e999", "+-1", "0x10",
)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "times.json"
    path.write_text("".join(json.dumps({"k": text, "d": text}) + "\n" for text in [*READ, *UNREAD]))
    return str(path)


def rows(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[list[dict[str, object]], str]:
    status, out, err = elf_run(capsys, *args, "--output", "json")
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()], err


def test_a_cast_and_a_declared_column_read_the_same(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(READ) + len(UNREAD) >= 60
    expected = {**READ, **dict.fromkeys(UNREAD)}
    query = "SELECT k, {} AS t, COUNT(*) AS n FROM log GROUP BY 1, 2 LIMIT 1000"
    cast, said = rows(capsys, "--input", log, "-q", query.format("CAST(d AS TIMESTAMP)"))
    assert {row["k"]: row["t"] for row in cast} == expected
    assert said == ""
    column, said = rows(capsys, "--input", log, "--column", "d=timestamp", "-q", query.format("d"))
    assert {row["k"]: row["t"] for row in column} == expected
    assert f"{len(UNREAD)} values are NULL" in said


def test_a_constant_reads_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"k": 1}\n')
    texts = {f"c{number}": text for number, text in enumerate(READ)}
    items = ", ".join(f"TIMESTAMP '{text}' AS {name}" for name, text in texts.items())
    ((found,), _) = rows(capsys, "--input", str(path), "-q", f"SELECT {items}, COUNT(*) AS n FROM log")
    assert {texts[name]: found[name] for name in texts} == READ
    for text in UNREAD:
        status, _, said = elf_run(
            capsys,
            "--input",
            str(path),
            "-q",
            f"SELECT COUNT(*) AS n FROM log WHERE TIMESTAMP '{text}' IS NULL",
        )
        assert status != 0, text
        assert "is not a timestamp" in said


def test_a_constant_beside_a_column_has_an_offset(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT COUNT(*) AS n FROM log WHERE d = '2025-10-10T15:55:36+02:00'"
    found, _ = rows(capsys, "--input", log, "--column", "d=timestamp", "-q", query)
    assert found == [{"n": sum(moment == "2025-10-10T13:55:36.000Z" for moment in READ.values())}]


def test_windows_of_the_first_and_the_last_year_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their bounds could not be written; the lines are counted as those without a time."""
    path = tmp_path / "ends.json"
    times = ("0001-01-01", "0002-06-01", "2025-10-10", "9998-06-01", "9999-12-31T23:59:59Z")
    path.write_text("".join(json.dumps({"ts": text}) + "\n" for text in times))
    for windows in ("7 DAYS", "SESSION 1 HOUR", "300 DAYS"):
        query = f"SELECT COUNT(*) AS n FROM log WINDOWING {windows}"
        found, said = rows(capsys, "--input", str(path), "-q", query)
        assert [row["n"] for row in found] == [1, 1, 1]
        assert "2 " in said
