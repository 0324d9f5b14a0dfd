"""Access logs: what a line means, by example and against a regular expression that says it all at once."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.formats import FORMATS, get_format
from agents.formats.access import COLUMNS
from agents.formats.dialect import DUCKDB
from agents.lanes.engine import Extracted, Extractor
from elf.errors import ConfigError, InputError
from elf.job.ports import Wanted
from elf.schema import Column

Value = str | int | dt.datetime | None


@pytest.fixture(scope="module")
def extractors() -> Iterable[dict[str, Extractor]]:
    wanted = Wanted((*COLUMNS, Column("_line", "text")))
    made = {name: Extractor(get_format(name), "ts", wanted) for name in ("combined", "common")}
    yield made
    for extractor in made.values():
        extractor.close()


def extract(extractor: Extractor, *lines: str) -> Extracted:
    return extractor.extract(pa.array(lines, pa.string()))


QUOTED = r'"((?:[^"\\]|\\.|\\$)*)"'
LINE = re.compile(
    r"([^ ]+) [^ ]+ (.+) \[(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})\] "
    + QUOTED
    + r" (\d{3}|-) (\d+|-)(?P<rest>.*)",
    re.DOTALL | re.ASCII,
)
REST = re.compile(rf" {QUOTED} {QUOTED}(?: .*)?", re.DOTALL)
TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST = re.compile(rf"({TOKEN}) ([^ ]+)(?: ([A-Za-z]+/[0-9.]+))?", re.DOTALL)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def oracle(line: str, *, combined: bool) -> dict[str, Value] | None:
    """What DESIGN 4.5 says of a line; None: it does not parse."""
    found = LINE.fullmatch(line)
    if found is None or found[4] not in MONTHS or not 1000 <= int(found[5]) < 3000:
        return None
    rest = REST.fullmatch(found["rest"])
    if (combined and rest is None) or (not combined and found["rest"] and found["rest"][0] != " "):
        return None
    try:
        text = (
            f"{found[3]} {MONTHS.index(found[4]) + 1} {found[5]} {found[6]}:{found[7]}:{found[8]} {found[9]}"
        )
        when = dt.datetime.strptime(text, "%d %m %Y %H:%M:%S %z")
    except ValueError:
        return None

    def some(text: str | None) -> str | None:
        return None if text == "-" else text

    request = REQUEST.fullmatch(found[10])
    method, uri, version = request.groups() if request else (None, None, None)
    stem, mark, query = (uri or "").partition("?")
    return {
        "ts": when.astimezone(dt.UTC).replace(tzinfo=None),
        "c_ip": some(found[1]),
        "cs_username": some(found[2]),
        "cs_method": some(method),
        "cs_uri_stem": some(stem) if request else None,
        "cs_uri_query": query if mark else None,
        "cs_version": version,
        "sc_status": int(found[11]) if found[11] != "-" else None,
        "sc_bytes": int(found[12]) if found[12] != "-" else None,
        "cs_referer": some(rest[1]) if combined and rest else None,
        "cs_user_agent": some(rest[2]) if combined and rest else None,
        "cs_request": some(found[10]),
        "_line": line,
    }


GOOD = (
    '1.2.3.4 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=1?y HTTP/1.0" 200 2326'
    ' "http://e.x/" "Mozilla/5.0 (X11)"'
)


def test_a_combined_line(extractors: dict[str, Extractor]) -> None:
    found = extract(extractors["combined"], GOOD)
    assert found.table["_ts"].to_pylist() == [971211336000000]
    (row,) = found.table.drop_columns(["_ts"]).to_pylist()
    assert row == {
        "ts": dt.datetime(2000, 10, 10, 20, 55, 36),
        "c_ip": "1.2.3.4",
        "cs_username": "frank",
        "cs_method": "GET",
        "cs_uri_stem": "/a.gif",
        "cs_uri_query": "x=1?y",
        "cs_version": "HTTP/1.0",
        "sc_status": 200,
        "sc_bytes": 2326,
        "cs_referer": "http://e.x/",
        "cs_user_agent": "Mozilla/5.0 (X11)",
        "cs_request": "GET /a.gif?x=1?y HTTP/1.0",
        "_line": GOOD,
    }


@pytest.mark.parametrize(
    ("request_text", "parts"),
    [
        ("GET / HTTP/1.1", ("GET", "/", None, "HTTP/1.1")),
        ("GET /?", ("GET", "/", "", None)),
        ("PROPFIND /x HTTP/2.0", ("PROPFIND", "/x", None, "HTTP/2.0")),
        ("GET", (None, None, None, None)),
        ("GET /a b HTTP/1.1", (None, None, None, None)),
        ("GET /a b", (None, None, None, None)),
        (r"\x16\x03\x01", (None, None, None, None)),
        (r"\x16 \x03", (None, None, None, None)),
        (r"GET /\"x\" HTTP/1.1", ("GET", r"/\"x\"", None, "HTTP/1.1")),
        ("", (None, None, None, None)),
    ],
)
def test_requests(extractors: dict[str, Extractor], request_text: str, parts: tuple[str | None, ...]) -> None:
    line = GOOD.replace("GET /a.gif?x=1?y HTTP/1.0", request_text)
    (row,) = extract(extractors["combined"], line).table.to_pylist()
    assert (row["cs_method"], row["cs_uri_stem"], row["cs_uri_query"], row["cs_version"]) == parts
    assert row["cs_request"] == request_text


def test_dashes_are_null_and_escapes_stay(extractors: dict[str, Extractor]) -> None:
    line = r'- - - [10/Oct/2000:13:55:36 +0000] "-" - - "-" "a \"b\" \\"'
    (row,) = extract(extractors["combined"], line).table.to_pylist()
    assert row.pop("cs_user_agent") == r"a \"b\" \\"
    assert row.pop("_line") == line
    del row["_ts"], row["ts"]
    assert set(row.values()) == {None}


def test_an_empty_user_name_is_kept_as_written(extractors: dict[str, Extractor]) -> None:
    line = GOOD.replace("frank", '""')
    (row,) = extract(extractors["combined"], line).table.to_pylist()
    assert row["cs_username"] == '""'
    assert row["cs_uri_stem"] == "/a.gif"


def test_lines_that_do_not_parse_are_named_by_number(extractors: dict[str, Extractor]) -> None:
    lines = [
        GOOD,
        GOOD[:-1],
        "",
        "hello",
        GOOD + " 0.003",
        GOOD + "x",
        GOOD.replace("10/Oct", "31/Feb"),
        GOOD,
    ]
    found = extract(extractors["combined"], *lines)
    assert found.accepted.tolist() == [0, 4, 7]
    assert found.rejected.tolist() == [1, 2, 3, 5, 6]
    assert found.table.num_rows == 3
    assert found.uncast == 0


def test_bytes_beyond_64_bits_are_null_and_counted(extractors: dict[str, Extractor]) -> None:
    found = extract(extractors["combined"], GOOD.replace("2326", "9" * 20), GOOD)
    assert found.table["sc_bytes"].to_pylist() == [None, 2326]
    assert found.uncast == 1


def test_every_column_alone_is_what_it_is_among_all(extractors: dict[str, Extractor]) -> None:
    lines = pa.array([GOOD, GOOD.replace("frank", "-").replace("Mozilla", r"\"Moz")])
    every = extractors["combined"].extract(lines).table
    for column in COLUMNS:
        alone = Extractor(get_format("combined"), "ts", Wanted((column,)))
        assert alone.extract(lines).table.equals(every.select(["_ts", column.name]))
        alone.close()


PIECES = {
    "user": ["-", "frank", "a b", "é", "[x]"],
    "date": [
        "10/Oct/2000:13:55:36 -0700",
        "29/Feb/2016:00:00:00 +0130",
        "30/Feb/2016:00:00:00 +0000",
        "10/oct/2000",
        "-",
    ],
    "request": [
        "GET / HTTP/1.1",
        "GET /é?b HTTP/1.1",
        "GET",
        "-",
        "",
        r"\x16",
        r"A /\"\\ X/1",
        "GET / HTTP/1.1 ",
        "A  B",
        r"\\",
    ],
    "mid": ["200 1", "200 -", "- -", "20 1", "200", "200 1.0"],
    "quoted": ["-", "", "x y", r"\"", r"\\", r"\\\"", "]", "é😀", r"a\b"],
    "tail": ["", " ", " more", "x", ' "q"'],
}


@given(st.fixed_dictionaries({name: st.sampled_from(pool) for name, pool in PIECES.items()}), st.data())
@settings(max_examples=250, deadline=None)
def test_against_the_regular_expression(
    extractors: dict[str, Extractor], pieces: dict[str, str], data: st.DataObject
) -> None:
    quoted = data.draw(st.sampled_from(PIECES["quoted"]))
    line = (
        '1.2.3.4 - {user} [{date}] "{request}" {mid} "{quoted}" '.format(**pieces)
        + f'"{quoted}"{pieces["tail"]}'
    )
    if data.draw(st.booleans()):
        line = line[: data.draw(st.integers(0, len(line)))]
    for name, extractor in extractors.items():
        expected = oracle(line, combined=name == "combined")
        found = extract(extractor, line)
        rows = found.table.drop_columns(["_ts"]).to_pylist()
        assert rows == ([] if expected is None else [expected]), line


def test_common_takes_combined_lines_too(extractors: dict[str, Extractor]) -> None:
    short = GOOD[: GOOD.index(' "http')]
    found = extract(extractors["common"], short, GOOD, short + "x")
    assert found.accepted.tolist() == [0, 1]
    assert found.table["sc_bytes"].to_pylist() == [2326, 2326]
    assert found.table["cs_referer"].null_count == 2


def test_the_columns_are_fixed_and_others_are_an_error() -> None:
    schema = get_format("common").schema(pa.array([], pa.string()), "whatever")
    assert schema.event_time == "ts"
    assert schema.columns == COLUMNS
    with pytest.raises(InputError, match='"nope"'):
        get_format("combined").select(DUCKDB, [Column("nope", "text")], "ts")


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match='unknown format "combind"; did you mean "combined"'):
        get_format("combind")
    with pytest.raises(ConfigError, match=", ".join(sorted(FORMATS))):
        get_format("xyzzy")
