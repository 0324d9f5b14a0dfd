"""The panels of ``deploy/queries`` over the bundled logs: DuckDB's rows, by SQL that was written apart from
them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from elf.ql.planner import plan_text
from elf.ql.statements import CreateJob, parse
from elf.schema import Column, Schema
from tests.support.run_command import elf_run, expected, same
from tests.support.run_oracle import SAMPLE, connect

PANELS = Path(__file__).parents[2] / "deploy" / "queries"
JSON = SAMPLE.with_name("access.json")
_STATIC = "css js map png jpg jpeg gif svg ico webp avif woff woff2 ttf eot mp3 mp4 webm pdf zip gz"
_IS_STATIC = " OR ".join(f"lower(cs_uri_stem) LIKE '%.{ending}'" for ending in _STATIC.split())
_HOUR = "W(3600) AS window_start, W(3600) + INTERVAL 1 HOUR AS window_end"


def _top(items: str, key: str, order: str, where: str = "TRUE") -> str:
    """The thirty first of each hour."""
    return (
        f"SELECT {_HOUR}, {items} FROM log WHERE {where} GROUP BY 1, 2, 3 QUALIFY ROW_NUMBER() OVER "
        f"(PARTITION BY window_start ORDER BY {order}, {key} NULLS LAST) <= 30 ORDER BY 1, {order}, {key} NULLS LAST"
    )


def _family(tests: list[tuple[str, str]]) -> str:
    cases = " ".join(f"WHEN {test} THEN {name!r}" for name, test in tests)
    return f"CASE WHEN cs_user_agent IS NULL THEN NULL {cases} ELSE 'Other' END"


def _has(*words: str, of: str = "cs_user_agent") -> str:
    return "(" + " OR ".join(f"contains({of}, '{word}')" for word in words) + ")"


_SYSTEM = _family(
    [("Windows", _has("Windows")), ("Android", _has("Android")), ("iOS", _has("iPhone", "iPad", "iPod")),
     ("macOS", _has("Macintosh", "Mac OS X")), ("ChromeOS", _has("CrOS")), ("Linux", _has("Linux")),
     ("BSD", _has("BSD"))]
)  # fmt: skip
_LOWER = "lower(cs_user_agent)"
_BROWSER = _family(
    [("Crawler", _has("bot/", "crawl", "spider", "slurp", of=_LOWER)),
     ("Edge", _has("Edg/", "Edge/", "EdgA/", "EdgiOS/")), ("Opera", _has("OPR/", "Opera")),
     ("Firefox", _has("Firefox/", "FxiOS/")), ("Internet Explorer", _has("MSIE ", "Trident/")),
     ("Chrome", _has("Chrome/", "CriOS/", "Chromium/")), ("Safari", _has("Safari/")),
     ("curl", "starts_with(cs_user_agent, 'curl/')"), ("Wget", "starts_with(cs_user_agent, 'Wget/')"),
     ("Program", _has("python", "go-http-client", "java/", "okhttp", of=_LOWER))]
)  # fmt: skip
_VISITORS = "COUNT(DISTINCT COALESCE(c_ip, '') || ' ' || COALESCE(cs_user_agent, '')) AS visitors"
_SITE = "NULLIF(lower(split_part(split_part(split_part(split_part(cs_referer, '://', 2), '/', 1), '?', 1), ':', 1)), '')"
_FILE = "cs_uri_stem AS file, COUNT(*) AS hits, COUNT(DISTINCT c_ip) AS hosts"

BY_HAND = {
    "visitors": f"SELECT {_HOUR}, {_VISITORS}, COUNT(*) AS hits, SUM(sc_bytes) AS bytes FROM log GROUP BY 1, 2 ORDER BY 1",
    "requested_files": _top(f"{_FILE}, SUM(sc_bytes) AS bytes", "file", "hits DESC",
                            f"sc_status < 400 AND NOT ({_IS_STATIC})"),
    "static_files": _top(f"{_FILE}, SUM(sc_bytes) AS bytes", "file", "hits DESC", _IS_STATIC),
    "not_found": _top(f"{_FILE}, LAST(cs_referer ORDER BY ts, cs_referer) FILTER (WHERE cs_referer IS NOT NULL) AS led_from",
                      "file", "hits DESC", "sc_status = 404"),
    "hosts": _top("c_ip AS host, COUNT(*) AS hits, COUNT(CASE WHEN sc_status >= 400 THEN 1 END) AS failed, "
                  "SUM(sc_bytes) AS bytes, MAX(ts) AS last_seen", "host", "hits DESC"),
    "operating_systems": f"SELECT {_HOUR}, {_SYSTEM} AS system, {_VISITORS}, COUNT(*) AS hits FROM log GROUP BY 1, 2, 3 "
                         "ORDER BY 1, visitors DESC, system",
    "browsers": f"SELECT {_HOUR}, {_BROWSER} AS browser, {_VISITORS}, COUNT(*) AS hits FROM log GROUP BY 1, 2, 3 "
                "ORDER BY 1, visitors DESC, browser",
    "referring_sites": _top(f"{_SITE} AS site, COUNT(*) AS hits, COUNT(DISTINCT c_ip) AS hosts", "site", "hits DESC",
                            "cs_referer IS NOT NULL"),
    "status_codes": f"SELECT {_HOUR}, sc_status AS status, ['informational', 'success', 'redirection', 'client error', "
                    "'server error'][sc_status // 100] AS class, COUNT(*) AS hits, COUNT(DISTINCT c_ip) AS hosts FROM log "
                    "GROUP BY 1, 2, 3, 4 ORDER BY 1, 3",
    "visit_times": f"SELECT W(86400) AS window_start, W(86400) + INTERVAL 1 DAY AS window_end, HOUR(ts) AS hour, "
                   f"COUNT(*) AS hits, {_VISITORS}, SUM(sc_bytes) AS bytes FROM log GROUP BY 1, 2, 3 ORDER BY 1, 3",
    "bandwidth": "SELECT W(60) AS window_start, W(60) + INTERVAL 1 MINUTE AS window_end, COUNT(*) AS hits, "
                 "SUM(sc_bytes) AS bytes, SUM(sc_bytes) / 60 AS bytes_a_second, MAX(sc_bytes) AS largest FROM log "
                 "GROUP BY 1, 2 ORDER BY 1",
    "virtual_hosts": _top("lower(host) AS virtual_host, COUNT(*) AS hits, COUNT(CASE WHEN status >= 500 THEN 1 END) AS "
                          "errors, COUNT(DISTINCT remote_addr) AS hosts, SUM(body_bytes_sent) AS bytes", "virtual_host",
                          "hits DESC"),
    "latency": _top("split_part(request_uri, '?', 1) AS page, COUNT(*) AS hits, MEDIAN(request_time) AS median, "
                    "quantile_disc(request_time, 0.95) AS p95, quantile_disc(request_time, 0.99) AS p99, "
                    "MAX(request_time) AS slowest", "page", "slowest DESC"),
}  # fmt: skip
OF_JSON = ("virtual_hosts", "latency")


def _schema(integers: str, texts: str, *more: Column) -> Schema:
    numbers = (Column(name, "bigint") for name in integers.split())
    return Schema(
        (Column("ts", "timestamp"), *numbers, *(Column(n, "text") for n in texts.split()), *more), "ts"
    )


ACCESS_LOG = _schema("sc_status sc_bytes", "c_ip cs_uri_stem cs_referer cs_user_agent")
JSON_LOG = _schema("status body_bytes_sent", "host remote_addr request_uri", Column("request_time", "double"))


@pytest.fixture(scope="module")
def log() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect()
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def json_log() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE log AS SELECT time::TIMESTAMP AS ts, * FROM read_json('{JSON}')")
    yield connection
    connection.close()


def test_every_panel_has_its_oracle_and_says_what_it_answers() -> None:
    files = {path.stem: path.read_text() for path in PANELS.glob("*.sql")}
    assert files.keys() == BY_HAND.keys()
    assert all(text.startswith("-- ") for text in files.values())


@pytest.mark.parametrize("name", BY_HAND)
def test_panel(
    name: str,
    log: duckdb.DuckDBPyConnection,
    json_log: duckdb.DuckDBPyConnection,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, source = (JSON, json_log) if name in OF_JSON else (SAMPLE, log)
    options = ("-f", str(PANELS / f"{name}.sql"), "--input", str(path), "--agents", "2", "--output", "json")
    status, out, err = elf_run(capsys, *options)
    assert (status, [line for line in err.splitlines() if "lines rejected" not in line]) == (0, [])
    got = [json.loads(line) for line in out.splitlines()]
    wanted = expected(source, BY_HAND[name])
    assert len(got) == len(wanted) > 0
    for mine, theirs in zip(got, wanted, strict=True):
        assert list(mine) == list(theirs)
        for column, value in mine.items():
            near = column in ("p95", "p99") and abs(value - theirs[column]) <= value / 2**7
            assert near or same(value, theirs[column]), (column, mine, theirs)


@pytest.mark.parametrize("name", BY_HAND)
def test_panel_as_a_job(name: str) -> None:
    (statement,) = parse(f"CREATE JOB {name} AS\n{(PANELS / f'{name}.sql').read_text()}")
    assert isinstance(statement, CreateJob)
    assert plan_text(statement.query.sql, JSON_LOG if name in OF_JSON else ACCESS_LOG).windows
