"""What ``elf run`` says of what it cannot do: what is wrong, where, and the way out, once."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path

import pytest

from agents import logs
from agents.run import Fleet
from agents.runinputs import Asked, RunRequest, streams_of
from elf.client.windows import split
from elf.wire.clients import WindowResult
from tests.support.run_command import elf_run
from tests.support.run_oracle import SAMPLE

MIXED = (
    '{"ts":"2025-10-10T00:00:00Z","Id":1,"id":"x","d":"2025-10-10 01:00:00","user":{"Name":"A","name":"b"}}\n'
)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.json"
    path.write_text(MIXED * 3)
    return path


def refused(capsys: pytest.CaptureFixture[str], path: Path, sql: str, *more: str) -> str:
    """The one message of a run that fails."""
    status, out, err = elf_run(capsys, "--input", str(path), "-q", sql, *more)
    assert (status, out) == (1, "")
    assert err.startswith("elf: ")
    assert err.count("elf: ") == 1
    assert all(line.startswith("  ") for line in err.splitlines()[1:])  # of the query, with a caret
    return err.splitlines()[0]


@pytest.mark.parametrize(
    ("compared", "way", "column"),
    [
        ("d > TIMESTAMP '2025-10-09 00:00:00'", "CAST(d AS TIMESTAMP)", "d=timestamp"),
        ("TIMESTAMP '2025-10-11 00:00:00' > d", "CAST(d AS TIMESTAMP)", "d=timestamp"),
        ("d < ts + INTERVAL 2 HOURS", "CAST(d AS TIMESTAMP)", "d=timestamp"),
        ("d BETWEEN ts AND TIMESTAMP '2025-10-11 00:00:00'", "CAST(d AS TIMESTAMP)", "d=timestamp"),
    ],
)
def test_a_text_against_a_time(
    compared: str, way: str, column: str, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both ways out that the message names are ways out."""
    sql = "SELECT COUNT(*) AS n FROM log WHERE {}"
    said = refused(capsys, mixed, sql.format(compared))
    assert f"write {way}; or declare it: --column {column}" in said
    assert "quotes" not in said
    cast = (
        compared.replace("d ", f"{way} ", 1)
        if compared.startswith("d")
        else compared.replace("> d", f"> {way}")
    )
    for where, more in ((cast, ()), (compared, ("--column", column))):
        asked = ("--input", str(mixed), "-q", sql.format(where), "--output", "json", *more)
        assert elf_run(capsys, *asked) == (0, '{"n":3}\n', "")


def test_a_text_against_a_number(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, mixed, "SELECT COUNT(*) AS n FROM log WHERE user.name = 5")
    assert "CAST(user.name AS BIGINT), or the constant in quotes to compare texts" in said
    assert "--column user.name=bigint" in said
    of_an_aggregate = refused(capsys, mixed, "SELECT MAX(id) AS n FROM log HAVING MAX(id) > 5")
    assert "CAST(… AS BIGINT)" in of_an_aggregate
    assert "--column" not in of_an_aggregate


@pytest.mark.parametrize("name", ["rare", "a.b c", "k1500"])
def test_a_column_that_no_sample_shows(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a line that is no sample, or beyond the 1,000 columns that are told from samples: the message names
    the way out, and it is one."""
    path = tmp_path / "a.json"
    with path.open("w") as out:
        if name.startswith("k"):
            out.write(json.dumps({"ts": 1_700_000_000, **{f"k{i}": "r" for i in range(1_600)}}) + "\n")
        for number in range(70_000):
            out.write(json.dumps({"ts": 1_700_000_000, "v": number}) + "\n")
            if number == 40_001:
                out.write(json.dumps({"ts": 1_700_000_000, name: "r"}) + "\n")
    sql = f'SELECT COUNT("{name}") AS n FROM log'
    said = refused(capsys, path, sql)
    assert f'unknown column "{name}"' in said
    declared = shlex.split(said[said.index("--column") : said.index(" (line")])
    assert declared[0] == "--column"
    option = declared[1].replace("TYPE", "text")
    status, out_, err = elf_run(
        capsys, "--input", str(path), "--output", "json", "--column", option, "-q", sql
    )
    assert (status, err) == (0, "")
    assert json.loads(out_)["n"] == 1 + name.startswith("k")


def test_access_logs_have_the_columns_that_they_have(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, SAMPLE, "SELECT COUNT(sc_stat) FROM log")
    assert said == 'elf: unknown column "sc_stat"; did you mean "sc_status"? (line 1, column 14)'
    assert "--column" not in refused(capsys, SAMPLE, "SELECT a FROM (SELECT COUNT(*) AS n FROM log)")
    for name, way in (
        ("remote_addr", "nginx's $remote_addr is c_ip"),
        ("url", "DESCRIBE input shows its columns"),
    ):
        said = refused(capsys, SAMPLE, f"SELECT COUNT({name}) FROM log")
        assert said == f'elf: unknown column "{name}"; {way} (line 1, column 14)'


def test_names_that_differ_by_case_are_said_once(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for columns in ("Id, id", "user.Name, user.name"):
        said = refused(
            capsys, mixed, f"SELECT {columns}, COUNT(*) AS n FROM log GROUP BY 1, 2", "--agents", "2"
        )
        assert said.startswith('elf: columns "')
        assert said.endswith("in one query: names must differ by more than case")
    for name, value in (("Id", 1), ("id", "x")):
        sql = f"SELECT {name} AS k, COUNT(*) AS n FROM log GROUP BY 1"
        status, out, err = elf_run(capsys, "--input", str(mixed), "--output", "json", "-q", sql)
        assert (status, json.loads(out), err) == (0, {"k": value, "n": 3}, "")


def test_queries_side_by_side_each_have_their_column(mixed: Path) -> None:
    """Agents read lines once for all jobs: names that differ by case in two of them stopped the agents."""
    queries = [
        "SELECT Id AS k, COUNT(*) AS n FROM log WHERE Id = 1 GROUP BY 1",
        "SELECT id AS k, COUNT(*) AS n FROM log WHERE id = 'x' GROUP BY 1",
        "SELECT user.name AS k, SUM(Id) AS n FROM log GROUP BY 1",
    ]
    assert asyncio.run(_answers(mixed, queries)) == [
        [{"k": 1, "n": 3}],
        [{"k": "x", "n": 3}],
        [{"k": "b", "n": 3}],
    ]


async def _answers(path: Path, queries: list[str]) -> list[object]:
    logs.configure("error", "console")
    made, _ = streams_of(RunRequest(Asked(queries[0]), {"input": (str(path),)}, agents=2))
    fleet = Fleet(made)
    found: list[object] = [None] * len(queries)
    try:
        await fleet.start()

        def keep(number: int, result: WindowResult) -> None:
            found[number] = next(split(result)).table.to_pylist()

        failed = await asyncio.wait_for(
            fleet.answer([q.replace("FROM log", "FROM input") for q in queries], keep), 60
        )
        assert failed == {}
        return found
    finally:
        await fleet.stop()


ARRAYS = (
    '[{"a":1},{"a":2}]',
    '[\n{"a":1},\n{"a":2}\n]',
    '[ \n  {\n "a": 1\n },\n {"a":2}\n]',
    '\ufeff[{"a":1}]',
)
OBJECTS = ('{\n  "a": 1\n}\n{\n  "a": 2\n}', '{"a":\n1}', '{ "a": [\n 1,\n 2]\n}', '{"a":1,\n"b":{"c":2}}')


@pytest.mark.parametrize("more", [(), ("--format", "json")])
@pytest.mark.parametrize("text", [*ARRAYS, *OBJECTS])
def test_json_that_is_no_object_a_line(
    text: str, more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text + "\n", encoding="utf-8")
    said = refused(capsys, path, "SELECT COUNT(*) AS n FROM log", *more)
    way = "an array; elf reads an object a line: jq -c '.[]' FILE" if text in ARRAYS else (
        "objects over several lines; elf reads an object a line: jq -c . FILE"
    )  # fmt: skip
    assert f"the input is JSON, but {way} | elf run --input - …" in said


@pytest.mark.parametrize(
    "text",
    ['{"a":1}\n{"a":\n{"a":2}\n', '[INFO] starts\n{"a":1}\n{"a":2}\n', "[1,2]\n", "{a}\n", '{"a":1}\n{"b"\n'],
)
def test_lines_that_are_no_json_are_not_said_to_be(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    _, _, err = elf_run(capsys, "--input", str(path), "-q", "SELECT COUNT(*) AS n FROM log")
    assert err.startswith("elf: ")
    assert "jq" not in err
