"""What ``elf sim moving`` runs: each scenario by name, with what was measured, the target, and whether it is
reached."""

from __future__ import annotations

from functools import cache
from typing import Final

from elf.planning import etp
from lab.bench.simulated.costs import measured as measured_costs
from lab.moving import fused, groups, jobs, topologies
from lab.moving.balanced import balanced
from lab.moving.master import Moved, moved
from lab.scenarios import Found, Scenarios

SIZES: Final = (1_000, 10_000, 50_000)
"""Keys of a key group whose master is moved."""
KEYS: Final = 50_000
ROUNDS: Final = 9
JOBS: Final = 500
OPERATORS: Final = (50, 100, 150)
FIGURE_6_8: Final = {
    "1": (12_000, 8_000, "2 3"),
    "2": (4_000, 4_000, "4"),
    "3": (4_000, 3_000, "5 6"),
    "4": (4_000, 2_000, ""),
    "5": (2_000, 2_000, "7 8"),
    "6": (1_500, 1_000, "9 10"),
    "7": (1_000, 1_000, ""),
    "8": (1_000, 1_000, ""),
    "9": (500, 500, ""),
    "10": (500, 500, ""),
}
"""A graph that fits the text; its picture is lost. By operator: what arrives, what it processes, and its
children."""


@cache
def _moved(keys: int, seed: int) -> Moved:
    """Several scenarios rest on it."""
    return moved(keys, ROUNDS, seed, measured_costs())


def _costs(seed: int) -> tuple[groups.Cost, groups.Cost]:
    """Instant and disruptive. What an instant move takes is CPU of the new master."""
    found = _moved(KEYS, seed)
    return groups.Cost(0.0, found.instant_ms), found.cost


def pause(seed: int) -> Found:
    found = _moved(KEYS, seed)
    apart = found.cost.pause_ms / max(found.instant_ms, 0.01)
    reached = found.beyond_ms <= 2 and apart >= 10
    return Found(
        found.facts(), "instant: at most 2 ms beyond a window's own time, disruptive 10 times it", reached
    )


def figure_10(seed: int) -> Found:
    found = {keys: _moved(keys, seed) for keys in SIZES}
    pauses = [found[keys].cost.pause_ms for keys in SIZES]
    grows = pauses == sorted(pauses) and pauses[-1] >= 3 * pauses[0]
    facts = {str(keys): one.facts() for keys, one in found.items()}
    return Found(facts, "the pause of a disruptive move grows with the state", grows)


def figure_11(seed: int) -> Found:
    instant, _ = _costs(seed)
    found = groups.figure_11(instant, {keys: _moved(keys, seed).cost for keys in SIZES})
    disruptive = [one["wait_ms"] for name, one in found.items() if "disruptive" in name]
    reached = (
        disruptive == sorted(disruptive)
        and found["split"]["wait_ms"] < disruptive[-1]
        and found["combine, smooth"]["wait_ms"] == 0
    )
    target = (
        "split at once; combine: smooth waits for nothing but takes a window, disruptive grows with the state"
    )
    return Found(found, target, reached)


def figure_12(seed: int) -> Found:
    found = fused.figure_12(fused.drawn(seed), (0.0, 0.25, 0.5, 0.75, 1.0))
    whole = found["100%"]
    near = abs(whole["disruptive"] - whole["instant"]) <= 0.05
    grows = whole["disruptive"] > found["25%"]["disruptive"] > 0
    return Found(
        found,
        "both add alike to the completion time, within 5 % of it, and more with the share",
        near and grows,
    )


def figure_13(seed: int) -> Found:
    instant, disruptive = _costs(seed)
    waited = {
        "disruptive, every 5 min": groups.figure_13(disruptive, 300),
        "disruptive, every 1 min": groups.figure_13(disruptive, 60),
        "instant": groups.figure_13(instant, 1),
    }
    rarely, often, never = (one.mean_ms for one in waited.values())
    facts = {name: one.facts() for name, one in waited.items()}
    return Found(
        facts, "each at least 10 times better than disruptive, in that order", rarely > often >= 10 * never
    )


def figure_16(seed: int) -> Found:
    found = fused.figure_16(fused.drawn(seed))
    times = list(found.values())
    ratio = round(times[0] / times[-1], 2)
    reached = ratio > 3 and times == sorted(times, reverse=True)
    return Found(
        {"cpu_s": found, "faster": ratio}, "all four fused: more than 3 times as fast as none", reached
    )


def simple_job(seed: int) -> Found:
    found = fused.simple_job(fused.drawn(seed))
    return Found(found, "one component is at least 10 % faster than two", found["gain"] >= 0.1)


def random_jobs(seed: int) -> Found:
    found = {str(size): jobs.shares(JOBS, size, seed) for size in OPERATORS}
    order = all(
        one["comm"]["between"] < one["attributes"]["between"] < one["baseline"]["between"]
        for one in found.values()
    )
    return Found(found, "tuples between components: comm < attributes < baseline", order)


def figure_6_8(seed: int) -> Found:
    topology = {
        name: etp.Operator(arrives=arrives, processes=processes, children=tuple(children.split()))
        for name, (arrives, processes, children) in FIGURE_6_8.items()
    }
    shares = etp.etp(topology, rate=1)
    found = {name: round(100 * shares[name], 1) for name in ("3", "4", "6", "1")}
    return Found({"etp_percent": found}, "40, 40, 20, 0 %", list(found.values()) == [40, 40, 20, 0])


def page_load(seed: int) -> Found:
    found = topologies.page_load_out()
    return Found(found, "80 % above round-robin in the paper; at least 40 %", found["gain"] >= 0.4)


def network(seed: int) -> Found:
    found = topologies.network_out()
    return Found(found, "21 % above round-robin in the paper; at least 10.5 %", found["gain"] >= 0.105)


def scale_in(seed: int) -> Found:
    found = topologies.page_load_in(seed)
    reached = found["kept"] >= 0.95 and found["silent_s"] == 0
    return Found(found, "at least 95 % of the throughput kept, and no second without output", reached)


def balance(seed: int) -> Found:
    found = balanced(seed, measured_costs())
    return Found(
        found, "greatest CPU of 16 agents over the mean: at most 1.3 within a minute", found["after"] <= 1.3
    )


SCENARIOS: Final[Scenarios] = {
    "figure_6.8": figure_6_8,
    "scale_out_page_load": page_load,
    "scale_out_network": network,
    "scale_in": scale_in,
    "random_jobs": random_jobs,
    "simple_job": simple_job,
    "figure_16": figure_16,
    "pause": pause,
    "figure_10": figure_10,
    "figure_11": figure_11,
    "figure_12": figure_12,
    "figure_13": figure_13,
    "balance": balance,
}
