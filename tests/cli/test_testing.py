"""``elf test``: what passes, what fails and how that is shown, and what is no file of tests."""

from __future__ import annotations

import json
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from elf.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "access.test.yaml"
LINE = '10.0.0.{} - - [01/Jan/2026:12:0{}:05 +0000] "GET {} HTTP/1.1" {} 7 "-" "-"'
LINES = [LINE.format(1, 0, "/a", 200), LINE.format(2, 0, "/b", 500), LINE.format(1, 1, "/a", 200)]
COUNT = (
    "SELECT cs_uri_stem AS page, COUNT(*) AS n FROM access GROUP BY page ORDER BY page WINDOWING 1 MINUTES"
)


def elf_test(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["test", *args])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def written(folder: Path, **case: object) -> str:
    """A file with one test; JSON is YAML."""
    streams = {"access": {"format": "combined", "lines": "\n".join(LINES) + "\n"}}
    path = folder / "one.yaml"
    path.write_text(json.dumps({"streams": streams, "tests": {"one": {"query": COUNT, **case}}}))
    return str(path)


def expect(*windows: tuple[str, list[dict[str, object]]]) -> list[object]:
    return [{"start": f"2026-01-01T12:{minute}:00Z", "rows": rows} for minute, rows in windows]


MINUTE = "2026-01-01T12:00:00.000Z … 2026-01-01T12:01:00.000Z"
FIRST = ("00", [{"page": "/a", "n": 1}, {"page": "/b", "n": 1}])
SECOND = ("01", [{"page": "/a", "n": 1}])


def test_the_example_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    status, out, err = elf_test(capsys, str(EXAMPLE), "--junit", str(report))
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "5 passed"
    (suite,) = xml.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("5", "0")


@pytest.mark.parametrize(
    ("case", "where", "lines"),
    [
        (
            {"windows": expect(("00", [{"page": "/a", "n": 2}, {"page": "/b", "n": 1}]), SECOND)},
            f"window {MINUTE}",
            ['- {"page": "/a", "n": 2}', '+ {"page": "/a", "n": 1}'],
        ),
        (
            {"windows": expect(FIRST)},
            "window 2026-01-01T12:01:00.000Z … 2026-01-01T12:02:00.000Z was not expected",
            ['+ {"page": "/a", "n": 1}'],
        ),
        (
            {"windows": expect(FIRST, SECOND, ("05", [{"n": 1}]))},
            "window 2026-01-01T12:05:00.000Z did not come",
            ['- {"n": 1}'],
        ),
        (  # in the order that the query says
            {"windows": expect(("00", [*reversed(FIRST[1])]), SECOND)},
            f"window {MINUTE}",
            ['+ {"page": "/a", "n": 1}', '- {"page": "/a", "n": 1}'],
        ),
        (
            {"windows": expect(("00", [{"path": "/a"}]), SECOND)},
            f"window {MINUTE}: there is no column path; columns: page, n",
            [],
        ),
        ({"windows": expect(FIRST, SECOND), "rejected": ["x"]}, "rejected", ["- x"]),
        ({"windows": expect(FIRST, SECOND), "late": 2}, "late", ["- 2", "+ 0"]),
        ({"rows": []}, "rows: the query has windows: expect windows", []),
        ({"error": "unknown column"}, "error", ["- unknown column", "+ it was answered"]),
        ({"query": "SELECT nope FROM access", "rows": []}, "error", None),
        ({"streams": {"access": {"file": "nowhere.log"}}, "rows": []}, "error", None),
    ],
)
def test_what_differs_is_shown(
    case: dict[str, object],
    where: str,
    lines: list[str] | None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    status, out, _ = elf_test(capsys, written(tmp_path, **case), "--output", "json")
    told = json.loads(out)
    assert (status, told["passed"]) == (1, False)
    (found,) = told["differences"]
    assert found["where"] == where
    assert lines is None or found["lines"] == lines


def test_a_line_that_is_lost_fails_a_test_that_expects_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    streams = {"access": {"lines": f"{LINES[0]}\nno \x1b[31mline\n"}}
    file = written(tmp_path, streams=streams, windows=expect(("00", [{"n": 1}])))
    status, out, _ = elf_test(capsys, file)
    assert status == 1
    assert "    rejected\n      + no \\x1b[31mline   (no combined line" in out
    assert out.endswith("0 passed, 1 failed\n")


def test_streams_of_a_configuration_are_masked_as_its_agents_mask_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    stream = {"format": "combined", "include": ["/nowhere/*.log"], "mask": {"c_ip": "truncate"}}
    (tmp_path / "elf.yaml").write_text(json.dumps({"streams": {"access": stream}}))
    (tmp_path / "ips.sql").write_text(
        "CREATE JOB ips AS SELECT c_ip, COUNT(*) AS n FROM access GROUP BY c_ip"
    )
    (tmp_path / "a.log").write_text("\n".join([*LINES, "what is no line"]) + "\n")
    case = {"job": "ips.sql", "rows": [{"c_ip": "10.0.0.0", "n": 3}], "rejected": ["what is no line"]}
    tests = {"config": "elf.yaml", "streams": {"access": {"file": "a.log"}}, "tests": {"ips": case}}
    file = tmp_path / "tests.yaml"
    file.write_text(json.dumps(tests))
    status, out, err = elf_test(capsys, str(file))
    assert (status, err) == (0, ""), out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tests: {}", ": tests: there is none"),
        ("tests:\n  a:\n    qery: SELECT 1\n", ":2: a: object contains unknown field `qery`"),
        ("tests:\n  a:\n    query: SELECT 1\n", ":2: a: say what is expected: windows, rows"),
        ("tests:\n  a:\n    query: 3\n    rows: []\n", ":3: a.query: expected `str | null`, got `int`"),
        (
            "tests:\n  a: {query: q, rows: [{a: 1}, {b: 1}]}\n",
            ":2: a: the rows of a window must name the same",
        ),
        ("tests:\n  a: {query: q, rows: []}\n  a: {}\n", ":3: a stands here twice"),
        ('tests:\n  a: {query: q, error: ""}\n', ":2: a: error: say a part of the refusal"),
        (
            "streams:\n  x:\n    lins: a\ntests:\n  a: {query: q, rows: []}\n",
            ":2: streams.x: object contains unknown",
        ),
        (
            "streams:\n  x: {lines: a, file: b}\ntests:\n  a: {query: q, rows: []}\n",
            ":2: streams.x: give lines or file",
        ),
        ("config: [1]\ntests:\n  a: {query: q, rows: []}\n", ":1: "),
    ],
)
def test_what_is_no_file_of_tests_is_told_with_its_place(
    text: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    status, out, err = elf_test(capsys, str(path))
    assert (status, out) == (1, "")
    assert f"{path}{said}" in err
    assert len(err.splitlines()) == 1


def test_what_is_not_there_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, err = elf_test(capsys, str(tmp_path / "no.yaml"))
    assert (status, out, err) == (
        1,
        "",
        f"elf: {tmp_path / 'no.yaml'}: cannot be read: No such file or directory\n",
    )
    file = tmp_path / "bare.yaml"
    file.write_text("tests: {bare: {query: SELECT COUNT(*) AS n FROM access, rows: []}}")
    assert "no lines are given: streams.NAME.lines, or file" in elf_test(capsys, str(file))[1]


def test_only_some_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = elf_test(capsys, str(EXAMPLE), "--only", "no such")
    assert status == 1
    status, out, _ = elf_test(capsys, str(EXAMPLE), "--only", "one's own")
    assert (status, out.splitlines()[-1]) == (0, "1 passed")


def test_whole_numbers_stand_for_doubles_of_any_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    query = "SELECT SUM(1234567890123456.0) AS d, SUM(1234567890123456) AS n FROM access WINDOWING 1 DAYS"
    row = {"d": 3703703670370368, "n": 3703703670370368}
    for n, passes in ((0, True), (1, False)):
        expected = [{"start": "2026-01-01T00:00:00Z", "rows": [row | {"n": row["n"] + n}]}]
        status, out, _ = elf_test(capsys, written(tmp_path, query=query, windows=expected))
        assert (status == 0) == passes, out


def test_any_name_is_in_the_report_for_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, report = tmp_path / "one.yaml", tmp_path / "report.xml"
    case = {"query": COUNT, "error": "no such"}
    path.write_text(json.dumps({"tests": {"red \x1b[31m": case}}))
    assert elf_test(capsys, str(path), "--junit", str(report))[0] == 1
    (suite,) = xml.parse(report).getroot()
    assert suite[0].get("name") == "red \\x1b[31m"
