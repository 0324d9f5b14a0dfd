"""``elf bench guest``: what a web server notices of the agent beside it.

A real nginx is asked at fixed times (``lab.bench.openload``). In turns it is alone (the agent is stopped with
SIGSTOP, and nginx writes to a log that nobody reads), and beside an agent that follows its log. That agent
has ``--jobs`` jobs, which want twice the share of a core that it is lent (``cpu_max_share``): what they want
is measured before, without a share. So it reads late, and leaves rows out where it falls behind for good. It
stands still half of the time, and its share is by the clock, so half of that share is set. Its process is as
nice as its unit makes it, and has the core of nginx, which is the worst place; who asks has another one. With
``--nice -20`` (of root) all of them go before what else the machine does, and stand to each other as ever.

How one percent is told from what else the machine does. Turns are short, and alternate in the order
beside, alone, alone, beside, so that a change of the machine falls on both; two turns side by side have
one schedule of requests. The figure is p99 of all requests of all turns of a side over that of the other: a
median of turns would not see an agent that works in less than half of them. Its interval is that of a
bootstrap over pairs of turns (95 %), which knows nothing of how noise is distributed. The same figure of
alone against alone, the odd turns against the even ones, says what this machine can tell at the time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
import psutil
from typer import Option

from elf.cli.processes import Processes, ended, free_ports
from elf.errors import ElfError, UserError
from lab.bench.oneagent import START_SECS, OneAgent
from lab.bench.rotation.writers import connected, found, nginx
from lab.bench.runner import Bench, Figure, Report, Scratch

WANTED_SECS: Final = 20.0
SETTLE_SECS: Final = 40
"""Turns that do not count, until an agent that wants too much is read late, and then sampled."""
RESAMPLES: Final = 1_000
PERCENT: Final = 99
BIN: Final = 0.001
"""Quantiles are told to such a part: of logarithms of latencies."""
BINS: Final = 15_000
PAIRS_MIN: Final = 8
"""Of fewer pairs of turns a bootstrap says nothing."""
Floats = npt.NDArray[np.float64]
TARGET: Final = 1.0
"""Percent that p99 may be longer."""
LAG_SECS: Final = 10
NICER: Final = 7
"""A fifth of the weight of others, as ``CPUWeight=20`` of its unit."""
WHO: Final = "elf bench guest"
_SERVERS: Final = """\
    keepalive_timeout 600s;
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
_KEYS: Final = ("cs_uri_stem", "c_ip", "sc_status", "cs_method", "cs_user_agent")


def queries(count: int) -> list[str]:
    """So many jobs over an access log, no two with the same rows in the same groups."""
    return [
        f"SELECT {_KEYS[n % len(_KEYS)]} AS k, COUNT(*) AS n, SUM(sc_bytes) AS bytes FROM access "
        f"WHERE sc_status < {600 + n} GROUP BY {_KEYS[n % len(_KEYS)]} WINDOWING {1 + n % 5} SECONDS"
        for n in range(count)
    ]


@dataclass(frozen=True)
class Turn:
    """What one turn has seen: latencies in µs, and figures."""

    took: Sequence[float]
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Guest(Bench[str, Turn]):
    """nginx's answers beside an agent that wants twice its share, and beside none."""

    rate: Annotated[int, Option("--rate", min=1, help="Requests a second.")] = 2_000
    jobs: Annotated[int, Option("--jobs", min=1, help="Jobs of the agent.")] = 20
    seconds: Annotated[float, Option("--seconds", min=0.5, help="How long each turn is.")] = 3
    settle: Annotated[
        float, Option("--settle", min=0, help="How long turns do not count, so that the agent reads late.")
    ] = SETTLE_SECS
    nice: Annotated[
        int, Option("--nice", min=-20, max=0, help="Of all that is measured; below 0 takes root.")
    ] = 0
    repeat: Annotated[int, Option("--repeat", min=2, help="Turns of each side.")] = 25

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        found("nginx", "nginx", "", WHO)
        if self.nice < 0 and os.geteuid():
            raise UserError(f"{WHO} --nice {self.nice}: only root may go before others")

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Turn]]:
        """nginx, and an agent that has been read late for a while."""
        processes = scratch.enter_context(ended())
        web = Web(processes, scratch.folder, self.rate, self.nice)
        agent = Agent(processes, scratch.folder)
        agent.nice = self.nice + NICER
        agent.start(0.0)
        agent.give(queries(self.jobs), partial(web.asked, web.read))
        wants = agent.takes(min(WANTED_SECS, 5 * self.seconds), partial(web.asked, web.read))
        agent.stop()
        agent.start(wants / 4)

        def beside() -> Turn:
            began, cpu = time.monotonic(), agent.cpu_secs()
            took, figures = web.asked(web.read, self.seconds)
            share = (agent.cpu_secs() - cpu) / (time.monotonic() - began)
            lent = {"agent_percent": round(100 * share, 2), "lent_percent": round(50 * wants, 2)}
            return Turn(took, figures | lent | agent.said())

        def alone() -> Turn:
            with agent.stopped():
                return Turn(*web.asked(web.alone, self.seconds))

        for _ in range(round(self.settle / self.seconds / 2)):
            beside()
            alone()
        return {"beside": beside, "alone": alone}

    def report(self, runs: Mapping[str, Sequence[Turn]]) -> Report:
        """All requests of a side, and what can be told of them."""
        beside, alone = ([turn.took for turn in runs[side]] for side in ("beside", "alone"))
        facts = {side: _facts(of) for side, of in runs.items()}
        more, low, high = longer(beside, alone)
        odd, even = alone[1::2], alone[: len(alone) // 2 * 2 : 2]
        nothing, nothing_low, nothing_high = longer(odd, even)
        told = "reached" if high <= TARGET else "not reached" if low > TARGET else "not told: too wide"
        told = told if len(beside) >= PAIRS_MIN else "not told: too few turns"
        notes = [
            f"p99 beside the agent is {more:+.1f} % of p99 alone, {low:+.1f} to {high:+.1f} % (95 %); target "
            f"+{TARGET:g} %: {told}",
            f"p99 alone over p99 alone, other turns: {nothing:+.1f} %, {nothing_low:+.1f} to "
            f"{nothing_high:+.1f} %: what this machine can tell now",
            f"load of the machine {os.getloadavg()[0]:.1f}, {psutil.cpu_count()} cores; {pinned()}; nice "
            f"{self.nice}",
        ]
        what = f"p99 of nginx at {self.rate:,} requests/s, {self.jobs} jobs at twice the agent's share"
        figures = [
            Figure(what, facts["beside"]["p99_ms"], "ms", {"no agent": facts["alone"]["p99_ms"]}),
            Figure("the same, longer by", round(more, 1), "%", {"at least": low, "at most": high}),
            Figure(
                "alone against alone",
                round(nothing, 1),
                "%",
                {"at least": nothing_low, "at most": nothing_high},
            ),
        ]
        more_facts = {"interval_percent": [low, high], "noise_percent": [nothing_low, nothing_high]}
        return Report({"rate": self.rate, "jobs": self.jobs, **facts}, figures, notes, more_facts)


def _facts(turns: Sequence[Turn]) -> dict[str, float]:
    """Of all requests of a side, and the medians of what else its turns have seen."""
    took = sorted(one for turn in turns for one in turn.took)
    ranks = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}
    facts = {name: round(took[int(share * (len(took) - 1))] / 1000, 4) for name, share in ranks.items()}
    names = dict.fromkeys(name for turn in turns for name in turn.figures)
    return facts | {name: round(statistics.median(t.figures[name] for t in turns), 2) for name in names}


def longer(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """By how many percent p99 of all requests of these turns is above that of the others, with an interval of
    95 %: of so many samples of pairs of turns, each with as many pairs, by a fixed seed."""
    counts = [np.stack([_counted(turn) for turn in turns]) for turns in (one, other)]
    used = np.flatnonzero(sum(of.sum(axis=0) for of in counts))
    counts = [of[:, used[0] : used[-1] + 1] for of in counts]
    pairs = len(one)

    def percent(weights: Floats) -> Floats:
        first, second = (_places(weights @ of) for of in counts)
        found: Floats = 100 * np.expm1((first - second) * BIN)
        return found

    drawn = np.random.default_rng(1).multinomial(pairs, np.full(pairs, 1 / pairs), RESAMPLES).astype(float)
    parts = np.concatenate([percent(some) for some in np.array_split(drawn, RESAMPLES // 50)])
    low, high = np.percentile(parts, (2.5, 97.5))
    (more,) = percent(np.ones((1, pairs)))
    return float(more), round(float(low), 1), round(float(high), 1)


def _counted(took: Sequence[float]) -> Floats:
    """Requests by the logarithms of how long they took."""
    places = (np.log(np.maximum(np.asarray(took), 1.0)) / BIN).astype(np.int64)
    return np.bincount(np.minimum(places, BINS), minlength=BINS + 1).astype(float)


def _places(counts: Floats) -> Floats:
    """That of p99 in each row."""
    summed = np.cumsum(counts, axis=1)
    found: Floats = np.argmax(summed >= PERCENT / 100 * summed[:, -1:], axis=1).astype(float)
    return found


def cores() -> tuple[set[int], set[int]]:
    """Where nginx and the agent are, and where who asks is; the same where there is one core."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


def pinned() -> str:
    """In words."""
    web, asking = cores()
    return f"nginx and the agent on core {min(web)}, who asks on {', '.join(map(str, sorted(asking)))}"


def renice(process: psutil.Process, nice: int) -> None:
    """All of its threads; and its session, where the scheduler shares cores among sessions (autogroup), so
    that to others only that counts."""
    for thread in process.threads():
        os.setpriority(os.PRIO_PROCESS, thread.id, nice)
    group = Path(f"/proc/{process.pid}/autogroup")
    with contextlib.suppress(OSError):  # the kernel has none
        group.write_text(str(nice))


class Web:
    """An nginx of one worker, with a log that is followed and one that is not, and who asks it."""

    def __init__(self, processes: Processes, folder: Path, rate: int, nice: int) -> None:
        self._processes, self._rate, self._turns = processes, rate, 0
        self.read, self.alone = free_ports(2)
        (folder / "www").mkdir()
        (folder / "www" / "page.html").write_text("<p>hello</p>" * 100)
        servers = _SERVERS.format(folder=folder, read=self.read, alone=self.alone)
        self._child = nginx(processes, folder, servers, found("nginx", "nginx", "", WHO))
        connected(processes, self._child, self.read).close()
        web, asking = cores()
        for one in (master := psutil.Process(self._child.process.pid), *master.children()):
            one.cpu_affinity(sorted(web))
            renice(one, nice)
        said = folder / "asking.said"
        self._asking = processes.start("who asks", "lab.bench.openload", [], said, talks=True)
        who = psutil.Process(self._asking.process.pid)
        who.cpu_affinity(sorted(asking))
        renice(who, nice)

    def asked(self, port: int, seconds: float) -> tuple[list[float], dict[str, float]]:
        """Ask for so long; how long each request took (µs), and figures. Raises ``ElfError``."""
        self._processes.check([self._child, self._asking])
        orders, answers = self._asking.process.stdin, self._asking.process.stdout
        assert orders is not None
        assert answers is not None
        self._turns += 1  # two turns side by side have one seed
        orders.write((json.dumps([port, seconds, self._rate, self._turns // 2]) + "\n").encode())
        orders.flush()
        if not (line := answers.readline()):
            self._processes.check([self._asking])
            raise ElfError("who asks has said nothing")
        took: list[float] = json.loads(line)
        return took, {"requests_per_s": round(len(took) / seconds, 1)}


class Agent(OneAgent):
    """The agent that follows nginx's log: with a share of a core, or (0) with all there is."""

    nice = NICER

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
        for thread in self.process.threads():  # later ones inherit both
            os.sched_setaffinity(thread.id, cores()[0])
        renice(self.process, self.nice)

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
