"""Statements from text."""

from __future__ import annotations

import contextlib
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elf.errors import QueryError
from elf.ql.planner import plan, streams_of
from elf.ql.statements import (
    JOB_NAME_MAX,
    CreateJob,
    Describe,
    DropJob,
    Explain,
    ExplainRoutes,
    NotifyJob,
    Query,
    Select,
    Show,
    Subscribe,
    parse,
)
from tests.support.ql_table import SCHEMA


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("DESCRIBE top", "top", ""),
        ("describe job top", "top", "job"),
        ("DESCRIBE STREAM a", "a", "stream"),
        ("DESCRIBE TABLE a", "a", "table"),
        ("DESCRIBE job", "job", ""),
        ("DESCRIBE JOB table", "table", "job"),
    ],
)
def test_what_is_described_may_be_said_to_be_a_job_a_stream_or_a_table(
    text: str, name: str, kind: Literal["", "job", "stream", "table"]
) -> None:
    assert list(parse(text)) == [Describe(text, name, kind)]


def test_several_statements_keep_their_texts() -> None:
    text = """-- the first
    CREATE OR REPLACE JOB top AS /* inside */ SELECT COUNT(*) FROM a; ;
    drop job top;
    show Jobs; SHOW streams; SHOW MEMBERS;
    DESCRIBE clicks; SUBSCRIBE top;
    SELECT COUNT(*) FROM `a;b` WHERE x = ';' -- the end"""
    create, drop, jobs, streams, members, describe, subscribe, select = parse(text)
    assert isinstance(create, CreateJob)
    assert (create.name, create.replace) == ("top", True)
    assert create.sql == "CREATE OR REPLACE JOB top AS /* inside */ SELECT COUNT(*) FROM a"
    assert create.query.sql == "SELECT COUNT(*) FROM a"
    assert drop == DropJob("drop job top", "top")
    assert [show.what for show in (jobs, streams, members) if isinstance(show, Show)] == [
        "jobs",
        "streams",
        "members",
    ]
    assert describe == Describe("DESCRIBE clicks", "clicks")
    assert subscribe == Subscribe("SUBSCRIBE top", "top")
    assert isinstance(select, Select)
    assert select.sql == select.query.sql == "SELECT COUNT(*) FROM `a;b` WHERE x = ';'"


def test_explain() -> None:
    (query, analyzed, job) = parse(
        "EXPLAIN SELECT COUNT(*) FROM a; EXPLAIN ANALYZE SELECT COUNT(*) FROM a; EXPLAIN top"
    )
    assert isinstance(query, Explain)
    assert isinstance(query.target, Query)
    assert (query.target.sql, query.analyze) == ("SELECT COUNT(*) FROM a", False)
    assert isinstance(analyzed, Explain)
    assert analyzed.analyze
    assert job == Explain("EXPLAIN top", "top", False)
    offline, of_job, called_so = parse(
        "EXPLAIN OFFLINE SELECT COUNT(*) FROM a; EXPLAIN OFFLINE top; EXPLAIN offline"
    )
    assert isinstance(offline, Explain)
    assert (offline.offline, offline.analyze, isinstance(offline.target, Query)) == (True, False, True)
    assert of_job == Explain("EXPLAIN OFFLINE top", "top", False, True)
    assert called_so == Explain("EXPLAIN offline", "offline", False)
    parsed = parse("EXPLAIN LATENCY top; EXPLAIN LATENCY JOB top; EXPLAIN LATENCY job; EXPLAIN latency")
    assert [(one.target, one.latency) for one in parsed if isinstance(one, Explain)] == [
        ("top", True),
        ("top", True),
        ("job", True),
        ("latency", False),
    ]
    with pytest.raises(QueryError, match="the name of a job that runs"):
        parse("EXPLAIN LATENCY (SELECT COUNT(*) FROM a)")
    with pytest.raises(QueryError):
        parse("EXPLAIN LATENCY SELECT COUNT(*) FROM a")


def test_explain_routes_is_of_the_fleet_and_a_job_may_be_called_so() -> None:
    assert parse("EXPLAIN routes") == [ExplainRoutes("EXPLAIN routes")]
    assert parse("EXPLAIN JOB routes") == [Explain("EXPLAIN JOB routes", "routes", False)]
    assert parse("EXPLAIN job") == [Explain("EXPLAIN job", "job", False)]
    with pytest.raises(QueryError, match="unexpected"):
        parse("EXPLAIN ROUTES busy")


def test_notify() -> None:
    text = "notify job top 'it''s on; -- now'"
    assert parse(f"{text};") == [NotifyJob(text, "top", "it's on; -- now")]
    with pytest.raises(QueryError, match="expected the notice in quotes"):
        parse("NOTIFY JOB top soon")
    with pytest.raises(QueryError, match="expected JOB"):
        parse("NOTIFY top 'soon'")


def test_nothing_at_all() -> None:
    assert parse("") == parse(" ;; -- nothing\n") == []


@pytest.mark.parametrize(
    ("text", "streams"),
    [
        ("SELECT COUNT(*) FROM *", "*"),
        ("SELECT COUNT(*) FROM clicks AS c", ("clicks",)),
        ("SELECT COUNT(*) FROM clicks, buys", ("clicks", "buys")),
        ('SELECT COUNT(*) FROM "web-log"', ("web-log",)),
    ],
)
def test_streams(text: str, streams: tuple[str, ...] | str) -> None:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    assert streams_of(statement.query) == streams


def test_the_name_of_a_job_is_bounded_where_it_is_created() -> None:
    longest = "j" * JOB_NAME_MAX
    query = "AS SELECT COUNT(*) FROM b"
    assert parse(f"CREATE JOB {longest} {query}")
    with pytest.raises(
        QueryError, match=r"name of 129 characters is too long: 128 at most \(line 1, column 12"
    ):
        parse(f"CREATE JOB {longest}x {query}")
    assert parse(f"DROP JOB {longest}x")  # of one that was created before there was a bound


def test_a_statement_reads_the_same_from_its_own_text() -> None:
    (whole,) = parse("\n\n  CREATE JOB a AS SELECT COUNT(*) FROM b WHERE c = 1 ;")
    assert parse(whole.sql) == [whole]


_VOCABULARY = """SELECT FROM WHERE GROUP BY ORDER LIMIT WINDOWING SLIDE WINDOW HOPPING ( ) , . * + == ' " ` ;
a b 1 2.5 SECONDS COUNT SUM CASE WHEN END CAST AS BIGINT CREATE JOB DROP EXPLAIN IN NOT LIKE -- /*
\\ [ ] :: @ $ ? é \0"""
_WORDS = st.lists(st.sampled_from(_VOCABULARY.split()), max_size=25)


@given(st.one_of(st.text(max_size=60), _WORDS.map(" ".join), _WORDS.map("".join)))
def test_any_text_gives_statements_or_a_query_error(text: str) -> None:
    with contextlib.suppress(QueryError):
        for statement in parse(text):
            assert statement.sql in text
            if isinstance(statement, Select | CreateJob):
                plan(statement.query, SCHEMA, stream="x")


def test_deep_nesting_is_an_error_of_the_query() -> None:
    with pytest.raises(QueryError, match="at most 64 brackets in one another"):
        parse("SELECT COUNT(*) FROM x WHERE " + "(" * 900 + "1" + ")" * 900)
    with pytest.raises(QueryError, match="operators nested more than 250 deep"):
        parse("SELECT COUNT(*) FROM x WHERE 1 " + "+ 1" * 300)
    with pytest.raises(QueryError, match="at most 64 signs in a row"):
        parse("SELECT COUNT(*) FROM x WHERE " + "NOT " * 300 + "TRUE")


def test_parameters_are_put_in_their_places() -> None:
    text = "SELECT COUNT(*) AS n FROM x WHERE clicks > :least AND store = :Store LIMIT :k {}"
    (select,) = parse(text.format("WITH (least = -3, store = 'toys', k = 5)"))
    assert isinstance(select, Select)
    (plain,) = parse("SELECT COUNT(*) AS n FROM x WHERE clicks > -3 AND store = 'toys' LIMIT 5")
    assert isinstance(plain, Select)
    made, wanted = (plan(one.query, SCHEMA, stream="x") for one in (select, plain))
    assert (made.fragment, made.final_sql) == (wanted.fragment, wanted.final_sql)
    changed = select.query.with_values({"LEAST": "7", "k": "1"})
    assert changed.sql == text.format("WITH (least = 7, store = 'toys', k = 1)")
    with pytest.raises(QueryError, match="no parameter most; there are: least, store, k"):
        select.query.with_values({"most": "1"})
    with pytest.raises(QueryError):
        select.query.with_values({"k": "1); DROP JOB a; SELECT (1"})
