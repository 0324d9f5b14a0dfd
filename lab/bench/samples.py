"""``elf bench samples``: does the interval beside an estimate of ``SAMPLE`` hold the truth, in 99 % of cells?

A log is drawn, in which pages have visitors by Zipf's law, answers a lognormal number of bytes and an
exponential latency. ``elf run`` counts it out once with all rows and once with each sample; each value of
each window and page is a cell. An estimate without an interval (few keys are in the sample) says nothing and
is counted apart.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from typer import Option

from elf.cli.processes import environment
from elf.errors import ElfError
from lab.bench.runner import Bench, Figure, Report, Scratch

TARGET: Final = 0.99
ALL: Final = "all rows"
SAMPLES: Final = ("SAMPLE 10 %", "SAMPLE 50 %", "SAMPLE BY c_ip 20 %")
VALUES: Final = ("hits", "bytes", "latency")
_QUERY: Final = (
    "SELECT page, COUNT(*) AS hits, SUM(size) AS bytes, AVG(took) AS latency FROM log {} GROUP BY page "
    "WINDOWING 10 SECONDS"
)
Rows = dict[tuple[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Samples(Bench[str, Rows]):
    """The log by ``elf run``, whole and in samples."""

    rows: Annotated[int, Option("--rows", min=1_000, help="Lines of the log.")] = 600_000
    pages: Annotated[int, Option("--pages", min=1, help="Different pages.")] = 1_000
    visitors: Annotated[int, Option("--visitors", min=1, help="Different addresses.")] = 50_000
    seed: Annotated[int, Option("--seed", help="Of the log.")] = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Rows]]:
        log = scratch.folder / "log.json"
        self._draw(log)
        return {name: lambda clause=name: _run(log, clause) for name in (ALL, *SAMPLES)}  # type: ignore[misc]

    def _draw(self, log: Path) -> None:
        """100 s of lines."""
        import numpy as np

        rng, count = np.random.default_rng(self.seed), self.rows
        popular = 1 / np.arange(1, self.pages + 1) ** 0.8
        pages = rng.choice(self.pages, count, p=popular / popular.sum())
        addresses = rng.integers(0, self.visitors, count)
        sizes = rng.lognormal(8, 1, count).astype(np.int64)
        took = rng.exponential(0.05, count)
        with log.open("w", encoding="utf-8") as out:
            for row in range(count):
                ts = 1_700_000_000_000 + row * 100_000 // count
                out.write(
                    f'{{"ts":{ts},"page":"/{pages[row]}","c_ip":"10.{addresses[row]}","size":{sizes[row]},'
                    f'"took":{took[row]:.6f}}}\n'
                )

    def report(self, runs: Mapping[str, Sequence[Rows]]) -> Report:
        truth = runs[ALL][0]
        found = {name: held(truth, runs[name][0]) for name in SAMPLES}
        cells, right = (sum(one[part] for each in found.values() for one in each.values()) for part in (0, 1))
        share = right / max(cells, 1)
        facts = {
            name: {
                f"{value} {what}": number
                for value, (said, good, silent) in values.items()
                for what, number in (("cells", said), ("held", good / max(said, 1)), ("no interval", silent))
            }
            for name, values in found.items()
        }
        figure = Figure(
            "estimates whose interval holds the truth", share, f"of {cells:,}", {"target": TARGET}
        )
        short = [f"{share:.2%} of the intervals hold the truth, not {TARGET:.0%}"] if share < TARGET else []
        return Report({"rows": self.rows, "cells": cells, "held": share, **facts}, [figure], problems=short)


def held(truth: Rows, estimated: Rows) -> dict[str, tuple[int, int, int]]:
    """Of each value: cells with an interval, those of them whose interval holds the truth, and cells without
    one."""
    found: dict[str, tuple[int, int, int]] = {}
    for value in VALUES:
        rows = [(row[value], row[f"{value}_error"], truth[cell][value]) for cell, row in estimated.items()]
        said = [(guess, width, true) for guess, width, true in rows if width is not None]
        right = sum(abs(guess - true) <= width * (1 + 1e-9) for guess, width, true in said)
        found[value] = len(said), right, len(rows) - len(said)
    return found


def _run(log: Path, clause: str) -> Rows:
    query = _QUERY.format("" if clause == ALL else clause)
    command = [sys.executable, "-P", "-m", "elf.cli.main", "run", "-q", query, "--input", str(log)]
    done = subprocess.run(
        [*command, "--output", "json"], capture_output=True, text=True, env=environment(), check=False
    )
    if done.returncode:
        raise ElfError(done.stderr.strip() or f"elf run ended with {done.returncode}")
    rows = map(json.loads, done.stdout.splitlines())
    return {(row["window_start"], row["page"]): row for row in rows}
