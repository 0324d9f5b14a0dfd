"""EXPLAIN ROUTES: what agents learn of links, and what the planner makes of it, on virtual time."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from elf.job.links import PERIOD_MS, PERIODS, REGIONS_MAX, Links
from elf.wire.clients import Reply
from lab.chaos.engine import united
from lab.chaos.world import World
from tests.support.histories import asked, begun, said
from tests.support.regions import REGIONS, one_head_each, world_of

Pairs = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def world() -> World:
    """Three regions, and a job whose heads hold units of six panes."""
    world = world_of(5, 9)
    spec, _ = begun(world, 90_000, query=united(6, 6), rate_ms=800)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    world.run(30_000)
    return world


def links_of(told: dict[str, Any]) -> Pairs:
    return {(one["origin"], one["target"]): one for one in told["links"]}


def test_links_that_were_seen_and_a_plan_over_them(world: World) -> None:
    (job,) = world.agents[0].node.log.jobs()
    root = world.by_address[job.leader].place.split("/")[0]
    text, told = asked(world, 2, "EXPLAIN ROUTES")
    links = links_of(told)
    assert len(links) == 6
    into = {pair for pair, one in links.items() if one["is"] == "at least"}
    assert into == {(region, root) for region in REGIONS if region != root}
    assert all(links[pair]["arrived_bytes"] > 0 for pair in into)
    assert all(one["rate"] is None for pair, one in links.items() if pair not in into)
    assert all(one["delay_is"] == "measured" for one in links.values())
    assert all(one["rtt_s"] == pytest.approx(2 * one["delay_s"]) for one in links.values())
    (demand,) = told["jobs"]
    assert {*demand["rows_per_sec"]} == {*REGIONS}
    assert demand["rows_per_sec"][root] == pytest.approx(3 / 0.8, rel=0.3)
    assert demand["today_s"] == 6 * demand["pane_s"]
    assert demand["size"] is not None
    stands = {f"a{agent.index}": agent.place.split("/")[0] for agent in world.agents}
    assert {region: [stands[name] for name in names] for region, names in demand["heads"].items()} == {
        region: [region] for region in REGIONS if region != root
    }
    (route,) = told["plan"]["routes"].values()
    assert set(route["vias"].values()) == {root}
    assert demand["pane_s"] - 1e-6 <= route["interval_s"] <= demand["today_s"] + 1e-6
    assert "at least" in text
    assert "not measured, and so not used" in text
    assert "nothing in the fleet is changed" in text


def test_a_stated_link_wins_and_a_slow_one_is_gone_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = world.agents[0].node.log.jobs()
    root = world.by_address[job.leader].place.split("/")[0]
    slow, other = (region for region in REGIONS if region != root)
    stated = {(slow, root): (1.0, 0.2), (slow, other): (1e5, 0.01), (other, root): (1e5, 0.01)}
    monkeypatch.setattr(world.agents[2].node.clients.statements._routes, "_stated", stated)
    text, told = asked(world, 2, "EXPLAIN ROUTES")
    links = links_of(told)
    assert {
        pair: (one["rate"], one["delay_s"]) for pair, one in links.items() if one["is"] == "stated"
    } == stated
    assert links[slow, root]["seen"] > 1
    assert links[slow, root]["rtt_s"] < 0.4, "as it was measured"
    (route,) = told["plan"]["routes"].values()
    assert route["vias"] == {slow: other, other: root}
    assert f"{slow} would send over {other}, and sends directly to {root}" in text
    assert links[slow, other]["planned_load"] > 0
    assert links[slow, root]["today_load"] > 1


def test_without_scipy_it_tells_the_rest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    text, told = asked(world, 2, "EXPLAIN ROUTES")
    assert told["plan"] is None
    assert told["links"]
    assert text.count("pip install 'elf-stream[routes]'") == 1


def test_without_regions_or_in_one_it_says_so_in_a_line() -> None:
    world = world_of(7, 3, places=False)
    world.start_all()
    reply = said(world, 0, "EXPLAIN ROUTES")
    assert isinstance(reply, Reply)
    assert reply.text.startswith("nothing crosses a border: no agent says where it stands")
    world = world_of(7, 3)
    for agent in world.agents:
        agent.place = "eu/r1"
    world.start_all()
    text, _ = asked(world, 0, "EXPLAIN ROUTES")
    assert text.startswith("nothing crosses a border: all agents that say where they stand are in eu\n")


def test_without_jobs_or_traffic_nothing_is_made_up() -> None:
    world = world_of(7, 3)
    world.start_all()
    _, told = asked(world, 0, "EXPLAIN ROUTES")
    assert {one["is"] for one in told["links"]} == {"not measured"}
    assert {one["rate"] for one in told["links"]} == {None}
    assert told["plan"] is None
    assert "no job over several regions can be planned for now" in told["missing"]


def test_arrivals_grow_old_and_regions_are_bounded() -> None:
    links = Links(lambda address: "" if address == "near" else address)
    links.sent("us", 7)
    links.arrived("near", 50, 0)
    for period in (1, 1, 2):
        links.arrived("us", 10, period * PERIOD_MS)
    trip = {"us": 80.0}
    (us,) = links.told(2 * PERIOD_MS, trip, {})
    assert (us.region, us.sent, us.arrived, us.rtt_ms) == ("us", 7, 30, 80.0)
    assert us.periods == ((1, 20), (2, 10))
    (us,) = links.told((1 + PERIODS) * PERIOD_MS, trip, {})
    assert us.periods == ((2, 10),)
    for period in range(1_000):
        links.arrived("us", 1, period * PERIOD_MS)
    (us,) = links.told(999 * PERIOD_MS, trip, {})
    assert len(us.periods) == PERIODS
    for number in range(2 * REGIONS_MAX):
        links.sent(f"r{number}", 1)
    assert len(links.told(0, {}, {})) == REGIONS_MAX
