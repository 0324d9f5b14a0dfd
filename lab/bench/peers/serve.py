"""One side of ``elf bench peers``, as a process in the engine's own interpreter: standard library only.

    python serve.py SCRIPT NAME PACKAGE SCRATCH

``SCRIPT`` has a function ``NAME(job, scratch)``, which makes the engine ready and gives what lays out a run
(see ``Lay``). Lines of JSON go both ways, in turn: the job, answered by the version of ``PACKAGE``; then for
each run the path, when it is laid out; anything, the seconds that it took; anything, the answer. Whatever
else the engine prints goes to standard error. The process ends with its input.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

Rows = list[tuple[int, str, int]]
"""(start of the window in ms since the epoch, product, sum of its clicks)"""
Answer = Callable[[], Iterable[tuple[int, str, int]]]
"""Gives the windows' rows, in any order; at least the top ones."""
Run = Callable[[], Answer]
"""Reads, and writes every window out. Only this is timed."""
Lay = Callable[[str], Run]
"""Makes ready to read the lines there."""


@dataclass(frozen=True)
class Job:
    """Clicks by product in windows of ``size_ms`` every ``slide_ms`` (aligned to the epoch), and the ``top``
    products of each; ``store`` None: of all stores. Events are at most ``disorder_ms`` behind. ``format``:
    JSON lines, or an access log in the combined format, of which hits by page are counted."""

    size_ms: int
    slide_ms: int
    store: str | None
    top: int
    disorder_ms: int
    format: str = "json"

    @property
    def tumbles(self) -> bool:
        return self.size_ms == self.slide_ms


def ranked(rows: Iterable[tuple[int, str, int]], top: int) -> Rows:
    """The top rows of each window, best first, ties by product; window by window."""
    windows: dict[int, list[tuple[int, str]]] = {}
    for start, product, clicks in rows:
        windows.setdefault(start, []).append((-clicks, product))
    return [
        (start, product, -clicks)
        for start in sorted(windows)
        for clicks, product in sorted(windows[start])[:top]
    ]


def version_of(package: str) -> str:
    """Empty if it is not installed as a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def main() -> None:
    script, name, package, scratch = sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def hear() -> object:
        return json.loads(sys.stdin.readline() or sys.exit())

    def say(what: object) -> None:
        print(json.dumps(what), file=replies, flush=True)

    make: Callable[[Job, Path], Lay] = runpy.run_path(script)[name]
    job = Job(**hear())  # type: ignore[arg-type]
    lay = make(job, Path(scratch))
    say(version_of(package))
    while True:
        run = lay(str(hear()))
        say("laid out")
        hear()
        began = time.perf_counter()
        answer = run()
        say(time.perf_counter() - began)
        hear()
        say(ranked(answer(), job.top))


if __name__ == "__main__":
    main()
