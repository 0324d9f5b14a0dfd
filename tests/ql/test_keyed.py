"""What is a SELECT over a table, what it finds by key, and what does not go with one."""

from __future__ import annotations

import pytest

from elf.errors import QueryError
from elf.job.output import why_not
from elf.ql.keyed import PauseTable, TableSelect, over_table
from elf.ql.outputs import CreateOutput
from elf.ql.statements import Select, parse


def read(text: str) -> TableSelect | None:
    """The SELECT as an agent reads it that has a table busy."""
    (statement,) = parse(text)
    if isinstance(statement, TableSelect):
        return statement
    assert isinstance(statement, Select)
    return over_table(statement.sql, statement.query, {"busy"})


@pytest.mark.parametrize("source", ["JOB busy", "LATE busy", "LATE(busy)", "'busy'", "JOB busy b", "other"])
def test_only_a_plain_name_is_a_table(source: str) -> None:
    assert read("SELECT * FROM busy") is not None
    assert read(f"SELECT * FROM {source}") is None
    assert read("WITH busy AS (SELECT 1 AS a) SELECT * FROM busy") is None


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("FROM busy WHERE a = 1 WINDOWING 5 SECONDS", "WINDOWING"),
        ("FROM busy WHERE a = 1 SAMPLE 1 %", "SAMPLE"),
        ("FROM busy WHERE a = 1 TREES 2", "TREES"),
        ("FROM busy AS OF ANY WHERE a = 1 TREES 2", "TREES"),
        ("FROM busy WHERE a = 1 WITH GRAPH components", "WITH"),
        ("FROM busy ON cpu_cores > 3 WHERE a = 1", "ON"),
        ("FROM busy WHERE a = 1 LATENESS 5 SECONDS", "LATENESS"),
        ("FROM busy WHERE a = 1 WITHIN 5 SECONDS ON AVERAGE", "WITHIN"),
        ("FROM busy WHERE a = 1 EMIT CHANGES", "EMIT"),
        ("FROM busy WHERE a = 1 SINCE '-1 hour'", "SINCE"),
        ("FROM busy WHERE a = 1 LIMIT 2 APPROXIMATE", "APPROXIMATE"),
        ("FROM busy TABLESAMPLE (10 PERCENT) WHERE a = 1", "10"),
        ("FROM other.busy WHERE a = 1", "other"),
        ("FROM busy WHERE a IN (SELECT a FROM JOB busy)", "JOB"),
        ("FROM busy WHERE a = 1 UNION ALL SELECT * FROM busy TREES 2", "TREES"),
    ],
)
def test_a_clause_that_would_not_be_heeded_is_refused_at_its_place(said: str, word: str) -> None:
    text = f"SELECT * {said}"
    with pytest.raises(QueryError, match="a table") as error:
        read(text)
    assert error.value.column == text.rindex(word) + 1


@pytest.mark.parametrize(
    ("said", "equals", "whole"),
    [
        ("busy WHERE a = 1 AND b IN ('x', 'y')", (("a", (1,)), ("b", ("x", "y"))), True),
        ("busy z WHERE z.A = 1", (("a", (1,)),), True),
        ("busy WHERE clicks = 1 AND CLICKS = 2", (("clicks", (1,)),), False),
        ("busy WHERE a = 1 OFFSET 2", (("a", (1,)),), False),
        ("busy x JOIN busy y ON x.a = y.b WHERE x.a = 1", (), False),
        ("busy z(b, a) WHERE a = 1", (), False),
        ("busy WHERE other.a = 1", (), False),
        ("(SELECT * FROM busy AS OF ANY WHERE a = 1) z", (), False),
    ],
)
def test_a_key_is_read_from_conditions_over_the_table_alone(
    said: str, equals: tuple[object, ...], whole: bool
) -> None:
    found = read(f"SELECT * FROM {said}")
    assert found is not None
    assert found.equals == equals
    assert (found.columns == ()) is whole


@pytest.mark.parametrize("begin", ["CREATE TABLE t FROM JOB busy", "ALTER TABLE t SET"])
def test_a_column_is_in_a_key_once(begin: str) -> None:
    with pytest.raises(QueryError, match='a column that is not in the key yet, not "Ip"') as error:
        parse(f"{begin} KEY (ip, url, Ip)")
    assert error.value.column == len(f"{begin} KEY (ip, url, ") + 1


def test_a_change_of_a_key_is_paused_and_goes_on() -> None:
    pause, resume = parse("ALTER TABLE t PAUSE; alter table t resume")
    assert (pause, resume) == (
        PauseTable("ALTER TABLE t PAUSE", "t", paused=True),
        PauseTable("alter table t resume", "t", paused=False),
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("ALTER TABLE t PAUSE KEY", 'unexpected "KEY"'),
        ("ALTER TABLE t STOP", r'expected SET KEY \(column, …\), PAUSE or RESUME, not "STOP"'),
        ("ALTER TABLE t", "expected SET KEY .*, but the statement ends here"),
        ("EXPLAIN ALTER TABLE t PAUSE", 'expected SET KEY .*, not "PAUSE"'),
    ],
)
def test_what_is_no_change_of_a_key_is_refused(said: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        parse(said)


def test_a_table_has_shards_or_a_ring_and_not_both() -> None:
    (made,) = parse("CREATE TABLE t FROM JOB j KEY (a) RING RETAIN 1 HOUR")
    assert isinstance(made, CreateOutput)
    options = dict(made.options)
    assert (options["ring"], options["shards"], options["retain"]) == ("3", "8", "3600000000")
    assert not why_not(made.target, options)
    for wrong in ({"ring": "4"}, {"shards": "3"}, {"ring": "9" * 40}):
        assert why_not(made.target, options | wrong) == "a ring has 8 parts of 3 copies each"
    for said in ("SHARDS 4 RING", "RING SHARDS 4", "RING 3"):
        with pytest.raises(QueryError):
            parse(f"CREATE TABLE t FROM JOB j KEY (a) {said}")
