"""Access-log lines of odd shapes, through ``elf run``: right, or counted and told, never wrong in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.run_command import elf_run

DATE = "[05/Mar/2026:10:11:12 +0100]"
TAIL = '200 10 "-" "UA"'
WHO = "SELECT cs_host, s_port, c_ip, cs_username, COUNT(*) AS n FROM log GROUP BY 1, 2, 3, 4"
WHAT = "SELECT cs_method, cs_uri_stem, cs_uri_query, cs_version, COUNT(*) AS n FROM log GROUP BY 1, 2, 3, 4"


def asked(capsys: pytest.CaptureFixture[str], path: Path, *args: str) -> tuple[list[list[object]], str]:
    """The rows, and what was said beside them."""
    status, out, err = elf_run(capsys, "--input", str(path), "--output", "json", *args)
    assert status == 0, err
    return sorted((list(json.loads(row).values()) for row in out.splitlines()), key=str), err


def test_two_formats_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fronts = [
        "a.example:443 192.0.2.5 - -",
        "a.example:443 192.0.2.5 - ann",
        "b.example 2001:db8::5 - Ann Lee",
        "192.0.2.6 - ann",
        "192.0.2.7, 198.51.100.3 - -",
        "192.0.2.8 198.51.100.3 - -",
        "192.0.2.8 - - ann",
    ]
    path = tmp_path / "access.log"
    path.write_text("\ufeff" + "".join(f'{front} {DATE} "GET / HTTP/1.1" {TAIL}\r\n' for front in fronts))
    rows, err = asked(capsys, path, "-q", WHO)
    assert rows == sorted(
        [
            ["a.example", 443, "192.0.2.5", None, 1],
            ["a.example", 443, "192.0.2.5", "ann", 1],
            ["b.example", None, "2001:db8::5", "Ann Lee", 1],
            [None, None, "192.0.2.6", "ann", 1],
            [None, None, "192.0.2.7", None, 1],
        ],
        key=str,
    )
    why = "they do not parse, or have no time"
    one = "one has more or less than client, identity and user before the date"
    assert err == f"elf: 2 of 7 lines rejected: {why} ({path}: 2); {one}\n"


def test_blanks_in_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = ["GET /a file.txt?x=y z HTTP/1.1", "GET /b  HTTP/1.1", "GET /c", r"\x16\x03", "-", ""]
    path = tmp_path / "access.log"
    path.write_text("".join(f'192.0.2.5 - - {DATE} "{request}" {TAIL}\n' for request in requests))
    rows, err = asked(capsys, path, "-q", WHAT)
    assert rows == sorted(
        [
            ["GET", "/a file.txt", "x=y z", "HTTP/1.1", 1],
            ["GET", "/b", None, "HTTP/1.1", 1],
            ["GET", "/c", None, None, 1],
            [None, None, None, None, 3],
        ],
        key=str,
    )
    assert err == ""


@pytest.mark.parametrize("agents", ["1", "2"])
def test_fields_behind_the_format_are_said_once(
    agents: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "access.log"
    line = f'192.0.2.5 - - {DATE} "GET / HTTP/1.1" {TAIL}'
    path.write_text(f'{line}\n{line} 0.012 "192.0.2.9"\n{line} 0.2 "-"\n')
    query = "SELECT extra_1, extra_2, COUNT(*) AS n FROM log GROUP BY 1, 2"
    rows, err = asked(capsys, path, "--agents", agents, "-q", query)
    assert rows == sorted([[None, None, 1], [0.012, "192.0.2.9", 1], [0.2, None, 1]], key=str)
    assert err == f"elf: 2 of 3 lines have more fields than their format; extra_1 … have them ({path}: 2)\n"
