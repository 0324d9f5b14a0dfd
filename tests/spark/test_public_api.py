"""The public API of the Spark backend says what it takes, gives and raises, and its examples run."""

from __future__ import annotations

import asyncio
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from elf.ql.planner import plan_text
from tests.support.offline import BASE_US, CLICKS, Click, store_clicks
from tests.support.public_api import all_faults, cases_of, public, run_examples

PUBLIC = {
    "spark_backend.session": "SparkFailed opened",
    "spark_backend.queries": "Question question",
    "spark_backend.offline": "Archived answer collected lacking run zoned",
    "spark_backend.explained": "explained",
    "spark_backend.partials": "partials",
    "spark_backend.compare": "Comparison Difference LiveWindow Verdict compare",
    "spark_backend.report": "last_line show",
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


def test_its_examples_run(spark: SparkSession, tmp_path: Path) -> None:
    """A second session of this process would be the first one: what ``opened`` gives is that."""
    store_clicks(tmp_path / "archive", [Click(BASE_US + n, "Doom", None, 1, 0.5) for n in (1, 2)])
    given = {
        "spark": spark,
        "archive": str(tmp_path / "archive"),
        "plan": plan_text(QUERY, CLICKS, stream="clicks"),
        "opened": lambda *_, **__: nullcontext(spark),
    }
    loop = asyncio.new_event_loop()
    for module, name in NAMES:
        run_examples(cases_of(module, name, given), loop)
    loop.close()
