"""Random queries over random logs: live answers, DuckDB on all rows and Spark are the same. By hand, two
thousand: ``elf bench differential --queries 2000``.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elf.fields import replace
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.functions import FUNCTIONS
from elf.ql.lookups import LOOKUPS
from lab.bench.differential import asked, expressions, queries, reference
from lab.bench.differential.asked import plan_of
from lab.bench.differential.bench import Case, Differential, Figures, judge, run, shrink
from lab.bench.differential.differences import Answer
from lab.bench.differential.logs import Log, make_log
from lab.bench.differential.offline import Offline
from lab.bench.differential.tree import Query, leaf
from spark_backend.batch import Batch
from tests.support.long import cases

QUERIES = cases(6, 500)


@pytest.mark.timeout(600)
def test_random_queries(spark: SparkSession, tmp_path: Path) -> None:
    figures = run(Differential(queries=QUERIES, seed=1), Offline(Batch(spark, tmp_path)))
    assert figures == Figures(
        queries=QUERIES, equal=QUERIES, empty=figures.empty, asked_again=figures.asked_again
    )
    assert figures.empty < QUERIES / 5


def test_the_generator_reaches_everything_in_the_tables() -> None:
    assert expressions.callable_functions() == FUNCTIONS.keys() - LOOKUPS.keys()
    assert queries.usable_aggregates() == AGGREGATES.keys()


def test_it_reaches_what_can_be_in_from_and_approximate() -> None:
    wanted = ["sections.csv", "places.csv", "UNION ALL", "FROM a, b", "APPROXIMATE"]
    wanted += ["FROM JOB", "larger windows", "JOIN JOB", "a job over a job"]
    made = [queries.make_query(random.Random(seed), lateness=True) for seed in range(150)]
    reads = [asked.plan_of(str(query)) for query in made if any(query.jobs())]
    assert {
        "FROM JOB": bool(reads),
        "larger windows": any(plan.stages for plan in reads),
        "JOIN JOB": any(plan.beside for plan in reads),
        "a job over a job": any(one.under and one.under.job for query in made for one in query.jobs()),
        "sections.csv": any("sections.csv" in str(query) for query in made),
        "places.csv": any("places.csv" in str(query) for query in made),
        "UNION ALL": any("UNION ALL" in str(query) and "FROM more" in str(query) for query in made),
        "FROM a, b": any("FROM log, more" in str(query) for query in made),
        "APPROXIMATE": any(query.approximate for query in made),
    } == dict.fromkeys(wanted, True)


def test_an_approximate_row_is_held_to_its_bound() -> None:
    """Three keys of 25, and a row that lacks 2 of 9 and says that it may lack so much."""
    query = Query(
        keys=(leaf("n", "bigint"),), outputs=(leaf("COUNT(*)", "bigint"),), limit=1, approximate=True
    )
    all_groups = Answer(("ka0", "a0", "error_bound"), [(n, 9 - n, 0.0) for n in range(25)])
    exact = Answer(all_groups.names, all_groups.rows[:1])
    case = Case(0, query, 1, "", all_groups)
    for row, right in (((0, 7, 2.0), True), ((0, 7, 1.0), False), ((1, 8, 0.0), True), ((0, 10, 0.0), False)):
        complaint = judge(exact, Answer(exact.names, [row]), exact, case)
        assert (complaint is None) is right, complaint
    assert "rows instead of" in str(judge(exact, Answer(exact.names, []), exact, case))
    few = replace(
        case, every=replace(all_groups, rows=all_groups.rows[:10])
    )  # of few groups none is left out
    assert "live is not DuckDB" in str(judge(exact, Answer(exact.names, [(0, 7, 2.0)]), exact, few))


def test_what_it_makes_is_taken_and_has_a_reference() -> None:
    made = [str(queries.make_query(random.Random(seed), lateness=True)) for seed in range(60)]
    assert made == [str(queries.make_query(random.Random(seed), lateness=True)) for seed in range(60)]
    for text in made:
        plan_of(text)
    rows = reference.Reference(make_log(random.Random(1)))
    assert sum(bool(rows.answer(text).rows) for text in made) > 30
    rows.close()


def test_a_wrong_answer_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    right = Answer(("a",), [(1,), (2.0,)])
    assert judge(right, right, right) is None
    assert "live is not DuckDB" in str(judge(right, Answer(("a",), [(1,), (2.1,)]), right))
    assert "Spark is not DuckDB" in str(judge(right, right, Answer(("a",), [(1,)])))
    assert "Spark has no answer: it fell" in str(judge(right, right, "it fell"))


def test_failures_are_made_small() -> None:
    log = make_log(random.Random(3))
    wide = Query(
        keys=(leaf("host", "text"), leaf("n", "bigint")),
        outputs=(leaf("COUNT(*)", "bigint"), leaf("MAX(x)", "double")),
        limit=3,
        window="WINDOWING 1 DAY",
    )

    def fails(query: Query, log: Log) -> str | None:
        return "host" if log.size() >= 2 and any(str(key) == "host" for key in query.keys) else None

    query, small, complaint = shrink(wide, log, "host", fails)
    assert (complaint, small.size()) == ("host", 2)
    assert query == replace(Query(), keys=(leaf("host", "text"),))
