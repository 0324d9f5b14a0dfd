"""A queue whose runs are suspended and resumed, and whose processes are killed, at random: ``python -m
lab.queue.crashes --times 1000``.

One archive, and a few runs at a time through ``elf offline serve``, a process of its own with its Spark, on
this machine or on a standalone cluster (``--standalone``). A disturbance is one of

- a run that has tasks at work and is suspended, and resumed a while later;
- ``kill -9`` of the daemon and its Spark, and another daemon;
- with ``--standalone``: ``kill -9`` of an executor, which its worker starts again.

The file of each run must have the bytes of an undisturbed run, and an input that is in the database stays
there as the same attempt's. Spark's event log says which attempt read which file: a file is read again only
when a daemon was killed that had it in hand. The last line is a JSON object; the status is 1 when something
is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from elf.errors import ElfError, UserError
from lab.bench.offline import HOUR_US, START_US, archived
from lab.queue.served import LOOK_SECS, SLOTS, Served
from lab.queue.standalone import Standalone, standalone
from spark_backend.queue.store import Run

QUERY: Final = (
    "SELECT product, COUNT(*) AS n, SUM(price) AS total, AVG(price) AS mean FROM log GROUP BY product"
)
ROWS: Final = 200
"""Of a file."""
_CHEAP: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of Javas that do not live long."""
_FILE: Final = re.compile(r"file (\d+) of \d+ of task (\d+)")


def written(log: Path, files: int) -> None:
    """Lines of so many hours, with prices whose sum depends on the order of adding."""
    rng = random.Random(1)
    with log.open("w", encoding="utf-8") as out:
        for hour in range(files):
            for n in range(ROWS):
                ts = (START_US + hour * HOUR_US) // 1_000_000 + n
                row = {"ts": ts, "product": f"p{rng.randrange(9)}", "price": rng.random() / 3}
                out.write(f"{json.dumps(row)}\n")


class Watched(Served):
    """A queue of which nothing must get lost."""

    def __init__(self, folder: Path, archive: Path, master: str) -> None:
        self._events = folder / "events"
        self._events.mkdir()
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.driver.extraJavaOptions": _CHEAP,
            "spark.executor.extraJavaOptions": _CHEAP,
            "spark.executor.memory": "512m",
        }
        super().__init__(folder / "queue", archive, master, conf)
        self._seen: dict[int, set[tuple[int, int, str]]] = {}
        self._at_begin = 0
        self.lost: list[str] = []

    def begin(self) -> None:
        """Start a daemon, unless there is one."""
        if self.process is None:
            self._at_begin = sum(map(len, self._seen.values()))
        super().begin()

    def look(self, name: str) -> Run:
        """How a run stands; what was there and is not any more is lost."""
        had = set(self.store.outputs(self.store.run(name).number))
        run = super().look(name)
        seen = self._seen.setdefault(run.number, set())
        if not run.over and not seen <= had:
            self.lost.append(name)
        seen |= had
        return run

    @property
    def at_work(self) -> bool:
        """Whether the daemon has done something since it was started."""
        return self.process is not None and sum(map(len, self._seen.values())) > self._at_begin

    def read(self) -> Counter[tuple[str, int, int]]:
        """How many attempts have read each file, by run, task and number, as Spark tells it."""
        attempts: dict[tuple[str, int, int], set[str]] = defaultdict(set)
        for log in self._events.iterdir():
            for group, file, task in _jobs(log):
                attempts[group.rpartition("/")[0], task, file].add(group)
        return Counter({one: len(by) for one, by in attempts.items()})


def _jobs(log: Path) -> Iterator[tuple[str, int, int]]:
    """Attempt, file and task of each of Spark's jobs."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if '"SparkListenerJobStart"' in line:
                with suppress(json.JSONDecodeError):  # the last one, of a daemon that was killed
                    said = json.loads(line).get("Properties", {})
                    found = _FILE.search(said.get("spark.job.description", ""))
                    if found is not None:
                        yield said["spark.jobGroup.id"], int(found[1]), int(found[2])


@dataclass
class Disturber:
    """Disturbs a queue so many times, with a few runs in it all the while."""

    served: Watched
    cluster: Standalone | None
    times: int
    kill_share: float
    at_once: int
    rng: random.Random
    every_secs: float = 0.4
    outs: dict[str, Path] = field(default_factory=dict)
    """Of runs that are not over."""
    resumes: dict[str, float] = field(default_factory=dict)
    """When runs that are suspended go on."""
    found: Counter[str] = field(default_factory=Counter)
    hit: set[str] = field(default_factory=set)
    """Runs during which a daemon was killed."""

    @property
    def made(self) -> int:
        """How many disturbances so far."""
        return self.found["daemons"] + self.found["executors"] + self.found["suspends"]

    def run(self) -> dict[str, object]:
        """Until all are made, and all runs are over."""
        out = self.served.submit("undisturbed", QUERY)
        self.served.begin()
        self.served.until_over("undisturbed")
        wanted = out.read_bytes()
        until = 0.0
        while self.made < self.times or self.outs:
            while self.made < self.times and len(self.outs) < self.at_once:
                self._submit()
            self.served.begin()
            now = time.monotonic()
            for name in list(self.outs):
                self._see(self.served.look(name), wanted, now)
            if now > until and self.outs and self.made < self.times:
                self._disturb()
                until = now + self.rng.expovariate(1 / self.every_secs)
            time.sleep(LOOK_SECS)
        return self._judged()

    def _submit(self) -> None:
        self.found["runs"] += 1
        name = f"run-{self.found['runs']}"
        self.outs[name] = self.served.submit(name, QUERY, production=self.found["runs"] % 4 == 0)

    def _see(self, run: Run, wanted: bytes, now: float) -> None:
        if run.over and run.state != "suspended":
            out = self.outs.pop(run.name)
            self.found["different"] += run.state != "done" or out.read_bytes() != wanted
            self.found["gave_way"] += run.suspends
            if run.state != "done":
                print(f"{run.name} is {run.state}: {run.why}", file=sys.stderr)
            said = {name: self.found[name] for name in ("daemons", "executors", "suspends", "different")}
            print(f"{run.name}: {self.made} so far, {said}", file=sys.stderr, flush=True)
        elif run.state == "suspended" and not run.asked:
            if run.name not in self.resumes:
                self.found["suspends"] += 1
                self.resumes[run.name] = now + self.rng.expovariate(2)
            if now > self.resumes[run.name]:
                del self.resumes[run.name]
                self.served.store.ask(run.name, "resume")

    def _disturb(self) -> None:
        if self.rng.random() < self.kill_share:
            if not self.served.at_work and self.rng.random() < 0.9:
                return  # most daemons do some work before they are killed
            if self.cluster is not None and self.rng.random() < 0.7:
                if executors := self.cluster.executors():
                    with suppress(psutil.NoSuchProcess):
                        self.rng.choice(executors).kill()
                        self.found["executors"] += 1
                return
            self.served.kill()
            self.found["daemons"] += 1
            self.hit |= self.outs.keys()
            return
        runs = [self.served.store.run(name) for name in self.outs]
        at_work = [run for run in runs if run.containers and run.state == "running" and not run.asked]
        if at_work:
            with suppress(UserError):  # it is done in the meantime
                self.served.store.ask(self.rng.choice(at_work).name, "suspend")

    def _judged(self) -> dict[str, object]:
        read = self.served.read()
        again = {one: times - 1 for one, times in read.items() if times > 1}
        wrong = sum(times for (run, _, _), times in again.items() if run not in self.hit)
        files = len([one for one in read if one[0] == "undisturbed"])
        twice = sum(again.values())
        right = not self.found["different"] and not self.served.lost and not wrong
        right = right and twice <= SLOTS * self.found["daemons"]
        return {
            "disturbances": self.made,
            **{name: self.found[name] for name in ("runs", "suspends", "daemons", "executors", "gave_way")},
            "files_of_a_run": files,
            "files_read": sum(read.values()),
            "read_again": twice,
            "in_hand_max": SLOTS * self.found["daemons"],
            "read_again_without_a_kill": wrong,
            "different": self.found["different"],
            "lost": len(self.served.lost),
            "ok": right and files > 0,
        }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m lab.queue.crashes", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--kill-share", type=float, default=0.1, help="of the disturbances")
    parser.add_argument("--at-once", type=int, default=3, help="runs in the queue")
    parser.add_argument("--standalone", action="store_true", help="a master and two workers on loopback")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elf-queue-")))
        log, archive = folder / "log", folder / "archive"
        written(log, given.files)
        archived(log, archive, "json")
        cluster = stack.enter_context(standalone(folder)) if given.standalone else None
        served = Watched(folder, archive, "local[2]" if cluster is None else cluster.url)
        stack.callback(served.kill)
        rng = random.Random(given.seed)
        found = Disturber(served, cluster, given.times, given.kill_share, given.at_once, rng).run()
    print(json.dumps({**found, "seed": given.seed, "seconds": round(time.monotonic() - began)}))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ElfError as error:
        sys.exit(f"elf: {error}")
