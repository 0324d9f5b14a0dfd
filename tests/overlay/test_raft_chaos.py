"""Histories of Raft groups with everything that may happen, judged; and bugs planted for the judge to
find."""

from __future__ import annotations

import random

import pytest

from lab.raft.experiment import mass_kill
from lab.raft.oracles import Broken
from lab.raft.world import Weather
from overlay.errors import OverlayError
from tests.overlay.plants import IN_HISTORIES, Plant
from tests.support.raft_chaos import Chaos

BLOCKS = 8
PLANT_SEEDS = 100


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_history_breaks_a_promise(block: int, raft_seeds: int) -> None:
    accepted = 0
    for seed in range(block, raft_seeds, BLOCKS):
        chaos = Chaos(seed)
        try:
            chaos.history()
        except (OverlayError, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        accepted += sum(operation.index > 0 for operation in chaos.world.judge.operations.values())
    assert accepted > 20 * (raft_seeds // BLOCKS)


def test_equal_seeds_make_equal_histories() -> None:
    ends = []
    for _ in range(2):
        chaos = Chaos(5)
        chaos.history(steps=60)
        ends.append((chaos.world.now, chaos.world.messages, chaos.world.judge.states))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("plant", "first"), IN_HISTORIES)
def test_the_judge_finds_a_planted_bug(plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(first, first + PLANT_SEEDS):
        try:
            Chaos(seed, check=False).history()
        except Broken:
            return
        except (OverlayError, AssertionError):
            continue  # noticed by the node itself, or stuck; the judge shall see it too
    pytest.fail(f"nothing seen in {PLANT_SEEDS} histories")


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_groups_outlive_the_death_of_many_nodes_at_once(loss: float) -> None:
    """A third of the nodes dies. (2,000 groups on 400 nodes, of which 20 die: 3.3 s at worst.)"""
    weather = Weather(delay_min=1, delay_max=10, loss=loss, sync_max=5)
    seen = mass_kill(40, 120, 0.3, random.Random(3), weather=weather)
    assert seen.led > 0
    assert seen.stalled > 0
    assert seen.recovery[2] < 4
    assert seen.accepted == 1
    assert seen.stalled_accepted == 0
    assert seen.resumed < 4
    assert seen.idle_messages_per_s < seen.idle_peers * 1.1
