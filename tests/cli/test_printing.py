"""What is printed, to the letter."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from elf.cli import printing
from elf.cli.grid import Grid, Styles
from elf.cli.options import Output
from elf.cli.printing import printer, rich_table, status_json
from elf.client import Window, split
from elf.client.values import for_terminal, json_rows, rfc3339
from elf.fields import replace
from tests.support.fleet_of_one import window_result

US = pa.timestamp("us")


def printed(output: str, *, status: bool = False, rows: int = 2, whole: bool = False) -> str:
    out = io.StringIO()
    writer = printer(Output(output).value, status=status, out=out)
    writer.windows(split(window_result(0, 5, rows=rows, whole=whole)))
    return out.getvalue()


def test_json_is_one_object_a_row_with_the_window_first() -> None:
    assert printed("json").splitlines() == [
        '{"window_start":"2026-11-21T02:00:00.000Z","window_end":"2026-11-21T02:00:05.000Z","product":"p0","clicks":0}',
        '{"window_start":"2026-11-21T02:00:00.000Z","window_end":"2026-11-21T02:00:05.000Z","product":"p1","clicks":1}',
        '{"window_start":"2026-11-21T02:00:05.000Z","window_end":"2026-11-21T02:00:10.000Z","product":"p0","clicks":50}',
        '{"window_start":"2026-11-21T02:00:05.000Z","window_end":"2026-11-21T02:00:10.000Z","product":"p1","clicks":51}',
    ]


def test_a_window_without_rows_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for output in Output:
        assert printed(output.value, rows=0, whole=True) == ""
    assert capsys.readouterr() == ("", "")


COVERED = "6 of 7 agents, shop-3 missing, 1 late"
FIRST = "busy  2026-11-21T02:00:00.000Z … 2026-11-21T02:00:05.000Z"


@pytest.mark.parametrize("output", ["json", "csv"])
def test_what_is_not_whole_is_told_beside_the_data(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each such window, with rows or without; standard output has the data and nothing else."""
    for rows in (2, 0):
        data = printed(output, rows=rows)
        told = capsys.readouterr().err.splitlines()
        assert (data, len(told), told[0]) == (
            printed(output, rows=rows, whole=True),
            2,
            f"elf: {FIRST}: {COVERED}",
        )
        assert capsys.readouterr().err == ""


def test_tables_tell_it_under_the_rows() -> None:
    lines = printed("table").splitlines()
    assert (lines[0], lines[5]) == (FIRST, COVERED)
    assert printed("table", rows=0).splitlines()[:2] == [f"{FIRST}  no rows", COVERED]
    assert "agents" not in printed("table", whole=True)
    assert printed("table", whole=True, status=True).splitlines().count("7 of 7 agents") == 2
    (window,) = split(window_result(0, whole=True))
    unchanged = replace(window, changes=window.table.slice(0, 0), revision=1)
    out = io.StringIO()
    printer("table", out=out).windows([unchanged])
    assert out.getvalue() == f"{FIRST}  revision 1  no changes\n7 of 7 agents, revision 1\n"


def test_a_status_follows_its_window() -> None:
    lines = printed("json", status=True).splitlines()
    assert [next(iter(json.loads(line))) for line in lines] == ["window_start", "window_start", "status"] * 2
    assert json.loads(lines[2]) == {
        "status": {
            "window_start": "2026-11-21T02:00:00.000Z",
            "window_end": "2026-11-21T02:00:05.000Z",
            "revision": 0,
            "expected": 7,
            "reported": 6,
            "missing": ["shop-3"],
            "rows_in": 100,
            "late": 1,
        }
    }


def test_csv_has_one_header_and_nothing_else_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed("csv", status=True).splitlines()
    assert lines[0] == "window_start,window_end,product,clicks"
    assert lines[1] == "2026-11-21T02:00:00.000Z,2026-11-21T02:00:05.000Z,p0,0"
    assert len(lines) == 5
    assert capsys.readouterr().err.count('{"status":') == 2


def test_csv_quotes_what_needs_it() -> None:
    out = io.StringIO()
    printer("csv", out=out).table(
        pa.table({"a": ['x,"y"', None, "two\nlines"], "b": [1.5, float("nan"), None]})
    )
    assert out.getvalue() == 'a,b\n"x,""y""",1.5\n,NaN\n"two\nlines",\n'


def test_tables_name_the_window_once_and_are_not_cut_off() -> None:
    long = "x" * 300
    out = io.StringIO()
    printer("table", out=out).table(pa.table({"path": [long], "n": [1]}))
    assert long in out.getvalue()
    text = printed("table", status=True)
    assert "busy  2026-11-21T02:00:00.000Z … 2026-11-21T02:00:05.000Z" in text
    assert "window_start  " not in text
    assert text.splitlines().count(COVERED) == 2


QUERY = "SELECT a,\n       COUNT(*) AS n\nFROM access WHERE " + " OR ".join(f"a = {n}" for n in range(40))


def test_a_list_of_jobs_is_a_line_each_in_a_terminals_width() -> None:
    jobs = pa.table(
        {"job": ["busy", "b"], "readers": [1, 12], "query": [QUERY, "SELECT 1"], "reason": ["", None]}
    )
    out = io.StringIO()
    printer("table", out=out).table(jobs)
    head, rule, *rows = (line.rstrip() for line in out.getvalue().splitlines())
    assert len(rule) <= 120
    assert head.split() == ["job", "readers", "query"]
    assert [row.split()[:5] for row in rows] == [
        ["busy", "1", "SELECT", "a,", "COUNT(*)"],
        ["b", "12", "SELECT", "1"],
    ]
    assert rows[0].endswith("…")
    out = io.StringIO()
    printer("json", out=out).table(jobs)
    assert json.loads(out.getvalue().splitlines()[0])["query"] == QUERY


def test_the_query_among_facts_is_whole_and_goes_over_lines() -> None:
    out = io.StringIO()
    printer("table", out=out).table(pa.table({"fact": ["state", "query"], "value": ["active", QUERY]}))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 120
    assert " ".join(" ".join(lines[3:]).split()) == "query " + " ".join(QUERY.split())


def test_null_is_not_an_empty_text() -> None:
    texts, numbers = pa.array(["", None, 'a,"b'], pa.string()), pa.array([None, 2, None], pa.int64())
    start = pa.array([datetime(2026, 1, 1)] * 3, US)
    rows = pa.table({"window_start": start, "window_end": start, "t": texts, "n": numbers})
    window = next(iter(split(window_result(0, 5, rows=1, whole=True))))
    for output, expected in (
        ("csv", ['"",', ",2", '"a,""b",']),
        ("table", ["       NULL", "NULL      2", 'a,"b   NULL']),
    ):
        out = io.StringIO()
        printer(Output(output).value, out=out).windows([replace(window, table=rows)])
        lines = [
            line.rstrip().removeprefix("2026-01-01T00:00:00.000Z," * 2)
            for line in out.getvalue().splitlines()
        ]
        assert lines[-3:] == expected
    out = io.StringIO()
    printer("csv", out=out).table(pa.table({"only": pa.array([None, "", "x\r"], pa.string())}))
    assert out.getvalue() == 'only\n\n""\n"x\r"\n'


def test_markup_in_data_is_data() -> None:
    out = io.StringIO()
    printer("table", out=out).table(pa.table({"[red]": ["[bold]no[/bold] [/]"]}))
    assert "[bold]no[/bold] [/]" in out.getvalue()
    assert "[red]" in out.getvalue()


def test_every_type_as_json() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901)
    table = pa.table(
        {
            "big": pa.array([Decimal(10**30), None], pa.decimal128(38, 0)),
            "money": pa.array([Decimal("1.50"), Decimal("-0.25")], pa.decimal128(10, 2)),
            "ratio": pa.array([0.1, float("-inf")]),
            "odd": pa.array([float("nan"), float("inf")]),
            "yes": pa.array([True, False]),
            "at": pa.array([moment, moment.replace(microsecond=678_000)], US),
            'na"me': pa.array(['q"uo\\te\n', "Zoë\u2028"]),
        }
    )
    first, second = map(json.loads, json_rows(table))
    assert first == {
        "big": 10**30,
        "money": 1.5,
        "ratio": 0.1,
        "odd": "NaN",
        "yes": True,
        "at": "2026-01-02T03:04:05.678901Z",
        'na"me': 'q"uo\\te\n',
    }
    assert second["big"] is None
    assert second["ratio"] == "-Infinity"
    assert second["odd"] == "Infinity"
    assert second["at"] == "2026-01-02T03:04:05.678Z"
    assert second['na"me'] == "Zoë\u2028"
    assert all("\n" not in line for line in json_rows(table))


@given(
    st.lists(
        st.tuples(
            st.text(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
        )
    )
)
def test_json_reads_back_what_was_there(rows: list[tuple[str, int, float]]) -> None:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int64(), pa.float64())
    table = pa.table(
        {name: pa.array(column, kind) for name, column, kind in zip("abc", columns, types, strict=True)}
    )
    read = [json.loads(line) for line in json_rows(table)]
    assert [tuple(row.values()) for row in read] == rows


def test_a_result_without_windows_has_no_window_columns() -> None:
    result = window_result(0)
    (window,) = split(msgspec.structs.replace(result, **_plain()))
    assert window.start is None
    assert "window_start" not in status_json(window)
    assert list(json_rows(window.table)) == ['{"n":3}']


def test_rfc3339_is_utc() -> None:
    assert rfc3339(datetime(2026, 11, 21, 2, tzinfo=UTC)) == "2026-11-21T02:00:00.000Z"


def _plain() -> dict[str, object]:
    from elf.batch import encode

    status = {"window_start": pa.nulls(1, US), "window_end": pa.nulls(1, US), "revision": [0], "rows_in": [3]}
    return {"status": encode(pa.table(status)), "payload": encode(pa.table({"n": [3]}))}


def test_what_stands_in_a_log_does_not_steer_the_terminal() -> None:
    """In a table; CSV and JSON: tests/security/test_outputs.py."""
    red = "/\x1b[31mred\x1b]0;title\x07\ttab\x9b1m"
    assert for_terminal(red) == "/\\x1b[31mred\\x1b]0;title\\x07\\ttab\\x9b1m"
    out = io.StringIO()
    printer(Output("table").value, status=False, out=out).table(pa.table({"path": [red]}))
    assert for_terminal(red) in out.getvalue()
    assert not {*out.getvalue()} & {*"\x1b\x07\x9b\t"}


TEXTS = st.none() | st.text("ab é漢\t", max_size=6) | st.just("two\nlines")


@given(
    st.lists(st.tuples(TEXTS, st.none() | st.integers(-5, 10**6), st.none() | st.floats()), max_size=6),
    st.sampled_from([15, 120]),
)
def test_windows_are_drawn_as_rich_draws_them(rows: list[tuple[object, ...]], width: int) -> None:
    """Or not at all."""
    names, kinds = ("a", "wide é", "c"), (pa.string(), pa.int64(), pa.float64())
    columns = list(zip(*rows, strict=True)) or [()] * 3
    table = pa.table(
        {name: pa.array(column, kind) for name, column, kind in zip(names, columns, kinds, strict=True)}
    )
    for styles in (Styles(), Styles(("<b>", "</b>"), ("<d>", "</d>"))):
        lines = Grid(table, width, styles).lines(0, table.num_rows)
        out = io.StringIO()
        Console(file=out, width=width, markup=False, highlight=False, emoji=False).print(rich_table(table))
        if lines is None:
            assert width == 15 or any("\n" in str(row[0]) for row in rows)
        else:
            drawn = re.sub("</?[bd]>", "", "\n".join(lines))
            assert drawn.split("\n") == out.getvalue().splitlines()


def test_many_windows_are_written_as_each_of_them_is() -> None:
    """Also where their columns change, and in blocks."""
    several = [
        *split(window_result(*range(0, 40, 5))),
        *split(window_result(40, rows=0)),
        *(replace(one, table=one.table.rename_columns([*"abcd"])) for one in split(window_result(45))),
        *split(window_result(50)),
    ]
    for output in Output:
        for status in (False, True):
            together, apart = io.StringIO(), io.StringIO()
            printer(Output(output).value, status=status, out=together).windows(several)
            alone = printer(Output(output).value, status=status, out=apart)
            for window in several:
                alone.windows([window])
            assert together.getvalue() == apart.getvalue() != ""
            assert printed_in_blocks(output.value, several, status=status) == apart.getvalue()


def printed_in_blocks(output: str, windows: list[Window], *, status: bool) -> str:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(printing, "BLOCK_ROWS", 7)
        printer(Output(output).value, status=status, out=out).windows(windows)
    return out.getvalue()
