"""Alerts of a fleet, on virtual time: each change is told once, whoever is the master, and not because an
agent is away."""

from __future__ import annotations

import msgspec
import pytest

from elf.batch import decode
from lab.chaos.world import World
from tests.support.histories import begun
from tests.support.jobgroups import moved, staffed
from tests.support.outside import came, said

CREATE = "CREATE ALERT busy ON JOB job WHEN s0 >= 1"
NOTIFY = "NOTIFY 'https://outside.example/in'"


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries of simulated jobs have no text, so no condition can be checked against them."""
    monkeypatch.setattr("agents.answering.outputs._check", lambda *_: None)


def told(world: World) -> list[dict[str, object]]:
    """Each notice once, in the order of their numbers; the same number says the same."""
    found: dict[str, bytes] = {}
    for key, notice in came(world).notices:
        assert found.setdefault(key, notice) == notice
    notices: list[dict[str, object]] = [msgspec.json.decode(one) for one in found.values()]
    return sorted(notices, key=lambda one: int(str(one["number"])))


def state(world: World) -> dict[str, object]:
    (row,) = decode(said(world, 1, "SHOW ALERTS").payload).to_pylist()
    return dict(row)


def test_it_fires_once_and_goes_on_with_the_next_master() -> None:
    world = World(95, 3)
    spec, until = begun(world, 30_000, rate_ms=1_000)
    staffed(world, spec, 3)
    text = said(world, 1, f"{CREATE} BY k0 FOR 2 WINDOWS {NOTIFY}").text
    assert text == "alert busy created, of what comes from now on"
    world.run(8_000)
    lead = world.leader(spec)
    lead.crash()
    moved(world, spec, lead)
    world.restart(lead)
    world.run(max(until - world.now, 0) + 20_000)
    first, *rest = told(world)
    assert (first["state"], first["was"], first["number"]) == ("firing", "quiet", 1)
    assert str(first["text"]).startswith('busy (job job) fires: {"k0":')
    assert first["rows"]
    assert [one["number"] for one in rest] == list(range(2, len(rest) + 2))
    for before, after in zip([first, *rest], rest, strict=False):
        assert (before["state"], before["firing"]) != (after["state"], after["firing"])
    shown = state(world)
    assert (shown["alert"], shown["when"], shown["delivery"]) == ("busy", "s0 >= 1", "told")
    last = [first, *rest][-1]
    assert isinstance(last["firing"], list)
    assert (shown["state"], shown["firing"]) == (last["state"], ", ".join(last["firing"]))


def test_who_is_away_makes_it_unknown_by_name() -> None:
    world = World(96, 4)
    spec, until = begun(world, 40_000, rate_ms=500)
    staffed(world, spec, 3)
    said(world, 1, f"{CREATE} COVERAGE >= 0.9 {NOTIFY}")
    shown = state(world)
    assert (shown["state"], shown["firing"], shown["missing"]) == ("quiet", "", "no window yet")
    world.run(6_000)
    lead = world.leader(spec)
    away = next(one for one in world.agents if one is not lead and one.address not in spec.flows[0].leader)
    away.crash()
    world.run(14_000)
    unknown = [one for one in told(world) if one["state"] == "unknown"]
    assert unknown
    assert unknown[0]["missing"] == [f"a{away.index}"]
    assert state(world)["missing"] == f"a{away.index}"
    world.restart(away)
    world.run(max(until - world.now, 0) + 20_000)
    assert told(world)[-1]["state"] in ("quiet", "firing")
