"""Expressions with every function of ELF-QL, and rows of values that are unpleasant for them."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path

import pyarrow as pa
from sqlglot import exp

from elf.ql.dialect import Elf
from elf.ql.draft import Draft
from elf.ql.render import render
from elf.ql.source import Source
from elf.ql.templates import Engine
from elf.schema import Column, ColumnType, Schema

TRIALS = tuple((Path(__file__).parents[1] / "ql" / "trials.txt").read_text(encoding="utf-8").splitlines())

_KINDS: dict[str, ColumnType] = {
    "id": "bigint", "t": "text", "w": "text", "j": "text", "p": "text", "u": "text", "a": "text",
    "i": "bigint", "n": "bigint", "d": "double", "s": "timestamp",
}  # fmt: skip

SCHEMA = Schema(tuple(Column(name, kind) for name, kind in _KINDS.items()))

_WORDS = [
    "Doom",
    "doom",
    "/cart/17",
    "a%b",
    "a_b",
    "a\\b",
    "élan",
    "e\u0301",
    "🦆🇫🇷",
    "日本",
    "",
    " x ",
    "12",
    "-3.5",
    "1e2",
    "2024-02-29",
    "2024-02-29 12:30:00.25",
    "true",
    "line\nbreak",
    "it's $1",
    "o",
    "%oo%",
    "//",
    "\ttab",
]

_JSON = [
    '{"a": {"b": ["x", "y", 2]}}',
    '{"a": 1}',
    '{"a": 1.50}',
    '{"a": 1e3}',
    '{"a": 1e300}',
    '{"a": 0.0001}',
    '{"a": "1e9"}',
    '{"a": true}',
    '{"a": null}',
    '{"a": {"b": "\\u00e9\\n"}}',
    '{"a": 9223372036854775807}',
    '{"a": 9223372036854775808}',
    '{"a": -123456789012345678901234567890}',
    "[1, 2, 3]",
    '["2"]',
    "[]",
    "{}",
    "[1, 2,]",
    "NaN",
    '{"a": Infinity}',
    '{"a": 1} x',
    "1,2",
    "'a'",
    "{a: 1}",
    "5",
    '"text"',
    "null",
    "",
    " ",
    "bad",
    '{"x y": "z"}',
    '{"a": 1, "a": 2}',
    '[null, "x", {"a": 2}]',
    '{"a": 12345678.5}',
    "01",
    '{"a": [1,[2]]}',
]

_IPS = [
    "10.1.2.3",
    "9.255.255.255",
    "172.16.0.1",
    "172.32.0.1",
    "::ffff:10.0.0.1",
    "256.1.1.1",
    "1.2.3",
    "01.2.3.4",
    "1.2.3.4 ",
    "::1",
    "::",
    "2001:db8::1",
    "2001:DB8:7fff::",
    "2001:0db8:8000::1",
    "fe80::1",
    "febf::1",
    "fec0::1",
    "1:2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:8:9",
    "1::2::3",
    "1:2:3:4:5:6:7::",
    "::2:3:4:5:6:7:8",
    "12345::",
    "g::1",
    "-",
    "",
    "0.0.0.0",
    "255.255.255.255",
    "fe80::1%eth0",
]

_URLS = [
    "https://user:pw@Example.org:8080/a/b.html?q=1&a[b]=2#top",
    "http://[::1]:80/x",
    "/search?q=a%20b&x=1&q=c",
    "/",
    "",
    "//cdn.example/x.js",
    "mailto:a@b",
    "-",
    "/a?x=1#q=2",
    "/a#b?q=3",
    "https://h",
    "http://h?q=",
    "/?aq=5",
    "é?q=é",
    "/a?q=1&q",
    "ftp://h/p;x=1",
    "/a?q=line\nbreak",
]

_AGENTS = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/120.0 Safari/537.36 Edg/120.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Version/17.0 Mobile Safari/604.1",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17 Safari/605.1.15",
    "Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "curl/8.0",
    "Wget/1.2",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "python-requests/2.31",
    "",
    "-",
    "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 SamsungBrowser/23.0 Chrome/115 Mobile Safari/537.36",
    "Opera/9.80 (X11; Linux)",
    "Mozilla/5.0 (X11; CrOS x86_64) Chrome/118",
    "Baiduspider",
    "something else",
]

_INTEGERS = [0, 1, -1, 2, 3, 7, -7, 404, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63), 1_700_000_000]

_DOUBLES = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-9, 123456.789, -1e15, 1.7e9, 1e300, 2.675, 0.1]


def rows(count: int, seed: int) -> pa.Table:
    """Generated values: a third from the lists, a third mixed from their pieces, some NULL."""
    rng = random.Random(seed)

    def text(pool: list[str], number: int) -> str | None:
        if number < len(pool):
            return pool[number]
        if rng.random() < 0.1:
            return None
        one, two = rng.choice(pool), rng.choice(pool)
        return (
            one
            if rng.random() < 0.4
            else one[: rng.randrange(len(one) + 1)] + two[rng.randrange(len(two) + 1) :]
        )

    epoch = dt.datetime(1970, 1, 1)
    columns: dict[str, list[object]] = {name: [] for name in _KINDS}
    for number in range(count):
        columns["id"].append(number)
        for name, pool in zip("twjpua", (_WORDS, _WORDS[::-1], _JSON, _IPS, _URLS, _AGENTS), strict=True):
            columns[name].append(text(pool, number))
        columns["i"].append(rng.choice([rng.choice(_INTEGERS), rng.randrange(-9, 9), None]))
        columns["n"].append(rng.choice([-1, rng.randrange(-9, 9), None]))
        columns["d"].append(rng.choice([rng.choice(_DOUBLES), rng.uniform(-1e4, 1e4), None]))
        days = rng.choice([rng.randrange(-700_000, 2_900_000), rng.randrange(15_000, 22_000)])
        moment = epoch + dt.timedelta(days=days, microseconds=rng.randrange(86_400_000_000))
        columns["s"].append(rng.choice([moment, moment.replace(day=1, hour=0, minute=0, second=0), None]))
    types = {
        "bigint": pa.int64(),
        "double": pa.float64(),
        "text": pa.string(),
        "timestamp": pa.timestamp("us"),
    }
    return pa.table({name: pa.array(columns[name], types[kind]) for name, kind in _KINDS.items()})


def values(engine: Engine) -> str:
    """One query over ``rows`` for all of them."""
    text = f"SELECT {', '.join(TRIALS)} FROM x"
    tree = Elf().parser().parse(Elf().tokenize(text), text)[0]
    assert isinstance(tree, exp.Select)
    scope = Draft(Source(text), tree, SCHEMA).scope("SELECT", aggregates=False)
    sql = [f"{render(scope.bind(node), engine)} AS v{number}" for number, node in enumerate(tree.expressions)]
    return f"SELECT r.id, {', '.join(sql)} FROM rows AS r ORDER BY r.id"
