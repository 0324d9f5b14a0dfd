"""``elf bench guest``: what a web server notices of the agent beside it.

A real nginx answers at a steady rate, which ``wrk`` asks for over some connections, each with a pause of its
own before each request. In turns it is alone (the agent is stopped with SIGSTOP, and nginx writes to a log
that nobody reads), and beside an agent that follows its log. That agent has ``--jobs`` jobs, which want twice
the share of a core that it is lent (``cpu_max_share``): what they want is measured before, without a share.
So it reads late, and leaves rows out where it falls behind for good. Its process is as nice as its unit makes
it.

Both sides are of one run, in short turns that alternate, so what else the machine does falls on both. The
figure is the median of the turns' p99, and the ratio that of the turns that stand beside each other."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import psutil
from typer import Option

from elf.cli.processes import Processes, ended, free_ports
from elf.errors import ElfError, UserError
from lab.bench.oneagent import START_SECS, OneAgent
from lab.bench.rotation.writers import connected, found, nginx, place_of
from lab.bench.runner import Bench, Figure, Report, Scratch

PAUSE_MS: Final = 20
"""Of a connection between an answer and its next request, on average."""
WANTED_SECS: Final = 20.0
LEAD_SECS: Final = 8.0
"""Before each turn, so that what the agent may take at once is taken."""
SETTLE_SECS: Final = 120
"""Until an agent that wants too much is read late, and then sampled."""
LAG_SECS: Final = 10
NICE: Final = 10
WHO: Final = "elf bench guest"
_SERVERS: Final = """\
    server {{
        listen 127.0.0.1:{read};
        access_log {folder}/access.log combined;
        location / {{ root {folder}/www; try_files /page.html =404; }}
    }}
    server {{
        listen 127.0.0.1:{alone};
        access_log {folder}/unread.log combined;
        location / {{ root {folder}/www; try_files /page.html =404; }}
    }}
"""
_ASKING: Final = """\
function delay() return math.random(%d, %d) end
function request() return wrk.format("GET", "/p/" .. math.random(1, 500)) end
function done(summary, latency, requests)
  io.write(string.format('{"p50": %%f, "p99": %%f, "p999": %%f, "requests": %%d, "us": %%d}\\n',
    latency:percentile(50) / 1000, latency:percentile(99) / 1000, latency:percentile(99.9) / 1000,
    summary.requests, summary.duration))
end
"""
_KEYS: Final = ("cs_uri_stem", "c_ip", "sc_status", "cs_method", "cs_user_agent")


def queries(count: int) -> list[str]:
    """So many jobs over an access log, no two with the same rows in the same groups."""
    return [
        f"SELECT {_KEYS[n % len(_KEYS)]} AS k, COUNT(*) AS n, SUM(sc_bytes) AS bytes FROM access "
        f"WHERE sc_status < {600 + n} GROUP BY {_KEYS[n % len(_KEYS)]} WINDOWING {1 + n % 5} SECONDS"
        for n in range(count)
    ]


@dataclass(frozen=True)
class Guest(Bench[str, dict[str, float]]):
    """nginx's answers beside an agent that wants twice its share, and beside none."""

    rate: Annotated[int, Option("--rate", min=1, help="Requests a second.")] = 2_000
    jobs: Annotated[int, Option("--jobs", min=1, help="Jobs of the agent.")] = 20
    seconds: Annotated[float, Option("--seconds", min=1, help="How long each turn is.")] = 10
    settle: Annotated[
        float, Option("--settle", min=0, help="How long the agent wants too much before the first turn.")
    ] = SETTLE_SECS
    repeat: Annotated[int, Option("--repeat", min=1, help="Turns of each side.")] = 8

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        found("nginx", "nginx", "", WHO)
        if place_of("wrk") is None:
            raise UserError(f"{WHO} needs wrk: apt-get install wrk")

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], dict[str, float]]]:
        """nginx, and an agent that has been sampled for a while."""
        processes = scratch.enter_context(ended())
        folder = scratch.folder
        web = Web(processes, folder, self.rate)
        agent = Agent(processes, folder)
        agent.start(0.0)
        agent.give(queries(self.jobs), partial(web.asked, web.read))
        lead_secs = min(LEAD_SECS, self.seconds)
        wants = agent.takes(min(WANTED_SECS, 2 * self.seconds), partial(web.asked, web.read))
        agent.stop()
        agent.start(wants / 2)
        web.asked(web.read, self.settle)

        def beside() -> dict[str, float]:
            web.asked(web.read, lead_secs)
            began, cpu = time.monotonic(), agent.cpu_secs()
            seen = web.asked(web.read, self.seconds)
            share = (agent.cpu_secs() - cpu) / (time.monotonic() - began)
            return (
                seen
                | {"agent_percent": round(100 * share, 2), "lent_percent": round(50 * wants, 2)}
                | agent.said()
            )

        def alone() -> dict[str, float]:
            with agent.stopped():
                web.asked(web.alone, lead_secs)
                return web.asked(web.alone, self.seconds)

        return {"beside": beside, "alone": alone}

    def report(self, runs: Mapping[str, Sequence[dict[str, float]]]) -> Report:
        """The medians of the turns."""
        beside, alone = runs["beside"], runs["alone"]
        names = {side: list(dict.fromkeys(name for run in of for name in run)) for side, of in runs.items()}
        facts = {
            side: {name: round(statistics.median(run[name] for run in of), 3) for name in names[side]}
            for side, of in runs.items()
        }
        pairs = [one["p99_ms"] / other["p99_ms"] for one, other in zip(beside, alone, strict=True)]
        more = 100 * (statistics.median(pairs) - 1)
        load = os.getloadavg()[0]
        notes = [
            f"p99 beside the agent over p99 alone, by turn: {', '.join(f'{pair:.2f}' for pair in pairs)}; "
            f"the median is {more:+.1f} %",
            f"one row in {beside[-1]['weight']:.0f} counts at the end; load of the machine {load:.1f}, "
            f"{psutil.cpu_count()} cores",
        ]
        what = f"p99 of nginx at {self.rate:,} requests/s, {self.jobs} jobs at twice the agent's share"
        figure = Figure(what, facts["beside"]["p99_ms"], "ms", {"no agent": facts["alone"]["p99_ms"]})
        figures = [figure, Figure("the same, median of turns side by side", round(more, 1), "% more")]
        return Report(
            {"rate": self.rate, "jobs": self.jobs, **facts},
            figures,
            notes,
            {"pairs": pairs, "runs": dict(runs)},
        )


class Web:
    """An nginx of one worker, with a log that is followed and one that is not, and who asks it."""

    def __init__(self, processes: Processes, folder: Path, rate: int) -> None:
        self._processes = processes
        self.read, self.alone = free_ports(2)
        (folder / "www").mkdir()
        (folder / "www" / "page.html").write_text("<p>hello</p>" * 100)
        servers = _SERVERS.format(folder=folder, read=self.read, alone=self.alone)
        self._child = nginx(processes, folder, servers, found("nginx", "nginx", "", WHO))
        self._connections = max(1, round(rate * PAUSE_MS / 1000))
        self._script = folder / "asking.lua"
        self._script.write_text(_ASKING % (PAUSE_MS // 2, PAUSE_MS + PAUSE_MS // 2))
        connected(processes, self._child, self.read).close()

    def asked(self, port: int, seconds: float) -> dict[str, float]:
        """Ask for so long; what was seen. Raises ``ElfError``."""
        self._processes.check([self._child])
        if seconds < 1:
            return {}
        command = [str(place_of("wrk")), "-t1", f"-c{self._connections}", f"-d{round(seconds)}s"]
        command += ["--timeout", "5s", "-s", str(self._script), f"http://127.0.0.1:{port}/"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise ElfError(f"wrk says nothing: {(done.stderr or done.stdout)[-200:]}")
        seen = json.loads(lines[-1])
        return {
            "p50_ms": seen["p50"],
            "p99_ms": seen["p99"],
            "p999_ms": seen["p999"],
            "requests_per_s": round(seen["requests"] / seen["us"] * 1e6, 1),
        }


class Agent(OneAgent):
    """The agent that follows nginx's log: with a share of a core, or (0) with all there is."""

    def start(self, share: float) -> None:
        """It is ready then."""
        access = {"include": [str(self._folder / "access.log")], "format": "combined"}
        settings = {
            "data_dir": str(self._folder / "data"),
            "cpu_max_share": share,
            "budgets": {"lag_secs": LAG_SECS},
            "streams": {"access": access},
        }
        self.run("guest", {}, settings)
        self.process.nice(NICE)

    def give(self, jobs: Sequence[str], write: Callable[[float], object]) -> None:
        """Create these jobs; ``write`` has lines written."""
        write(2)
        self.perform("; ".join(f"CREATE JOB j{n} AS {query}" for n, query in enumerate(jobs)))

    def takes(self, seconds: float, write: Callable[[float], object]) -> float:
        """Of a core, while lines are written."""
        write(5)
        began, before = time.monotonic(), self.cpu_secs()
        write(seconds)
        return (self.cpu_secs() - before) / (time.monotonic() - began)

    def cpu_secs(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def said(self) -> dict[str, float]:
        """The weight of its rows, by its health."""
        with urllib.request.urlopen(f"http://{self.http}/health", timeout=START_SECS) as answer:
            warnings: list[str] = json.load(answer).get("warnings", [])
        weights = [
            int(one.rpartition("one row in ")[2].split()[0]) for one in warnings if "one row in" in one
        ]
        return {"weight": float(max(weights, default=1))}

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It does nothing meanwhile."""
        self._child.signal(signal.SIGSTOP, group=False)
        try:
            yield
        finally:
            self._child.signal(signal.SIGCONT, group=False)
