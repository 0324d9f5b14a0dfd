"""At most one acts for a key: leases of both neighbours, whatever happens, at every moment looked at."""

from __future__ import annotations

import random

import pytest

from lab.overlay.churn import Distribution, churn, lifetimes
from lab.overlay.oracles import overlapping_claims
from lab.overlay.world import Simulator, plane
from overlay import Delivered, Overlay, OverlayConfig, Peer, Received, Send, Tick
from overlay.ids import to_key
from overlay.messages import LeafProbe, Ping, Pong, Route, RouteName
from tests.support.worlds import names, ring, ring_rests


def acts_for_itself(world: Simulator, name: str) -> bool:
    overlay = world.nodes[name].overlay
    return overlay.acts_for(to_key(overlay.me.id), world.now)


def watch(world: Simulator, for_ms: int, every_ms: int = 10) -> None:
    """Let time pass, and look at all claims all the time."""
    for _ in range(0, for_ms, every_ms):
        world.run(every_ms)
        assert overlapping_claims(world) == []


def pair() -> tuple[Overlay, Peer, bytes]:
    """A ready node that has just got its first neighbour, and a key of its own."""
    overlay, other = Overlay(Peer("me", 1), OverlayConfig(), random.Random(1)), Peer("other", 1)
    overlay.start([], 0)
    key = to_key(overlay.me.id)
    assert overlay.acts_for(key, 0)
    effects = overlay.handle(Received(LeafProbe(other, (), (), 7)), 1_000)
    assert Send("other", Ping(overlay.me, 1_000)) in effects
    return overlay, other, key


def test_keys_wait_for_the_neighbours_grant() -> None:
    overlay, other, key = pair()
    assert not overlay.acts_for(key, 1_000)
    held = overlay.route(key, b"payload", 1_000)
    refused = overlay.handle(Received(Pong(other, 1_000, False, "")), 1_005)
    granted = overlay.handle(Received(Pong(other, 1_000, True, "")), 1_010)
    assert not any(isinstance(effect, Delivered) for effect in (*held, *refused))
    assert Delivered(key, b"payload", "me", 0) in granted


@pytest.mark.parametrize("stamp", [-5, -1, 2_000, 1 << 62])
def test_a_stamp_that_we_cannot_have_written_grants_nothing(stamp: int) -> None:
    overlay, other, key = pair()
    overlay.handle(Received(Pong(other, stamp, True, "")), 1_010)
    assert not overlay.acts_for(key, 1_010)


def test_a_grant_of_an_earlier_incarnation_is_void() -> None:
    overlay, other, key = pair()
    overlay.handle(Received(Pong(other, 1_000, True, "")), 1_010)
    assert overlay.acts_for(key, 1_010)
    overlay.handle(Received(LeafProbe(Peer("other", 2), (), (), 7)), 1_020)
    assert not overlay.acts_for(key, 1_020)


def test_a_lease_ends_before_anybody_may_be_buried() -> None:
    overlay, other, key = pair()
    overlay.handle(Received(Pong(other, 1_000, True, "")), 1_010)
    config = OverlayConfig()
    assert overlay.acts_for(key, 1_000 + config.lease_ms - 1)
    assert not overlay.acts_for(key, 1_000 + config.lease_ms)
    assert config.lease_ms < config.sure_ms < config.dead_ms


def test_what_waits_is_bounded() -> None:
    overlay, _, key = pair()
    for _ in range(OverlayConfig().held_max + 5):
        overlay.route(key, b"", 1_001)
    assert overlay.dropped == 5


def test_a_sleeper_that_wakes_does_not_act_on_what_others_took_over() -> None:
    world = ring(8, latency=plane(10))
    world.stall("n3", 10_000)
    watch(world, 9_990)
    taker = next(
        n for n in names(world) if n != "n3" and world.nodes[n].overlay.acts_for(own(world), world.now)
    )
    assert taker
    key = own(world)
    world.perform("n3", world.nodes["n3"].overlay.route(key, b"", world.now + 11))
    assert not world.deliveries or world.deliveries[-1].at != "n3"
    watch(world, 3_000)
    assert ring_rests(world, 1_000)
    assert acts_for_itself(world, "n3")
    assert [delivery.at for delivery in world.deliveries] == ["n3"]


def own(world: Simulator) -> bytes:
    return to_key(world.nodes["n3"].overlay.me.id)


def test_in_peace_everybody_acts_all_the_time() -> None:
    world = ring(20, latency=plane(10))
    for _ in range(200):
        world.run(50)
        assert all(acts_for_itself(world, name) for name in names(world))
    assert world.messages["Ping"] < 20 * 40


def test_joins_of_others_interrupt_for_a_round_trip_only() -> None:
    world = ring(20, latency=plane(10))
    for number in range(20, 40):
        world.add(f"n{number}", ["n0"])
        watch(world, 200)
        assert all(acts_for_itself(world, name) for name in names(world))


def test_stalls_of_any_length_and_losses_share_no_key() -> None:
    world = ring(25, latency=plane(10), seed=5)
    world.loss = 0.02
    rng = random.Random(5)
    for _ in range(25):
        world.stall(rng.choice(names(world)), rng.choice([500, 2_500, 4_000, 8_000]))
        watch(world, 1_000, every_ms=20)


KINDS: list[Distribution] = ["exponential", "weibull", "pareto"]


@pytest.mark.parametrize(("kind", "mean_s"), [("exponential", 100), ("weibull", 200), ("pareto", 60)])
def test_under_churn_no_key_has_two_masters(kind: Distribution, mean_s: int) -> None:
    """A death or departure every second in a world of 40; what a dying node held is lost with it, and what it
    delivered is delivered again if it died with the acknowledgement (one in a thousand of 1 % loss)."""
    report = churn(
        40,
        random.Random(11),
        kind=kind,
        mean_lifetime_s=mean_s,
        seconds=40,
        lookups_per_s=25,
        look_ms=50,
        leave_share=0.3,
        loss=0.01,
        check=True,
    )
    assert report.overlaps == report.wrong == report.doubled == 0, report
    assert report.again <= 1
    assert report.looks >= 800
    assert report.total >= 1_000
    assert report.right_share >= 0.995, report
    assert report.deaths > 0
    assert report.not_ready == 0


def test_equal_seeds_tell_equal_stories() -> None:
    one, same, other = (
        churn(10, random.Random(seed), mean_lifetime_s=20, seconds=5, lookups_per_s=10) for seed in (1, 1, 2)
    )
    assert one == same
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_lifetimes_have_the_mean_that_is_asked_for(kind: Distribution) -> None:
    draw, rng = lifetimes(kind, 100.0), random.Random(1)
    drawn = [draw(rng) for _ in range(200_000)]
    assert min(drawn) >= 0
    assert sum(drawn) / len(drawn) == pytest.approx(100.0, rel=0.05)


def test_a_churn_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="at least two nodes"):
        churn(1, random.Random(1))


def test_time_asked_for_is_few_ticks() -> None:
    """A lease in peace needs a look every second or two, not more."""
    overlay, other, _ = pair()
    ticks, now = 0, 1_000
    for now in range(1_000, 21_000, 500):
        overlay.handle(Received(Pong(other, now, True, "")), now)
        while (due := overlay.deadline()) is not None and due < now + 500:
            overlay.handle(Tick(), due)
            ticks += 1
    assert ticks < 120


def test_a_newcomer_does_not_deliver_again_what_was_delivered_before_it() -> None:
    """A copy whose acknowledgement was lost is still under way when a node comes between."""
    overlay, other, key = pair()
    overlay.handle(Received(Pong(other, 1_000, True, "")), 1_010)
    again = Route(other, 7, key, Peer("origin", 1), 3, 1, b"payload")
    told = Pong(other, 1_010, True, "", (RouteName(Peer("origin", 1), 3),))
    overlay.handle(Received(told), 1_020)
    assert not any(isinstance(e, Delivered) for e in overlay.handle(Received(again), 1_030))
    fresh = Route(other, 8, key, Peer("origin", 1), 4, 1, b"payload")
    assert any(isinstance(e, Delivered) for e in overlay.handle(Received(fresh), 1_040))


def test_a_neighbour_tells_what_it_delivered_of_the_newcomers_keys_only() -> None:
    overlay, other, _ = pair()
    overlay.handle(Received(Pong(other, 1_000, True, "")), 1_010)
    me, origin = overlay.me, Peer("origin", 1)
    mine = to_key(me.id)
    overlay.handle(Received(Route(other, 7, mine, origin, 3, 1, b"")), 1_020)
    newcomer = Peer("newcomer", 1)
    overlay.handle(Received(LeafProbe(newcomer, (), (), 9)), 1_030)
    (pong,) = [
        e.message
        for e in overlay.handle(Received(Ping(newcomer, 5)), 1_040)
        if isinstance(e, Send) and isinstance(e.message, Pong)
    ]
    assert pong.delivered == ()
