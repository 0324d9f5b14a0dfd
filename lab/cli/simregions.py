"""``elf sim regions``: what crosses the borders of a fleet in several regions."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from elf.cli.printing import console

if TYPE_CHECKING:
    from lab.sim.regions import Fleet

TARGET = 0.4
"""Bytes across borders with heads that merge, against no heads, at most."""


@dataclass(frozen=True)
class RegionOptions:
    """The command line."""

    fleet: Fleet
    as_json: bool


def simulate_regions(options: RegionOptions) -> int:
    """Simulate and print; 1 when a window is wrong or lacking, or the target is missed."""
    from lab.sim.regions import HOW, WINDOW_S, crossed

    fleet = options.fleet
    found = {how: crossed(fleet, how) for how in HOW}
    plain = found[HOW[0]].bytes_a_window
    title = f"{fleet.agents} agents, {fleet.regions} regions, windows of {WINDOW_S} s of panes of 5 s"
    table = Table("trees", "bytes across a window", "against no heads", "windows", "wrong", title=title)
    for how, one in found.items():
        share = f"{one.bytes_a_window / plain:.2f}"
        table.add_row(how, f"{one.bytes_a_window:,}", share, str(one.windows), str(one.wrong))
    console(sys.stdout).print(table)
    ratio = found[HOW[-1]].bytes_a_window / plain
    bad = any(one.wrong or one.windows < fleet.windows for one in found.values())
    if options.as_json:
        facts = {how.replace(" ", "_"): asdict(one) for how, one in found.items()}
        print(json.dumps({**facts, **asdict(fleet), "ratio": round(ratio, 3), "target": TARGET}))
    return 1 if bad or ratio > TARGET else 0
