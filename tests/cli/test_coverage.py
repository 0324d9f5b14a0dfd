"""The line that says what a window covers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.committing.status import STATUS_SCHEMA
from elf.client import split
from elf.client.coverage import COUNTS, FLAGS, NAMED_MAX, coverage, is_whole, margin
from elf.client.values import plain
from elf.fields import replace
from elf.job.counters import COUNTER_COLUMNS
from tests.support.fleet_of_one import window_result

WHOLE = {"expected": 3, "reported": 3, "missing": [], "rows_in": 12, **dict.fromkeys(COUNTS, 0), "version": 1}
GAP = {
    "agent": "web-1",
    "source": "/var/log/nginx/access.log",
    "bytes": 4120,
    "from": datetime(2026, 11, 25, 10, 2, 11, 5000),
    "to": datetime(2026, 11, 25, 10, 3, 40),
}

AT_8 = {"agent": "web-1", "budget": "job ada/top", "weight": 8}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "3 of 3 agents"),
        ({"expected": 1, "reported": 1}, "1 of 1 agent"),
        ({"reported": 2, "missing": ["web-2"], "late": 3}, "2 of 3 agents, web-2 missing, 3 late"),
        (
            {"expected": 1200, "reported": 1193, "missing": [f"w{n}" for n in range(7)]},
            "1,193 of 1,200 agents, w0, w1, w2, w3, w4 and 2 more missing",
        ),
        ({"rejected": 1234, "uncast": 2}, "3 of 3 agents, 1,234 rejected, 2 uncast"),
        (
            {"future": 1, "unrostered": 2, "shed": 3, "leapt": 4},
            "3 of 3 agents, 1 ahead of the clock, 2 outside the roster, 3 shed, 4 leapt",
        ),
        ({"skipped": True}, "3 of 3 agents, skipped by a change of the job"),
        ({"function_failed": True}, "3 of 3 agents, a function failed, or a graph was too large"),
        ({"promised_ms": 500, "took_ms": 500}, "3 of 3 agents"),
        ({"promised_ms": 500, "took_ms": 1_501}, "3 of 3 agents, 1,501 ms after it was due, 500 promised"),
        (
            {"gaps": [GAP]},
            "3 of 3 agents, gap: web-1 /var/log/nginx/access.log, 4,120 bytes, 10:02:11 to 10:03:40",
        ),
        (
            {"gaps": [GAP | {"bytes": None, "from": GAP["to"], "to": datetime(2026, 11, 26, 0, 0, 1)}]},
            "3 of 3 agents, gap: web-1 /var/log/nginx/access.log, bytes unknown, "
            "2026-11-25 10:03:40 to 2026-11-26 00:00:01",
        ),
        ({"budgets": [AT_8 | {"weight": 1}]}, "3 of 3 agents, web-1 read late for its budget"),
        (
            {"budgets": [AT_8], "sampled": 9},
            "3 of 3 agents, 9 of 12 rows left out over budget (job ada/top on web-1), "
            "a count n within ±(2.6·√(7·n)+46)",
        ),
        ({"missing": ["a\x1b[2Jb"], "reported": 2}, "2 of 3 agents, a\\x1b[2Jb missing"),
    ],
)
def test_the_line(change: dict[str, object], line: str) -> None:
    status = WHOLE | change
    assert coverage(status) == line
    assert coverage({name: plain(value) for name, value in status.items()}) == line, "from JSON too"
    late = "3 of 3 agents, web-1 read late for its budget"
    assert is_whole(status) == (line in ("3 of 3 agents", "1 of 1 agent", late))


def test_it_says_who_is_there_up_to_its_last_copy() -> None:
    away = WHOLE | {"reported": 1, "missing": ["web-2", "web-3"]}
    said = coverage(away | {"covered": ["web-3"]})
    assert said == "1 of 3 agents, web-2 missing, web-3 up to its last copy"
    assert not is_whole(away | {"covered": ["web-2", "web-3"]})


def test_it_says_which_rows_are_from_archives() -> None:
    assert coverage(WHOLE | {"archived": 12}) == "3 of 3 agents, from archives"
    assert coverage(WHOLE | {"archived": 5}) == "3 of 3 agents, 5 of 12 rows from archives"
    assert is_whole(WHOLE | {"archived": 5})
    assert coverage(WHOLE | {"archived": 12, "offline": True}) == "3 of 3 agents, from archives, by Spark"


def test_times_of_a_gap_are_utc() -> None:
    east = timezone(timedelta(hours=2))
    told = coverage(WHOLE | {"gaps": [GAP | {"from": datetime(2026, 11, 25, 12, 2, 11, tzinfo=east)}]})
    assert told.endswith("10:02:11 to 10:03:40")
    told = coverage(WHOLE | {"gaps": [GAP | {"from": None, "to": datetime(2026, 1, 1, 1, tzinfo=UTC)}]})
    assert told.endswith("4,120 bytes, 01:00:00")


def test_many_gaps_are_counted() -> None:
    assert coverage(WHOLE | {"gaps": [GAP] * (NAMED_MAX + 3)}).endswith("10:03:40, 3 more gaps")


def test_a_revision_corrects_what_was_told_before() -> None:
    (window,) = split(window_result(0, whole=True))
    assert (window.coverage, window.whole) == ("7 of 7 agents", True)
    later = replace(window, revision=2)
    assert (later.coverage, later.whole) == ("7 of 7 agents, revision 2", False)
    (window,) = split(window_result(0))
    assert (window.coverage, window.whole) == ("6 of 7 agents, shop-3 missing, 1 late", False)
    assert coverage({}) == ""


def test_each_field_of_a_status_has_a_place_in_it() -> None:
    """Who adds one to the status decides how it is said."""
    named = {"expected", "reported", "missing", "covered", "revision", "gaps", "archived", "offline"}
    named |= {"budgets", "sampled"}
    said = {*COUNTS, *FLAGS, *named, "promised_ms", "took_ms"}
    silent = {"window_start", "window_end", "rows_in", "version"}
    assert set(STATUS_SCHEMA.names) | {"gaps"} == said | silent
    assert set(COUNTER_COLUMNS) == {*COUNTS, "rows_in", "archived", "sampled"}


def test_a_window_with_rows_that_were_read_late_is_whole_and_one_with_rows_left_out_is_not() -> None:
    assert is_whole(WHOLE | {"budgets": [AT_8 | {"weight": 1}]})
    assert not is_whole(WHOLE | {"budgets": [AT_8]})
    assert (margin(WHOLE, 100), margin(WHOLE | {"budgets": []}, 100)) == (0, 0)
    assert margin(WHOLE | {"budgets": [AT_8, AT_8 | {"weight": 2}]}, 100, 10) == pytest.approx(
        2.576 * 7_000**0.5 + 2.576**2 * 70
    )


@given(
    counts=st.fixed_dictionaries({name: st.integers(0, 5000) for name in COUNTS}),
    flags=st.fixed_dictionaries({name: st.booleans() for name in FLAGS}),
    missing=st.lists(st.sampled_from(["web-1", "web-2"]), unique=True),
    revision=st.integers(0, 3),
)
def test_nothing_that_is_left_out_goes_unsaid(
    counts: dict[str, int], flags: dict[str, bool], missing: list[str], revision: int
) -> None:
    status = WHOLE | counts | flags | {"missing": missing, "reported": 3 - len(missing)}
    line = coverage(status, revision)
    told = [int(number.replace(",", "")) for number in re.findall(r"(?<!-)\b\d[\d,]*(?= )", line)]
    assert sorted(told) == sorted([3, 3 - len(missing), *(count for count in counts.values() if count)])
    assert all(name in line for name in missing)
    assert all((word in line) == flags[name] for name, word in FLAGS.items())
    assert (f"revision {revision}" in line) == (revision > 0)
    clean = not (any(counts.values()) or any(flags.values()) or missing or revision)
    assert is_whole(status, revision) == clean
