"""What ``elf sim graph`` runs: each scenario by name, with what was measured, the target, and whether it is
reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from random import Random
from typing import Final

from elf.planning import rings, stretches
from elf.planning.stretches import Part, equal, moved
from lab.graphs import afterwards as measured
from lab.graphs import chaos, model, placement
from lab.scenarios import Found, Scenarios

SIZES: Final = (5, 10, 15)
UP_TO: Final = 7
"""Servers of which all changes are tried."""
MANY: Final = (16, 64, 200)
DRAWN: Final = 20
OUT_MOST: Final = 0.09
IN_MOST: Final = 0.15
AFTER_MOST: Final = 1.05
CHANGES: Final = ((3, 4), (4, 8), (4, 3), (8, 4))
"""Of parts of real computations."""
Change = Callable[[Mapping[str, Part]], Mapping[str, Part]]


def servers(count: int, vertices: int = model.VERTICES) -> dict[str, Part]:
    return {f"s{place:03}": part for place, part in enumerate(equal(vertices, count), 1)}


def figure_14(_: int) -> Found:
    before, come = servers(4, 100), ["new"]
    found = {
        way.__name__: moved(before, way(before, come))
        for way in (placement.appended, stretches.greedy, placement.matched)
    }
    reached = found == {"appended": 50, "greedy": 30, "matched": 30}
    return Found({"moved": found}, "30 of 100 vertices move, not 50", reached)


def greedy(_: int) -> Found:
    """Against the best matching, all changes of a few servers."""
    tried, worse = 0, {}
    for count in range(1, UP_TO + 1):
        before = servers(count, 720_720)
        changes = [([f"n{place}" for place in range(more)], ()) for more in range(1, UP_TO - count + 1)]
        leaving = (one for fewer in range(1, count) for one in combinations(before, fewer))
        for come, leave in [*changes, *(([], leave) for leave in leaving)]:
            tried += 1
            least = moved(before, placement.matched(before, come, leave))
            if (found := moved(before, stretches.greedy(before, come, leave))) != least:
                worse[f"{count}, {come or leave}"] = round(found / least, 3)
    told = {"changes": tried, "worse": worse or 0}
    return Found(
        told, f"as few vertices as the best matching in all changes of up to {UP_TO} servers", not worse
    )


def many(seed: int) -> Found:
    """The same of more servers, and of some that leave, drawn."""
    rng, found = Random(seed), {}
    for count in MANY:
        before = servers(count)
        ratios = []
        for _ in range(DRAWN):
            leave = rng.sample(sorted(before), rng.randint(1, count // 2))
            least = moved(before, placement.matched(before, (), leave))
            ratios.append(moved(before, stretches.greedy(before, (), leave)) / least)
        found[str(count)] = {"mean": sum(ratios) / DRAWN, "most": max(ratios)}
    return Found(
        {"over the best": found},
        "greedy at most 1.5 times the best",
        all(one["most"] <= 1.5 for one in found.values()),
    )


def ring(_: int) -> Found:
    """What moves, and the longest stretch over the mean one: a ring beside contiguous stretches."""
    found, good = {}, True
    for count in SIZES:
        before = servers(count)
        for what, by in (("one more", 1), ("doubled", count), ("one fewer", -1), ("halved", -(count // 2))):
            come = [f"n{place}" for place in range(by)]
            if by > 0:
                ways = {"ring": rings.joined(before, come), "contiguous": stretches.greedy(before, come)}
            else:
                leave = stretches.leavers(before, -by)
                ways = {
                    "ring": rings.left(before, rings.who_leaves(before, -by)),
                    "contiguous": stretches.greedy(before, (), leave),
                }
            told = {name: _moved_and_longest(before, after) for name, after in ways.items()}
            found[f"{count}, {what}"] = told
            less = told["ring"]["moved"] <= told["contiguous"]["moved"]
            same = told["ring"] == told["contiguous"]
            good = good and (same if what == "doubled" else less)
    return Found(found, "a ring moves no more, and doubled the same share of the vertices", good)


def _moved_and_longest(before: Mapping[str, Part], after: Mapping[str, Part]) -> dict[str, float]:
    longest = max(end - start for start, end in after.values()) * len(after)
    return {
        "moved": round(moved(before, after) / model.VERTICES, 3),
        "longest": round(longest / model.VERTICES, 3),
    }


def _scaled(count: int, *, out: bool) -> dict[str, float]:
    """Over an optimal change, as shares of its whole time."""
    small, large = servers(count), servers(2 * count)
    if out:
        come = [f"n{place}" for place in range(count)]
        before, ways = (
            small,
            {"contiguous": stretches.greedy(small, come), "ring": rings.joined(small, come)},
        )
    else:
        leave = stretches.leavers(large, count)
        before, ways = (
            large,
            {
                "contiguous": stretches.greedy(large, (), leave),
                "ring": rings.left(large, rings.who_leaves(large, count)),
            },
        )
    found: dict[str, float] = {}
    for name, after in ways.items():
        run = model.changed(before, after)
        best = model.optimal(before, after, run.changed)
        found[name] = round(run.total / best.total - 1, 4)
        cut = model.first_cut(before, after)
        found[f"{name}, first cut"] = round(
            cut.total / model.optimal(before, after, cut.changed).total - 1, 4
        )
        whole = sum(model.iteration(servers(2 * count if out else count)))
        found[f"{name}, afterwards"] = round(run.seconds[-1] / whole, 4)
    return found


def _scaling(*, out: bool) -> Found:
    most = OUT_MOST if out else IN_MOST
    found = {str(count): _scaled(count, out=out) for count in SIZES}
    ways = ("contiguous", "ring")
    reached = all(
        one[way] <= most and one[f"{way}, afterwards"] <= AFTER_MOST for one in found.values() for way in ways
    )
    said = (
        f"within {most:.0%} of an optimal change; afterwards at most {AFTER_MOST} times an iteration's time"
    )
    return Found(found, said, reached)


def scale_out(_: int) -> Found:
    return _scaling(out=True)


def scale_in(_: int) -> Found:
    return _scaling(out=False)


def computation(seed: int) -> Found:
    """Real ones, while agents crash, lose their disks and leave, and parts are spread anew."""
    drawn = range(len(chaos.KINDS))
    found = [chaos.story(seed * len(drawn) + n, agents) for agents in chaos.AGENTS for n in drawn]
    told: dict[str, object] = {
        f"{agents} agents": {
            "results": sum(one.results for one in found if one.agents == agents),
            "layouts": sum(one.layouts for one in found if one.agents == agents),
        }
        for agents in chaos.AGENTS
    }
    wrong = [text for one in found for text in one.wrong]
    return Found(
        told | {"wrong": wrong or 0}, "each result is to the last bit the one of one agent", not wrong
    )


def afterwards(_: int) -> Found:
    """Iterations of real computations after a change, over those of one that has begun so."""
    found, most = {}, 0.0
    for ring in (False, True):
        for before, after in CHANGES:
            one = measured.afterwards(before, after, ring=ring)
            told = {name: round(value, 3) for name, value in vars(one).items()}
            found[f"{before} to {after}, {'ring' if ring else 'contiguous'}"] = told
            if not ring or max(before, after) == 2 * min(before, after):
                most = max(most, one.edges, one.messages, one.bytes)
    said = (
        f"at most {AFTER_MOST} times the edges of the busiest part, messages and bytes, where parts are equal"
    )
    return Found(found, said, most <= AFTER_MOST)


SCENARIOS: Final[Scenarios] = {
    "figure_6.14": figure_14,
    "greedy": greedy,
    "many": many,
    "ring": ring,
    "scale_out": scale_out,
    "scale_in": scale_in,
    "computation": computation,
    "afterwards": afterwards,
}
