"""Which figures the paper's evaluation has, what it reports there, and which commands are asked for ours."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elf.errors import UserError
from lab.bench.paper import readers
from lab.bench.paper.readers import PAPER_AGENTS, Read
from lab.bench.peers.engines import ENVS, able, chosen
from lab.bench.rotation.writers import place_of

REAL: Final = (4, 16, 64)
SIMULATED: Final = (64, 320, 1_280, 5_120, 10_240)
HALF: Final = 32
"""One more fleet for 4.1: 64 agents with 50 events/s each may be too much for two cores."""
BUSY_SIMULATED: Final = PAPER_AGENTS
"""Larger fleets with jobs at work take hours of CPU here."""
SEED: Final = 1
INTERVALS: Final = (5, 10, 20, 30)
WINDOWS: Final = (10, 30, 60, 120, 300)
"""Of 10a: seconds."""
STREAMING: Final = ("flink", "spark")
"""Engines beside elf in 10a."""
QUICK_ROWS: Final = {"flink": 8_000, "spark": 60_000}
"""Which they take seconds for."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured. ``real`` and ``simulated``: the agents of each fleet; ``envs``: as in ``elf bench
    peers``."""

    quick: bool
    real: Sequence[int]
    simulated: Sequence[int]
    envs: Path = ENVS

    @staticmethod
    def of(*, quick: bool, agents_max: int, simulated_max: int, envs: Path = ENVS) -> Sizes:
        """Up to these numbers of agents, which are among them; the smallest alone for a quick look."""
        if quick:
            return Sizes(True, (min(3, agents_max),), (min(16, simulated_max),), envs)
        return Sizes(False, _up_to(REAL, agents_max), _up_to(SIMULATED, simulated_max), envs)

    @property
    def busy(self) -> Sequence[int]:
        """Simulated fleets that have jobs at work."""
        return [agents for agents in self.simulated if agents <= BUSY_SIMULATED] or self.simulated[:1]


def _up_to(sizes: Sequence[int], most: int) -> list[int]:
    return [*(size for size in sizes if size < most), most]


@dataclass(frozen=True)
class Asked:
    """Commands of a figure, and what cannot be measured on this machine, with the reason."""

    commands: Sequence[str]
    lacking: Sequence[str] = ()


@dataclass(frozen=True)
class PaperFigure:
    """One of them. ``paper``: what the paper shows there; ``spread``: what low and high of our points are."""

    title: str
    paper: str
    spread: str
    asks: Callable[[Sizes], Asked]
    read: Read


def _windows(sizes: Sizes) -> Asked:
    there, lacking = able(chosen(STREAMING), sizes.envs)
    lacking.append("Muppet and Storm: the paper's peers; neither is in a registry of Python's packages")
    where = "" if sizes.envs == ENVS else f" --envs {shlex.quote(str(sizes.envs))}"
    peers_ = f"elf bench peers{where} --query sliding"
    if sizes.quick:  # others take a minute each for files that are long enough for elf
        rows = {"duckdb": 200_000, **{peer.name: QUICK_ROWS[peer.name] for peer in there}}
        how = "--repeat 1 --window 60 --engines"
        return Asked([f"{peers_} --rows {count} {how} {name}" for name, count in rows.items()], lacking)
    names = " ".join(peer.name for peer in there) or "duckdb"
    return Asked([f"{peers_} --repeat 3 --engines {names} --window {size}" for size in WINDOWS], lacking)


def _changes(sizes: Sizes) -> Asked:
    rounds = 1 if sizes.quick else 15
    only = "--only notify --only filter --only code"
    real = [f"elf bench control --agents {n} --rounds {rounds} {only}" for n in sizes.real]
    return Asked([*real, *_reconfigured(sizes)])


def _reconfigured(sizes: Sizes) -> list[str]:
    """Simulated fleets: for 10b and 10c."""
    only = "--only notify --only filter --only leap"
    return [
        f"elf sim control --nodes {n} --rounds {_rounds(sizes, n)} {only} --seed {SEED}"
        for n in sizes.simulated
    ]


def _rounds(sizes: Sizes, nodes: int) -> int:
    return 1 if sizes.quick or nodes > PAPER_AGENTS else 3


def _recovery(sizes: Sizes) -> Asked:
    how = "--strikes 2 --window-ms 500 --detect fast" if sizes.quick else "--strikes 8"
    real = [f"elf bench failover --agents {max(3, n)} {how} --seed {SEED}" for n in sizes.real]
    return Asked([*real, *_rings(sizes), *_reconfigured(sizes)])


def _rings(sizes: Sizes) -> list[str]:
    """The ring and its trees alone: for 10c, 13b and 13c."""
    return [
        f"elf sim overlay --nodes {n} --keys 200 --jobs 20 --crash 0.05 --seed {SEED}"
        for n in sizes.simulated
    ]


def _trees(sizes: Sizes) -> Asked:
    if sizes.quick:
        return Asked(["elf bench cbt --distinct 1000 --distinct 20000 --rows 200000 --repeat 1"])
    distinct = " ".join(f"--distinct {keys}" for keys in (10_000, 100_000, 1_000_000, 4_000_000))
    return Asked([f"elf bench cbt {distinct}", f"elf bench cbt --keys unique {distinct}"])


def _operators(sizes: Sizes) -> Asked:
    rounds = 1 if sizes.quick else 8
    real = [f"elf bench control --agents {n} --rounds {rounds} --operators" for n in sizes.real]
    simulated = [
        f"elf sim control --nodes {n} --rounds {_rounds(sizes, n)} --operators --seed {SEED}"
        for n in sizes.busy
    ]
    return Asked([*real, *simulated], _smaller(sizes))


def _smaller(sizes: Sizes) -> list[str]:
    """What is said of simulated fleets that are too large here."""
    left = [f"{n:,}" for n in sizes.simulated if n not in sizes.busy]
    return [f"simulated with jobs at work: {', '.join(left)} agents, hours of CPU each"] if left else []


def _roots(sizes: Sizes) -> Asked:
    keys = 1_000 if sizes.quick else 200_000
    model = f"elf sim overlay --model --nodes {PAPER_AGENTS} --keys {keys} --jobs 2000 --seed {SEED}"
    return Asked([model])


def _overheads(sizes: Sizes) -> Asked:
    seconds = 2 if sizes.quick else 60
    lacking = ["Fluent Bit, Vector, Flume: in no registry of packages here; rsyslog is the shipper"]
    there = place_of("rsyslogd") is not None
    if not there:
        lacking.append("rsyslog: apt-get install rsyslog")
    ships = " --shipper" if there else ""
    return Asked([f"elf bench idle --seconds {seconds} --rate 50{ships}"], lacking)


def _traffic(sizes: Sizes) -> Asked:
    intervals = INTERVALS[:1] if sizes.quick else INTERVALS
    count = 1 if sizes.quick else 2
    every = " ".join(f"--interval {seconds}" for seconds in (0, *intervals))
    simulated = [f"elf sim control --nodes {n} --rounds {count} {every} --seed {SEED}" for n in sizes.busy]
    real = [
        f"elf bench jobs --jobs 1 --distinct 1 --agents {n} --hosts {1 if n <= REAL[0] else 2} "
        f"--window {seconds} --windows {count}"
        for n in sizes.real
        for seconds in (intervals[0], intervals[-1])[: len(intervals)]
    ]
    return Asked([*simulated, *real, *_rings(sizes)], _smaller(sizes))


def _campaign(sizes: Sizes) -> Asked:
    lacking: list[str] = []
    spark = ""
    try:
        from lab.bench.campaign import check_spark

        check_spark()
    except UserError as error:
        spark = " --no-spark"
        lacking.append(f"Spark: {error}")
    how = "--hosts 1 --window 1 --windows 2" if sizes.quick else "--hosts 2"
    fleets = sorted({*sizes.real, min(HALF, sizes.real[-1])})
    real = [f"elf bench campaign --agents {n} {how}{spark}" for n in fleets]
    simulated = [
        f"elf sim control --nodes {n} --rounds {_rounds(sizes, n)} --rate 50 --seed {SEED}"
        for n in sorted({sizes.busy[0], sizes.busy[-1]})
    ]
    lacking.append(f"{PAPER_AGENTS:,} real agents: {fleets[-1]} share this machine, with 50 events/s each")
    lacking.append("Flume and HBase: an agent archives every line itself, and Spark reads that")
    return Asked([*real, *simulated], lacking)


P50_P99: Final = "p50, and from there to p99"
FIGURES: Final[Mapping[str, PaperFigure]] = {
    "10a": PaperFigure(
        "Processing time against the size of sliding windows",
        "ELF takes less time than Muppet, and less than Storm for large windows (300 s).",
        "median, from the quickest to the slowest of the runs",
        _windows,
        readers.windows,
    ),
    "10b": PaperFigure(
        "Latency of job function changes",
        "Up to 1,280 agents: less than 10 ms to notify all, 210 ms for a filter, 600 ms for code.",
        P50_P99,
        _changes,
        readers.changes,
    ),
    "10c": PaperFigure(
        "Fault and straggler recovery",
        "About 7 s to recover from agents that are removed, hardly more with more agents; less than 100 ms "
        "to leap over a straggler.",
        P50_P99,
        _recovery,
        readers.recovery,
    ),
    "11": PaperFigure(
        "Word count: throughput and memory against the number of keys",
        "The CBT takes much less memory a key than Google's sparsehash, at a similar throughput; more than "
        "1,000,000 keys/s a node of 12 cores.",
        "median, from the slowest to the quickest of the runs; memory: the most of all runs",
        _trees,
        readers.trees,
    ),
    "12a": PaperFigure(
        "Data shuffling time, operators one at a time",
        "max, min, sum and avg in less than 100 ms each; sum and avg take longer, since they cut nothing.",
        P50_P99,
        _operators,
        readers.alone,
    ),
    "12b": PaperFigure(
        "Data shuffling time, operators all at once",
        "Less than 100 ms each, as one at a time.",
        P50_P99,
        _operators,
        readers.together,
    ),
    "12c": PaperFigure(
        "Roots of trees an agent has",
        "99.5 % of the agents root less than 3 of 500 trees, and less than 5 of 1,000; 95 % less than 5 of "
        "2,000.",
        "one ring; the table has the mean of 20",
        _roots,
        readers.roots,
    ),
    "13a": PaperFigure(
        "Runtime overheads beside a shipper",
        "Of a node with 12 cores and 48 GiB: ELF 2.96 % CPU and 5.73 % memory, Flume 0.14 and 5.48, a worker "
        "of Storm 1.17 and 15.91.",
        "one span; writes are calls of the process, the paper's are transactions of the disk",
        _overheads,
        readers.overheads,
    ),
    "13b": PaperFigure(
        "Packets against agents and update interval",
        "Linear while the number of agents grows exponentially; bounded by 10 for millions of agents.",
        "means over the intervals; messages of elf, which may share a packet",
        _traffic,
        readers.packets,
    ),
    "13c": PaperFigure(
        "Bytes against agents and update interval",
        "Linear while the number of agents grows exponentially, and less than the update frequency.",
        "means over the intervals; frames as they are sent, without headers of TCP",
        _traffic,
        readers.sent_bytes,
    ),
    "4.1": PaperFigure(
        "The application: suspects, a closer look, live and offline",
        "1,280 emulated web servers with 50 events/s each, on 60 machines; job functions change while it "
        "runs; the offline side is Hadoop over HBase.",
        "medians of both queries, up to the worse p99",
        _campaign,
        readers.campaign,
    ),
}
"""By number; 4.1 is the section."""


def numbered(asked: Sequence[str] | None) -> list[str]:
    """The figures of these numbers, which commas may part; all if None. Raises ``UserError``."""
    if asked is None:
        return list(FIGURES)
    numbers = [number.strip() for one in asked for number in one.split(",")]
    for number in numbers:
        if number not in FIGURES:
            raise UserError(f"--figure {number or '(nothing)'}: there are {', '.join(FIGURES)}")
    return [number for number in FIGURES if number in numbers]
