"""Nodes with key groups whose load changes: Enorm's figures 11, 12 and 13.

A node has one core. Rows wait in its queue, and so they do while it packs, reads or takes up a state. What a
move costs is measured (``lab.moving.master``); how many nodes and key groups there are, how long a load rises
and how often groups are moved is the paper's. Constructed: 20 key groups a node, and that the other nodes
have less when one has more, since the paper skews keys and does not say that more of them come.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from elf.planning.balance import Load, balance

NODES: Final = 6
EACH: Final = 20
LOADED: Final = 0.7
MORE: Final = 0.5
RISES_S: Final = 180.0
RESTS_S: Final = 120.0
WARM_S: Final = 300.0
STEP_S: Final = 0.1
LONGEST_WINDOW_S: Final = 300.0
"""Of the simple job: complete results every five minutes."""


@dataclass(frozen=True)
class Cost:
    """Of moving a key group once, in ms: CPU where it was, CPU where it comes to, and the way in between."""

    origin_ms: float
    target_ms: float
    way_ms: float = 0.0

    @property
    def pause_ms(self) -> float:
        return self.origin_ms + self.way_ms + self.target_ms


@dataclass(frozen=True)
class Waited:
    """What rows waited, in ms: on average, the longest, and how many groups were moved."""

    mean_ms: float
    longest_ms: float
    moves: int

    def facts(self) -> dict[str, float]:
        return {
            "mean_ms": round(self.mean_ms, 3),
            "longest_ms": round(self.longest_ms, 1),
            "moves": self.moves,
        }


class Groups:
    """``load``: the share of a core that each key group takes; ``node``: where it is."""

    def __init__(self) -> None:
        self.load = np.full(NODES * EACH, LOADED / EACH)
        self.node = np.repeat(np.arange(NODES), EACH)
        self._waits = np.zeros(NODES)
        """Seconds of work before each node."""
        self._weighed, self._rows, self._longest, self._moves = 0.0, 0.0, 0.0, 0

    def skew(self, chosen: np.ndarray, factor: float) -> None:
        """Some groups have so many times their load, at the expense of all others."""
        load = np.full(len(self.load), LOADED / EACH)
        load[chosen] *= factor
        rest = ~chosen
        load[rest] *= (LOADED * NODES - load[chosen].sum()) / load[rest].sum()
        self.load = load

    def rebalance(self, cost: Cost, rounds: int) -> None:
        """By Flux's rule, so many times at once."""
        for _ in range(rounds):
            loads = {
                str(node): Load({str(g): float(self.load[g]) for g in np.flatnonzero(self.node == node)})
                for node in range(NODES)
            }
            moves = balance(loads).moves
            for one in moves:
                origin, target = int(one.origin), int(one.target)
                self._waits[origin] += cost.origin_ms / 1e3
                # rows of the group go to the new node at once, and wait there until its state has come
                self._waits[target] += cost.pause_ms / 1e3
                self.node[int(one.unit)] = target
                self._moves += 1
            if not moves:
                return

    def step(self) -> None:
        """Rows come and are worked on."""
        comes = np.bincount(self.node, weights=self.load, minlength=NODES)
        before = self._waits
        after = np.maximum(0.0, before + (comes - 1) * STEP_S)
        self._weighed += float(comes @ (before + after)) / 2
        self._rows += float(comes.sum())
        self._longest = max(self._longest, float(before.max()))
        self._waits = after

    def waited(self) -> Waited:
        return Waited(1e3 * self._weighed / self._rows, 1e3 * self._longest, self._moves)


def figure_13(cost: Cost, every_s: float) -> Waited:
    """One node after the other gets half as much load again, within three minutes; groups are moved so
    often."""
    groups = Groups()
    steps, every = round((RISES_S + RESTS_S) / STEP_S), max(1, round(every_s / STEP_S))
    total = 0
    for _ in range(round(WARM_S / STEP_S)):
        groups.step()
    for node in range(NODES):
        chosen = groups.node == node
        for step in range(steps):
            groups.skew(chosen, 1 + MORE * min(1.0, step * STEP_S / RISES_S))
            total += 1
            if total % every == 0:
                # one round where moves go on all the time; else as many as it takes
                groups.rebalance(cost, 1 if every_s <= 1 else EACH)
            groups.step()
    return groups.waited()


def figure_11(instant: Cost, disruptive: dict[int, Cost]) -> dict[str, dict[str, float]]:
    """Split and combine, by keys of a key group: how long rows wait, and until it is done."""
    found = {"split": {"wait_ms": round(instant.pause_ms, 2), "done_ms": round(instant.pause_ms, 2)}}
    found["combine, smooth"] = {"wait_ms": 0.0, "done_ms": 1e3 * LONGEST_WINDOW_S}
    for keys, cost in disruptive.items():
        pause = round(cost.pause_ms, 2)
        found[f"combine, disruptive, {keys} keys"] = {"wait_ms": pause, "done_ms": pause}
    return found
