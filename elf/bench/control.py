"""``elf bench control``: how fast a fleet of real agents does what its jobs' masters tell it.

So many ``elf-agent`` processes on loopback, forked from one that has imported everything
(``agents.preload``), or with ``--hosts`` as many agents in a few processes. Each figure is over several
times; p50 and p99 are the least values that half, or 99 of 100, do not exceed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from rich.table import Table

from elf.bench.control_fleet import ControlFleet
from elf.bench.control_measures import MEASURES, WANTED
from elf.bench.figures import percentiles
from elf.cli.printing import console
from elf.cli.processes import ended


def bench_control(agents: int, rounds: int, hosts: int = 0, *, as_json: bool) -> int:
    """Measure and print. Raises ``ElfError`` when the fleet does not do what is asked of it."""
    missing = [name for name in WANTED if name not in MEASURES]
    if missing:
        print(f"left out, since elf cannot do it yet: {', '.join(missing)}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder, ended() as processes:
        fleet = ControlFleet(processes, Path(folder), agents, hosts=hosts)
        try:
            found = asyncio.run(_measure(fleet, rounds))
        finally:
            fleet.close()
    _print(agents, fleet.ready_ms, found)
    if as_json:
        print(json.dumps({"agents": agents, "hosts": hosts, "ready_ms": round(fleet.ready_ms, 1), **found}))
    return 0


async def _measure(fleet: ControlFleet, rounds: int) -> dict[str, dict[str, float]]:
    await fleet.start()
    async with fleet.client() as client:
        return {name: percentiles(await measure(fleet, client, rounds)) for name, measure in MEASURES.items()}


def _print(agents: int, ready_ms: float, found: dict[str, dict[str, float]]) -> None:
    table = Table("ms", "p50", "p99", "max", title=f"{agents} agents, ready after {ready_ms:,.0f} ms")
    for name, figures in found.items():
        table.add_row(name.removesuffix("_ms"), *(f"{value:,.1f}" for value in figures.values()))
    console(sys.stdout).print(table)
