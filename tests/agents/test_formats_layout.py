"""Formats that people write: what their texts mean, what is wrong with them, and each line against a slow
reading in Python."""

from __future__ import annotations

import csv
import io
import random
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from agents.formats import get_format, nginxconf, written_out
from agents.tasks.extracting import Extractor
from agents.tasks.samples import guess_format, named_format
from elf.errors import ConfigError, InputError, UserError
from elf.job.ports import Wanted
from elf.schema import Column
from tests.support.log_lines import FORMATS, MAIN, hits, spoilt
from tests.support.long import cases

Texts = dict[str, str | None]
WORLD = {one.name: one for one in FORMATS}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("combind", 'unknown format "combind"; did you mean "combined"?'),
        ("csv", "format csv needs its columns, in its text: csv:… (docs/formats.md)"),
        ("$remote_addr $", "character 14 ($remote_addr ▸$): a $ is followed by the name of a variable"),
        ("$a$b", "character 3 ($a▸$b): nothing is between two variables: where one ends cannot be told"),
        ("escape=jso $a", "character 8 (escape=▸jso $a): escape is one of default, json, none"),
        (
            "log_format x '$a' y",
            "character 19 (log_format x '$a' ▸y): a log_format is one or more texts",
        ),
        ("%h %", "character 4 (%h ▸%): a % is followed by a directive, such as %h"),
        ("%h %Z", "character 4 (%h ▸%Z): %Z is no directive that elf knows"),
        ("%h%u", "character 3 (%h▸%u): nothing is between two fields: where one ends cannot be told"),
        (
            "regex:a(?=b)(?<c>d)",
            "character 8 (regex:a▸(?=b)(?<c>d)): only (?:…), (?i:…) and groups with names",
        ),
        (r"regex:(?<a>x)\1", r"character 14 (regex:(?<a>x)▸\1): \1 is not read alike by RE2 and Java"),
        ("regex:(?<a>x*+)", "character 13 (regex:(?<a>x▸*+)): *+ is not read alike"),
        ("regex:(?<a>[0-9)", "character 7 (regex:▸(?<a>[0-9)): missing ]"),
        ("regex:[0-9]+", "character 7 (regex:▸[0-9]+): a regular expression has named groups"),
        ("regex:(?<a>x)(?<a>y)", "a group cannot be called a here"),
        ("csv:a,b,a", "character 9 (csv:a,b,▸a): a column cannot be called a here"),
        ("w3c:date b$", "character 10 (w3c:date ▸b$): b$ is no field"),
        ("$a" * 3000, "a format of 6,000 characters; at most 4,000"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        get_format(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directive_is_its_value() -> None:
    """However nginx.conf and httpd.conf have it, one text is the format's name, everywhere."""
    pieces = "'$remote_addr - $remote_user [$time_local] \"$request\" '\n   '$status'"
    value = '$remote_addr - $remote_user [$time_local] "$request" $status'
    assert get_format(f"log_format main {pieces};").name == value
    assert get_format(get_format(value).name).name == value
    assert get_format(f"log_format x escape=json {pieces};").name == f"escape=json {value}"
    assert get_format(r'LogFormat "%h \"%r\"" x').name == '%h "%r"'


def test_a_name_is_found_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text("http { include more.conf; }\n")
    (tmp_path / "more.conf").write_text("log_format own escape=none '$remote_addr '\n  '\"$request\"';\n")
    assert written_out(f"nginx:own@{tmp_path}/nginx.conf") == 'escape=none $remote_addr "$request"'
    with pytest.raises(ConfigError, match="has no log_format onw; did you mean own"):
        written_out(f"nginx:onw@{tmp_path}/nginx.conf")


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    assert written_out("combined") == "combined"
    with pytest.raises(ConfigError, match="no file"):
        written_out(f"{nginxconf.PREFIX}own@{tmp_path}/no.conf")


def test_headers_are_no_records_and_name_the_columns() -> None:
    lines = ["a;b", "1;x", "a;b", '2;"y;""z"""']
    fmt = guess_format(lines)
    assert fmt.name == "csv:a;b"
    extractor = Extractor(fmt, None, Wanted((Column("a", "bigint"), Column("b", "text"))))
    found = extractor.extract(pa.array(lines))
    extractor.close()
    assert found.table.drop_columns(["_ts"]).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": 'y;"z"'}]
    assert len(found.rejected) == 0
    with pytest.raises(InputError, match="the first line is no header"):
        named_format("csv", ["1,2"])


def test_what_cannot_be_told_says_what_was_tried() -> None:
    with pytest.raises(
        UserError,
        match=r"of 3 sample lines combined takes 1, common takes 1; say --format NAME \(combined, common",
    ):
        guess_format([WORLD["Apache combined"].line(hits(1)[0]), "what is this", "and this"])


# -- a slow reading ------------------------------------------------------------------------------------------

QUOTED = '"([^"]*)"'
DATE = r"[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}"
BEHIND = "(?: (.*))?"
READ_BY_RE: dict[str, tuple[str, tuple[str, ...]]] = {
    "nginx main, told": (
        rf"([^ ]*) - (.*?) \[{DATE}\] {QUOTED} ([0-9+-]*) ([0-9+-]*) {QUOTED} {QUOTED}{BEHIND}",
        ("c_ip", "cs_username", "cs_request", "sc_status", "sc_bytes", "cs_referer", "cs_user_agent"),
    ),
    "nginx error log": (
        r"[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} \[([^\]]*)\] ([0-9+-]*)#([0-9+-]*): "
        r"(?:\*([0-9+-]*) )?(.*?)(?:, client: ([^ ,]*))?(?:, server: (.*?))?"
        rf"(?:, request: {QUOTED})?(?:, subrequest: {QUOTED})?(?:, upstream: {QUOTED})?(?:, host: {QUOTED})?"
        rf"(?:, referrer: {QUOTED})?",
        (
            "level",
            "pid",
            "tid",
            "connection",
            "message",
            "c_ip",
            "server",
            "cs_request",
            "subrequest",
            "upstream",
            "cs_host",
            "cs_referer",
        ),
    ),
    "nginx, bars": (
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}[^] \"]*"
        r"\|([^|]*)\|[^|]*\|([0-9+-]*)\|([0-9.+-]*)"
        r"\|([^|]*)\|(.*)",
        ("c_ip", "sc_status", "request_time", "cs_user_agent", "http_x_id"),
    ),
}


def by_re(pattern: str, names: tuple[str, ...]) -> Callable[[str], Texts | None]:
    compiled = re.compile(rf"(?s)(?:{pattern})\Z")

    def read(line: str) -> Texts | None:
        found = compiled.match(line)
        return None if found is None else {name: found[n] for n, name in enumerate(names, 1)}

    return read


def logfmt(line: str) -> Texts | None:
    """Byte by byte."""
    if not re.match("^ *[A-Za-z_@][A-Za-z0-9_.@/-]*=", line):
        return None
    words, word, within, at = list[str](), "", False, 0
    while at < len(line):
        if line[at] == "\\" and line[at + 1 : at + 2] in ("\\", '"'):
            word, at = word + line[at : at + 2], at + 2
            continue
        if line[at] == '"':
            within = not within
            word += "\1" * within
        elif line[at] == " " and not within:
            words, word = [*words, word], ""
        else:
            word += line[at] if line[at] != " " else "\0"
        at += 1
    if within:
        return None
    found: Texts = {}
    for one in [*words, word]:
        key, mark, value = one.partition("=")
        if mark:
            found.setdefault(key, value.replace("\0", " ").replace("\1", ""))
    return found


ORACLES = {name: by_re(*what) for name, what in READ_BY_RE.items()} | {"logfmt of Go's slog": logfmt}


@pytest.mark.parametrize("name", ORACLES)
def test_any_line_is_read_as_by_hand(name: str) -> None:
    written, read, rng = WORLD[name], ORACLES[name], random.Random(name)
    good = [written.line(hit) for hit in hits(50, seed=4)]
    lines = [*good, *(spoilt(rng, rng.choice(good)) for _ in range(cases(400, 20_000)))]
    lines += [spoilt(rng, line) for line in lines[-200:]]
    fmt = get_format(written.format)
    names = [column.name for column in fmt.schema(pa.array(good), None).columns if column.name != "ts"]
    texts = [one for one in names if one in (read(good[0]) or {})]
    extractor = Extractor(fmt, None, Wanted(tuple(Column(one, "text") for one in texts)))
    found = extractor.extract(pa.array(lines))
    extractor.close()
    by_hand = [read(line) for line in lines]
    assert found.accepted.tolist() == [n for n, row in enumerate(by_hand) if row is not None]
    for row, n in zip(found.table.to_pylist(), found.accepted.tolist(), strict=True):
        expected = by_hand[n] or {}
        assert {one: row[one] for one in texts} == {
            one: None if expected.get(one) in (None, "", "-") else expected[one] for one in texts
        }, lines[n]


def test_values_of_csv_are_those_of_its_own_reader() -> None:
    rng = random.Random(7)
    pieces = ["a", ",", '"', " ", "é", "1", "-", "", ";", "x y"]
    rows = [
        ["".join(rng.choices(pieces, k=rng.randrange(4))) for _ in range(3)]
        for _ in range(cases(300, 20_000))
    ]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_MINIMAL).writerows(rows)
    names = ("p", "q", "r")
    extractor = Extractor(
        get_format("csv:p,q,r"), None, Wanted(tuple(Column(name, "text") for name in names))
    )
    found = extractor.extract(pa.array(out.getvalue().splitlines()))
    extractor.close()
    assert [[row[name] for name in names] for row in found.table.to_pylist()] == [
        [None if value in ("", "-") else value for value in row] for row in rows
    ]


def test_a_name_that_is_there_twice_is_another_column() -> None:
    fields = [field.name for field in get_format('$status $host "$http_host" $server_name $status').fields]  # type: ignore[attr-defined]
    assert fields == ["sc_status", "cs_host", "http_host", "server_name", "status"]
    assert get_format(MAIN + " $http_referer").fields[-1].name == "http_referer"  # type: ignore[attr-defined]
