"""A queue whose runs are suspended and resumed, and whose daemon is killed, at random: ``python -m
lab.queue.crashes --times 1000``.

One archive, and one run after the other through ``elf offline serve``, a process of its own with its Spark.
Each disturbance is a suspend and resume, or ``kill -9`` and another daemon. The file of each run must have
the bytes of an undisturbed run, and an input that is in the database stays there as the same attempt's. The
last line is a JSON object; the status is 1 when something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from elf.errors import UserError
from lab.bench.offline import HOUR_US, START_US, archived
from spark_backend.queries import question
from spark_backend.queue.store import Run, Spec, Store

QUERY: Final = (
    "SELECT product, COUNT(*) AS n, SUM(price) AS total, AVG(price) AS mean FROM log GROUP BY product"
)
ROWS: Final = 200
"""Of a file."""


def written(log: Path, files: int) -> None:
    """Lines of so many hours, with prices whose sum depends on the order of adding."""
    rng = random.Random(1)
    with log.open("w", encoding="utf-8") as out:
        for hour in range(files):
            for n in range(ROWS):
                ts = (START_US + hour * HOUR_US) // 1_000_000 + n
                row = {"ts": ts, "product": f"p{rng.randrange(9)}", "price": rng.random() / 3}
                out.write(f"{json.dumps(row)}\n")


class Served:
    """A queue, and the process that serves it."""

    def __init__(self, folder: Path, archive: Path, master: str) -> None:
        self.store = Store(folder / "queue", create=True)
        self._archive, self._master = archive, master
        self._process: subprocess.Popen[bytes] | None = None
        self.lost: list[str] = []
        self._seen: dict[int, set[tuple[int, int, str]]] = {}

    def submit(self, name: str) -> Path:
        """Another run of the query; the file that its rows go to."""
        out = self.store.folder / f"{name}.parquet"
        asked = question(QUERY, [str(self._archive)])
        schemas = {one.stream: one.schema for one in asked.streams}
        spec = Spec(QUERY, (str(self._archive),), None, schemas)
        now_ms = time.time_ns() // 1_000_000
        self.store.submit(name, spec, out, owner="crashes", production=False, deadline_ms=None, now_ms=now_ms)
        return out

    def begin(self) -> None:
        """Start a daemon, unless there is one."""
        if self._process is None:
            command = [sys.executable, "-m", "elf.cli.main", "offline", "serve", "--master", self._master]
            self._process = subprocess.Popen(
                [*command, "--queue", str(self.store.folder)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self) -> None:
        """``kill -9``, of Spark too."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def look(self, name: str) -> Run:
        """How a run stands. Raises ``RuntimeError`` where its daemon has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"the daemon has ended with {self._process.returncode}")
        had = set(self.store.outputs(self.store.run(name).number))
        run = self.store.run(name)
        if not run.over and not self._seen.get(run.number, set()) <= had:
            self.lost.append(name)
        self._seen[run.number] = had
        return run

    def undisturbed(self, name: str) -> bytes:
        """The bytes of a run that nobody disturbs."""
        out = self.submit(name)
        self.begin()
        while not self.look(name).over:
            time.sleep(0.1)
        return out.read_bytes()


def disturb(served: Served, times: int, kill_share: float, seed: int) -> dict[str, object]:
    """So many disturbances, of as many runs as it takes."""
    rng = random.Random(seed)
    wanted = served.undisturbed("undisturbed")
    kills = suspends = runs = different = 0
    while kills + suspends < times:
        runs += 1
        name = f"run-{runs}"
        out = served.submit(name)
        until = time.monotonic() + rng.expovariate(1)
        while not (run := served.look(name)).over:
            served.begin()
            if time.monotonic() > until and run.state == "running" and not run.asked:
                if rng.random() < kill_share:
                    served.kill()
                    kills += 1
                else:
                    with suppress(UserError):  # it is done in the meantime
                        served.store.ask(name, "suspend")
                        time.sleep(rng.expovariate(2))
                        served.store.ask(name, "resume")
                        suspends += 1
                until = time.monotonic() + rng.expovariate(1)
            time.sleep(0.02)
        different += run.state != "done" or out.read_bytes() != wanted
        said = f"{name}: {kills} kills and {suspends} suspends so far, {run.state}"
        print(said, file=sys.stderr, flush=True)
    return {
        "runs": runs,
        "kills": kills,
        "suspends": suspends,
        "different": different,
        "lost": len(served.lost),
        "seed": seed,
        "ok": not different and not served.lost,
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m lab.queue.crashes", description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--kill-share", type=float, default=0.2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="elf-queue-") as folder:
        log, archive = Path(folder) / "log", Path(folder) / "archive"
        written(log, given.files)
        archived(log, archive, "json")
        served = Served(Path(folder), archive, given.master)
        try:
            found = disturb(served, given.times, given.kill_share, given.seed)
        finally:
            served.kill()
    print(json.dumps(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
