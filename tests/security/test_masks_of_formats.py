"""Masks of all formats: what a format finds in a masked line is what it finds in the line as it was, with the
masked columns masked; in lines of the world, and in such that somebody has spoilt."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from agents.formats import FORMATS as NAMED
from agents.formats import get_format
from agents.formats.dialect import Format
from agents.formats.fields import Fielded
from agents.formats.maskable import maskable
from agents.loading import load
from agents.masks import ANY, WITHHELD, masked
from agents.settings.tree import ConfigProblems
from agents.tasks.extracting import Extractor
from agents.tasks.masking import lines_of
from elf.job.ports import Wanted
from elf.schema import Column
from tests.support.log_lines import FORMATS, Written, hits, spoilt

KEY = b"k" * 32
HITS = hits(60)
PARTS = ("cs_method", "cs_uri_stem", "cs_uri_query", "cs_version")
OTHERS = [one for one in FORMATS if one.format not in ("combined", "common", "json")]
Row = Mapping[str, object]


def rows_of(
    fmt: Format, columns: tuple[Column, ...], event_time: str | None, lines: list[str]
) -> list[Row | None]:
    """By line; None of what is rejected."""
    extractor = Extractor(fmt, event_time, Wanted(columns))
    found = extractor.extract(pa.array(lines, pa.string()))
    extractor.close()
    rows: list[Row | None] = [None] * len(lines)
    for at, row in zip(found.accepted.tolist(), found.table.to_pylist(), strict=True):
        rows[at] = row
    return rows


def expected(fmt: Format, row: Row, mask: Mapping[str, str]) -> dict[str, object]:
    found = dict(row)
    for name, how in mask.items():
        value = row.get(name)
        found[name] = masked(how, value, KEY) if isinstance(value, str) else None
    for field in fmt.fields if isinstance(fmt, Fielded) else ():
        if field.kind.startswith("last_") and {field.name, f"{field.name}_list"} & mask.keys():
            found |= dict.fromkeys((field.name, f"{field.name}_list"))
    if "cs_request" in mask:
        found |= dict.fromkeys(PARTS)
    elif "cs_uri_query" in mask and "cs_request" in row:
        query = "" if found["cs_uri_query"] is None else f"?{found['cs_uri_query']}"
        parts = (row["cs_method"], f"{row['cs_uri_stem'] or '-'}{query}", row["cs_version"])
        found["cs_request"] = " ".join(str(part) for part in parts if part is not None)
        if row["cs_method"] is None:
            found |= dict.fromkeys((*PARTS, "cs_request"))
    return found


def masks(known: Mapping[str, tuple[str, ...]], columns: list[Column]) -> list[dict[str, str]]:
    """Every other column, and the others; and what most people mask."""
    able = [column for column in columns if not known or known.get(column.name, known.get(ANY, ()))]

    def how(column: Column, place: int) -> str:
        told = known.get(column.name) or ("hash",)
        return "drop" if place or column.type != "text" else told[0]

    halves = [{column.name: how(column, place) for column in able[place::2]} for place in (0, 1)]
    usual = {"c_ip": "truncate", "cs_uri_query": "hash", "cs_referer": "hash"}
    return [*halves, {name: how for name, how in usual.items() if name in {one.name for one in able}}]


@pytest.mark.parametrize("written", OTHERS, ids=lambda one: one.name)
def test_a_masked_line_is_the_line_with_masked_columns(written: Written) -> None:
    fmt, rng = get_format(written.format), random.Random(written.name)
    known = maskable(fmt)
    assert known is not None
    good = [*written.head, *(written.line(hit) for hit in HITS)]
    lines = [*good, *(spoilt(rng, rng.choice(good)) for _ in range(60)), "junk 203.0.113.9", ""]
    schema = fmt.schema(pa.array(good, pa.string()), None)
    columns = tuple(column for column in schema.columns if not column.name.startswith("extra_"))
    able = [column for column in columns if column.type != "timestamp"]
    before = rows_of(fmt, columns, schema.event_time, lines)
    headings = fmt.headings(pa.array(lines, pa.string()))
    heads = set() if headings is None else set(headings.nonzero()[0].tolist())
    for mask in masks(known, able):
        rewriting = lines_of(fmt, mask, KEY)
        written_anew = rewriting.mask(pa.array(lines, pa.string())).to_pylist()
        rewriting.close()
        text = tuple(Column(c.name, "text" if c.name in mask else c.type) for c in columns)
        after = rows_of(fmt, text, schema.event_time, written_anew)
        withheld = 0
        for place, (line, was, left, now) in enumerate(zip(lines, before, written_anew, after, strict=True)):
            if place in heads:
                assert left == line or left == "#"
            elif was is None or left == WITHHELD:
                assert left == WITHHELD, line
                withheld += was is not None
            else:
                assert now == expected(fmt, was, mask), (line, left, mask)
        assert withheld <= 3, "lines that parse are hardly ever withheld"
        assert all(left != WITHHELD for left in written_anew[: len(good)])


@pytest.mark.parametrize("how", ["hash", "drop"])
def test_what_is_behind_the_last_field_is_dropped_unless_it_is_named(how: str) -> None:
    nginx = '$remote_addr [$time_local] "$request" $status'
    line = '192.0.2.1 [10/Oct/2026:13:55:36 +0200] "GET / HTTP/1.1" 200 "203.0.113.9" 10.0.0.1'
    masking = lines_of(get_format(nginx), {"c_ip": how}, KEY)
    (left,) = masking.mask(pa.array([line])).to_pylist()
    assert left == f"{masked(how, '192.0.2.1', KEY) or '-'}{line[9:59]}"
    named = lines_of(get_format(nginx), {"extra": how}, KEY)
    (left,) = named.mask(pa.array([line])).to_pylist()
    behind = masked(how, line[60:], KEY)
    assert left == line[:59] + (f" {behind}" if behind else "")
    csv = lines_of(get_format("csv:time,ip"), {"ip": how}, KEY)
    assert csv.mask(pa.array(["time,ip", "1,192.0.2.1,203.0.113.9", '"a,""b",-'])).to_pylist() == [
        *("time,ip", f"1,{masked(how, '192.0.2.1', KEY) or ''}", '"a,""b",-')
    ]


def test_what_is_no_pair_is_in_no_line_of_logfmt() -> None:
    masking = lines_of(get_format("logfmt"), {"ip": "truncate", "User": "hash"}, KEY)
    line = 'a=1 192.0.2.1 ip=192.0.2.7 IP="192.0.2.9:80" user="Ann B" msg="said \\"ip=x\\"" "ip=3 x" user= ip'
    (left,) = masking.mask(pa.array([line])).to_pylist()
    assert left == (
        f'a=1 ip=192.0.2.0 IP=192.0.2.0 user={masked("hash", "Ann B", KEY)} msg="said \\"ip=x\\"" user='
    )


NASTY = {
    "logfmt": ("ip=", "1.2.3.4", '"', '\\"', "\\\\", " ", " ", "a=", "x", "=", "\t", " IP="),
    "csv:a,ip,b": ("1.2.3.4", '"', '""', ",", ",", "a", " ", "-", '","', "\\"),
    'log_format x \'"$http_x" $remote_addr "$request" "$http_user_agent"\'': (
        *('"', " ", '" ', ' "', "1.2.3.4", '\\"', "\\\\", "GET /?1.2.3.4 HTTP/1.1", "-", '"-" 1.2.3.4 "-" "'),
    ),
}


@pytest.mark.parametrize("text", NASTY, ids=lambda text: text[:6])
def test_whatever_is_written_nobody_sees_more(text: str) -> None:
    fmt, rng = get_format(text), random.Random(3)
    lines = ["".join(rng.choices(NASTY[text], k=rng.randrange(3, 12))) for _ in range(4_000)]
    if not text.startswith("csv"):
        lines = [f"k=1 {line}" if text == "logfmt" else line for line in lines]
    name = "c_ip" if "remote_addr" in text else "ip"
    columns = (Column(name, "text"),)
    masking = lines_of(fmt, {name: "hash"}, KEY)
    made = masking.mask(pa.array(lines)).to_pylist()
    seen = withheld = 0
    for line, left, was, now in zip(
        lines, made, rows_of(fmt, columns, None, lines), rows_of(fmt, columns, None, made), strict=True
    ):
        if was is None:
            assert left == WITHHELD, line
        elif left == WITHHELD:
            withheld += 1
        else:
            value = was[name]
            assert now is not None, (line, left)
            assert now[name] == masked("hash", str(value) if value is not None else None, KEY), (line, left)
            seen += value is not None
    assert seen > 100
    assert withheld <= 8


@pytest.mark.parametrize(
    ("format_", "mask", "why"),
    [
        ("haproxy", {"sc_status": "hash"}, "sc_status cannot be left as hash leaves it; drop it"),
        ("haproxy", {"ts": "drop"}, "ts cannot be masked in format haproxy; header, pid, c_ip"),
        ("haproxy", {"client": "drop"}, "client cannot be masked in format haproxy"),
        ("apache_error", {"code": "drop"}, "code cannot be masked"),
        ("nginx_error", {"cs_uri_query": "truncate"}, "holds no addresses to truncate; hash or drop it"),
        ("csv:time,ip", {"time": "drop"}, "time is what elf itself goes by"),
        ("logfmt", {"ts": "drop"}, "ts is what elf itself goes by"),
        ("regex:(?<ip>[0-9.-]+) (?<n>[0-9]+)", {"ip": "hash"}, "ip cannot be left as hash leaves it; drop"),
        ("regex:(?<ip>[0-9.]+) (?<n>[0-9]+)", {"n": "drop"}, "n cannot be masked in format regex:"),
        ("regex:(?<ip>[[:alnum:].]+)", {"ip": "hash"}, "cannot be masked"),
    ],
)
def test_what_a_format_cannot_take_is_refused(
    tmp_path: Path, format_: str, mask: dict[str, str], why: str
) -> None:
    file = tmp_path / "elf.yaml"
    stream = {"include": ["/x"], "format": format_, "mask": mask}
    file.write_text(yaml.safe_dump({"streams": {"here": stream}}))
    with pytest.raises(ConfigProblems, match=why.replace("(", r"\(")):
        load(file, {})


def test_all_formats_can_be_masked() -> None:
    assert [name for name, fmt in NAMED.items() if maskable(fmt) is None] == []
