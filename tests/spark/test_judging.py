"""Faults planted in a real archive, or in what windows say of themselves: each is found, and is explained
only where the counts account for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from agents.answering.about import not_comparable
from elf.batch import decode, encode
from elf.client import CompareFacts
from elf.fields import replace
from elf.job.spec import VersionRecord
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from spark_backend.compare import Comparison, Outcome
from spark_backend.judging import judge, updated
from tests.support.compared import Bounds, job_over
from tests.support.offline import BASE_US, CLICKS, SECOND, Click, store_clicks, windows

THREE = windows(10, 10, 3)
QUERY = "SELECT product, COUNT(*) AS n, SUM(clicks) AS s FROM clicks {} GROUP BY product WINDOWING 10 SECONDS"


def plan(where: str = "") -> Plan:
    return plan_text(QUERY.format(where), CLICKS, stream="clicks")


def rows(count: int = 30) -> list[Click]:
    return [Click(BASE_US + n * SECOND, ("doom", "myst")[n % 2], None, 1, 0.5) for n in range(count)]


def statuses(*counts: Mapping[str, object]) -> dict[Bounds, Mapping[str, object]]:
    """Of the three windows: ten rows each, and what else is said."""
    return {one: {"rows_in": 10, **more} for one, more in zip(THREE, counts, strict=True)}


WHOLE: Mapping[str, object] = {}


def ask(
    quick_spark: SparkSession, path: Path, *counts: Mapping[str, object], agents: str = "ab"
) -> CompareFacts:
    """A job over thirty rows, half of each agent's."""
    for place, agent in enumerate(agents):
        store_clicks(path, rows()[place :: len(agents)], agent=agent)
    return job_over(quick_spark, plan(), path, THREE, statuses(*counts))


def told(comparison: Comparison) -> list[tuple[str, list[tuple[str, int | None]]]]:
    return [
        (one.outcome.name, [(reason.name, reason.rows) for reason in one.reasons])
        for one in comparison.windows
    ]


def test_late_rows_are_drawn_from_later_windows_and_only_so_many(
    quick_spark: SparkSession, tmp_path: Path
) -> None:
    facts = ask(quick_spark, tmp_path / "t", WHOLE, {"late": 2}, WHOLE)
    assert judge(quick_spark, facts).outcome is Outcome.EQUAL
    store_clicks(tmp_path / "t", [rows()[4], rows()[5]], agent="late")
    late = ("EXPLAINED", [("late", 2)])
    assert told(judge(quick_spark, facts)) == [late, ("EQUAL", []), ("EQUAL", [])]
    store_clicks(tmp_path / "t", [rows()[6]], agent="later")
    first = judge(quick_spark, facts).windows[0]
    assert [(reason.name, reason.rows) for reason in first.reasons] == [("late", 2), ("unexplained", 1)]
    assert "late 2" in first.reasons[1].text, "whose rows they are"
    store_clicks(tmp_path / "t", [rows()[16]], agent="latest")
    second = judge(quick_spark, facts, lambda bounds: bounds == THREE[1]).windows
    assert told(Comparison((), second)) == [("UNEXPLAINED", [("unexplained", 1)])], "both are of the first"


def test_rows_of_an_agent_that_is_missing(quick_spark: SparkSession, tmp_path: Path) -> None:
    """By its own number of archived rows."""
    facts = ask(quick_spark, tmp_path / "t", WHOLE, {"missing": ["c"], "reported": 1}, WHOLE)
    store_clicks(tmp_path / "t", [rows()[n] for n in (11, 12, 13)], agent="c")
    assert told(judge(quick_spark, facts))[1] == ("EXPLAINED", [("not covered", 3)])
    store_clicks(tmp_path / "t", [rows()[14]], agent="d")
    assert told(judge(quick_spark, facts))[1] == ("UNEXPLAINED", [("not covered", 3), ("unexplained", 1)])


def test_a_row_that_is_gone_from_the_archive_is_unexplained(
    quick_spark: SparkSession, tmp_path: Path
) -> None:
    facts = ask(quick_spark, tmp_path / "t", WHOLE, {"late": 7}, WHOLE, agents="a")
    fewer = tmp_path / "u"
    store_clicks(fewer, [row for n, row in enumerate(rows()) if n != 13])
    moved = replace(
        facts, archives=tuple(msgspec.structs.replace(one, archives=(str(fewer),)) for one in facts.archives)
    )
    found = judge(quick_spark, moved).windows[1]
    assert found.outcome is Outcome.UNEXPLAINED
    assert found.reasons[0].text == "it has 1 row that no archive has (a 9)"
    quiet = replace(
        moved, archives=tuple(msgspec.structs.replace(one, silent=("web-9",)) for one in moved.archives)
    )
    assert told(judge(quick_spark, quiet))[1] == ("EXPLAINED", [("archive", -1)])


def test_a_wrong_cell_is_unexplained_whatever_is_late(quick_spark: SparkSession, tmp_path: Path) -> None:
    """The rows are all there: nothing that came late has done it. And late rows cannot add to a count."""
    facts = ask(quick_spark, tmp_path / "t", WHOLE, WHOLE, {"late": 5})
    wrong = job_over(
        quick_spark, plan("WHERE product <> 'myst'"), tmp_path / "t", THREE, statuses({}, {}, {"late": 5})
    )
    wrong = replace(wrong, job=msgspec.structs.replace(facts.job, windows=wrong.job.windows))
    comparison = judge(quick_spark, wrong)
    assert {one.outcome for one in comparison.windows} == {Outcome.UNEXPLAINED}
    assert comparison.windows[0].reasons[0].text == "both sides have the same 10 rows of the stream"
    store_clicks(tmp_path / "t", [rows()[4]], agent="late")
    (reason,) = [one for one in judge(quick_spark, wrong).windows[0].reasons if one.name == "unexplained"]
    assert reason.text == "n is 6 too low, with 1 row left out"
    more = [Click(BASE_US, "doom", None, 1, 0.5)] * 3
    store_clicks(tmp_path / "more", [*rows(), *more])
    high = job_over(quick_spark, plan(), tmp_path / "more", THREE, statuses({}, {}, {"late": 5}))
    high = replace(high, archives=facts.archives)
    (reason,) = [one for one in judge(quick_spark, high).windows[0].reasons if one.name == "unexplained"]
    assert reason.text == "n is 2 too high in a row"


def test_a_damaged_file_explains_what_its_hour_lacks(quick_spark: SparkSession, tmp_path: Path) -> None:
    facts = ask(quick_spark, tmp_path / "t", WHOLE, WHOLE, WHOLE)
    (file,) = (tmp_path / "t").glob("**/agent=b/*.parquet")
    file.write_bytes(b"")
    said: list[str] = []
    comparison = judge(quick_spark, facts, damaged=lambda path, why: said.append(path))
    assert told(comparison) == [("EXPLAINED", [("archive", -5)])] * 3
    assert said == [str(file)]
    assert str(file) in comparison.windows[0].reasons[0].text


def test_windows_of_other_versions_are_judged_by_their_own_plans_or_named(
    quick_spark: SparkSession, tmp_path: Path
) -> None:
    facts = ask(quick_spark, tmp_path / "t", WHOLE, WHOLE, WHOLE)
    second = plan("WHERE product = 'doom'")
    windows_2 = job_over(quick_spark, second, tmp_path / "t", THREE[2:], statuses({}, {}, {}), version=2)
    spec_2 = replace(windows_2.job.spec, version=2)
    first = VersionRecord(facts.job.spec, "finished", until_us=THREE[2][0])
    last = VersionRecord(spec_2, "committed", first_pane=THREE[2][0] // (10 * SECOND))
    results = (*facts.job.windows[:2], *windows_2.job.windows)
    both = msgspec.structs.replace(facts.job, spec=spec_2, versions=(first, last), windows=results)
    comparison = judge(quick_spark, replace(facts, job=both))
    assert told(comparison) == [("EQUAL", [])] * 3
    assert [one.live_rows for one in comparison.windows] == [2, 2, 1]
    forgotten = msgspec.structs.replace(both, versions=(last,))
    assert told(judge(quick_spark, replace(facts, job=forgotten))) == [
        *[("EXPLAINED", [("version", None)])] * 2,
        ("EQUAL", []),
    ]


def test_what_was_cut_off_is_not_compared(quick_spark: SparkSession, tmp_path: Path) -> None:
    facts = ask(quick_spark, tmp_path / "t", WHOLE, {"skipped": True, "rows_in": 0}, WHOLE)
    comparison = judge(quick_spark, facts)
    assert told(comparison)[1] == ("EXPLAINED", [("skipped", None)])
    assert [one.compared for one in comparison.windows] == [True, False, True]


def test_a_window_that_was_never_committed(quick_spark: SparkSession, tmp_path: Path) -> None:
    facts = ask(quick_spark, tmp_path / "t", WHOLE, WHOLE, {"late": 10})
    results = (facts.job.windows[0], facts.job.windows[2])
    lacking = replace(facts, job=msgspec.structs.replace(facts.job, windows=results))
    comparison = judge(quick_spark, lacking)
    assert told(comparison)[1] == ("EXPLAINED", [("late", 10)])
    assert comparison.windows[1].revision is None
    one = judge(quick_spark, lacking, lambda bounds: bounds == THREE[0])
    assert [(window.start_us, window.equal) for window in one.windows] == [(THREE[0][0], True)]
    assert len(updated(comparison, one).windows) == 3


def test_an_approximate_job_is_judged_by_the_bounds_that_it_states(
    quick_spark: SparkSession, tmp_path: Path
) -> None:
    query = (
        "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product ORDER BY n DESC LIMIT 2 APPROXIMATE "
        "WINDOWING 10 SECONDS"
    )
    top = plan_text(query, CLICKS, stream="clicks")
    store_clicks(tmp_path / "t", rows())
    store_clicks(tmp_path / "less", [row for n, row in enumerate(rows()) if n not in (3, 15)])
    whole = job_over(quick_spark, top, tmp_path / "t", THREE, statuses(WHOLE, WHOLE, WHOLE))
    low = job_over(quick_spark, top, tmp_path / "less", THREE, statuses(WHOLE, WHOLE, WHOLE))
    assert not not_comparable(top)
    results = [
        msgspec.structs.replace(result, payload=encode(bounded(decode(result.payload), bound)))
        for result, bound in zip(low.job.windows, (1.0, 0.0, 3.0), strict=True)
    ]
    facts = replace(whole, job=msgspec.structs.replace(low.job, windows=tuple(results)))
    assert told(judge(quick_spark, facts)) == [
        ("EXPLAINED", [("approximate", None)]),
        ("UNEXPLAINED", [("unexplained", None)]),
        ("EQUAL", []),
    ]


def bounded(table: pa.Table, bound: float) -> pa.Table:
    place = table.schema.get_field_index("error_bound")
    return table.set_column(place, "error_bound", pa.array([bound] * table.num_rows))
