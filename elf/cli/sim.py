"""``elf sim overlay``: nodes join, keys are routed, nodes crash, keys are routed again; on virtual time."""

from __future__ import annotations

import dataclasses
import json
import random
import time
from typing import Final

from overlay.simulator import Phase, Report, simulate

DIGIT_VALUES: Final = 16
HOPS_BEYOND: Final = 1
"""A route may take one hop more than the tables' depth: the last one, to the numerically closest leaf."""


def simulate_overlay(nodes: int, keys: int, crash: float, seed: int, *, as_json: bool) -> int:
    """Run and report; 1 when a route ended wrong, not at all, twice, or after too many hops."""
    began = time.monotonic()
    report = simulate(nodes, keys, crash, random.Random(seed))
    limit = hops_limit(nodes)
    right = all(fault(phase, limit) is None for phase in report.phases)
    if as_json:
        facts = {**dataclasses.asdict(report), "seed": seed, "hops_limit": limit, "ok": right}
        print(json.dumps(facts))
    else:
        _print(report, limit, seed, time.monotonic() - began)
    return 0 if right else 1


def hops_limit(nodes: int) -> int:
    """⌈log₁₆ N⌉ + 1 (paper, section 2.3), in whole numbers."""
    digits, reach = 0, 1
    while reach < nodes:
        digits, reach = digits + 1, reach * DIGIT_VALUES
    return digits + HOPS_BEYOND


def fault(phase: Phase, limit: int) -> str | None:
    """What is wrong with a phase, in words; None when all is well."""
    lookups = phase.lookups
    found = [
        f"{count} routes {what}"
        for count, what in (
            (lookups.wrong, "ended at the wrong node"),
            (lookups.lost, "ended nowhere"),
            (lookups.doubled, "ended more than once"),
        )
        if count
    ]
    if phase.hops.max > limit:
        found.append(f"a route took {phase.hops.max} hops, over {limit}")
    if phase.ready < phase.nodes:
        found.append(f"{phase.nodes - phase.ready} nodes did not get in")
    return ", ".join(found) or None


def _print(report: Report, limit: int, seed: int, seconds: float) -> None:
    for phase in report.phases:
        hops = f"hops mean {phase.hops.mean:.2f} max {phase.hops.max} (limit {limit})"
        print(
            f"{phase.name}: {phase.nodes} nodes, {phase.lookups.total} routes, {hops}, "
            f"settled after {phase.settled_seconds:g} s: {fault(phase, limit) or 'all right'}"
        )
    print(
        f"{report.messages} messages in {report.virtual_seconds:g} virtual seconds, "
        f"{report.upkeep_messages_per_s} a node and second while idle; seed {seed}, {seconds:.1f} s"
    )
