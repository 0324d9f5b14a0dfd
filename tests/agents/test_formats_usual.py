"""Archived access lines: what Spark reads of the usual ones by a pattern is what agents have extracted."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from agents.formats import get_format, usual
from agents.formats.access import COLUMNS
from agents.tasks.extracting import Extractor
from elf.job.ports import Wanted
from elf.schema import LINE, Column
from tests.support.access_lines import PIECES
from tests.support.log_lines import spoilt

_TYPES = {column.name: column for column in COLUMNS}
_CLIENTS = ["1.2.3.4", "2001:db8::17", "h.example", "1.2.3.4,5.6.7.8", "[::1]:80", "-", "1.2.3.4:80"]
_REQUESTS = [
    "GET / HTTP/1.1",
    "GET /a?b=c?d HTTP/2.0",
    "GET /a? HTTP/1.0",
    "GET /a?bHTTP/1.1",
    "GET ?b HTTP/1.1",
    "POST - HTTP/1",
    "GET /?- HTTP/1.1",
    "GET /[x],y:z HTTP/1.1",
]
_SETS = [
    ["c_ip"],
    ["cs_uri_query"],
    ["sc_bytes"],
    ["cs_referer"],
    ["cs_user_agent"],
    ["cs_username", "cs_version"],
    ["cs_uri_stem", "cs_request", LINE],
    ["sc_status", "cs_uri_query", "cs_method"],
    list(usual.COLUMNS),
]


def lines_of(rng: random.Random) -> list[str]:
    """Usual ones, odd ones, and such that a character or two keep from being usual."""

    def line(odd: float) -> str:
        client, front, user, date, request, mid, referer, agent, tail = (
            rng.choice(odds if rng.random() < odd else usuals)
            for usuals, odds in (
                (_CLIENTS, _CLIENTS),
                ([""], PIECES["front"]),
                (["-", "frank", "é"], [*PIECES["user"], '""']),
                (PIECES["date"][:2], PIECES["date"]),
                (_REQUESTS, PIECES["request"]),
                (["200 1", "404 -", "200 99999999999999999999"], PIECES["mid"]),
                (["-", "http://e.x/?a=b", "é😀"], PIECES["quoted"]),
                (["-", "x y (z; w)"], PIECES["quoted"]),
                (["", " more"], PIECES["tail"]),
            )
        )
        return f'{front}{client} - {user} [{date}] "{request}" {mid} "{referer}" "{agent}"{tail}'

    found = [line(0) for _ in range(300)] + [line(0.2) for _ in range(500)]
    return found + [spoilt(rng, line(0)) for _ in range(1200)]


@pytest.mark.parametrize("name", ["combined", "common"])
def test_usual_lines_are_read_as_all_are(quick_spark: SparkSession, name: str) -> None:
    fmt = get_format(name)
    lines = lines_of(random.Random(3))
    wanted = [*COLUMNS, Column(LINE, "text")]
    extractor = Extractor(fmt, "ts", Wanted(tuple(wanted)))
    extracted = extractor.extract(pa.array(lines, pa.string()))
    extractor.close()
    accepted = [(n, lines[number]) for n, number in enumerate(extracted.accepted.tolist())]
    quick_spark.createDataFrame(accepted, "n INT, line STRING").selectExpr(
        "*", "timestamp_micros(n) AS ts"
    ).createOrReplaceTempView("archived")
    for names in _SETS:
        columns = [_TYPES.get(one, Column(one, "text")) for one in names]
        read = [one for one in names if one in usual.COLUMNS]
        asked = fmt.archived_select(columns).sql("archived", keep=["n"], checked=False)
        rows = quick_spark.sql(f"SELECT * FROM ({asked}) ORDER BY n").collect()
        for (_, line), row, live in zip(
            accepted, rows, extracted.table.select(names).to_pylist(), strict=True
        ):
            assert list(row)[2:] == list(live.values()), line
        if name == "combined" or set(names) <= {"c_ip", "cs_uri_query", "sc_bytes"}:
            is_usual = usual.is_found(usual.find("line", read), read)
            (count,) = quick_spark.sql(f"SELECT count_if({is_usual}) FROM archived").collect()[0]
            assert 300 < count < len(accepted) - 20, "some are usual, and some are not"


def test_what_is_not_read_so() -> None:
    """Another type than the format's, what the patterns have no group for, and the referer of ``common``."""
    assert usual.is_read(_TYPES["sc_bytes"], combined=False)
    assert not usual.is_read(Column("sc_bytes", "double"), combined=True)
    assert not usual.is_read(_TYPES["cs_host"], combined=True)
    assert not usual.is_read(_TYPES["cs_referer"], combined=False)
    for asked in ([_TYPES["cs_host"]], [_TYPES["c_ip"], _TYPES["ts"]], []):
        assert "_cut" not in get_format("combined").archived_select(asked).sql("t", checked=False)
