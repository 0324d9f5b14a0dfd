"""``elf bench sharing``: a job with longer windows beside one with short ones, on its panes or on own ones.

The hour of clicks of ``elf bench sliding``, grouped by few keys, many, and by one a row. Both ways are run
with an agent's lane, the root's commits and a job's home, in CPU time: *shared*, where the longer windows are
made of the committed short panes after these were handed to a store of their own, and *own*, where the lane
has a second flow. Each run is a fresh process; the sides take turns, medians count, and the windows must be
the same. ``fits`` are the constants of ``elf.windows.sharing`` as these runs have them; ``model`` is what it
says with the constants that it has, and what it would choose.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from elf.bench.sides import ask
from elf.bench.sliding import HOUR_MS, generate
from elf.errors import ElfError, UserError
from elf.windows import Sliding, sharing
from elf.windows.kinds import SECOND_US

Way = Literal["shared", "own"]
WAYS: Final[tuple[Way, ...]] = ("shared", "own")
KEYS: Final = {"few": "store", "many": "product", "all": "id"}
"""What the clicks are grouped by: 3 keys, so many products, one a row."""
STAGES: Final = ("lane", "map", "tree", "commit", "home")
"""Of ``Spent``."""


class Asked(msgspec.Struct, frozen=True):
    """What a side is to do."""

    path: str
    way: Way
    key: str
    short_s: int
    long_s: int


class Spent(msgspec.Struct, frozen=True):
    """CPU seconds of the agent's lane (the flow's ``map`` and ``tree`` are parts of it), of committing the
    longer panes, and of making the longer windows, with handing them their panes; the panes of the flow that
    these are made of, and the groups in them; a digest of the longer windows.
    """

    lane: float
    map: float
    tree: float
    commit: float
    home: float
    panes: int
    groups: int
    digest: str

    @property
    def all(self) -> float:
        return self.lane + self.commit + self.home


def bench_sharing(rows: int, products: int, short_s: int, long_s: int, repeat: int, *, as_json: bool) -> int:
    """Measure and print. Raises ``ElfError`` when two answers differ, ``UserError``."""
    if long_s % short_s or long_s == short_s:
        raise UserError("the longer windows are several whole short ones")
    runs: dict[str, dict[Way, list[Spent]]] = {}
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        path = Path(folder) / "hour.jsonl"
        generate(path, rows, products)
        for name, key in KEYS.items():
            runs[name] = {way: [] for way in WAYS}
            for _ in range(repeat):
                for way in WAYS:
                    runs[name][way].append(
                        ask("elf.bench.sharing_side", Asked(str(path), way, key, short_s, long_s), Spent)
                    )
            if len({spent.digest for way in WAYS for spent in runs[name][way]}) != 1:
                raise ElfError(f"the windows of {long_s} s differ, with {name} keys")
    kinds = (Sliding(long_s * SECOND_US, long_s * SECOND_US),)
    told = {name: _told(rows, found, short_s * SECOND_US, kinds) for name, found in runs.items()}
    said = {
        "events": rows,
        "products": products,
        "short_s": short_s,
        "long_s": long_s,
        "repeat": repeat,
        "keys": told,
        "fits": _fits(rows, runs),
        "constants": {
            "row_us": sharing.ROW_US,
            "sent_us": sharing.SENT_US,
            "merged_us": sharing.MERGED_US,
            "pane_us": sharing.PANE_US,
        },
    }
    print(f"{rows:,} events of an hour; windows of {short_s} s, and of {long_s} s beside them")
    for name, one in told.items():
        print(
            f"{name:4} keys, {one['groups_a_pane']:>8,} groups a pane: {one['shared_cpu_s']:7.3f} s of CPU "
            f"shared, {one['own_cpu_s']:7.3f} s own; model: {one['model_shared_ms']:,.0f} ms at most, or "
            f"{one['model_own_ms']:,.0f} at least, so {one['chosen']} (cheaper here: {one['cheaper']})"
        )
    print(f"this machine's constants, in µs: {said['fits']}")
    if as_json:
        print(json.dumps(said))
    return 0


def _told(
    rows: int, found: Mapping[Way, Sequence[Spent]], pane_us: int, kinds: Sequence[Sliding]
) -> dict[str, object]:
    """Of one kind of keys. What both ways have in common is in both."""
    cpu = {way: _median(found[way], "all") for way in WAYS}
    groups = found["shared"][0].groups * pane_us / (HOUR_MS * 1_000)
    measured = sharing.Measured(pane_us, rows, groups, groups)
    choice = sharing.choose(kinds, kinds[0].size_us, (measured,), ())
    return {
        "groups_a_pane": round(groups),
        "shared_cpu_s": round(cpu["shared"], 4),
        "own_cpu_s": round(cpu["own"], 4),
        "cheaper": min(WAYS, key=lambda way: cpu[way]),
        "model_shared_ms": round(choice.shared_ms or 0, 1),
        "model_own_ms": round(choice.own_ms or 0, 1),
        "chosen": "shared" if choice.is_shared else "own",
        "stages_s": {way: {stage: round(_median(found[way], stage), 4) for stage in STAGES} for way in WAYS},
    }


def _median(found: Sequence[Spent], stage: str) -> float:
    return float(statistics.median(getattr(spent, stage) for spent in found))


def _fits(rows: int, runs: Mapping[str, Mapping[Way, Sequence[Spent]]]) -> dict[str, float]:
    """µs. With few keys it is rows and panes that cost, with one a row groups."""

    def cpu_us(name: str, way: Way, *stages: str) -> float:
        return 1e6 * sum(_median(runs[name][way], stage) for stage in stages)

    short, long = runs["all"]["shared"][0], runs["all"]["own"][0]
    pane = (cpu_us("few", "shared", "home") - cpu_us("few", "own", "home")) / short.panes
    merged = cpu_us("all", "shared", "home") - cpu_us("all", "own", "home") - pane * short.panes
    return {
        "row_us": round(cpu_us("few", "own", "map") / rows, 4),
        "sent_us": round(cpu_us("all", "own", "tree", "commit") / long.groups, 4),
        "merged_us": round(merged / short.groups, 4),
        "pane_us": round(pane, 1),
    }
