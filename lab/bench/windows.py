"""``elf bench windows``: ten windows on one job, against one, in CPU time.

The hour of clicks of ``elf bench sliding`` through an agent's stream task and a job group: once with windows
of a minute, once with windows of ten lengths that share its panes. The windows of a minute must be the same
in both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from elf.windows import Sliding
from elf.windows.merging import describe
from lab.bench.options import Hour, Products, Repeat
from lab.bench.pipeline import Clicks
from lab.bench.runner import Bench, Figure, Report, Scratch, median, ratio, same
from lab.bench.sides import ask, clocked
from lab.bench.sliding import TOP_ROWS, generate

MINUTE_US: Final = 60_000_000
MINUTES: Final = (1, 2, 3, 5, 6, 10, 12, 15, 20, 30)


class Asked(msgspec.Struct, frozen=True):
    """What a side is to do: windows of so many minutes."""

    path: str
    minutes: tuple[int, ...]


class Spent(msgspec.Struct, frozen=True):
    """CPU seconds of the agent's stream task and of the job group; the result rows; a digest of those of a
    minute."""

    task: float
    master: float
    rows: int
    digest: str

    @property
    def all(self) -> float:
        return self.task + self.master


@dataclass(frozen=True)
class Windows(Bench[str, Spent]):
    """With one window, and with ten."""

    rows: Hour = 1_000_000
    products: Products = 10_000
    repeat: Repeat = 3

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Spent]]:
        """With one window and with ten."""
        path = scratch.folder / "hour.jsonl"
        generate(path, self.rows, self.products)
        asked = {"one": Asked(str(path), MINUTES[:1]), "ten": Asked(str(path), MINUTES)}
        return {name: partial(ask, run, one) for name, one in asked.items()}

    def report(self, runs: Mapping[str, Sequence[Spent]]) -> Report:
        """CPU seconds."""
        same(runs, lambda spent: spent.digest, "the windows of a minute")
        cpu = {name: median(side, "all") for name, side in runs.items()}
        task = {name: median(side, "task") for name, side in runs.items()}
        return Report(
            {
                "events": self.rows,
                "products": self.products,
                "repeat": self.repeat,
                "one_cpu_s": round(cpu["one"], 4),
                "ten_cpu_s": round(cpu["ten"], 4),
                "ratio": ratio(cpu["ten"], cpu["one"]),
                "task_ratio": ratio(task["ten"], task["one"]),
                "plan": describe([Sliding(m * MINUTE_US, m * MINUTE_US) for m in MINUTES], MINUTE_US),
            },
            [
                Figure(
                    "ten windows of 1 to 30 minutes on one job", cpu["ten"], "s of CPU", {"one": cpu["one"]}
                )
            ],
        )


def run(asked: Asked) -> Spent:
    """Read, seal, commit the panes, commit the windows."""
    job = Clicks(asked.path, ", ".join(f"{minutes} MINUTES" for minutes in asked.minutes), TOP_ROWS)
    with clocked() as task:
        sealed = job.sealed()
    with clocked() as leader:
        job.master.commit(sealed)
        job.master.finish(sealed)
    rows = pa.concat_tables(job.master.rows)
    length = pc.subtract(rows["window_end"].cast(pa.int64()), rows["window_start"].cast(pa.int64()))
    minutes = rows.filter(pc.equal(length, MINUTE_US)).to_pylist()
    digest = hashlib.sha1(repr(minutes).encode()).hexdigest()
    return Spent(task.cpu_seconds, leader.cpu_seconds, rows.num_rows, digest)
