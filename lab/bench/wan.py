"""``elf bench wan``: real agents in three regions of one machine, whose links the kernel holds to their rates
(``lab.wan.spaces``), and a proxy to their delays: what crosses borders, and how late windows are.

Three fleets, one after the other, with the same rows and links: trees as they come (``flat``), with region
heads (``heads``), and with routes that act (``act``), where the plan leads what ``eu`` sends over ``ap``. The
link from ``eu`` to the root's region is slow. A window is late by the time from its end until all agents are
in it. Bytes are those of the links, with acknowledgements, heartbeats and all headers. It takes network
namespaces (Linux, ``util-linux`` and ``iproute2``). With ``--proxy`` it takes none: then a proxy holds the
rates too (``lab.wan.loopback``), and counts no headers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import fmean
from typing import Annotated, Final

from typer import Option

from elf.cli.processes import environment
from elf.errors import ElfError
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles
from lab.bench.wan_side import Found, Wanted
from lab.wan.spaces import UNSHARE, check

MODES: Final = ("flat", "heads", "act")
SIDE_SECS: Final = 600.0
"""For a fleet to come up and turn, beside what is measured."""


@dataclass(frozen=True)
class Wan(Bench[str, Found]):
    """A fleet for each mode."""

    seconds: Annotated[float, Option("--seconds", min=20, help="How long each fleet is measured.")] = 60
    agents: Annotated[int, Option("--agents", min=1, help="Agents in each region.")] = 2
    rate: Annotated[float, Option("--rate", min=10, help="Rows a second of each agent.")] = 400
    slow: Annotated[float, Option("--slow", min=0.001, help="Mbit/s of the slow link.")] = 0.2
    delay_ms: Annotated[float, Option("--delay-ms", min=0, help="Of each link, one way, in a proxy.")] = 0
    proxy: Annotated[bool, Option("--proxy", help="Rates in it too: no namespaces are needed.")] = False

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Found]]:
        """Raises ``UserError`` where there are no namespaces and they are wanted."""
        if not self.proxy:
            check()

        def run(mode: str) -> Found:
            folder = scratch.folder / mode
            folder.mkdir(exist_ok=True)
            wanted = Wanted(mode, self.seconds, self.agents, self.rate, self.slow, self.delay_ms, self.proxy)
            command = [
                sys.executable,
                "-P",
                "-m",
                "lab.bench.wan_side",
                str(folder),
                json.dumps(asdict(wanted)),
            ]
            command = command if self.proxy else [*UNSHARE, *command]
            limit = SIDE_SECS + self.seconds
            done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=limit)
            if done.returncode:
                raise ElfError(f"the fleet {mode} failed:\n{done.stderr.strip()[-2_000:]}")
            return Found(**json.loads(done.stdout.splitlines()[-1]))

        return {mode: partial(run, mode) for mode in MODES}

    def report(self, runs: Mapping[str, Sequence[Found]]) -> Report:
        """Bytes and times of each. What windows say must be what was written. Raises ``ElfError`` where a
        fleet has made no window with all agents."""
        first = {mode: found[0] for mode, found in runs.items()}
        late = {mode: _late_ms(found) for mode, found in first.items()}
        every = {mode: found.all_bytes / 1024 / self.seconds for mode, found in first.items()}
        slow = {mode: found.slow_bytes / 1024 / self.seconds for mode, found in first.items()}
        figures = [
            Figure(f"{what}, routes that act", values.pop("act"), "KiB/s", values)
            for what, values in (("what goes over the slow link", slow), ("over all links", every))
        ]
        figures += [
            Figure(f"lateness of whole windows, {mode}", late[mode], "ms (p50, p99)") for mode in MODES
        ]
        problems = [
            f"{mode}: windows differ by {found.rows_wrong} rows from what was written"
            for mode, found in first.items()
            if found.rows_wrong
        ]
        facts = {
            mode: {
                "late_ms": round(1e3 * fmean(found.latencies_s)),
                "whole": len(found.latencies_s),
                "windows": found.windows,
                "incomplete_at_first": found.incomplete,
                "slow_link_bytes": found.slow_bytes,
                "all_links_bytes": found.all_bytes,
                "probes_bytes": found.probes_bytes,
                "route": found.route,
            }
            for mode, found in first.items()
        }
        details = {mode: asdict(found) for mode, found in first.items()}
        links = {"delay_ms": self.delay_ms, "rates_by": "proxy" if self.proxy else "kernel"}
        return Report(
            {"seconds": self.seconds, **links, **facts}, figures, details=details, problems=problems
        )


def _late_ms(found: Found) -> tuple[float, float]:
    """p50 and p99."""
    if not found.latencies_s:
        raise ElfError("no window came with all agents: measure for longer (--seconds)")
    late = percentiles([1e3 * one for one in found.latencies_s])
    return late["p50"], late["p99"]
