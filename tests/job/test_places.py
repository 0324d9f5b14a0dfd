"""Flows that are about agents with some labels: who is asked, and who is expected."""

from __future__ import annotations

import pytest

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.places import SETS_KEPT, may_have_rows
from elf.job.rollup.presence import Roster
from elf.ql import planner, statements
from elf.ql.plan import Condition, Fragment
from elf.schema import Column, Schema
from lab.chaos.agent import SimAgent
from lab.chaos.engine import STREAM, plan
from lab.chaos.world import World
from tests.chaos import plants
from tests.support.histories import Windows, begun, settled
from tests.support.members import joined

SCHEMA = Schema((Column("ts", "timestamp"), Column("page", "text")), "ts", labels=("place", "role"))


def fragment_of(on: str, where: str = "") -> Fragment:
    text = f"SELECT COUNT(*) AS n FROM {STREAM} ON {on} {where} WINDOWING 1 SECONDS"
    (statement,) = statements.parse(text)
    assert isinstance(statement, statements.Select)
    return planner.plan(statement.query, SCHEMA, stream=STREAM).fragment


EU, US = (("place", "eu"), ("role", "shop")), (("place", "us"),)


@pytest.mark.parametrize(
    ("on", "eu", "us", "bare"),
    [
        ("place = 'eu'", True, False, False),
        ("place <> 'eu'", False, True, False),
        ("place IN ('eu', 'asia')", True, False, False),
        ("NOT place = 'eu'", False, True, False),
        ("place = 'us' OR role = 'shop'", True, True, False),
        ("place = 'eu' AND role = 'mail'", False, False, False),
        ("role IS NULL", False, True, True),
        ("place >= 'f'", False, True, False),
        ("LENGTH(place) = 2", True, True, True),  # it takes SQL to know
        ("place = 'eu' AND LENGTH(place) = 2", True, False, False),
    ],
)
def test_labels_say_who_may_have_rows(on: str, eu: bool, us: bool, bare: bool) -> None:
    fragment = fragment_of(on)
    assert [may_have_rows(fragment, [labels]) for labels in (EU, US, ())] == [eu, us, bare]
    assert may_have_rows(fragment, None), "who says nothing may have any"


def test_conditions_on_rows_decide_nothing_about_agents() -> None:
    fragment = fragment_of("place = 'eu'", "WHERE page = '/' OR _labels.role = 'mail'")
    assert may_have_rows(fragment, [EU])
    assert not may_have_rows(fragment, [US])


def test_who_cannot_have_a_row_is_not_expected() -> None:
    log = CatalogLog([joined(1, 0, labels=EU), joined(2, 1, labels=US), joined(3, 2)])
    fragment = fragment_of("place = 'eu'")
    assert [member.number for member in log.asked(fragment)] == [0, 2]
    assert Roster(fragment.pane_us, log.asked(fragment), log.last).expected(7) == 0b101
    late = replace(fragment_of("role IS NULL"), where=(), late_of="")
    assert len(log.asked(late)) == 3


def test_other_labels_count_beside_those_from_before() -> None:
    log = CatalogLog([joined(1, 0, labels=US), joined(2, 0, labels=EU, start=2)])
    assert all(log.asked(fragment_of(f"place = '{place}'")) for place in ("eu", "us"))
    assert not log.asked(fragment_of("place = 'asia'"))
    for start in range(3, SETS_KEPT + 5):
        log.append(joined(start, 0, labels=(("place", str(start)),), start=start))
        too_many = start > SETS_KEPT
        assert bool(log.asked(fragment_of("place = 'asia'"))) is too_many, "it has had too many to tell"


IN_EU = Condition(
    "=",
    (Condition("column", name="_labels.place"), Condition("constant", value="eu", kind="text")),
)
OF_EU = plan(2, where="abcdefghijklmnopqrstuvwxyz")
OF_EU = replace(OF_EU, fragment=replace(OF_EU.fragment, where=(IN_EU,)))


def of_eu(patch: pytest.MonkeyPatch, seed: int) -> tuple[World, Windows]:
    """Five agents, of which every other one is in the place that a job is about; its windows."""
    patch.setattr(SimAgent, "labels", property(lambda agent: US if agent.index % 2 else EU))
    world = World(seed, 5)
    spec, until = begun(world, 15_000, query=OF_EU)
    world.run(until - world.now + 6_000)
    windows = settled(world, spec, until)
    assert len(windows) >= 4
    for start, (_, counts, _) in windows.items():
        assert counts == world.truth(spec, start, ["a1", "a3"])
    return world, windows


def test_a_window_is_of_those_with_the_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    world, windows = of_eu(monkeypatch, 7)
    for _, _, status in windows.values():
        assert (status["expected"], status["missing"]) == (3, [])
    for agent in world.agents:
        flows = [flow for task in agent.tasks.values() for flow in task.worker.flows()]
        assert len(flows) == (0 if agent.index % 2 else 1), "nobody computes what it has no row of"


def test_who_expects_all_finds_the_others_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    plants.rosters.expects_whoever_has_the_stream(monkeypatch)
    _, windows = of_eu(monkeypatch, 7)
    assert any(status["missing"] == ["a1", "a3"] for _, _, status in windows.values())
