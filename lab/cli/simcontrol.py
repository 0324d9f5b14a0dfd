"""``elf sim control``: the figures of ``elf bench control`` on virtual time, with measured CPU."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table

from elf.cli.printing import console

if TYPE_CHECKING:
    from lab.bench.simulated.costs import Costs

LEFT_OUT: Final = "left out: code_ms, since users' functions run in processes of their own"


@dataclass(frozen=True)
class ControlOptions:
    """The command line."""

    nodes: int
    rounds: int
    link_ms: float
    seed: int
    as_json: bool


def simulate_control(options: ControlOptions) -> int:
    """Measure and print. Raises ``ElfError`` when the fleet does not do what is asked of it."""
    from lab.bench.runner import percentiles
    from lab.bench.simulated.costs import measured
    from lab.bench.simulated.fleet import SimFleet
    from lab.bench.simulated.measures import MEASURES

    began, cpu = time.monotonic(), time.process_time()
    costs = measured()
    fleet = SimFleet(options.nodes, options.seed, costs, options.link_ms)
    found = {}
    with fleet.running():
        _tell(f"{options.nodes} agents are ready after {time.process_time() - cpu:,.0f} s of CPU")
        for name, measure in MEASURES.items():
            found[name] = percentiles(measure(fleet, options.rounds))
            said = ", ".join(f"{what} {value:g}" for what, value in found[name].items())
            _tell(f"{name.removesuffix('_ms')}: {said} ms; {time.process_time() - cpu:,.0f} s of CPU so far")
        depth = fleet.depths()
    _tell(LEFT_OUT)
    facts = {
        "agents": options.nodes,
        "link_ms": options.link_ms,
        "rounds": options.rounds,
        "seed": options.seed,
        "depth_mean": round(sum(depth) / len(depth), 2),
        "depth_max": max(depth),
        "virtual_seconds": round(fleet.charged_ms / 1e3, 1),
        "busy": round(fleet.busy(), 4),
        "seconds": round(time.monotonic() - began, 1),
    }
    _print(facts, found, costs)
    if options.as_json:
        print(json.dumps({**facts, "costs": costs.facts(), **found}))
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(facts: dict[str, float], found: dict[str, dict[str, float]], costs: Costs) -> None:
    title = f"{facts['agents']} agents, links of {facts['link_ms']:g} ms, virtual time"
    table = Table("ms", "p50", "p99", "max", title=title)
    for name, figures in found.items():
        table.add_row(name.removesuffix("_ms"), *(f"{value:,.1f}" for value in figures.values()))
    out = console(sys.stdout)
    out.print(table)
    charged = ", ".join(f"{name.removesuffix('_ms')} {value:g}" for name, value in costs.facts().items())
    print(
        f"the tree is {facts['depth_mean']:g} deep on average, {facts['depth_max']} at most; each core was "
        f"busy for {facts['busy']:.1%} of {facts['virtual_seconds']:g} s"
    )
    print(f"measured while it ran, but for (ms): {charged}; {facts['seconds']:g} s")
