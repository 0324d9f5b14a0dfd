"""``elf sim alerts``: alerts over very many windows, beside a judge."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass

from rich.table import Table

from elf.cli.printing import console


@dataclass(frozen=True)
class AlertOptions:
    """The command line. ``workers``: None for one a core."""

    windows: int
    seed: int
    workers: int | None
    as_json: bool


def simulate_alerts(options: AlertOptions) -> int:
    """Simulate and print; 1 when a notice is false or missing."""
    from lab.sim.alerts import Found, simulate

    began, found = time.monotonic(), Found()
    for found in simulate(options.windows, options.seed, options.workers or os.cpu_count() or 1):
        if sys.stderr.isatty():
            print(f"\r{found.windows:,} windows", end="", file=sys.stderr, flush=True)
    facts = {**found.facts(), "seed": options.seed, "seconds": round(time.monotonic() - began, 1)}
    table = Table("what", "how many", title=f"alerts, seed {options.seed}")
    for name, value in facts.items():
        if isinstance(value, int):
            table.add_row(name.replace("_", " "), f"{value:,}")
    console(sys.stdout).print(table)
    for seed in found.seeds:
        print(f"wrong in history {seed}")
    if options.as_json:
        print(json.dumps(facts))
    return 1 if found.wrong.total() else 0
