"""The model's figures are those of its ring."""

from __future__ import annotations

import numpy as np
import pytest

from elf.cli.pictures import depths
from lab.pictures.scene import fanouts
from lab.sim.model import measure


def test_the_shape_of_a_tree() -> None:
    parents = np.array([2, 2, 2, 0, 0, 3])
    assert depths(parents).tolist() == [1, 1, 0, 2, 2, 3]
    assert fanouts(parents).tolist() == [2, 0, 2, 1, 0, 0]


def test_figures_of_1280_nodes() -> None:
    model = measure(1280, 50_000, 2000, seed=2)
    assert (model.lookups.total, model.lookups.wrong) == (50_000, 0)
    assert sum(model.hops.histogram) == 50_000
    assert model.hops.mean == pytest.approx(
        sum(hops * count for hops, count in enumerate(model.hops.histogram)) / 50_000, abs=1e-4
    )
    assert model.hops.p999 <= model.hops.max == len(model.hops.histogram) - 1
    assert 2 < model.tree.depth_mean < model.hops.mean + 0.3
    assert model.tree.depth_max <= 5
    assert fanouts(model.parents).max() <= model.tree.fanout_max
    assert len(model.roots) == len(model.first) == 2000


def test_equal_seeds_give_equal_figures() -> None:
    one, same, other = (measure(300, 2_000, 500, seed=seed) for seed in (5, 5, 6))
    assert (one.hops, one.tree, one.balance) == (same.hops, same.tree, same.balance)
    assert one.hops != other.hops


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_small_rings(nodes: int) -> None:
    """Everybody knows everybody: one hop, unless the key is at job group."""
    model = measure(nodes, 200, 10, seed=1)
    assert model.hops.max == min(1, nodes - 1)
    assert model.tree.depth_max == min(1, nodes - 1)
    assert model.tree.fanout_max == nodes - 1


@pytest.mark.parametrize(("nodes", "keys", "trees"), [(0, 1, 0), (1, 0, 0), (1, 1, -1)])
def test_sizes_that_make_no_ring(nodes: int, keys: int, trees: int) -> None:
    with pytest.raises(ValueError, match="at least one node"):
        measure(nodes, keys, trees, 1)
