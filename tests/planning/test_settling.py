"""A fleet after a rolling restart, as ``elf sim moving --scenario balance`` has it, by sums alone: what
agents count of a hundred uneven jobs is a quarter of what these take, each look is off by some per cent,
and what is known is ten seconds old."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from elf.planning.balance import Load, balance, beside, imbalance, learned
from elf.planning.pacing import Change, Pace, paced, unbalanced

AGENTS, JOBS, FACTOR, BASE, NOISE = 16, 100, 4.0, 100_000.0, 0.05
PACE = Pace()


def restarted(rng: random.Random) -> tuple[dict[str, float], dict[str, str]]:
    """What is counted of each job, in millionths of a core, and where it is: agents that have restarted last
    have none, and one has many."""
    counted = {f"j{n}": 12_000 / (n % 20 + 1) / (1, 10, 5, 2)[n % 4] for n in range(JOBS)}
    weights = [1.0] * 10 + [4.0] + [0.0] * 5
    places = rng.choices([f"a{n:02}" for n in range(AGENTS)], weights, k=JOBS)
    return counted, dict(zip(counted, places, strict=True))


class Fleet:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.counted, self.at = restarted(self.rng)
        self.changes: list[Change] = []

    def look(self) -> tuple[dict[str, Load], dict[str, float]]:
        """What agents count in a look, and what they take in all."""
        units: dict[str, dict[str, float]] = {f"a{n:02}": {} for n in range(AGENTS)}
        for job, at in self.at.items():
            units[at][job] = self.counted[job] * self.rng.uniform(1 - NOISE, 1 + NOISE)
        loads = {at: Load(some) for at, some in units.items()}
        return loads, {
            at: BASE * self.rng.uniform(1 - NOISE, 1 + NOISE) + FACTOR * load.total
            for at, load in loads.items()
        }

    def decide(
        self, loads: Mapping[str, Load], whole: Mapping[str, float], now_ms: int, factor: float | None
    ) -> None:
        """With a look of ten seconds ago. What has moved since is counted where it is now."""
        known = learned({at: (load, whole[at]) for at, load in loads.items()}) if factor is None else factor
        sizes = {job: known * size for load in loads.values() for job, size in load.units.items()}
        now = {
            at: Load({j: s for j, s in sizes.items() if self.at[j] == at}, beside(load, whole[at], known))
            for at, load in loads.items()
        }
        turn = unbalanced(PACE, imbalance(now), paced(PACE, self.changes, (), now_ms))
        if turn.due:
            held = {job for job in sizes if not turn.may(job, job)}
            for move in balance(now, held, below=PACE.below, most=turn.room).moves:
                self.at[move.unit] = move.target
                self.changes.append(Change(move.unit, move.unit, now_ms))

    def true(self) -> float:
        takes = dict.fromkeys((f"a{n:02}" for n in range(AGENTS)), BASE)
        for job, at in self.at.items():
            takes[at] += FACTOR * self.counted[job]
        return imbalance({at: Load({}, size) for at, size in takes.items()})


def run(fleet: Fleet, seconds: int, factor: float | None = None) -> list[float]:
    found, seen = [], fleet.look()
    for at_s in range(0, seconds, 10):
        looked = fleet.look()
        fleet.decide(*seen, 1_000_000 + 1_000 * at_s, factor)
        seen = looked
        found.append(fleet.true())
    return found


@pytest.mark.parametrize("seed", range(12))
def test_agents_are_even_within_a_minute_and_then_nothing_changes(seed: int) -> None:
    fleet = Fleet(seed)
    assert fleet.true() > 1.3
    assert run(fleet, 60)[-1] <= 1.3
    settled = len(fleet.changes)
    assert settled <= 20
    assert max(run(fleet, 600)) <= 1.3
    assert len(fleet.changes) - settled <= 3, "it does not go to and fro"


def test_what_is_not_counted_has_to_be_learned() -> None:
    """By what is counted alone agents seem to do little but what nobody can move."""
    by_count = [run(Fleet(seed), 60, factor=1.0)[-1] for seed in range(12)]
    known = [run(Fleet(seed), 60)[-1] for seed in range(12)]
    assert sum(known) < sum(by_count)
