"""Routes that are decided by one agent, and what heads make of them (protocol 4.12), on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from agents.answering.routes import Found, Told, Wanted
from agents.answering.routesplanned import planned
from agents.answering.routing import Mode, Routing
from elf.batch import decode
from elf.job.catalog.admission import entry_for
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.permission import forbidden
from elf.job.catalog.routings import misled
from elf.job.contributions import Piece
from elf.job.messages.log import DecideRoute, FlowEnded, RouteDecided
from elf.job.rollup.border import Border
from elf.job.spec import END_OF_TIME, JobSpec
from elf.job.units import hold_us
from elf.planning.pacing import Pace
from elf.wire.clients import Reply
from lab.chaos.engine import united
from lab.chaos.world import World
from overlay.regions import region_of
from tests.support.histories import asked, begun, check_all, said
from tests.support.regions import REGIONS, one_head_each, world_of
from tests.support.signed_log import TRUST

PACE = Pace(period_ms=5_000, follow_ms=5_000, rest_ms=20_000)


def stated(root: str) -> dict[tuple[str, str], tuple[float, float | None]]:
    """The way of the first other region to the root's is slow; over the second it is not."""
    slow, other = (region for region in REGIONS if region != root)
    return {(slow, root): (200.0, 0.2), (slow, other): (1e5, 0.01), (other, root): (1e5, 0.01)}


def world_in(mode: Mode, seed: int = 5) -> tuple[World, JobSpec, int]:
    """A fleet in three regions that plans by itself, with a job whose heads may hold six panes."""
    world = world_of(seed, 6)
    spec, until = begun(world, 65_000, query=united(6, 6), rate_ms=500)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    root = region_of(world.by_address[spec.leader].place)
    for agent in world.agents:
        statements = agent.node.clients.statements
        statements._routes._stated = stated(root)
        statements.routing.mode, statements.routing.pace, statements.routing._next_ms = mode, PACE, 0
    return world, spec, until


def crossings(world: World, spec: JobSpec) -> dict[str, str]:
    """By region, to which other one its panes go."""
    found = {}
    for agent in world.agents:
        parent = agent.node.overlay.parent(spec.flows[0].topic) if agent.up else None
        if parent is not None and (there := region_of(world.by_address[parent].place)) != region_of(
            agent.place
        ):
            found[region_of(agent.place)] = there
    return found


def decided(world: World) -> list[dict[str, Any]]:
    reply = said(world, 2, "SHOW DECISIONS")
    assert isinstance(reply, Reply)
    return decode(reply.payload).to_pylist() if reply.payload else []


@pytest.mark.parametrize("mode", ["off", "propose"])
def test_a_slow_border_is_gone_round_by_itself_and_windows_are_exact(mode: Mode) -> None:
    world, spec, until = world_in("act")
    root = region_of(world.by_address[spec.leader].place)
    slow, other = (region for region in REGIONS if region != root)
    world.run_until(lambda: crossings(world, spec) == {slow: other, other: root}, 40_000)
    world.run(7_000)
    (row,) = decided(world)
    assert (row["job"], row["changes"], row["state"]) == ("job", "route", "in effect")
    assert row["to"].startswith(f"{slow} → {other} → {root}")
    assert "by the plan" in row["why"]
    text, told = asked(world, 2, "EXPLAIN ROUTES")
    assert told["jobs"][0]["vias"] == {slow: other}
    assert told["differs"] == []
    assert "(cluster.routes: act)" in text
    links = {(one["origin"], one["target"]): one for one in told["links"]}
    assert links[slow, other]["arrived_bytes"] > 0
    for agent in world.agents:
        agent.node.clients.statements.routing.mode = mode
    world.run_until(lambda: crossings(world, spec) == {slow: root, other: root}, 30_000)
    assert {one["state"] for one in decided(world)} == {"proposed", "over"}
    assert f"cluster.routes is {mode}" in decided(world)[-2]["why"]
    world.run(max(0, until - world.now) + 10_000)
    check_all(world, spec, until, 10)


def test_proposals_are_shown_and_nobody_goes_by_them() -> None:
    world, spec, _ = world_in("propose", 6)
    before = crossings(world, spec)
    world.run_until(lambda: bool(list(world.agents[0].node.log.routings)), 40_000)
    world.run(10_000)
    assert crossings(world, spec) == before
    (row,) = decided(world)
    assert row["state"] == "proposed"


def test_a_route_that_leads_in_circles_or_comes_late_is_none() -> None:
    world, spec, _ = world_in("off", 7)
    log = CatalogLog(world.agents[0].node.log.after(0))
    uid = spec.flows[0].uid
    word = DecideRoute(uid=uid, target="eu", vias=(("us", "ap"),), panes=3, at_ms=5, why="w")
    circle = DecideRoute(uid=uid, target="eu", vias=(("us", "ap"), ("ap", "us")), at_ms=5, why="w")
    assert entry_for(log, circle) is None
    entry = entry_for(log, word)
    assert isinstance(entry, RouteDecided)
    log.append(entry)
    assert entry_for(log, word) is None
    other = DecideRoute(uid=uid, target="eu", at_ms=4, why="late")
    assert entry_for(log, other) is None
    assert hold_us(log, spec.flows[0], None) == 3 * spec.flows[0].fragment.pane_us
    assert hold_us(log, spec.flows[0], 0) == 0
    bad = RouteDecided(seq=log.last + 1, uid=uid, target="eu", vias=circle.vias, at_ms=9, why="w")
    log.append(bad)
    assert "others over it" in log.skipped[bad.seq]
    assert log.routings.last(uid) == entry
    log.append(FlowEnded(seq=log.last + 1, uid=uid))
    assert log.routings.ways() == {}
    assert entry_for(log, DecideRoute(uid=uid, target="eu", panes=2, at_ms=50, why="w")) is None
    assert misled("eu", (("eu", "us"),)) == "eu is where all of it goes"
    assert misled("eu", (("us", "ap"), ("us", "sa"))) == "a region has two ways"
    assert "room for 64" in misled("eu", tuple((f"r{n}", "us") for n in range(65))), "nobody could read it"
    signed = CatalogLog(trust=TRUST)
    assert "nobody else" in forbidden(signed, "a:1", "b:1", word, 0)
    assert forbidden(signed, "a:1", "a:1", word, 0) == ""


def raw(pane: int, members: int) -> Piece:
    return Piece(pane, pane + 1, members, payload=b"x")


def test_a_border_merges_the_units_of_others_with_its_own() -> None:
    border = Border()
    border.change(3, 3)
    theirs = Piece(6, 9, 8, payload=b"u", unit=3)
    for pane in (6, 7, 8):
        border.add(raw(pane, 3), 100)
    assert border.ready(1_000, 500, 100, come=6) == [], "the other head has not sent its own"
    assert border.takes(theirs)
    border.add(theirs, 200)
    ((pieces, unit),) = border.ready(1_000, 500, 200, come=9)
    assert (unit, sorted(one.unit for one in pieces), len(pieces)) == (3, [1, 1, 1, 3], 4)
    border.add(theirs, 200)
    assert not border.takes(Piece(6, 9, 8, payload=b"v", unit=3)), "it is here"
    assert not border.takes(Piece(6, 12, 4, unit=6)), "it is no unit of ours"
    border.add(raw(6, 1), 300)
    assert border.ready(1_000, 500, 300, come=END_OF_TIME) == []
    assert [[one.unit for one in pieces] for pieces, _ in border.ready(1_000, 500, 9_000)] == [[3], [1]]


def test_what_is_held_turns_at_a_bound_of_both_and_no_unit_is_given_away() -> None:
    border = Border()
    border.change(6, 6)
    border.add(raw(6, 1), 0)
    assert border.change(2, 6) == []
    border.add(raw(7, 1), 0)
    border.add(raw(12, 1), 0)
    border.add(raw(13, 1), 0)
    assert [(len(pieces), unit) for pieces, unit in border.ready(1_000, 500, 10)] == [(2, 2)]
    for pane in (8, 9, 10, 11):
        border.add(raw(pane, 1), 20)
    assert [(len(pieces), unit) for pieces, unit in border.ready(1_000, 500, 30)] == [(6, 6)]
    border.add(raw(14, 1), 40)
    assert [unit for _, unit in border.change(6, 1)] == [1], "readers want each pane now"
    border.add(raw(18, 1), 50)
    assert border.change(3, 6) == []
    assert [unit for _, unit in border.change(2, 6)] == [1], "two turns at once are one too many"
    border = Border()
    border.change(6, 6)
    border.add(raw(6, 1), 0)
    assert border.change(2, 6) == []
    assert border.change(2, 6) == []
    assert [unit for _, unit in border.change(2, 2)] == [1], "nobody takes six any more"


def test_routes_are_planned_once_a_period_and_not_where_nothing_crosses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = CatalogLog()
    routing = Routing(log, None, "act", PACE)  # type: ignore[arg-type]
    assert not routing.due(0)
    assert not routing.due(6_000)
    monkeypatch.setattr(CatalogLog, "spans_regions", True)
    assert routing.due(7_000)
    assert not routing.due(8_000)
    assert routing.due(13_000)
    routing.mode = "off"
    assert not routing.due(20_000), "there is nothing to take back"


def link(origin: str, target: str, rate: float, known: str) -> Told:
    return {"origin": origin, "target": target, "rate": rate, "is": known, "delay_s": 0.01}


def wanted(vias: dict[str, str]) -> Wanted:
    """A job that sends 1,000 bytes a second."""
    batches = ([100.0, 200.0, 400.0], [1_000.0, 2_000.0, 4_000.0])
    return Wanted("job.1", "job", "us", {"eu": 100.0, "us": 50.0}, batches, 1.0, 1, 1, vias)


def test_nothing_turns_away_from_a_link_that_was_only_seen_to_carry_what_was_sent() -> None:
    """All that went over it is the most that was seen, so it looks full, however much it carries."""
    detour = [link("eu", "ap", 1e6, "probed"), link("ap", "us", 1e6, "probed")]
    seen = planned([link("eu", "us", 1_050.0, "at least"), *detour], [wanted({})]).turned
    assert seen.turns == ()
    assert "nor away from links that were only seen to carry something: eu → us" in seen.why[0]
    probed = planned([link("eu", "us", 1_050.0, "probed"), *detour], [wanted({})]).turned
    assert [turn[2] for turn in probed.turns] == [(("eu", "ap"),)]


def test_a_job_whose_way_leads_over_a_region_that_has_gone_is_planned() -> None:
    """Its agents send directly."""
    found = planned([link("eu", "us", 1e5, "stated")], [wanted({"eu": "ap"})])
    assert found.plan is not None
    assert found.turned.turns == ()
    assert found.loads["eu", "us"]["today_load"] == pytest.approx(1_000, rel=0.05)


def test_a_link_whose_probes_are_never_answered_does_not_keep_others_from_theirs() -> None:
    regions = ("ap", "eu", "sa", "us")
    found = Found(
        {"links": [link(a, b, 1.0, "at least") for a in regions for b in regions if a != b]},
        agents={region: f"{region}:1" for region in regions},
    )
    routing = Routing(CatalogLog(), None, "act", PACE)  # type: ignore[arg-type]
    rounds = [routing._probes(found, 1_000 * n) for n in range(1, 4)]
    assert [len({at for at, _ in some}) for some in rounds] == [4, 4, 4], "one link of each agent"
    assert len({(at, word.to) for some in rounds for at, word in some}) == 12
