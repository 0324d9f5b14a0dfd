"""Columns that say where a row comes from, which its line does not."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from tests.support.run_command import elf_run


@pytest.fixture
def logs(tmp_path: Path) -> list[str]:
    """Two logs with three lines and one; a key of a line has the name of such a column."""
    found = []
    for name, count in (("a.json", 3), ("b.json", 1)):
        path = tmp_path / name
        lines = [{"ts": 1_700_000_000 + n, "k": f"{name}{n}", "_source": "junk"} for n in range(count)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        found.append(str(path))
    return found


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("_source, COUNT(*) AS n FROM log GROUP BY _source ORDER BY n", [("b", 1), ("a", 3)]),
        (
            "log._SOURCE AS s, MAX(k) AS n FROM log GROUP BY s ORDER BY n",
            [("a", "a.json2"), ("b", "b.json0")],
        ),
        ("COUNT(DISTINCT _source) AS n FROM log", [(2,)]),
        ("COUNT(*) AS n FROM log WHERE _source LIKE '%b.json' OR k = 'a.json2'", [(2,)]),
        ("COUNT(*) AS n FROM log WHERE _line LIKE '%a.json1%'", [(1,)]),
        ("_agent, COUNT(*) AS n FROM log WHERE _agent <> 'x' GROUP BY _agent", [("agent", 4)]),
        ("COUNT(*) AS n FROM log WHERE _agent = 'x'", [(0,)]),
    ],
)
def test_rows_say_where_they_come_from(
    query: str, wanted: list[tuple[object, ...]], logs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = elf_run(
        capsys, "--input", *logs, "--agents", "2", "--output", "json", "-q", f"SELECT {query}"
    )
    assert (status, err) == (0, "")
    names = {logs[0]: "a", logs[1]: "b", platform.node(): "agent"}
    rows = [json.loads(line) for line in out.splitlines()]
    assert [tuple(names.get(value, value) for value in row.values()) for row in rows] == wanted
