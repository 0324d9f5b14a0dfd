"""``SINCE``: which moments it takes, and with which queries it goes."""

from __future__ import annotations

import pytest

from elf.errors import QueryError
from elf.job.spec import flow_uid
from elf.ql.planner import plan
from elf.ql.since import begun_at, moment_of
from elf.ql.statements import Query, parse_query
from elf.schema import Column, Schema

NOW_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
HOUR_US = 3_600_000_000
SCHEMA = Schema((Column("ts", "timestamp"), Column("host", "text")), "ts")
COUNT = "SELECT host, COUNT(*) AS n FROM log GROUP BY host WINDOWING 30 SECONDS"


def query(text: str) -> Query:
    found = parse_query(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "ago_us"),
    [
        ("-6 hours", 6 * HOUR_US),
        ("- 1.5 HOUR", 1_500_000 * 3_600),
        ("-7 days", 168 * HOUR_US),
        ("-250 milliseconds", 250_000),
        ("2025-12-31 22:00", 2 * HOUR_US),
        ("2026-01-01T00:00:00+01:00", HOUR_US),
        ("1767222000", HOUR_US),
    ],
)
def test_a_moment(text: str, ago_us: int) -> None:
    assert moment_of(query(f"{COUNT} SINCE '{text}'"), NOW_US) == NOW_US - ago_us


def test_without_it_there_is_none() -> None:
    assert moment_of(query(COUNT), NOW_US) is None


@pytest.mark.parametrize(
    ("clause", "why"),
    [
        ("SINCE 'six hours'", "is no time"),
        ("SINCE '-6 moons'", "is no time"),
        ("SINCE ''", "is no time"),
        ("SINCE '2026-01-02'", "is to come yet"),
        ("SINCE 6", "expected a text after SINCE"),
        ("SINCE", "expected a text after SINCE"),
        ("SINCE '-1 hour' SINCE '-2 hours'", "two SINCE clauses"),
    ],
)
def test_what_is_no_moment_is_refused_at_its_place(clause: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        moment_of(query(f"{COUNT} {clause}"), NOW_US)


def test_it_is_of_the_whole_query() -> None:
    inner = f"SELECT host, MAX(n) AS m FROM ({COUNT} SINCE '-1 hour') AS s GROUP BY host WINDOWING 60 SECONDS"
    with pytest.raises(QueryError, match="say it once, at the end"):
        moment_of(query(inner), NOW_US)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT host, COUNT(*) AS n FROM log GROUP BY host", "without WINDOWING"),
        ("SELECT host, COUNT(*) AS n FROM log GROUP BY host WINDOWING 100 ROWS", "windows of rows"),
        (f"{COUNT} TREES 4", "TREES yet"),
        (f"{COUNT} STRAGGLERS LEAP", "STRAGGLERS LEAP"),
        (f"{COUNT} EMIT CHANGES", "EMIT CHANGES"),
    ],
)
def test_what_has_no_past_is_refused(text: str, why: str) -> None:
    asked = query(f"{text} SINCE '-1 hour'")
    with pytest.raises(QueryError, match=f"SINCE does not go with .*{why}"):
        begun_at(asked, plan(asked, SCHEMA, stream="log"), NOW_US)


@pytest.mark.parametrize(
    "clause", ["", "SLIDE 10 SECONDS", "EMIT FINAL REVISE", "STRAGGLERS MIRROR", "STRAGGLERS WAIT 60 SECONDS"]
)
def test_flows_that_begin_elsewhere_are_others(clause: str) -> None:
    asked = query(f"{COUNT} {clause} SINCE '-1 hour'")
    now = plan(asked, SCHEMA, stream="log")
    then = begun_at(asked, now, NOW_US)
    assert then.fragment.since_us == NOW_US
    assert flow_uid(then.fragment, "1") != flow_uid(now.fragment, "1")
    assert then.windows == now.windows
