"""What windows say to an alert (``agents.outputs.alerting``): conditions over real rows, in DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pyarrow as pa
import pytest

from agents.disk.store import Store
from agents.outputs.alerting import alarms, verdict_of
from agents.outputs.parcels import said
from elf.client.windows import Window
from elf.errors import UserError
from elf.fields import replace
from elf.job.alerts import GROUPS_MAX, Memory, follow_on, judged, kept, remembered
from elf.job.effects import Deliver
from elf.job.output import OutputKept, OutputSpec
from elf.ql.alert import WINDOWS_MAX, Alert
from elf.ql.conditions import check_over
from elf.ql.definition import Definition, Read
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from elf.schema import Column, Schema
from lab.chaos.engine import planned
from tests.support.delivered import JOB, commit

SCHEMA = Schema((Column("host", "text"), Column("status", "bigint"), Column("ts", "timestamp")), "ts")
BEGIN = datetime(2026, 11, 26, tzinfo=UTC)
STEP = timedelta(seconds=10)


def plan(text: str) -> Plan:
    return plan_text(f"{text} WINDOWING 10 SECONDS", SCHEMA, stream="access")


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(":memory:")
    yield store
    store.close()


PER_HOST = plan("SELECT host, COUNT(*) AS n, SUM(status) AS s FROM access GROUP BY host")
ALL = plan("SELECT COUNT(*) AS n FROM access")


def window(
    place: int, rows: dict[str, list[object]], *, missing: tuple[str, ...] = (), version: int = 1
) -> Window:
    start = BEGIN + place * STEP
    length = len(next(iter(rows.values()))) if rows else 0
    bounds = {
        name: pa.array([at.replace(tzinfo=None)] * length, pa.timestamp("us"))
        for name, at in (("window_start", start), ("window_end", start + STEP))
    }
    status = {"expected": 20, "reported": 20 - len(missing), "missing": list(missing)}
    table = pa.table({**bounds, **rows})
    return Window("00.1", "busy", version, "web-1:7071", start, start + STEP, 0, status, table)


def groups(when: str, made: Plan, one: Window, *by: str) -> tuple[str, ...]:
    verdict, _ = verdict_of(Alert(when, by=by), made, one)
    assert verdict.known
    return verdict.groups


def test_groups_are_told_apart_by_columns() -> None:
    sums = pa.array([500, 7, None], pa.decimal128(38, 0))
    one = window(0, {"host": ["a", "b", None], "n": [3, 9, 1], "s": sums})
    assert groups("n > 2", PER_HOST, one) == ("{}",)
    assert groups("n > 2", PER_HOST, one, "HOST") == ('{"host":"a"}', '{"host":"b"}')
    assert groups("s / n > 100 OR host IS NULL", PER_HOST, one, "host") == ('{"host":"a"}', '{"host":null}')
    assert groups("s > 1000", PER_HOST, one) == ()
    assert groups("hour(window_start) = 0 AND host LIKE 'b%'", PER_HOST, one, "host") == ('{"host":"b"}',)
    _, rows = verdict_of(Alert("host = 'b'"), PER_HOST, one)
    assert '"n":9' in rows[0]


def test_without_groups_a_window_without_rows_is_a_row_over_no_rows() -> None:
    assert groups("n = 0", ALL, window(0, {})) == ("{}",)
    assert groups("n > 0", ALL, window(0, {})) == ()
    assert groups("n = 0", ALL, window(0, {"n": [4]})) == ()
    assert groups("n = 0", PER_HOST, window(0, {})) == ()


def test_who_is_missing_makes_it_unknown_if_they_are_more_than_it_bears() -> None:
    one = window(0, {"n": [4]}, missing=("web-3",))
    strict, _ = verdict_of(Alert("n > 1"), ALL, one)
    assert (strict.known, strict.missing) == (False, ("web-3",))
    lenient, _ = verdict_of(Alert("n > 1", coverage=0.95), ALL, one)
    assert (lenient.known, lenient.groups) == (True, ("{}",))
    both, _ = verdict_of(
        Alert("n > 1", coverage=0.95), ALL, window(0, {"n": [4]}, missing=("web-3", "web-4"))
    )
    assert not both.known


def test_what_is_remembered_of_the_most_and_longest_windows_can_be_kept() -> None:
    """Groups and names of four bytes a character, and as many agents missing as there may be."""
    made = plan("SELECT host, COUNT(*) AS n FROM access GROUP BY host")
    alert, memory = Alert("n > 0", WINDOWS_MAX, 0.0, ("host",)), Memory()
    hosts: list[object] = [f"{number:03}{chr(0x1F600) * 4_000}" for number in range(GROUPS_MAX + 1)]
    names = tuple(f"{number:05}{chr(0x1F600) * 5_000}" for number in range(1_000))
    rows: dict[str, list[object]] = {"host": hosts, "n": [1] * len(hosts)}
    for place in range(WINDOWS_MAX):
        verdict, _ = verdict_of(alert, made, window(place, rows))
        strict, _ = verdict_of(Alert("n > 0"), made, window(place, rows, missing=names))
        assert (len(verdict.groups), verdict.more, strict.missing[-1]) == (GROUPS_MAX, 1, "and 980 more")
        memory, _ = judged(alert, memory, replace(verdict, missing=strict.missing))
    assert len(memory.firing) == GROUPS_MAX
    record = OutputKept(JOB.uid, OutputSpec("out", "me", 1, JOB.uid, "https://x").uid, 7, state=kept(memory))
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=OutputKept)
    assert remembered(read.state) == memory


def test_a_job_that_lost_the_column_is_unknown_and_says_why() -> None:
    memory, found = alarms(
        Alert("n > 1"), Memory(), lambda _: ALL, [window(0, {"n": [4]}), window(1, {"m": [4]}, version=2)]
    )
    assert [one.transition.state for one in found] == ["firing", "unknown"]
    assert '"n"' in found[1].transition.missing[0] or "n" in found[1].transition.missing[0]
    assert memory.firing == ("{}",)


def test_a_window_is_judged_by_its_own_version_whichever_is_the_newest(store: Store) -> None:
    """Else a master that knows of an ALTER says something else under the same number."""
    spec = OutputSpec("out", "me", 1, JOB.uid, "https://x", alert=Alert("n = 0", coverage=0))
    commit(store, 0, [])
    (row,) = store.windows_after(JOB.uid, 0)
    before, after = planned(JOB, ALL), planned(JOB, PER_HOST, version=2)
    got = OutputKept(JOB.uid, spec.uid, 0)
    first, *others = (
        [notice.json for notice in said(deliver, row, "", got)[0]]
        for deliver in (Deliver(spec, before, got), Deliver(spec, after, got, (after, before)))
    )
    assert b'"firing"' in first[0]
    assert others == [first]
    (nobody_knows,) = said(Deliver(spec, after, got), row, "", got)[0]
    assert b"version 1 of the job is over" in nobody_knows.json
    commit(store, 0, [], version=3, revision=1)
    with pytest.raises(UserError, match="version 3 of job job is not known here yet"):
        said(Deliver(spec, after, got, (after, before)), store.windows_after(JOB.uid, 0)[-1], "", got)


def test_windows_that_do_not_follow_one_another_any_more_are_unknown() -> None:
    text = "SELECT host, COUNT(*) AS n FROM access GROUP BY host WINDOWING SESSION 5 SECONDS"
    verdict, _ = verdict_of(Alert("n > 1"), plan_text(text, SCHEMA, stream="access"), window(0, {"n": [4]}))
    assert verdict.missing == ("the job's windows do not follow one another any more",)


def test_long_keys_and_many_groups_are_bounded() -> None:
    hosts: list[object] = [f"{number:03}" + "x" * 900 for number in range(GROUPS_MAX + 44)]
    verdict, rows = verdict_of(
        Alert("n > 0", by=("host",)),
        PER_HOST,
        window(0, {"host": hosts, "n": [1] * len(hosts), "s": [1] * len(hosts)}),
    )
    assert (len(verdict.groups), verdict.more, len(set(verdict.groups))) == (GROUPS_MAX, 44, GROUPS_MAX)
    assert max(map(len, verdict.groups)) < 512
    assert len(rows) == 20


FOLLOWING = [
    ("10 SECONDS", True),
    ("30 SECONDS SLIDE 5 SECONDS", True),
    ("LANDMARK EVERY 10 SECONDS", True),
    ("SESSION 5 SECONDS", False),
    ("100 ROWS", False),
    ("10 SECONDS, 20 SECONDS", False),
]


@pytest.mark.parametrize(("windows", "follow"), FOLLOWING)
def test_windows_that_follow_one_another(windows: str, follow: bool) -> None:
    text = f"SELECT host, COUNT(*) AS n FROM access GROUP BY host WINDOWING {windows}"
    assert follow_on(plan_text(text, SCHEMA, stream="access")) == follow


DEFINITION = Definition(PER_HOST.sql, (("access", SCHEMA),))
READ = Read.of(f"{'0' * 32}.1", "busy", PER_HOST)


def test_a_condition_is_checked_against_the_rows_of_the_job() -> None:
    check_over("n > 2 AND host IN ('a', 'b') AND s / n > 100", ["host"], DEFINITION, READ)


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("nn > 2", "nn"),
        ("n + 1", "WHERE needs a condition"),
        ("n > 'x'", "x"),
        ("n > 2 GROUP BY host", "one condition is wanted, as after WHERE"),
        ("n > 2) OR (n > 3", "("),
        ("COUNT(*) > 2", "COUNT"),
    ],
)
def test_what_is_no_condition_over_them_is_refused_with_its_place(when: str, why: str) -> None:
    with pytest.raises(UserError) as refused:
        check_over(when, (), DEFINITION, READ)
    assert why in str(refused.value)
    with pytest.raises(UserError, match="hosts"):
        check_over("n > 2", ["hosts"], DEFINITION, READ)
