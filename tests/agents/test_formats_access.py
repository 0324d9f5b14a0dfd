"""Access logs: what a line means, by example and against a regular expression that says it all at once."""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.formats import FORMATS, get_format
from agents.formats.access import COLUMNS, EXTRA_TEXT
from agents.formats.dialect import DUCKDB
from agents.tasks.extracted import Extracted
from agents.tasks.extracting import Extractor
from elf.errors import ConfigError, InputError
from elf.job.ports import Wanted
from elf.schema import Column
from tests.support.access_lines import PIECES
from tests.support.long import cases

Value = str | int | dt.datetime | None


@pytest.fixture(scope="module")
def extractors() -> Iterable[dict[str, Extractor]]:
    wanted = Wanted((*COLUMNS, Column(EXTRA_TEXT, "text"), Column("_line", "text")))
    made = {name: Extractor(get_format(name), "ts", wanted) for name in ("combined", "common")}
    yield made
    for extractor in made.values():
        extractor.close()


def extract(extractor: Extractor, *lines: str) -> Extracted:
    return extractor.extract(pa.array(lines, pa.string()))


QUOTED = r'"((?:[^"\\]|\\.|\\$)*)"'
HEAD = re.compile(r"\ufeff? *(.*) \[([^\[\]]*)\] \Z", re.DOTALL)
DATE = re.compile(r"(\d\d)/(\w{3})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})", re.ASCII)
TAIL = re.compile(QUOTED + r" (\d{3}|-) (\d+|-)(?P<rest>.*)", re.DOTALL | re.ASCII)
REST = re.compile(rf" {QUOTED} {QUOTED}(?P<extra> .*)?", re.DOTALL)
TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
VERSION = re.compile(r"(HTTP|RTSP|SIP)/\d(\.\d)?", re.ASCII | re.IGNORECASE)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def an_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def asker(words: list[str]) -> tuple[str | None, str, str] | None:
    """Virtual host, client and user, of the words before the date; None: that is not certain."""
    host: str | None = None
    listed = next((at for at, word in enumerate(words[:2]) if word.endswith(",")), None)
    if listed is not None:  # X-Forwarded-For
        behind = words.index("-") if "-" in words else len(words)
        if not all(an_address(word.rstrip(",")) for word in words[listed:behind]):
            return None
        words = [*words[:listed], words[listed].rstrip(","), *words[behind:]]
    if len(words) > 3 and words[1] != "-":
        port = re.fullmatch(r"[^:]+:\d{1,5}", words[0])
        if words[2] != "-" or not (port or (an_address(words[1]) and not an_address(words[0]))):
            return None
        host, *words = words
    if len(words) < 3 or set(",.:") & set(words[1]) or "," in words[0]:
        return None
    if "" in words[:3] or (len(words) > 3 and (words[1] != "-" or "-" in words[2:])) or words[-1] == "":
        return None
    return host, words[0], " ".join(words[2:])


def parts(request: str) -> tuple[str | None, str | None, str | None]:
    """Method, target and version."""
    words = request.strip(" ").split(" ")
    version = words.pop() if VERSION.fullmatch(words[-1]) else None
    target = " ".join(words[1:]).strip(" ")
    if not re.fullmatch(TOKEN, words[0]) or not target:
        return None, None, None
    if version is None and (" HTTP/" in f" {target}".upper() or (" " in target and target[0] != "/")):
        return None, None, None
    return words[0], target, version


def oracle(line: str, *, combined: bool) -> dict[str, Value] | None:
    """What the manual says of a line; None: it does not parse."""
    cut = line.find('] "')
    head, tail = HEAD.fullmatch(line[: cut + 2]), TAIL.fullmatch(line[cut + 2 :])
    asked = asker(head[1].split(" ")) if head else None
    date = DATE.fullmatch(head[2]) if head else None
    if cut < 0 or tail is None or asked is None or date is None:
        return None
    if date[2] not in MONTHS or not 1000 <= int(date[3]) < 3000:
        return None
    rest = REST.fullmatch(tail["rest"])
    extra = (rest["extra"] if rest else None) if combined else tail["rest"]
    if (combined and rest is None) or (extra and extra[0] != " "):
        return None
    if re.sub(r"\\.", "", extra or "").count('"') % 2:
        return None
    try:
        text = f"{date[1]} {MONTHS.index(date[2]) + 1} {date[3]} {date[4]}:{date[5]}:{date[6]} {date[7]}"
        when = dt.datetime.strptime(text, "%d %m %Y %H:%M:%S %z")
    except ValueError:
        return None

    def some(text: str | None) -> str | None:
        return None if text == "-" else text

    method, target, version = parts(tail[1])
    stem, mark, query = (target or "").partition("?")
    name, _, port = (asked[0] or "").partition(":")
    return {
        "ts": when.astimezone(dt.UTC).replace(tzinfo=None),
        "c_ip": some(asked[1]),
        "cs_username": some(asked[2]),
        "cs_method": some(method),
        "cs_uri_stem": some(stem) if target else None,
        "cs_uri_query": query if mark else None,
        "cs_version": version,
        "sc_status": int(tail[2]) if tail[2] != "-" else None,
        "sc_bytes": int(tail[3]) if tail[3] != "-" else None,
        "cs_referer": some(rest[1]) if combined and rest else None,
        "cs_user_agent": some(rest[2]) if combined and rest else None,
        "cs_request": some(tail[1]),
        "cs_host": some(name or None),
        "s_port": int(port) if port else None,
        EXTRA_TEXT: (extra or "").strip(" ") or None,
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
        "cs_host": None,
        "s_port": None,
        EXTRA_TEXT: None,
        "_line": GOOD,
    }


@pytest.mark.parametrize(
    ("request_text", "parts"),
    [
        ("GET / HTTP/1.1", ("GET", "/", None, "HTTP/1.1")),
        ("GET /?", ("GET", "/", "", None)),
        ("PROPFIND /x HTTP/2.0", ("PROPFIND", "/x", None, "HTTP/2.0")),
        ("GET", (None, None, None, None)),
        ("GET /a b?c d HTTP/1.1", ("GET", "/a b", "c d", "HTTP/1.1")),
        ("GET /two  HTTP/1.1", ("GET", "/two", None, "HTTP/1.1")),
        ("GET /a  b HTTP/3.0", ("GET", "/a  b", None, "HTTP/3.0")),
        ("GET /a b", ("GET", "/a b", None, None)),
        ("GET /a b/2.0", ("GET", "/a b/2.0", None, None)),
        (" GET / ", ("GET", "/", None, None)),
        ("GET HTTP/1.1", (None, None, None, None)),
        ("GET / HTTP/1.1x", (None, None, None, None)),
        ("Hello brave new world", (None, None, None, None)),
        ("GET http://h.example:8080/p?q HTTP/1.1", ("GET", "http://h.example:8080/p", "q", "HTTP/1.1")),
        ("CONNECT h.example:443 HTTP/1.1", ("CONNECT", "h.example:443", None, "HTTP/1.1")),
        ("OPTIONS * HTTP/1.1", ("OPTIONS", "*", None, "HTTP/1.1")),
        ("OPTIONS / RTSP/1.0", ("OPTIONS", "/", None, "RTSP/1.0")),
        ("GET //a//b?? HTTP/2", ("GET", "//a//b", "?", "HTTP/2")),
        ("GET /a#b?c HTTP/1.1", ("GET", "/a#b", "c", "HTTP/1.1")),
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


@given(st.fixed_dictionaries({name: st.sampled_from(pool) for name, pool in PIECES.items()}), st.data())
@settings(max_examples=cases(100, 2_500), deadline=None)
def test_against_the_regular_expression(
    extractors: dict[str, Extractor], pieces: dict[str, str], data: st.DataObject
) -> None:
    quoted = data.draw(st.sampled_from(PIECES["quoted"]))
    line = (
        '{front}1.2.3.4 - {user} [{date}] "{request}" {mid} "{quoted}" '.format(**pieces)
        + f'"{quoted}"{pieces["tail"]}'
    )
    if data.draw(st.booleans()):
        line = line[: data.draw(st.integers(0, len(line)))]
    for name, extractor in extractors.items():
        expected = oracle(line, combined=name == "combined")
        found = extract(extractor, line)
        rows = found.table.drop_columns(["_ts"]).to_pylist()
        assert rows == ([] if expected is None else [expected]), line


def head(extractors: dict[str, Extractor], front: str) -> tuple[Value, ...] | None:
    """Host, port, client and user of a line that begins so; None: it is rejected."""
    for extractor in extractors.values():
        rows = extract(extractor, front + GOOD[GOOD.index(" [") :]).table.to_pylist()
        found = [tuple(row[name] for name in ("cs_host", "s_port", "c_ip", "cs_username")) for row in rows]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ("shop.example:443 192.0.2.1 - -", ("shop.example", 443, "192.0.2.1", None)),
        ("shop.example:443 192.0.2.1 - bob", ("shop.example", 443, "192.0.2.1", "bob")),
        ("127.0.1.1:80 192.0.2.1 - John Smith", ("127.0.1.1", 80, "192.0.2.1", "John Smith")),
        ("[2001:db8::1]:8443 2001:db8::2 - -", ("[2001:db8::1]", 8443, "2001:db8::2", None)),
        ("shop.example:80 client.example - -", ("shop.example", 80, "client.example", None)),
        ("shop.example 192.0.2.1 - bob", ("shop.example", None, "192.0.2.1", "bob")),
        ("_ ::1 - -", ("_", None, "::1", None)),
        ("- 192.0.2.1 - -", (None, None, "192.0.2.1", None)),
        ("198.51.100.7, 203.0.113.1 - -", (None, None, "198.51.100.7", None)),
        ("2001:db8::7, 203.0.113.1, 10.0.0.1 - bob", (None, None, "2001:db8::7", "bob")),
        ("198.51.100.7,203.0.113.1 - -", (None, None, "198.51.100.7", None)),
        ("shop.example:80 198.51.100.7, 203.0.113.1 - -", ("shop.example", 80, "198.51.100.7", None)),
        ("192.0.2.1 - John Smith", (None, None, "192.0.2.1", "John Smith")),
        ("192.0.2.1 - Dr. J.  Smith-Jones", (None, None, "192.0.2.1", "Dr. J.  Smith-Jones")),
        ("192.0.2.1 user-identifier frank", (None, None, "192.0.2.1", "frank")),
        ("2001:db8::1 - -", (None, None, "2001:db8::1", None)),
        ("fe80::1%eth0 - -", (None, None, "fe80::1%eth0", None)),
        ("::ffff:192.0.2.1 - -", (None, None, "::ffff:192.0.2.1", None)),
        ("client.example - -", (None, None, "client.example", None)),
        ("192.0.2.1:51234 - bob", (None, None, "192.0.2.1:51234", "bob")),
        ("unix: - -", (None, None, "unix:", None)),
        ("- - -", (None, None, None, None)),
        ("\ufeff192.0.2.1 - -", (None, None, "192.0.2.1", None)),
        ("  client.example - bob", (None, None, "client.example", "bob")),
        ("192.0.2.1 - - bob", None),
        ("192.0.2.1 - bob -", None),
        ("192.0.2.1 -  bob", None),
        ("192.0.2.1 frank John Smith", None),
        ("198.51.100.7 203.0.113.1 - -", None),
        ("shop.example 192.0.2.1 -", None),
        ("shop.example client.example - -", None),
        ("shop localhost - bob", None),
        ("192.0.2.1:51234 - - bob", None),
        ("shop.example, 203.0.113.1 - -", None),
        ("198.51.100.7, unknown proxy - -", None),
        ("192.0.2.1 -", None),
    ],
)
def test_fields_in_front_are_never_the_client(
    extractors: dict[str, Extractor], front: str, said: tuple[Value, ...] | None
) -> None:
    assert head(extractors, front) == said


@pytest.mark.parametrize(
    ("behind", "extra", "beyond"),
    [
        (' 0.012 "192.0.2.9"', '0.012 "192.0.2.9"', 1),
        (' "-" rt=0.5', '"-" rt=0.5', 1),
        (r' "a \"b\" \\" c', r'"a \"b\" \\" c', 1),
        ("  ", None, 0),
        (' "', None, None),
        ("x", None, None),
    ],
)
def test_fields_behind_are_kept_and_counted(
    extractors: dict[str, Extractor], behind: str, extra: str | None, beyond: int | None
) -> None:
    found = extract(extractors["combined"], GOOD + behind, GOOD)
    assert found.table[EXTRA_TEXT].to_pylist() == ([] if beyond is None else [extra]) + [None]
    assert found.beyond == (beyond or 0)
    short = GOOD[: GOOD.index(' "http')]
    found = extract(extractors["common"], short + behind, short)
    assert found.table[EXTRA_TEXT].to_pylist() == ([] if beyond is None else [extra]) + [None]
    assert found.beyond == (beyond or 0)


@pytest.mark.parametrize(
    ("behind", "extras"),
    [
        (' 0.012 "192.0.2.9"', [0.012, "192.0.2.9"]),
        (' "-" rt=0.5 7', [None, "rt=0.5", 7]),
        (r' "a \"b\" \\" c  "" "x y"', [r"a \"b\" \\", "c", None, "x y"]),
        ("", []),
    ],
)
def test_fields_behind_have_names_and_types(behind: str, extras: list[Value]) -> None:
    fmt, lines = get_format("combined"), pa.array([GOOD + behind, GOOD], pa.string())
    schema = fmt.schema(lines, None)
    columns = schema.columns[len(COLUMNS) :]
    assert [column.name for column in columns] == [f"extra_{n}" for n, _ in enumerate(extras, 1)]
    extractor = Extractor(fmt, "ts", Wanted(columns))
    found = extractor.extract(lines).table.drop_columns(["_ts"])
    extractor.close()
    assert [list(row.values()) for row in found.to_pylist()] == [extras, [None] * len(extras)]


def test_common_takes_combined_lines_too(extractors: dict[str, Extractor]) -> None:
    short = GOOD[: GOOD.index(' "http')]
    found = extract(extractors["common"], short, GOOD, short + "x")
    assert found.accepted.tolist() == [0, 1]
    assert found.table["sc_bytes"].to_pylist() == [2326, 2326]
    assert found.table["cs_referer"].null_count == 2
    assert found.table[EXTRA_TEXT].to_pylist() == [None, GOOD[len(short) + 1 :]]
    assert found.beyond == 1


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
