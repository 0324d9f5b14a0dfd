"""``elf bench queue``: a production run that comes while a research run is at work, on a standalone Spark.

A master and two workers of one core each are processes of this machine, and so is ``elf offline serve``. Each
run is alone first; then the production run is submitted when a quarter of the research run is done (Figure
6.19 of Assured Cloud Computing, on a real cluster). The research run is held against its time alone and the
production run's together: that time nobody can give it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Annotated, Final

from typer import Option

from lab.bench.offline import DAY_US, START, START_US, archived
from lab.bench.options import Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch
from lab.cli.generate import GenerateOptions, write
from lab.queue.served import LOOK_SECS, Served
from lab.queue.standalone import standalone

QUERY: Final = (
    "SELECT cs_uri_stem, COUNT(*) AS n, SUM(sc_bytes) AS bytes FROM log GROUP BY cs_uri_stem ORDER BY n DESC"
)
SUBMITTED_AT: Final = 0.25
"""Of the research run's progress."""
SECONDS_MIN: Final = 30
"""Of the production run alone: in a shorter one the seconds count that Spark and the daemon take to begin."""
ALONE: Final = ("production", "research")


@dataclass(frozen=True)
class Took:
    """Seconds of each run from its submission to its end, how many tasks gave way, and the load (the mean
    number of processes that wanted a core in the minute before)."""

    seconds: Mapping[str, float]
    gave_way: int
    load: float


@dataclass(frozen=True)
class Queue(Bench[str, Took]):
    """Generated lines of an access log, a file an hour."""

    rows: Annotated[int, Option("--rows", min=1_000, help="Lines.")] = 8_000_000
    days: Annotated[int, Option("--days", min=1, help="Of 24 files each; the research run reads all.")] = 10
    production_days: Annotated[int, Option("--production-days", min=1, help="That the other reads.")] = 7
    repeat: Repeat = 3

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Took]]:
        """Write the archive, start the cluster and the daemon."""
        log, archive = scratch.folder / "log", scratch.folder / "archive"
        rate = self.rows / (self.days * 86_400)
        write(GenerateOptions("access", str(log), self.rows, 1, None, None, rate, START, 0, 0))
        archived(log, archive, "combined")
        log.unlink()
        cluster = scratch.enter_context(standalone(scratch.folder, workers=2))
        served = Served(scratch.folder / "queue", archive, cluster.url, {"spark.executor.memory": "1g"})
        scratch.callback(served.kill)
        served.begin()
        served.submit("warm", QUERY, None, production=True)  # all of it: Java compiles what it runs often
        served.until_over("warm")
        numbers = count(1)

        def side(*kinds: str) -> Callable[[], Took]:
            return lambda: self._took(served, next(numbers), kinds)

        return {"production": side("production"), "research": side("research"), "together": side(*ALONE)}

    def _took(self, served: Served, number: int, kinds: Sequence[str]) -> Took:
        load = os.getloadavg()[0]
        names = {kind: f"{kind}-{number}" for kind in kinds}
        for kind in reversed(kinds):
            if kind != kinds[-1]:
                while served.look(names[kinds[-1]]).progress < SUBMITTED_AT:
                    time.sleep(LOOK_SECS)
            production = kind == "production"
            span = (START_US, START_US + self.production_days * DAY_US) if production else None
            served.submit(names[kind], QUERY, span, production=production)
        runs = {kind: served.until_over(name) for kind, name in names.items()}
        seconds = {kind: ((run.ended_ms or 0) - run.submitted_ms) / 1e3 for kind, run in runs.items()}
        return Took(seconds, sum(run.suspends for run in runs.values()), load)

    def report(self, runs: Mapping[str, Sequence[Took]]) -> Report:
        """Ratios of medians."""
        alone = {kind: median(run.seconds[kind] for run in runs[kind]) for kind in ALONE}
        shared = {kind: median(run.seconds[kind] for run in runs["together"]) for kind in ALONE}
        own = alone["research"] + alone["production"]
        ratios = {
            "production": shared["production"] / alone["production"],
            "research": shared["research"] / own,
        }
        notes = [
            f"production takes {ratios['production']:.3f} × its time alone (at most 1.07 is wanted)",
            f"research takes {ratios['research']:.3f} × its time alone and production's (at most 1.02)",
        ]
        if alone["production"] < SECONDS_MIN:
            notes.append(
                f"production alone took {alone['production']:.0f} s, less than {SECONDS_MIN}: more --rows"
            )
        spread = {
            f"{kind}, {'together' if side == 'together' else 'alone'}": [
                round(run.seconds[kind], 1) for run in some
            ]
            for side, some in runs.items()
            for kind in some[0].seconds
        }
        return Report(
            {
                "lines": self.rows,
                "files": self.days * 24,
                "production_alone_s": round(alone["production"], 1),
                "research_alone_s": round(alone["research"], 1),
                "production_s": round(shared["production"], 1),
                "research_s": round(shared["research"], 1),
                "gave_way": [one.gave_way for one in runs["together"]],
                "load": round(max(one.load for some in runs.values() for one in some), 1),
            },
            [
                Figure(
                    f"queue: production of {self.production_days * 24} files beside research",
                    shared["production"],
                    "s",
                    {"alone": alone["production"]},
                ),
                Figure(
                    f"queue: research of {self.days * 24} files beside production",
                    shared["research"],
                    "s",
                    {"alone, and production alone": own},
                ),
            ],
            notes,
            {
                "production": round(ratios["production"], 4),
                "research": round(ratios["research"], 4),
                "seconds": spread,
            },
        )
