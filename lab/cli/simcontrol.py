"""``elf sim control``: the figures of ``elf bench control`` on virtual time, with measured CPU."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from rich.table import Table

from elf.cli.printing import console

if TYPE_CHECKING:
    from lab.bench.simulated.costs import Costs
    from lab.bench.simulated.fleet import SimFleet
    from lab.bench.simulated.measures import Measure

LEFT_OUT: Final = "left out: code_ms, since users' functions run in processes of their own"
REST_S: Final = 10
"""Of virtual time, in which the traffic of a fleet without a job is counted."""


@dataclass(frozen=True)
class ControlOptions:
    """The command line."""

    nodes: int
    rounds: int
    link_ms: float
    seed: int
    as_json: bool
    only: Sequence[str] | None = None
    operators: bool = False
    intervals: Sequence[int] | None = None
    rate: int | None = None

    @property
    def whole(self) -> bool:
        """Whether all figures are wanted, and nothing else."""
        return not (self.only or self.operators or self.intervals or self.rate)


def simulate_control(options: ControlOptions) -> int:
    """Measure and print. Raises ``UserError``; ``ElfError`` when the fleet does not do what it is asked."""
    from lab.bench.control_measures import wanted_of
    from lab.bench.runner import percentiles
    from lab.bench.simulated.costs import measured
    from lab.bench.simulated.fleet import SimFleet
    from lab.bench.simulated.measures import MEASURES, traffic

    wanted = wanted_of(options.only, MEASURES)
    began, cpu = time.monotonic(), time.process_time()
    costs = measured()
    fleet = SimFleet(options.nodes, options.seed, costs, options.link_ms)
    found, sent = {}, {}
    with fleet.running():
        _tell(f"{options.nodes} agents are ready after {time.process_time() - cpu:,.0f} s of CPU")
        for name, took in _measured(fleet, options, wanted):
            found[name] = percentiles(took)
            said = ", ".join(f"{what} {value:g}" for what, value in found[name].items())
            _tell(f"{name.removesuffix('_ms')}: {said} ms; {time.process_time() - cpu:,.0f} s of CPU so far")
        for seconds in options.intervals or ():
            sent[seconds] = asdict(traffic(fleet, seconds, max(1, options.rounds if seconds else REST_S)))
            said = ", ".join(f"{what} {value:,.2f}" for what, value in sent[seconds].items())
            _tell(f"an update every {seconds} s: {said}; {time.process_time() - cpu:,.0f} s of CPU so far")
        depth = fleet.depths()
    if options.whole:
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
    for seconds, one in sent.items():
        every = f"with an update every {seconds} s" if seconds else "without a job"
        rate = f"{one['messages_per_s']:.3g} messages and {one['bytes_per_s']:,.0f} bytes a second"
        print(f"an agent sends {rate} {every}")
    if options.as_json:
        print(json.dumps({**facts, "costs": costs.facts(), **found, "traffic": sent}))
    return 0


def _measured(
    fleet: SimFleet, options: ControlOptions, wanted: Mapping[str, Measure]
) -> Iterator[tuple[str, list[float]]]:
    """What is to be measured, one after the other."""
    from lab.bench.simulated.measures import campaign, operators

    if options.operators:
        yield from operators(fleet, options.rounds).items()
    if options.rate:
        yield from campaign(fleet, options.rate, options.rounds).items()
    if options.only or options.whole:
        for name, measure in wanted.items():
            yield name, measure(fleet, options.rounds)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print(facts: dict[str, float], found: dict[str, dict[str, float]], costs: Costs) -> None:
    title = f"{facts['agents']} agents, links of {facts['link_ms']:g} ms, virtual time"
    if found:
        table = Table("ms", "p50", "p99", "max", title=title)
        for name, figures in found.items():
            table.add_row(name.removesuffix("_ms"), *(f"{value:,.1f}" for value in figures.values()))
        console(sys.stdout).print(table)
    charged = ", ".join(f"{name.removesuffix('_ms')} {value:g}" for name, value in costs.facts().items())
    print(
        f"the tree is {facts['depth_mean']:g} deep on average, {facts['depth_max']} at most; each core was "
        f"busy for {facts['busy']:.1%} of {facts['virtual_seconds']:g} s"
    )
    print(f"measured while it ran, but for (ms): {charged}; {facts['seconds']:g} s")
