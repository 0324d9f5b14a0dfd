"""``elf bench windows``: ten windows on one job, against one, in CPU time.

The hour of clicks of ``elf bench sliding`` through an agent's lane and a job's home: once with windows of a
minute, once with windows of ten lengths that share its panes. Each run is a fresh process; the sides take
turns, and medians count. The windows of a minute must be the same in both.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from elf.bench.sides import ask
from elf.bench.sliding import generate
from elf.errors import ElfError
from elf.windows import Sliding
from elf.windows.merging import describe

MINUTE_US: Final = 60_000_000
MINUTES: Final = (1, 2, 3, 5, 6, 10, 12, 15, 20, 30)


class Asked(msgspec.Struct, frozen=True):
    """What a side is to do: windows of so many minutes."""

    path: str
    minutes: tuple[int, ...]


class Spent(msgspec.Struct, frozen=True):
    """CPU seconds of the agent's lane and of the job's home; the result rows; a digest of those of a
    minute."""

    lane: float
    home: float
    rows: int
    digest: str

    @property
    def all(self) -> float:
        return self.lane + self.home


def bench_windows(rows: int, products: int, repeat: int, *, as_json: bool) -> int:
    """Measure and print. Raises ``ElfError`` when the windows that both sides have differ."""
    sides: dict[str, tuple[int, ...]] = {"one": MINUTES[:1], "ten": MINUTES}
    found: dict[str, list[Spent]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        path = Path(folder) / "hour.jsonl"
        generate(path, rows, products)
        for _ in range(repeat):
            for name, minutes in sides.items():
                found[name].append(ask("elf.bench.windows_side", Asked(str(path), minutes), Spent))
    if len({spent.digest for side in found.values() for spent in side}) != 1:
        raise ElfError("the windows of a minute differ")
    cpu = {name: statistics.median(spent.all for spent in side) for name, side in found.items()}
    lane = {name: statistics.median(spent.lane for spent in side) for name, side in found.items()}
    said = {
        "events": rows,
        "products": products,
        "repeat": repeat,
        "one_cpu_s": round(cpu["one"], 4),
        "ten_cpu_s": round(cpu["ten"], 4),
        "ratio": round(cpu["ten"] / cpu["one"], 4),
        "lane_ratio": round(lane["ten"] / lane["one"], 4),
        "plan": describe([Sliding(m * MINUTE_US, m * MINUTE_US) for m in MINUTES], MINUTE_US),
    }
    print(f"{rows:,} events of an hour, {products:,} products; medians of {repeat}")
    for name, side in found.items():
        parts = f"{cpu[name]:7.3f} s of CPU, {lane[name]:.3f} of them the lane's"
        print(f"{name:4} {parts}; {side[0].rows:,} rows")
    print(f"ten windows cost {said['ratio']} × one; {said['plan']}")
    if as_json:
        print(json.dumps(said))
    return 0
