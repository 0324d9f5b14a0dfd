"""One side of ``elf bench peers``, as a process in the engine's own interpreter: standard library only.

    python serve.py SIDE.py SCRATCH        the job as a JSON line on standard input, then a path a line

``SIDE.py`` has a class ``Engine`` (see below). Each line is answered by one JSON line: first the engine's
version, then ``Reply`` for each path. Whatever else the engine prints goes to standard error. The process
ends with its input.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Rows = list[tuple[int, str, int]]
"""(start of the window in ms since the epoch, product, sum of its clicks)"""


@dataclass(frozen=True)
class Job:
    """Clicks by product in windows of ``size_ms`` every ``slide_ms`` (aligned to the epoch), and the ``top``
    products of each; ``store`` None: of all stores. Events are at most ``disorder_ms`` behind."""

    size_ms: int
    slide_ms: int
    store: str | None
    top: int
    disorder_ms: int

    @property
    def tumbles(self) -> bool:
        return self.size_ms == self.slide_ms


class Side(Protocol):
    """What ``Engine(job, scratch)`` of a side has. Only ``run`` is timed."""

    version: str

    def lay(self, path: str) -> None:
        """Make ready to read JSON lines there."""

    def run(self) -> None:
        """Read, and write every window out."""

    def answer(self) -> Rows:
        """The windows' rows, in any order; at least the top ones."""


@dataclass(frozen=True)
class Reply:
    """One run; CPU and memory are those of the process and all below it."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    answer: Rows


def ranked(rows: Rows, top: int) -> Rows:
    """The top rows of each window, best first, ties by product; window by window."""
    windows: dict[int, list[tuple[int, str]]] = {}
    for start, product, clicks in rows:
        windows.setdefault(start, []).append((-clicks, product))
    return [
        (start, product, -clicks)
        for start in sorted(windows)
        for clicks, product in sorted(windows[start])[:top]
    ]


def timed(side: Side, path: str, top: int) -> Reply:
    """Run the job over one file."""
    side.lay(path)
    pid = os.getpid()
    cpu, began = _cpu_seconds(pid), time.perf_counter()
    side.run()
    seconds, cpu_seconds = time.perf_counter() - began, _cpu_seconds(pid) - cpu
    return Reply(seconds, cpu_seconds, _peak_rss_bytes(pid), ranked(side.answer(), top))


def _cpu_seconds(pid: int) -> float:
    """Of the process and all below it, those that have ended included."""
    return sum(map(int, " ".join(fields for _, fields in _below(pid)).split())) / os.sysconf("SC_CLK_TCK")


def _peak_rss_bytes(pid: int) -> int:
    peak = 0
    for each, _ in _below(pid):
        for line in _read(f"/proc/{each}/status").splitlines():
            if line.startswith("VmHWM:"):
                peak += int(line.split()[1]) * 1024
    return peak


def _below(pid: int) -> list[tuple[int, str]]:
    """(process, its CPU ticks: user, system, and of children waited for) from ``pid`` down."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        fields = _read(str(path)).rpartition(")")[2].split()
        if fields:
            each = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(each)
            ticks[each] = " ".join(fields[11:15])
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return [(each, ticks[each]) for each in found]


def _read(path: str) -> str:
    """Empty if the process has gone."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def main() -> None:
    script, scratch = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    spec = importlib.util.spec_from_file_location("side", script)
    if spec is None or spec.loader is None:
        sys.exit(f"{script} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    job = Job(**json.loads(sys.stdin.readline()))
    side: Side = module.Engine(job, scratch)
    print(json.dumps({"version": side.version}), file=replies, flush=True)
    while line := sys.stdin.readline():
        print(json.dumps(vars(timed(side, json.loads(line), job.top))), file=replies, flush=True)


if __name__ == "__main__":
    main()
