"""Links of which nobody says what they carry are probed, within bounds (``elf.job.probes``)."""

from __future__ import annotations

import pytest

from elf.job.effects import Send
from elf.job.probes import (
    ANSWER_MS,
    ENOUGH_MS,
    FRESH_MS,
    PROBE_BYTES_MAX,
    REST_MS,
    SIZES,
    Probe,
    Probed,
    Probes,
)
from lab.chaos.engine import united
from tests.support.histories import asked, begun
from tests.support.regions import REGIONS, one_head_each, world_of


def through(probes: Probes, sent: list[Send], now_ms: int, rate: float, connects_ms: int = 0) -> int:
    """What is sent goes over a link of ``rate`` bytes a second, until nothing more is; when that is. The
    first message waits for a connection."""
    while sent:
        (one,) = sent
        assert isinstance(one.message, Probe)
        now_ms += 40 + connects_ms + round(1_000 * len(one.message.payload) / rate)
        connects_ms = 0
        sent = probes.answered(one.to, Probed(number=one.message.number), now_ms)
    return now_ms


@pytest.mark.parametrize(("rate", "sizes"), [(125_000.0, 1), (2_500_000.0, 2), (12_500_000.0, 3)])
def test_a_probe_finds_the_rate_and_is_no_larger_than_it_must_be(rate: float, sizes: int) -> None:
    probes = Probes(lambda address: address.split(":")[0])
    now_ms = through(probes, probes.asked("us:1", 0), 0, rate)
    assert probes.rates(now_ms)["us"] == pytest.approx(rate, rel=0.06)
    assert probes.bytes == sum(SIZES[:sizes])
    assert probes.asked("us:1", now_ms) == [], "it rests"
    now_ms = through(probes, probes.asked("us:1", now_ms + REST_MS), now_ms + REST_MS, rate / 2)
    assert probes.rates(now_ms)["us"] == pytest.approx(rate, rel=0.06), "the best of the last ones"
    assert probes.rates(now_ms + 2 * FRESH_MS) == {}


def test_a_connection_that_is_made_first_makes_no_link_faster() -> None:
    probes = Probes(lambda _: "us")
    now_ms = through(probes, probes.asked("us:1", 0), 0, 125_000.0, connects_ms=400)
    assert probes.rates(now_ms)["us"] == pytest.approx(125_000, rel=0.06)
    assert probes.bytes == SIZES[0]


def test_a_link_is_never_said_to_carry_more_than_the_largest_probe_can_tell() -> None:
    probes = Probes(lambda _: "us")
    now_ms = through(probes, probes.asked("us:1", 0), 0, 1e12)
    assert probes.rates(now_ms)["us"] == 1_000 * SIZES[-1] / ENOUGH_MS


def test_silence_ends_a_probe_and_nobody_else_answers_it() -> None:
    probes = Probes(lambda address: "" if address == "near:1" else "us")
    assert probes.asked("near:1", 0) == []
    (first,) = probes.asked("us:1", 0)
    assert isinstance(first.message, Probe)
    number = first.message.number
    assert probes.answered("us:2", Probed(number=number), 5) == []
    assert probes.asked("us:2", 1_000) == [], "one at a time"
    assert probes.answered("us:1", Probed(number=number), ANSWER_MS + 1) == []
    assert probes.rates(ANSWER_MS + 1) == {}
    assert probes.asked("us:2", ANSWER_MS + 2) != []
    assert probes.heard("near:1", Probe(number=1)) == []
    assert probes.heard("us:9", Probe(number=7)) == [Send("us:9", Probed(number=7))]


def test_a_fleet_that_plans_probes_what_it_does_not_know_and_nothing_else() -> None:
    world = world_of(5, 6)
    spec, _ = begun(world, 40_000, query=united(6, 6), rate_ms=800)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    root = world.by_address[spec.leader].place.split("/")[0]
    stated = ("eu", "us") if root != "us" else ("us", "eu")
    for agent in world.agents:
        statements = agent.node.clients.statements
        statements._routes._stated = {stated: (1e6, None)}
        statements.routing.mode = "propose"
    world.run(150_000)
    _, told = asked(world, 2, "EXPLAIN ROUTES")
    known = {(one["origin"], one["target"]): one["is"] for one in told["links"]}
    assert known.pop(stated) == "stated"
    assert len(known) == len(REGIONS) * 2 - 1
    assert set(known.values()) <= {"probed", "at least"}
    assert "probed" in known.values()
    sent = {agent.address: agent.node.probes.bytes for agent in world.agents}
    probes = sum(kind == "probed" for kind in known.values())
    assert 0 < sum(sent.values()) <= probes * PROBE_BYTES_MAX
