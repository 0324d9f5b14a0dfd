"""Random queries over random logs: live answers, DuckDB on all rows and Spark are the same. By hand, two
thousand: ``elf bench differential --queries 2000``.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elf.bench.differential import bench, expressions, queries, reference
from elf.bench.differential.bench import Figures, Options, judge, run
from elf.bench.differential.differences import Answer
from elf.bench.differential.logs import SCHEMA, make_log
from elf.bench.differential.offline import Offline
from elf.bench.differential.shrink import shrink
from elf.bench.differential.tree import Query, leaf
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.functions import FUNCTIONS
from elf.ql.planner import plan_text
from spark_backend.batch import Batch


def test_a_hundred_random_queries(spark: SparkSession, tmp_path: Path) -> None:
    figures = run(Options(queries=100, seed=1), Offline(Batch(spark, tmp_path)))
    assert figures == Figures(queries=100, equal=100, empty=figures.empty, asked_again=figures.asked_again)
    assert figures.empty < 20


def test_the_generator_reaches_everything_in_the_tables() -> None:
    assert expressions.callable_functions() == FUNCTIONS.keys()
    assert queries.usable_aggregates() == AGGREGATES.keys()


def test_what_it_makes_is_taken_and_has_a_reference() -> None:
    made = [str(queries.make_query(random.Random(seed), lateness=True)) for seed in range(60)]
    assert made == [str(queries.make_query(random.Random(seed), lateness=True)) for seed in range(60)]
    for text in made:
        plan_text(text, SCHEMA)
    rows = reference.Reference(make_log(random.Random(1)).rows())
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

    def fails(query: Query, log: bench.Log) -> str | None:
        return "host" if log.size() >= 2 and any(str(key) == "host" for key in query.keys) else None

    query, small, complaint = shrink(wide, log, "host", fails)
    assert (complaint, small.size()) == ("host", 2)
    assert query == replace(Query(), keys=(leaf("host", "text"),))
