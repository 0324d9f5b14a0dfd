"""How larger pieces are built from smaller ones with the fewest merges (Enorm, section 6.1, Figures 7 and 8).

Each kind of window is made of *units*: pieces of one length that lie end to end (a tumbling window is its own
unit; a sliding one is made of pieces as long as the gcd of size and slide, a cumulative one of its steps). A
unit is tiled by shorter units that are built already, panes being the shortest. With 1-minute panes, windows
of 5 / 10 / 15 / 20 minutes are 5 panes, 2 × 5, 10 + 5 or 5 + 10, and 2 × 10 minutes: 86 pieces are merged an
hour, not 240.

The tiles of a unit depend on its place alone, never on what happens to be in memory, so a sum of doubles is
the same, bit by bit, after a restart. Enorm chooses among equally short tilings by the number of keys,
measured while it runs. Keys grow more slowly than time, so the most uneven tiling has the fewest: the largest
pieces are taken first.

Windows that overlap (sliding, cumulative, landmark) are then made of units by ``elf.job.assembly.twostacks``:
two stacks, or one that only grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from elf.windows.kinds import HOUR_US, Cumulative, Kind, Landmark, Sliding, span

Mask = npt.NDArray[np.bool_]

PLACES_MAX: Final = 20_000
"""A pattern of tiles that repeats only after more places is not searched: then the longest unit that divides
is the tile."""


@dataclass(frozen=True)
class Tiles:
    """A unit of ``length`` panes. Piece ``n`` of length ``v`` is a tile of the unit that it lies in when
    ``used[v][n % len(used[v])]``.
    """

    length: int
    used: dict[int, Mask]

    @cached_property
    def pieces(self) -> dict[int, float]:
        """How many of each length there are in a unit, on average."""
        return {v: float(mask.mean()) * self.length / v for v, mask in self.used.items() if mask.any()}


def plan_merges(lengths: Sequence[int]) -> tuple[Tiles, ...]:
    """The tiles of each unit, shortest first. ``lengths`` are in panes; 1 is a pane and not merged."""
    found: list[Tiles] = []
    built = [1]
    for length in sorted({length for length in lengths if length > 1}):
        found.append(_tiles(length, built))
        built.append(length)
    return tuple(found)


def _tiles(length: int, built: Sequence[int]) -> Tiles:
    period = math.lcm(length, *built)
    if period * len(built) > PLACES_MAX:
        longest = max(v for v in built if length % v == 0)
        return Tiles(length, {longest: np.ones(1, np.bool_)})
    used = {v: np.zeros(period // v, np.bool_) for v in built}
    for start in range(0, period, length):
        at = start
        choice = _fewest(start, start + length, built)
        while at < start + length:
            used[choice[at]][at // choice[at]] = True
            at += choice[at]
    return Tiles(length, {v: mask for v, mask in used.items() if mask.any()})


def _fewest(start: int, end: int, built: Sequence[int]) -> dict[int, int]:
    """At each place the length of the next piece on the shortest way to ``end``, the longest of several."""
    count, choice = {end: 0}, {}
    for at in range(end - 1, start - 1, -1):
        ways = [(1 + count[at + v], -v) for v in built if at % v == 0 and at + v <= end and at + v in count]
        if ways:
            count[at], longest = min(ways)
            choice[at] = -longest
    return choice


@dataclass(frozen=True)
class Merges:
    """Partial aggregates that are merged an hour: for the plan, and if each window were made of its panes."""

    planned: float
    naive: float


def merges_an_hour(kinds: Sequence[Kind], pane_us: int) -> Merges:
    """For windows that have a length; a landmark's, which only grow, count 2 on either side."""
    tiles = plan_merges([kind.unit_us // pane_us for kind in kinds])
    planned = sum(sum(t.pieces.values()) * HOUR_US / (t.length * pane_us) for t in tiles)
    naive = 0.0
    for kind in kinds:
        an_hour = HOUR_US / kind.step_us
        match kind:
            case Sliding() if kind.is_tumbling:
                naive += an_hour * (kind.size_us // pane_us if kind.size_us > pane_us else 0)
            case Sliding():
                naive += an_hour * kind.size_us // pane_us
                # Each unit into a suffix and a prefix, and the two of each window.
                planned += 2 * HOUR_US / kind.unit_us + 2 * an_hour
            case Cumulative():
                steps = kind.size_us // kind.step_us
                naive += an_hour * (kind.size_us + kind.step_us) / 2 / pane_us
                planned += 2 * an_hour * (steps - 1) / steps
            case Landmark():
                naive += 2 * an_hour
                planned += 2 * an_hour
            case _:
                pass
    return Merges(planned, naive)


def describe(kinds: Sequence[Kind], pane_us: int) -> str:
    """The plan of merges for people: ``pane 5 min; 10 min = 2 panes; 1 h = 6 × 10 min; …``."""
    units = plan_merges([kind.unit_us // pane_us for kind in kinds])
    tiled = [f"{span(tiles.length * pane_us)} = {_tiled(tiles, pane_us)}" for tiles in units]
    parts = [f"pane {span(pane_us)}", *tiled]
    for kind in kinds:
        unit = "pane" if kind.unit_us == pane_us else f"piece of {span(kind.unit_us)}"
        match kind:
            case Sliding() if not kind.is_tumbling:
                many = kind.size_us // kind.unit_us
                parts.append(
                    f"{span(kind.size_us)} every {span(kind.slide_us)} = two stacks of {many} {unit}s each"
                )
            case Cumulative():
                parts.append(f"cumulative to {span(kind.size_us)} = the one before and a {unit}")
            case Landmark():
                parts.append(f"since the landmark, every {span(kind.every_us)} = the one before and a {unit}")
            case _:
                pass
    merges = merges_an_hour(kinds, pane_us)
    if merges.naive:
        parts.append(f"merges an hour: {merges.planned:.0f} instead of {merges.naive:.0f}")
    return "; ".join(parts)


def _tiled(tiles: Tiles, pane_us: int) -> str:
    named = {v: "pane" if v == 1 else span(v * pane_us) for v in tiles.pieces}
    if len(named) == 1:
        ((v, name),) = named.items()
        count = tiles.length // v
        return f"{count} panes" if v == 1 else f"{count} × {name}"
    mean = sum(tiles.pieces.values())
    return f"{mean:.3g} of {', '.join(named[v] for v in sorted(named, reverse=True))}"
