"""What a side of a benchmark does around its work: read the task, time the work, report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from elf.batch import encode
from elf.bench.ingest import Run, Task
from elf.bench.sides import REFUSED, THREADS
from elf.errors import ElfError


@dataclass(frozen=True)
class Done:
    """What the work came to."""

    events: int
    answer: pa.Table
    """The partial aggregates of all panes."""


def side(prepare: Callable[[Task], Callable[[], Done]]) -> None:
    """Run one side as a process: its task on standard input, its ``Run`` on standard output.

    ``prepare`` gives the work to be timed; imports, planning and connections are before it.
    """
    pa.set_cpu_count(THREADS)
    pa.set_io_thread_count(THREADS)
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    try:
        work = prepare(task)
        began, cpu = time.perf_counter(), time.process_time()
        done = work()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    except ElfError as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)
    peak = peak_rss_bytes()
    Path(task.answer).write_bytes(encode(done.answer))
    size = Path(task.path).stat().st_size
    run = Run(seconds, cpu_seconds, peak, done.events, size, done.answer.num_rows)
    sys.stdout.buffer.write(msgspec.json.encode(run) + b"\n")


def peak_rss_bytes() -> int:
    """The most memory that this process had. (``getrusage`` counts its parent's before the exec, too.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM in /proc/self/status")
