"""What the agents extract and what Spark extracts from the same lines: equal, however nasty the lines."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from agents.formats import Format, get_format
from agents.formats.dialect import SPARK
from agents.tasks.extracting import Extractor
from elf.job.ports import Wanted
from elf.schema import Column
from tests.support.json_by_hand import NAMES, by_hand, objects
from tests.support.log_lines import FORMATS, Written, hits, spoilt
from tests.support.long import LONG

TIMES = [
    "0",
    "-1",
    "1441930018",
    "1441930018.5",
    "1441930018771",
    "1441930018771000",
    "99999999999",
    "100000000000",
    "99999999999999",
    "100000000000000",
    "99999999999999999",
    "100000000000000000",
    "-1441930018.25",
    "1.44e9",
    "+5",
    "2015-09-12T00:46:58.771Z",
    "2015-09-12T00:46:58Z",
    "2015-09-12 00:46:58",
    "2015-09-12T00:46:58.1234567891+05:30",
    "2015-09-12T00:46:58-0330",
    "2015-09-12T00:46:58+02",
    "2015-09-12t00:46:58z",
    "2015-09-12 00:46:58,771",
    "2015-09-12 00:46:58 UTC",
    "2015-09-12 00:46:58 GMT",
    "2015-09-12 00:46:58 Z",
    "2015-09-12 00:46:58 +0200",
    "2015-09-12 00:46:58.5 -08:00",
    "2016-02-29 23:59:59.999999",
    "2015-02-29 00:00:00",
    "2015-09-31T00:00:00Z",
    "2015-09-12T24:00:00Z",
    "2015-09-12T23:59:60Z",
    "2015-13-12T00:00:00Z",
    "1000-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "2999-12-31T23:59:59Z",
    "0999-01-01 00:00:00",
    "2015-09-12",
    "2015-9-12 1:2:3",
    " 2015-09-12 00:46:58",
    "2015-09-12 00:46:58 ",
    "2015-09-12  00:46:58",
    "2015-09-12T00:46:58+15:00",
    "17/May/2015:10:05:03 +0000",
    "[17/May/2015:10:05:03 -0730]",
    "30/Feb/2015:10:05:03 +0000",
    "[17/May/2015:10:05:03",
    "17/may/2015:10:05:03 +0000",
    "1/May/2015:10:05:03 +0000",
    "29/Feb/2016:10:05:03 +1400",
    "now",
    "",
    "epoch",
    "infinity",
    "00:46:58",
]

NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "3.7",
    "1e3",
    "1E-3",
    "-12.50",
    "0.001",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "123456789012345678901234567890",
    "1234.5678",
    "0.1",
    "999999.75",
    "5e-1",
]

FAR_NUMBERS = ["1e999", "-1e999", "1e-320", "123456789.125", "1e22", "0.00001", "4.35e-7"]
"""Written differently by the two engines as text, equal as numbers."""

TEXTS = [
    "12",
    "-7",
    "+7",
    "007",
    " 3 ",
    "3.",
    ".5",
    "1_000",
    "0x10",
    "1e3",
    "inf",
    "NaN",
    "Infinity",
    "true",
    "false",
    "TRUE",
    "t",
    "",
    "-",
    "null",
    "é😀",
    "tab\there",
    "nul\0char",
    'quote"d',
    "back\\slash",
    "/slash/",
    "[1, 2]",
    "{}",
    "1.0d",
    "\u2028",
    "\u00a0",
    "1\n",
    "true\n",
    "\x7f",
    "９",
    "1.5f",
    "--1",
    "1e",
    "e1",
    "9223372036854775808",
]

OTHERS = [
    "null",
    "true",
    "false",
    "[]",
    "{}",
    '[1, 2.5, "a\\u00e9", null, true]',
    '{"x" : {"y": [1]}, "z": "\\/"}',
    "[[ ]]",
]


def micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column


def check(
    quick_spark: SparkSession, fmt: Format, columns: list[Column], event_time: str | None, lines: list[str]
) -> pa.Table:
    """Both engines over the same lines; the rows are those of the lines that the agents accept."""
    extractor = Extractor(fmt, event_time, Wanted(tuple(columns)))
    extracted = extractor.extract(pa.array(lines, pa.string()))
    extractor.close()
    accepted = [(number, lines[number]) for number in extracted.accepted.tolist()]
    quick_spark.createDataFrame(accepted, "n INT, line STRING").createOrReplaceTempView("raw")
    selected = quick_spark.sql(fmt.spark_select(columns, event_time).sql("raw", keep=["n"]))
    asked = ["_ts", *(SPARK.name(column.name) for column in columns)]
    kinds = ["bigint", *(column.type for column in columns)]
    shown = [
        f"unix_micros({name})" if kind == "timestamp" else name
        for name, kind in zip(asked, kinds, strict=True)
    ]
    selected.createOrReplaceTempView("selected")
    rows = quick_spark.sql(f"SELECT {', '.join(shown)}, _ok, _uncast FROM selected ORDER BY n").collect()
    live = list(zip(*(micros(column).to_pylist() for column in extracted.table.columns), strict=True))
    offline = [tuple(row)[:-2] for row in rows]
    for (_, line), left, right in zip(accepted, live, offline, strict=True):
        assert left == right, line
    assert all(row[-2] for row in rows)
    assert sum(row[-1] for row in rows) == extracted.uncast
    return extracted.table


def test_json_values_of_every_kind_in_columns_of_every_type(quick_spark: SparkSession) -> None:
    columns = [
        Column("b", "bigint"),
        Column("d", "double"),
        Column("o", "boolean"),
        Column("t", "text"),
        Column("s", "timestamp"),
    ]
    plain = [*NUMBERS, *OTHERS, *(json.dumps(text) for text in [*TEXTS, *TIMES])]
    lines = [f'{{"b":{v},"d": {v},"o":{v} ,"t":{v},"s":{v}}}' for v in plain]
    lines += [f'{{"b":{v},"d":{v},"o":{v},"s":{v}}}' for v in FAR_NUMBERS]
    lines += [json.dumps({"t": text}, ensure_ascii=False) for text in TEXTS]
    table = check(quick_spark, get_format("json"), columns, "s", lines)
    assert table.num_rows == len(lines)


def test_json_paths(quick_spark: SparkSession) -> None:
    names = [
        "a",
        "a.b",
        "a.b.c",
        "x.y",
        "q'q",
        'd"d',
        "*",
        "w w",
        "s/t",
        "k~",
        "b\\s",
        "0",
        "$",
        "c[0]",
        "what?",
        "é",
        "user.location",
        "deep.er.and.deep.er",
        "#",
        "`",
    ]
    columns = [Column(name, "text") for name in names]
    documents: list[object] = [
        {name: "flat " + name for name in names},
        {"a": {"b": {"c": 1}}},
        {"a": {"b.c": 2}},
        {"a.b": {"c": 3}},
        {"a.b.c": 4},
        {"a": {"b": {"c": None}, "b.c": 5}},
        {"a": [{"b": 1}], "x": {"y": {"z": 1}}},
        {"user": {"location": "here"}, "User": {"location": "there"}},
        {"deep": {"er": {"and": {"deep": {"er": "bottom"}}}}},
        {"a": "text", "a.b": "text too"},
        {},
    ]
    lines = [json.dumps(document, ensure_ascii=number % 2 == 0) for number, document in enumerate(documents)]
    lines += [
        '{"a":1,"a":2}',
        '  {"a" : 1 }\t',
        '{"\\u0061":"escaped key"}',
        '{"a":{"b":1,"b":2}}',
        '{"a":null,"a":{"b":1}}',
        '{"a.b":"flat","a":{"b":"nested"}}',
    ]
    names += ['"a.b"', '"a.b".c', "q'q.x", "c[0].y"]
    columns = [Column(name, "text") for name in names]
    check(quick_spark, get_format("json"), columns, None, lines)


@given(st.lists(objects(), min_size=20, max_size=40))
@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])
def test_json_keys_again_with_dots_and_escapes(quick_spark: SparkSession, lines: list[str]) -> None:
    lines = [*lines, '{"a":"{\\"b\\":7}","a":{"b":1}}', '{"a":null,"a":{"b":1}}', '{"a":[1],"a":{"b":1}}']
    table = check(quick_spark, get_format("json"), [Column(name, "text") for name in NAMES], None, lines)
    for name in NAMES:
        assert table[name].to_pylist() == [by_hand(line, name) for line in lines]


def access_lines() -> list[str]:
    rng = random.Random(7)
    requests = [
        "GET / HTTP/1.1",
        "POST /a?b=c?d HTTP/2.0",
        "GET /x",
        "GET",
        "-",
        "",
        "\\x16\\x03\\x01",
        "GET /a b HTTP/1.1",
        "G?T / HTTP/1.1",
        "M-SEARCH * HTTP/1.1",
        "GET /q? HTTP/1.0",
        "get /é?ü HTTP/1.1",
        'GET /\\"quoted\\"?\\\\" HTTP/1.1',
        "GET  / HTTP/1.1",
        "GET / ",
        " GET /",
        "GET - -",
        "OPTIONS * RTSP/1.0",
        "GET /?- HTTP/1.1",
        "GET / HTTP/1.1\\",
        "- - -",
        "GET / http/x",
        "GET /" + '\\"' * 3000 + " HTTP/1.1",
    ]
    users = ["-", "frank", "a b", '""', "é", "[x]", "-x-", "- -"]
    dates = [
        "10/Oct/2000:13:55:36 -0700",
        "29/Feb/2016:00:00:00 +0000",
        "30/Feb/2016:00:00:00 +0000",
        "10/Oct/2000:24:55:36 -0700",
        "10/Xxx/2000:13:55:36 -0700",
        "1/Oct/2000:13:55:36 -0700",
        "-",
    ]
    quoted = [
        "-",
        "",
        "http://e.x/?a=b",
        'Mozilla/5.0 (X11; \\"L\\")',
        "ends with \\\\",
        "é😀",
        "\t",
        "a\u2028b",
        "\\",
        "- ",
    ]
    mids = [
        "200 123",
        "200 -",
        "- -",
        "404 0",
        "200 99999999999999999999",
        "20 1",
        "200 1.5",
        "200",
        "200 1 ",
    ]
    tails = ["", " ", ' "extra"', " 0.123", "x", ' "" [']
    lines = []
    for _ in range(400):
        parts = [
            rng.choice(pool)
            for pool in (users, dates[:2] * 6 + dates, requests, mids[:2] * 8 + mids, quoted, quoted, tails)
        ]
        user, date, request, mid, referer, agent, tail = parts
        line = f'1.2.3.4 - {user} [{date}] "{request}" {mid} "{referer}" "{agent}"{tail}'
        lines.append(line[: rng.randrange(len(line))] if rng.random() < 0.1 else line)
    return lines


@pytest.mark.parametrize("name", ["combined", "common"])
def test_access_logs(quick_spark: SparkSession, name: str) -> None:
    fmt = get_format(name)
    schema = fmt.schema(pa.array([], pa.string()), None)
    columns = [*schema.columns, Column("_line", "text")]
    lines = access_lines()
    table = check(quick_spark, fmt, columns, "ts", lines)
    assert 100 < table.num_rows < len(lines)


FEW = (
    "Kubernetes' ingress-nginx",
    "nginx, all of upstreams",
    "HAProxy behind syslog",
    "Caddy",
    "logfmt of Go's slog",
    "syslog, RFC 3164",
    "CSV",
)
"""One of each way to take a line apart, and each way to write a time."""
WORLD = [one for one in FORMATS if LONG or one.name in FEW]


@pytest.mark.parametrize("written", WORLD, ids=[one.name for one in WORLD])
def test_formats_of_the_world(quick_spark: SparkSession, written: Written) -> None:
    """As they are written, with more behind them, and spoilt."""
    rng = random.Random(written.name)
    lines = [written.line(hit) for hit in hits(20, seed=3)]
    lines += [line + rng.choice([' "x y" 7', " a", '"', r" \"", "\t|;,1"]) for line in lines]
    lines += [spoilt(rng, rng.choice(lines)) for _ in range(40)]
    fmt = get_format(written.format)
    schema = fmt.schema(pa.array(lines, pa.string()), None)
    check(quick_spark, fmt, [*schema.columns, Column("_line", "text")], schema.event_time, lines)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
def test_clocks_show_the_same_times(quick_spark: SparkSession, zone: str) -> None:
    """Around changes of the clocks too, in the event time and in a column."""
    changes = [(3, 29), (10, 25), (4, 5), (10, 4), (7, 1)]
    clocks = [
        f"2026-{month:02}-{day:02} {hour:02}:{minute}:00"
        for month, day in changes
        for hour in range(4)
        for minute in (15, 45)
    ]
    lines = [json.dumps({"ts": one, "s": other}) for one, other in zip(clocks, clocks[::-1], strict=True)]
    lines += [json.dumps({"ts": one, "s": one}) for one in TIMES]
    check(quick_spark, get_format(f"zone:{zone} json"), [Column("s", "timestamp")], "ts", lines)
