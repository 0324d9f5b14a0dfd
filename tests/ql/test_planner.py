"""What a plan promises, beside its answers: shared fragments, needed columns, windows, speed."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pytest

from elf.aggregates import State, merge_tables
from elf.errors import QueryError, UserError
from elf.fields import replace
from elf.job.spec import flow_uid
from elf.ql.groups import plan_rows
from elf.ql.planner import late_of, over_late, plan_streams, plan_text
from elf.ql.statements import Select, parse
from elf.schema import Column, Schema
from elf.windows import Cumulative, Kind, Landmark, Session, Sliding
from tests.support.ql_table import SCHEMA

SAME_FRAGMENT = [
    "SELECT store, product, SUM(clicks), AVG(price) FROM x WHERE ok AND clicks > 3 AND store IN ('a', 'b') "
    "GROUP BY store, product WINDOWING 30 SECONDS",
    "select   PRODUCT as p, Sum(Clicks)*2 as s, store from x where store in ('b','a','b') and 3 < clicks "
    "and (ok) group by p, store having avg(price) > 1 order by s desc limit 3 windowing 30000 milliseconds",
    "SELECT SUM(price) / COUNT(price), SUM(clicks) FROM x -- comment\n"
    "WINDOW TUMBLING (SIZE 30 SECONDS) WHERE clicks > 3 AND (ok AND store IN ('a', 'b')) "
    "GROUP BY x.product, x.store",
    "SELECT AVG(price) FROM x WHERE NOT clicks <= 3 AND ok AND (store IN ('a', 'b')) AND ok "
    "GROUP BY product, store ORDER BY SUM(clicks) WINDOWING 0.5 MINUTES",
]


@pytest.mark.parametrize("text", SAME_FRAGMENT[1:])
def test_equal_questions_share_their_fragment(text: str) -> None:
    assert plan_text(text, SCHEMA).fragment == plan_text(SAME_FRAGMENT[0], SCHEMA).fragment


@pytest.mark.parametrize(
    "text",
    [
        SAME_FRAGMENT[0].replace("> 3", ">= 3"),
        SAME_FRAGMENT[0].replace("SUM(clicks)", "MAX(clicks)"),
        SAME_FRAGMENT[0].replace("store, product WIN", "store, product, ok WIN"),
        SAME_FRAGMENT[0].replace("30 SECONDS", "40 SECONDS"),
        SAME_FRAGMENT[0] + " LATENESS 1 SECOND",
    ],
)
def test_other_questions_do_not(text: str) -> None:
    assert plan_text(text, SCHEMA).fragment != plan_text(SAME_FRAGMENT[0], SCHEMA).fragment


def test_shorter_panes_change_the_pane_alone() -> None:
    (statement,) = parse(SAME_FRAGMENT[0])
    assert isinstance(statement, Select)
    own, short = (plan_streams(statement.query, {"x": SCHEMA}, pane_us=us) for us in (None, 10_000_000))
    assert own.fragment.pane_us == 30_000_000
    assert short == replace(own, fragment=replace(own.fragment, pane_us=10_000_000))
    assert short.grain_us == 10_000_000
    assert short.identity != own.identity


def test_only_the_needed_columns_in_the_order_of_the_schema() -> None:
    fragment = plan_text(
        "SELECT product, MAX(price) FROM x WHERE user.location = 'a' AND id > 1 GROUP BY product "
        "WINDOWING 1 DAY",
        SCHEMA,
    ).fragment
    assert [column.name for column in fragment.columns] == ["id", "product", "price", "user.location"]


def test_equal_aggregates_are_computed_once() -> None:
    fragment = plan_text(
        "SELECT SUM(clicks), AVG(clicks), COUNT(clicks), sum(CLICKS) + 1 FROM x", SCHEMA
    ).fragment
    assert fragment.states == (State("s0_count", "sum", True), State("s1_sum", "sum"))


@pytest.mark.parametrize(
    ("clause", "window", "pane_us", "lateness_us"),
    [
        ("", (), 0, None),
        ("WINDOWING 30 SECONDS", (Sliding(30_000_000, 30_000_000),), 30_000_000, None),
        ("WINDOWING 300 SECONDS SLIDE 5 SECONDS", (Sliding(300_000_000, 5_000_000),), 5_000_000, None),
        (
            "WINDOWING 7 SECONDS SLIDE 5 SECONDS LATENESS 0 SECONDS",
            (Sliding(7_000_000, 5_000_000),),
            1_000_000,
            0,
        ),
        (
            "LATENESS 1 MINUTE WINDOWING 1 HOUR",
            (Sliding(3_600_000_000, 3_600_000_000),),
            3_600_000_000,
            60_000_000,
        ),
        ("WINDOWING 1.5 SECONDS", (Sliding(1_500_000, 1_500_000),), 1_500_000, None),
        (
            "WINDOWING 10 MINUTES, 1 HOUR SLIDE 4 MINUTES, CUMULATE 1 DAY STEP 1 HOUR, LANDMARK EVERY 1 HOUR",
            (
                Sliding(600_000_000, 600_000_000),
                Sliding(3_600_000_000, 240_000_000),
                Cumulative(86_400_000_000, 3_600_000_000),
                Landmark(3_600_000_000),
            ),
            120_000_000,
            None,
        ),
        (
            "WINDOWING SESSION 61 SECONDS MAX 1 HOUR",
            (Session(61_000_000, 3_600_000_000),),
            60_000_000,
            None,
        ),
        (
            "WINDOW SESSION (60 SECONDS)",
            (Session(60_000_000, 86_400_000_000),),
            60_000_000,
            None,
        ),
        ("WINDOWING 100 SECONDS SLIDE 1 MILLISECOND", (Sliding(100_000_000, 1_000),), 1_000, None),
    ],
)
def test_windows(clause: str, window: tuple[Kind, ...], pane_us: int, lateness_us: int | None) -> None:
    plan = plan_text(f"SELECT COUNT(*) FROM x {clause}", SCHEMA)
    assert (plan.windows, plan.fragment.pane_us, plan.fragment.lateness_us) == (window, pane_us, lateness_us)


def test_names_of_columns_that_are_words_of_sql() -> None:
    words = [
        "timestamp",
        "date",
        "time",
        "order",
        "user",
        "key",
        "@timestamp",
        "windowing",
        "rows",
        "groups",
        "k0",
        'a"b`c',
    ]
    schema = Schema((*(Column(word, "bigint") for word in words), Column("ts", "timestamp")), "ts")
    names = 'timestamp, date, time, "order", user, key, @timestamp, windowing, rows, groups, k0, "a""b`c"'
    plan = plan_text(f"SELECT {names} FROM x GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12", schema)
    assert plan.outputs == tuple(words)
    assert 'r."a""b`c"' in plan.fragment.map_sql
    assert 'r.`a"b``c`' in plan.spark_sql


def test_columns_go_without_regard_to_case_unless_that_is_ambiguous() -> None:
    schema = Schema((Column("Host", "text"), Column("n", "bigint"), Column("N", "double")))
    for sql, outputs in (("SUM(n)", ("Host", "SUM(n)")), ("SUM(N)", ("Host", "SUM(N)"))):
        assert plan_text(f"SELECT HOST, {sql} FROM x GROUP BY host", schema).outputs == outputs
    with pytest.raises(QueryError, match='columns "n" and "N" in one query'):
        plan_text("SELECT HOST, SUM(n), SUM(N) FROM x GROUP BY host", schema)
    with pytest.raises(QueryError, match='columns "n" and "N": names must'):
        plan_rows(["n", "N"], "", schema, stream="x")
    with pytest.raises(Exception, match='column "k" is ambiguous'):
        plan_text(
            "SELECT SUM(k) FROM x", Schema((Column("K", "bigint"), Column("κ", "text"), Column("K", "text")))
        )


@pytest.mark.parametrize(
    "more", ["GROUP BY n", "LIMIT 5", "HAVING COUNT(*) > 1", "; SELECT 1", "UNION SELECT 1"]
)
def test_rows_of_a_job_have_one_condition_and_no_more(more: str) -> None:
    with pytest.raises(UserError):
        plan_rows(["n"], f"n > 1 {more}", Schema((Column("n", "bigint"),)), stream="x")


def test_several_streams_have_a_fragment_each() -> None:
    clicks = Schema((Column("ts", "timestamp"), Column("host", "text"), Column("n", "bigint")), "ts")
    buys = Schema((Column("ts", "timestamp"), Column("n", "double"), Column("shop", "text")), "ts")
    text = (
        "SELECT host, SUM(n) AS s, COUNT(DISTINCT shop) AS d FROM clicks, buys WHERE n > 1 GROUP BY host "
        "WINDOWING 5 SECONDS"
    )
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    plan = plan_streams(statement.query, {"clicks": clicks, "buys": buys})
    one, two = plan.fragments
    assert (one.stream, two.stream) == ("clicks", "buys")
    assert (one.keys, one.states, one.pane_us) == (two.keys, two.states, two.pane_us)
    con = duckdb.connect()
    con.execute("CREATE TABLE rows AS SELECT 'a' AS host, 2::BIGINT AS n, 7::BIGINT AS _pane")
    first = con.sql(one.map_sql).to_arrow_table()
    con.execute("CREATE OR REPLACE TABLE rows AS SELECT 2.5::DOUBLE AS n, 'x' AS shop, 7::BIGINT AS _pane")
    second = con.sql(two.map_sql).to_arrow_table()
    merged = merge_tables([first, second], ["_pane", *one.keys], list(one.states))
    start = dt.datetime(2024, 1, 1)
    times = pa.array([start] * merged.num_rows, pa.timestamp("us"))
    con.register("groups", merged.append_column("window_start", times).append_column("window_end", times))
    assert con.sql(plan.final_sql).fetchall() == [(start, start, "a", 2.0, 0), (start, start, None, 2.5, 1)]


def test_a_query_of_no_stream_is_told_so() -> None:
    (statement,) = parse("SELECT 1 AS one WINDOWING 5 SECONDS")
    assert isinstance(statement, Select)
    with pytest.raises(QueryError, match="a query needs FROM: the name of a stream"):
        plan_streams(statement.query, {})


def test_streams_whose_columns_disagree() -> None:
    (statement,) = parse("SELECT SUM(n) FROM a, b")
    assert isinstance(statement, Select)
    schemas = {"a": Schema((Column("n", "bigint"),)), "b": Schema((Column("n", "text"),))}
    with pytest.raises(QueryError, match="column n is bigint in one of the streams and text in b"):
        plan_streams(statement.query, schemas)


REVISE = (None, False, False)


def test_all_trees_leap_and_none_leaves_groups_out() -> None:
    text = "SELECT store, COUNT(*) AS n FROM x GROUP BY store ORDER BY n DESC LIMIT 2 WINDOWING 5 SECONDS"
    found = plan_text(f"{text} STRAGGLERS LEAP TREES 2", SCHEMA)
    assert [(one.range, one.leap, one.first) for one in found.fragments] == [
        ((0, 2), True, None),
        ((1, 2), True, None),
    ]
    assert plan_text(f"{text} STRAGGLERS LEAP", SCHEMA).fragment.first is not None


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("", (None, False, False)),
        ("STRAGGLERS REVISE", (None, False, False)),
        ("STRAGGLERS WAIT 90 SECONDS", (90_000_000, False, False)),
        ("STRAGGLERS LEAP", (None, True, False)),
        ("STRAGGLERS MIRROR", (None, False, True)),
    ],
)
def test_stragglers_decide_the_fragment(clause: str, expected: tuple[int | None, bool, bool]) -> None:
    """Jobs share a flow with the same policy only; REVISE is what a query without the clause says."""
    rows = "SELECT store, COUNT(*) AS n FROM x GROUP BY store"
    inner = f"SELECT MAX(n) FROM ({rows}) AS t WINDOWING 5 SECONDS {clause}"
    plain, uids = plan_text(f"{rows} WINDOWING 5 SECONDS", SCHEMA).fragment, set()
    for text in (f"{rows} WINDOWING 5 SECONDS {clause}", f"{rows} {clause} WINDOWING 5 SECONDS", inner):
        fragment = plan_text(text, SCHEMA).fragment
        assert (fragment.wait_us, fragment.leap, fragment.mirror) == expected
        assert (fragment == plain) == (expected == REVISE)
        uids.add(flow_uid(fragment, "1"))
    assert len(uids) == 1
    assert (flow_uid(plain, "1") in uids) == (expected == REVISE)


def test_mirrors_go_with_what_leaping_does_not() -> None:
    for end in ("WINDOWING 100 ROWS", "WINDOWING 5 SECONDS TREES 2", "WINDOWING 5 SECONDS EMIT FINAL REVISE"):
        plan = plan_text(f"SELECT store, COUNT(*) FROM x GROUP BY store {end} STRAGGLERS MIRROR", SCHEMA)
        assert all(fragment.mirror for fragment in plan.fragments)
        assert plan.fragment.first is None, "its windows are revised"


@pytest.mark.parametrize(
    ("emit", "expected"),
    [
        ("", (None, None)),
        ("EMIT FINAL", (None, None)),
        ("EMIT FINAL REVISE", (600_000_000, None)),
        ("LATENESS 1 SECOND EMIT FINAL REVISE 5 SECONDS", (5_000_000, None)),
        ("EMIT CHANGES", (None, 1_000_000)),
        ("EMIT CHANGES EVERY 2 SECONDS", (None, 2_000_000)),
    ],
)
def test_emission_decides_the_fragment(emit: str, expected: tuple[int | None, int | None]) -> None:
    text = f"SELECT COUNT(*) FROM x WINDOWING 5 SECONDS {emit}"
    grouped = "SELECT store, COUNT(*) AS n FROM x GROUP BY store"
    inner = f"SELECT MAX(n) FROM ({grouped}) AS t WINDOWING 5 SECONDS {emit}"
    for fragment in (plan_text(text, SCHEMA).fragment, plan_text(inner, SCHEMA).fragment):
        assert (fragment.revise_us, fragment.changes_us) == expected


def test_late_rows_of_a_job_are_a_stream() -> None:
    for stream in ("LATE busy", "LATE(busy)", 'LATE "busy"'):
        (asked,) = parse(f"SELECT store, COUNT(*) FROM {stream} GROUP BY store WINDOWING 5 SECONDS")
        assert isinstance(asked, Select)
        assert late_of(asked.query) == "busy"
        late = over_late(asked.query, plan_streams(asked.query, {"s": SCHEMA}), {"s": "uid"})
        assert (late.fragment.late_of, late.spark_sql) == ("uid", "")
    (plain,) = parse("SELECT COUNT(*) FROM late WINDOWING 5 SECONDS")
    assert isinstance(plain, Select)
    assert late_of(plain.query) is None
    for wrong, message in (
        ("SELECT COUNT(*) FROM LATE busy WINDOWING SESSION 5 SECONDS", "sessions"),
        ("SELECT COUNT(*) FROM LATE busy WINDOWING 5 SECONDS EMIT FINAL REVISE", "REVISE"),
        ("SELECT store, COUNT(*) FROM LATE busy GROUP BY store WINDOWING 5 SECONDS TREES 2", "TREES"),
        (
            "SELECT store, COUNT(*) FROM LATE busy GROUP BY store ORDER BY 2 DESC LIMIT 2 APPROXIMATE "
            "WINDOWING 5 SECONDS",
            "APPROXIMATE",
        ),
        ("SELECT COUNT(*) FROM LATE busy WINDOWING 5 SECONDS STRAGGLERS LEAP", "STRAGGLERS LEAP"),
    ):
        (asked,) = parse(wrong)
        assert isinstance(asked, Select)
        with pytest.raises(QueryError, match=message):
            over_late(asked.query, plan_streams(asked.query, {"s": SCHEMA}), {"s": "uid"})


def test_priority_is_of_a_job_and_of_no_flow() -> None:
    text = "SELECT priority, COUNT(*) AS n FROM x GROUP BY priority WINDOWING 10 SECONDS"
    schema = Schema((Column("priority", "text"), Column("timestamp", "timestamp")), "timestamp")
    plain, research = plan_text(text, schema), plan_text(f"{text} PRIORITY RESEARCH", schema)
    assert (plain.gives_way, research.gives_way) == (False, True)
    assert not plan_text(f"{text} LATENESS 1 SECOND priority production", schema).gives_way
    assert plain.fragment == research.fragment, "flows are shared"
    for end, why in (
        ("PRIORITY HIGH", "expected RESEARCH or PRODUCTION after PRIORITY"),
        ("PRIORITY", "expected RESEARCH or PRODUCTION after PRIORITY"),
        ("PRIORITY RESEARCH PRIORITY RESEARCH", "two PRIORITY clauses"),
    ):
        with pytest.raises(QueryError, match=why):
            plan_text(f"{text} {end}", schema)
    within = "SELECT MAX(n) AS m FROM (SELECT COUNT(*) AS n FROM x GROUP BY priority PRIORITY RESEARCH) AS t"
    with pytest.raises(QueryError, match="PRIORITY is of the whole query: say it once, at the end"):
        plan_text(f"{within} WINDOWING 10 SECONDS", schema)
