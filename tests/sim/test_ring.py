"""The static ring hands keys on as Pastry does: hop by hop, and in a living ring of the same ids."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.sim.ring import ID_BITS, Ids, StaticRing, random_ids
from overlay import Delivered, OverlayConfig, Peer
from overlay.context import Context
from overlay.ids import clockwise, closeness, digit, shared_digits, to_key
from overlay.pastry import Pastry
from tests.support.worlds import ring as living_ring

LOW_BITS = 64


def high(numbers: Sequence[int]) -> Ids:
    """The first 64 bits of 128."""
    return np.array([number >> LOW_BITS for number in numbers], np.uint64)


def cells(ring: StaticRing, node: int, bits: int) -> dict[tuple[int, int], int]:
    """The table of a node as the static ring has it: (row, column) → node; the oracle looks at everybody."""
    ids = [int(number) << LOW_BITS for number in ring.ids]
    wanted = sorted(
        {
            (row := shared_digits(ids[node], other, bits), digit(other, row, bits))
            for other in ids
            if other != ids[node]
        }
    )
    rows, columns = (np.array([cell[n] for cell in wanted], np.uint64) for n in (0, 1))
    entries = ring.entry(np.full(len(wanted), node), rows, columns)
    return dict(zip(wanted, entries.tolist(), strict=True))


def pastries(ring: StaticRing, peers: Sequence[Peer], config: OverlayConfig) -> list[Pastry]:
    """The protocol's own state of each node, with the truth in its leaf set and the ring's choice in its
    table."""
    found = []
    for node, peer in enumerate(peers):
        pastry = Pastry(Context(peer, config, random.Random(1)))
        others = sorted((p for p in peers if p is not peer), key=lambda p: clockwise(peer.id, p.id))
        for other in others:
            pastry.leaves.add(other)
        for entry in cells(ring, node, config.base_bits).values():
            pastry.table.put(peers[entry])
        pastry.leaves.check()
        pastry.table.check()
        found.append(pastry)
    return found


def in_order(count: int, salt: int) -> list[Peer]:
    return sorted((Peer(f"node-{salt}-{number}", 1) for number in range(count)), key=lambda peer: peer.id)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 120),
    salt=st.integers(0, 1 << 30),
    bits=st.sampled_from([1, 2, 4, 8]),
    size=st.sampled_from([2, 4, 8, 16, 24]),
)
def test_each_hop_is_pastrys(count: int, salt: int, bits: int, size: int) -> None:
    config = OverlayConfig(base_bits=bits, leaf_set_size=size)
    peers = in_order(count, salt)
    ring = StaticRing(high([peer.id for peer in peers]), config, salt)
    rng = random.Random(salt)
    keys = [rng.randrange(1 << 128) for _ in range(12)] + [
        peers[0].id,
        (peers[-1].id + (1 << LOW_BITS)) % (1 << 128),
    ]
    place = {peer: node for node, peer in enumerate(peers)}
    nodes = np.arange(count)
    known = pastries(ring, peers, config)
    for key in keys:
        expected = [place[pastry.next_hop(key)] for pastry in known]
        assert ring.next_hop(nodes, np.full(count, key >> LOW_BITS, np.uint64)).tolist() == expected
        nearest = min(peers, key=lambda peer: closeness(key, peer.id))
        assert ring.closest(high([key])).tolist() == [place[nearest]]


@given(count=st.integers(2, 80), salt=st.integers(0, 1 << 30), bits=st.sampled_from([1, 2, 4, 8]))
@settings(max_examples=40, deadline=None)
def test_a_cell_is_filled_when_somebody_fits_and_with_one_who_fits(count: int, salt: int, bits: int) -> None:
    ring = StaticRing(random_ids(count, np.random.default_rng(salt)), OverlayConfig(base_bits=bits), salt)
    ids = [int(number) << LOW_BITS for number in ring.ids]
    node = salt % count
    filled = cells(ring, node, bits)
    for (row, column), entry in filled.items():
        assert shared_digits(ids[node], ids[entry], bits) == row
        assert digit(ids[entry], row, bits) == column
    others = [
        (row, column)
        for row in range(3)
        for column in range(1 << bits)
        if (row, column) not in filled and column != digit(ids[node], row, bits)
    ]
    if others:
        rows, columns = (np.array([cell[n] for cell in others], np.uint64) for n in (0, 1))
        assert (ring.entry(np.full(len(others), node), rows, columns) == -1).all()


def test_the_draw_of_a_cell_is_fair_and_differs_by_seed() -> None:
    """Every node's first row, column 0: all sixteenths of it are taken, none much more often."""
    ids = random_ids(4096, np.random.default_rng(7))
    zero = np.zeros(4096, np.uint64)
    drawn, other = (StaticRing(ids, seed=seed).entry(np.arange(4096), zero, zero) for seed in (1, 2))
    fits = int((ids < np.uint64(1 << 60)).sum())
    assert drawn.min() >= 0
    assert drawn.max() < fits
    parts = np.bincount(drawn * 16 // fits, minlength=16)
    assert parts.min() > 4096 / 16 * 0.7
    assert (drawn != other).mean() > 0.9


@pytest.mark.parametrize(("count", "size"), [(40, 4), (60, 8), (17, 16)])
def test_a_living_ring_with_these_tables_routes_the_same_way(count: int, size: int) -> None:
    """The protocol's simulator, after the static ring's choices were put into its tables: every route ends
    at the same node after the same number of hops."""
    config = OverlayConfig(leaf_set_size=size)
    world = living_ring(count, config=config)
    overlays = sorted(world.running(), key=lambda overlay: overlay.me.id)
    ring = StaticRing(high([overlay.me.id for overlay in overlays]), config, seed=3)
    for node, overlay in enumerate(overlays):
        for entry in cells(ring, node, config.base_bits).values():
            overlay._pastry.table.put(overlays[entry].me)
    rng = random.Random(5)
    routes = [(rng.randrange(count), rng.randrange(1 << 128)) for _ in range(300)]
    for node, key in routes:
        source = overlays[node]
        world.perform(source.me.address, source.route(to_key(key), b"", world.now))
    assert world.run_until(lambda: len(world.deliveries) == len(routes), 5_000)
    ends, hops = ring.routes(np.array([node for node, _ in routes]), high([key for _, key in routes]))
    came: dict[bytes, tuple[str, Delivered]] = {d.effect.key: (d.at, d.effect) for d in world.deliveries}
    for (_, key), end, hop in zip(routes, ends.tolist(), hops.tolist(), strict=True):
        at, delivered = came[to_key(key)]
        assert (at, delivered.hops) == (overlays[end].me.address, hop)


@pytest.mark.parametrize("size", [16, 24])
def test_the_issue_of_1280_nodes(size: int) -> None:
    """With leaf sets of 24: 2.48 hops, 99.9 % within 3, 5 at most; with 16 a little more."""
    rng = np.random.default_rng(11)
    ring = StaticRing(random_ids(1280, rng), OverlayConfig(leaf_set_size=size), 11)
    keys = rng.integers(0, 1 << ID_BITS, 200_000, dtype=np.uint64)
    ends, hops = ring.routes(rng.integers(0, 1280, 200_000), keys)
    assert (ends == ring.closest(keys)).all()
    assert abs(hops.mean() - (2.48 if size == 24 else 2.56)) < 0.02
    assert (hops <= 3).mean() > (0.999 if size == 24 else 0.998)
    assert hops.max() <= 5


def test_a_tree_is_the_routes_of_all_nodes() -> None:
    rng = np.random.default_rng(4)
    ring = StaticRing(random_ids(3000, rng), seed=4)
    for key in rng.integers(0, 1 << ID_BITS, 5, dtype=np.uint64):
        ends, hops = ring.routes(np.arange(3000), np.full(3000, key))
        parents = ring.parents(key)
        for node in range(0, 3000, 37):
            depth, at = 0, node
            while parents[at] != at:
                depth, at = depth + 1, int(parents[at])
            assert (depth, at) == (hops[node], ends[node])


@pytest.mark.parametrize(
    ("ids", "bits", "message"),
    [([], 4, "at least one node"), ([1, 1], 4, "equal in their first 64 bits"), ([1], 128, "do not divide")],
)
def test_rings_that_cannot_be(ids: list[int], bits: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StaticRing(np.array(ids, np.uint64), OverlayConfig(base_bits=bits))
