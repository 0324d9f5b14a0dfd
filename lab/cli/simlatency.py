"""``elf sim latency``: SCALLA's figures in its own setting: the model against a simulation, the settings it
suggests, and rows with deadlines under overload."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass

from elf.errors import UserError
from lab.latency.scenarios import SCENARIOS, Facts


@dataclass(frozen=True)
class LatencyOptions:
    """The command line."""

    scenarios: tuple[str, ...]
    seed: int
    as_json: bool


def simulate_latency(options: LatencyOptions) -> int:
    """Run and report; 1 when a target is not reached. Raises ``UserError``."""
    names = options.scenarios or tuple(SCENARIOS)
    for name in names:
        if name not in SCENARIOS:
            raise UserError(f"there is no scenario {name}: {', '.join(SCENARIOS)}")
    found: Facts = {}
    for name in names:
        began = time.monotonic()
        one = SCENARIOS[name](options.seed)
        found[name] = one.facts()
        how = "reached" if one.reached else "NOT reached"
        print(f"{name} ({time.monotonic() - began:.1f} s): {how}: {one.target}")
        for what, figures in one.measured.items():
            if what != "each":
                print(f"  {what}: {_said(figures)}")
        sys.stdout.flush()
    missed = [name for name in names if not found[name]["reached"]]
    if missed:
        print(f"below the target: {', '.join(missed)}", file=sys.stderr)
    if options.as_json:
        print(json.dumps({**found, "seed": options.seed, "ok": not missed}))
    return 1 if missed else 0


def _said(figures: object) -> str:
    if isinstance(figures, dict):
        return ", ".join(f"{name} {_said(value)}" for name, value in figures.items())
    return f"{figures:g}" if isinstance(figures, float) else str(figures)
