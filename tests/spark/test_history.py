"""Windows of before a job began, by Spark: which these are, and that they are what live ones would be."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from agents.archive.partitions import Target
from agents.archive.shelf import Shelf
from elf.batch import decode
from elf.client import CompareFacts
from elf.errors import UserError
from elf.fields import replace
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from lab.chaos.engine import spec_of
from spark_backend.history import begins_us, filled, windows_before
from tests.support.compared import job_over
from tests.support.offline import BASE_US, CLICKS, SECOND, Click, archived, counted, store_clicks, windows

QUERY = "SELECT product, COUNT(*) AS n, SUM(clicks) AS s FROM clicks GROUP BY product WINDOWING {}"


def plan(size: str = "10 SECONDS") -> Plan:
    return plan_text(QUERY.format(size), CLICKS, stream="clicks")


def begun(facts: CompareFacts, pane: int) -> CompareFacts:
    versions = tuple(msgspec.structs.replace(one, first_pane=pane) for one in facts.job.versions)
    return replace(facts, job=msgspec.structs.replace(facts.job, versions=versions))


def test_windows_of_before_are_as_live_ones_would_be(quick_spark: SparkSession, tmp_path: Path) -> None:
    """Also those without rows, and those that reach beyond the moment; what was deleted is named."""
    rows = [
        Click(BASE_US + n * SECOND, ("doom", "myst")[n % 2], None, n, 0.5) for n in range(60) if n // 10 != 2
    ]
    for place, agent in enumerate("ab"):
        store_clicks(tmp_path / "t", rows[place::2], agent=agent)
    sliding = plan("10 SECONDS SLIDE 5 SECONDS")
    live = [(BASE_US + 40 * SECOND, BASE_US + 50 * SECOND)]
    facts = job_over(quick_spark, sliding, tmp_path / "t", live, {live[0]: {"rows_in": 10}})
    facts = begun(facts, live[0][0] // sliding.fragment.pane_us)
    assert begins_us(facts) == live[0][0]
    older = windows_before(sliding, BASE_US, begins_us(facts))
    assert older == windows(10, 5, 8)
    made = list(filled(quick_spark, facts, [archived(tmp_path / "t")], older))
    assert [(one.first_us, one.last_us) for one in made] == older
    shown = decode(facts.job.windows[0].payload).schema
    for one, (start, end) in zip(made, older, strict=True):
        (status,) = decode(one.status).to_pylist()
        table = decode(one.rows)
        assert table.schema == shown
        found = {row["product"]: (row["n"], row["s"]) for row in table.to_pylist()}
        assert found == counted(rows, start, end)
        assert (status["rows_in"], status["archived"], status["offline"]) == (
            sum(n for n, _ in found.values()),
            status["rows_in"],
            True,
        )
        assert (status["expected"], status["reported"], status["missing"]) == (2, 2, [])
    assert decode(made[4].rows).num_rows == 0, "a window without rows is one, too"
    shelf = Shelf(Target(str(tmp_path / "t")), "clicks", "b")
    assert shelf.let_go(shelf.files(), at_once=False)
    (less,) = filled(quick_spark, facts, [archived(tmp_path / "t")], older[:1])
    (status,) = decode(less.status).to_pylist()
    assert (status["missing"], status["reported"], status["rows_in"]) == (["b"], 1, 5)


def test_what_has_no_seam_is_refused(quick_spark: SparkSession, tmp_path: Path) -> None:
    store_clicks(tmp_path / "t", [Click(BASE_US, "doom", None, 1, 0.5)])
    live = windows(10, 10, 1)
    facts = begun(job_over(quick_spark, plan(), tmp_path / "t", live, {live[0]: {"rows_in": 1}}), 0)
    spec = spec_of("busy", "ada", 0, plan("SESSION 5 SECONDS"), ())
    with pytest.raises(UserError, match="windows whose ends depend on their rows"):
        begins_us(replace(facts, job=msgspec.structs.replace(facts.job, spec=spec)))
    with pytest.raises(UserError, match="has not committed any window yet"):
        begins_us(replace(facts, job=msgspec.structs.replace(facts.job, windows=())))
