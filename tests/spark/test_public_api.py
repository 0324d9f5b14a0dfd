"""The public API of the Spark backend says what it takes, gives and raises, and its examples run."""

from __future__ import annotations

import asyncio
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elf.ql.planner import plan_text
from tests.support.compared import job_over
from tests.support.offline import BASE_US, CLICKS, SECOND, Click, store_clicks
from tests.support.public_api import all_faults, cases_of, public, run_examples

PUBLIC = {
    "spark_backend.session": "SparkFailed opened",
    "spark_backend.census": "census",
    "spark_backend.compare": "Comparison Difference Error LiveWindow Outcome Reason Verdict compare",
    "spark_backend.explained": "explained",
    "spark_backend.history": "begins_us filled windows_before",
    "spark_backend.judging": "is_gone judge silent updated windows_of without_archive",
    "spark_backend.offline": "Archived answer collected lacking run zoned",
    "spark_backend.page": "page write",
    "spark_backend.partials": "partials",
    "spark_backend.pending": "Pending",
    "spark_backend.queries": "Question question",
    "spark_backend.reasons": "Census Hole Shape explain shape_of waits",
    "spark_backend.report": "as_json bounds last_line moment named show window_as_json window_line",
}
NAMES = [(module, name) for module, names in PUBLIC.items() for name in names.split()]
PAGE = Path(__file__).parents[2] / "docs" / "api.md"
QUERY = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 10 SECONDS"


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_it_is_documented(module: str, name: str) -> None:
    assert not [*all_faults(name, public(module, name))]
    text = PAGE.read_text()
    assert f"`{module}`" in text
    assert re.search(rf"`{name}\b", text)


def test_its_examples_run(quick_spark: SparkSession, tmp_path: Path) -> None:
    """A second session of this process would be the first one: what ``opened`` gives is that."""
    store_clicks(tmp_path / "archive", [Click(BASE_US + n, "Doom", None, 1, 0.5) for n in (1, 2)])
    plan, first = plan_text(QUERY, CLICKS, stream="clicks"), (BASE_US, BASE_US + 10 * SECOND)
    facts = job_over(quick_spark, plan, tmp_path / "archive", [first], {first: {"rows_in": 2}})
    given = {
        "spark": quick_spark,
        "archive": str(tmp_path / "archive"),
        "plan": plan,
        "facts": facts,
        "opened": lambda *_, **__: nullcontext(quick_spark),
    }
    loop = asyncio.new_event_loop()
    for module, name in NAMES:
        run_examples(cases_of(module, name, given), loop)
    loop.close()
