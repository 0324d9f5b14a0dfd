"""``elf bench sharing``: a job with longer windows beside one with short ones, on its panes or on own ones.

The hour of clicks of ``elf bench sliding``, grouped by few keys, many, and by one a row. Both ways are run
with an agent's stream task, the root's commits and a job group, in CPU time: *shared*, where the longer
windows are made of the committed short panes after these were handed to a store of their own, and *own*,
where the stream task has a second flow. The windows must be the same. ``fits`` are the constants of
``elf.windows.sharing`` as these runs have them; ``model`` is what it says with the constants that it has, and
what it would choose.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
import pyarrow.compute as pc
from typer import Option

from agents.disk.store import Store
from elf.batch import decode, encode
from elf.errors import UserError
from elf.fields import replace
from elf.job.commits import PaneCommit
from elf.job.snapshots import Sealed
from elf.job.spec import START_OF_TIME
from elf.ql.plan import Plan
from elf.windows import Sliding, sharing
from elf.windows.kinds import SECOND_US
from lab.bench.options import Hour, Products, Repeat
from lab.bench.pipeline import Master, flow_of, lane_with, plan_over, read_all
from lab.bench.runner import Bench, Figure, Report, Scratch, median, same
from lab.bench.sides import ask, clocked
from lab.bench.sliding import HOUR_MS, TOP_ROWS, generate
from lab.chaos.engine import spec_of

Way = Literal["shared", "own"]
WAYS: Final[tuple[Way, ...]] = ("shared", "own")
Side = tuple[str, Way]
"""One of ``KEYS``, and a way."""
KEYS: Final = {"few": "store", "many": "product", "all": "id"}
"""What the clicks are grouped by: 3 keys, so many products, one a row."""
STAGES: Final = ("task", "map", "tree", "commit", "master")
"""Of ``Spent``."""


class Asked(msgspec.Struct, frozen=True):
    """What a side is to do."""

    path: str
    way: Way
    key: str
    short_s: int
    long_s: int


class Spent(msgspec.Struct, frozen=True):
    """CPU seconds of the agent's stream task (the flow's ``map`` and ``tree`` are parts of it), of committing
    the longer panes, and of making the longer windows, with handing them their panes; the panes of the flow
    that these are made of, and the groups in them; a digest of the longer windows.
    """

    task: float
    map: float
    tree: float
    commit: float
    master: float
    panes: int
    groups: int
    digest: str

    @property
    def all(self) -> float:
        return self.task + self.commit + self.master


@dataclass(frozen=True)
class Sharing(Bench[Side, Spent]):
    """Both ways for each kind of keys."""

    rows: Hour = 1_000_000
    products: Products = 10_000
    short_s: Annotated[int, Option("--short", min=1, help="Seconds of a window of the first job.")] = 1
    long_s: Annotated[int, Option("--long", min=2, help="Seconds of a window of the other.")] = 60
    repeat: Repeat = 3

    def __post_init__(self) -> None:
        """Raises ``UserError``."""
        if self.long_s % self.short_s or self.long_s == self.short_s:
            raise UserError("the longer windows are several whole short ones")

    def sides(self, scratch: Scratch) -> Mapping[Side, Callable[[], Spent]]:
        """Both ways for each kind of keys."""
        path = scratch.folder / "hour.jsonl"
        generate(path, self.rows, self.products)
        return {
            (name, way): partial(ask, run, Asked(str(path), way, key, self.short_s, self.long_s))
            for name, key in KEYS.items()
            for way in WAYS
        }

    def report(self, runs: Mapping[Side, Sequence[Spent]]) -> Report:
        """CPU seconds both ways, beside what the model says."""
        for name in KEYS:
            alike = {side: found for side, found in runs.items() if side[0] == name}
            same(alike, lambda spent: spent.digest, f"the windows of {self.long_s} s, with {name} keys,")
        beside = f"windows of {self.long_s} s beside a job with {self.short_s} s, on its panes"
        return Report(
            {
                "events": self.rows,
                "products": self.products,
                "short_s": self.short_s,
                "long_s": self.long_s,
                "repeat": self.repeat,
                "keys": {name: self._told({way: runs[name, way] for way in WAYS}) for name in KEYS},
                "fits": self._fits(runs),
                "constants": {
                    "row_us": sharing.ROW_US,
                    "sent_us": sharing.SENT_US,
                    "merged_us": sharing.MERGED_US,
                    "pane_us": sharing.PANE_US,
                },
            },
            [
                Figure(
                    f"{beside}, {name} keys",
                    median(runs[name, "shared"], "all"),
                    "s of CPU",
                    {"on own panes": median(runs[name, "own"], "all")},
                )
                for name in KEYS
            ],
        )

    def _told(self, found: Mapping[Way, Sequence[Spent]]) -> dict[str, object]:
        """Of one kind of keys. What both ways have in common is in both."""
        pane_us, long_us = self.short_s * SECOND_US, self.long_s * SECOND_US
        cpu = {way: median(found[way], "all") for way in WAYS}
        groups = found["shared"][0].groups * pane_us / (HOUR_MS * 1_000)
        measured = sharing.Measured(pane_us, self.rows, groups, groups)
        choice = sharing.choose((Sliding(long_us, long_us),), long_us, (measured,), ())
        return {
            "groups_a_pane": round(groups),
            "shared_cpu_s": round(cpu["shared"], 4),
            "own_cpu_s": round(cpu["own"], 4),
            "cheaper": min(WAYS, key=lambda way: cpu[way]),
            "model_shared_ms": round(choice.shared_ms or 0, 1),
            "model_own_ms": round(choice.own_ms or 0, 1),
            "chosen": "shared" if choice.is_shared else "own",
            "stages_s": {
                way: {stage: round(median(found[way], stage), 4) for stage in STAGES} for way in WAYS
            },
        }

    def _fits(self, runs: Mapping[Side, Sequence[Spent]]) -> dict[str, float]:
        """µs. With few keys it is rows and panes that cost, with one a row groups."""

        def cpu_us(name: str, way: Way, *stages: str) -> float:
            return 1e6 * sum(median(runs[name, way], stage) for stage in stages)

        short, long = runs["all", "shared"][0], runs["all", "own"][0]
        pane = (cpu_us("few", "shared", "master") - cpu_us("few", "own", "master")) / short.panes
        merged = cpu_us("all", "shared", "master") - cpu_us("all", "own", "master") - pane * short.panes
        return {
            "row_us": round(cpu_us("few", "own", "map") / self.rows, 4),
            "sent_us": round(cpu_us("all", "own", "tree", "commit") / long.groups, 4),
            "merged_us": round(merged / short.groups, 4),
            "pane_us": round(pane, 1),
        }


def run(asked: Asked) -> Spent:
    """The stream task with one flow or two, the commits, the longer windows."""
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        return _run(asked, Path(folder))


def _run(asked: Asked, folder: Path) -> Spent:
    short, long = (_plan(asked, seconds) for seconds in (asked.short_s, asked.long_s))
    flows = [flow_of(plan) for plan in (short, long)]
    read = flows if asked.way == "own" else flows[:1]
    task, source = lane_with(asked.path, read)
    with clocked() as lane_clock:
        done = read_all(task, source)
    flow, work = read[-1], done.work[read[-1].uid]
    sealed = next(one for one in done.sealed if one.flow == flow.uid)
    job = spec_of("bench", "bench", 1, replace(long, fragment=flow.fragment), (flow,))
    root, panes = Master(job, Store(folder / "root.db")), list(_panes(sealed))
    with clocked() as commit_clock:
        for pane in panes:
            root.panes(*pane)
    shared = asked.way == "shared"
    leader = Master(job, Store(folder / "master.db") if shared else root.store)
    rows = root.store.pane_commits(flow.uid, panes[0][0], panes[-1][1])
    home_s = _made(leader, rows, shared)
    return Spent(
        lane_clock.cpu_seconds,
        work.get("map_us", 0) / 1e6,
        (work.get("tree_us", 0) + work.get("seal_us", 0)) / 1e6,
        0.0 if shared else commit_clock.cpu_seconds,
        home_s,
        len(rows),
        decode(sealed.payload).num_rows,
        hashlib.sha1(repr([table.to_pylist() for table in leader.rows]).encode()).hexdigest(),
    )


def _made(leader: Master, rows: Sequence[PaneCommit], shared: bool) -> float:
    """CPU seconds of making the longer windows, each when its last pane is there. ``shared``: the panes come
    from a root on another node."""
    pane_us, size_us = leader.spec.flows[0].fragment.pane_us, leader.spec.plan.windows[0].step_us
    spent, done_us = 0.0, START_OF_TIME
    for number, group in groupby(rows, lambda row: row.start * pane_us // size_us):
        panes, last_us = list(group), (number + 1) * size_us
        with clocked() as clock:
            for pane in panes if shared else ():
                leader.store.commit_panes(pane)
            leader.windows(done_us, last_us, (panes[0].start, panes[-1].end))
        spent, done_us = spent + clock.cpu_seconds, last_us
    return spent


def _plan(asked: Asked, seconds: int) -> Plan:
    return plan_over(
        asked.path,
        f"SELECT {asked.key} AS key, SUM(clicks_count) AS clicks FROM input GROUP BY {asked.key} "
        f"ORDER BY clicks DESC, key LIMIT {TOP_ROWS} WINDOWING {seconds} SECONDS",
    )


def _panes(sealed: Sealed) -> Iterator[tuple[int, int, bytes, bytes]]:
    """As agents send them while they read: pane by pane, each with its counters and its groups."""
    groups, counters = decode(sealed.payload), decode(sealed.counters)
    first, last = (int(bound(counters["_pane"]).as_py()) for bound in (pc.min, pc.max))
    for pane in range(first, last + 1):
        counts, payload = (encode(one.filter(pc.equal(one["_pane"], pane))) for one in (counters, groups))
        yield pane, pane + 1, counts, payload
