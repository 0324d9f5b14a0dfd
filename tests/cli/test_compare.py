"""Which windows a comparison is of, and the tree's shape."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elf.cli import compare
from elf.cli.compare import Chosen, check_spark
from elf.cli.tree import FlowTree, children_of, plot_tree, read_tree, shape
from elf.client import ArchiveStatus, CompareFacts
from elf.errors import ElfError, UserError
from elf.job.messages.groups import JobStatus
from elf.job.spec import JobSpec
from elf.ql import planner, statements
from elf.schema import Column, Schema
from elf.wire.clients import WindowResult
from lab.chaos.engine import spec_of
from spark_backend.judging import windows_of
from tests.support.fleet_of_one import window_result

START_US = 1_795_226_400_000_000


def job() -> JobSpec:
    (statement,) = statements.parse("SELECT product, COUNT(*) FROM clicks GROUP BY 1 WINDOWING 5 SECONDS")
    assert isinstance(statement, statements.Select)
    schema = Schema((Column("product", "text"), Column("ts", "timestamp")), "ts")
    plan = planner.plan(statement.query, schema, stream="clicks")
    return spec_of("busy", "ada", 0, plan, ())


def facts(*results: WindowResult) -> CompareFacts:
    known = JobStatus(job(), "active", "h:1", None, None, results)
    return CompareFacts((ArchiveStatus("clicks", "json", None, ("/a",), ()),), known)


def test_windows_are_in_microseconds_and_the_last_revision_counts() -> None:
    provisional = msgspec.structs.replace(window_result(20), provisional=True)
    known = windows_of(facts(window_result(0, 5), window_result(5, revision=1), provisional))
    assert [(start - START_US, end - START_US, w.revision) for (start, end), w in known.items()] == [
        (0, 5_000_000, 0),
        (5_000_000, 10_000_000, 1),
    ]
    assert known[START_US, START_US + 5_000_000].table.num_rows == 2
    assert known[START_US, START_US + 5_000_000].status["reported"] == 6


def test_windows_are_chosen_by_time_and_number() -> None:
    known = [(0, 10), (10, 20), (20, 30), (0, 30)]
    assert Chosen().of(known) == [(0, 10), (10, 20), (0, 30), (20, 30)]
    assert Chosen(from_us=10, to_us=30).of(known) == [(10, 20), (20, 30)]
    assert Chosen(windows=2, to_us=25).of(known) == [(0, 10), (10, 20)]


def test_what_is_not_there_is_said_before_spark_is_started() -> None:
    with pytest.raises(UserError, match="busy has not committed any window yet"):
        compare.report(facts(), Chosen())
    with pytest.raises(UserError, match=r"no window .* it has windows from 2026-.* to 2026-"):
        compare.report(facts(window_result(0)), Chosen(to_us=5))


def test_spark_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="comparing needs Spark"):
        check_spark()


def tree(*edges: tuple[str, str]) -> dict[str, Any]:
    below = [{"name": a, "address": a, "parent": p, "sealed_us": None} for a, p in edges]
    flow = {"flow": "f00dcafe0123", "stream": "s", "root": "h:1", "readers": ["busy"], "edges": below}
    return {"job": "busy", "master": "h:1", "flows": [flow]}


def only(answer: dict[str, object]) -> FlowTree:
    (found,) = read_tree(answer).flows
    return found


def test_a_tree_has_a_shape() -> None:
    facts = only(tree(("h:1", ""), ("h:2", "h:1"), ("h:3", "h:1"), ("h:4", "h:2")))
    assert dataclasses.astuple(shape(facts)) == (4, 2, 2)
    assert children_of(facts) == {"h:1": ["h:2", "h:3"], "h:2": ["h:4"]}


def test_a_forwarder_that_is_no_member_has_its_place() -> None:
    facts = only(tree(("h:2", "h:9"), ("h:3", "h:9")))
    assert children_of(facts) == {"h:1": ["h:9"], "h:9": ["h:2", "h:3"]}
    assert dataclasses.astuple(shape(facts)) == (2, 2, 2)


def test_what_leads_nowhere_is_shown_as_such() -> None:
    facts = only(tree(("h:1", ""), ("h:2", ""), ("h:3", "h:4"), ("h:4", "h:3")))
    assert children_of(facts)[""] == ["h:2", "h:3", "h:4"]
    assert shape(facts).depth == 0


def test_a_picture_has_everybody_with_what_is_known(tmp_path: Path) -> None:
    """Forwarders, members that are behind, and those that hang at nothing, in a circle even."""
    answer = tree(("h:1", ""), ("h:2", "h:9"), ("h:3", "h:4"), ("h:4", "h:3"), ("h:5", "h:1"))
    for edge, sealed in zip(
        answer["flows"][0]["edges"], (9_000_000, 6_500_000, 9_000_000, 9_000_000, None), strict=True
    ):
        edge["sealed_us"] = sealed
    plot_tree(read_tree(answer), only(answer), {"h:9": "web-9"}, tmp_path / "tree.svg")
    drawn = (tmp_path / "tree.svg").read_text()
    for label in (
        "h:1 (h:1) · master",
        "web-9 (h:9) · forwards",
        "h:2 (h:2) · 2.5 s behind",
        "h:3 (h:3) · has no parent yet",
        "h:4 (h:4) · has no parent yet",
        "h:5 (h:5) · nothing sealed yet",
        "job busy: 5 members, depth 2, fan-out 2, 2 without a parent",
    ):
        assert f"<!-- {label} -->" in drawn


def test_another_answer_is_refused() -> None:
    with pytest.raises(ElfError, match="cannot be read"):
        read_tree({"job": 3})
