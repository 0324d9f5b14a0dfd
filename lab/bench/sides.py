"""The sides of a benchmark: each run is a function that is called in a fresh process, with one thread for
Arrow. Its argument and its answer are sent as JSON, by the types in its signature.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, get_type_hints

import msgspec

from elf.cli.processes import environment
from elf.errors import ElfError, UserError

REFUSED: Final = 3
"""Exit status of a side that has a message for the user, on standard error."""
THREADS: Final = 1

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def ask(side: Callable[[Asked], Answer], asked: Asked) -> Answer:
    """One run of a side. Raises ``UserError``, ``ElfError``."""
    name = f"{side.__module__}.{side.__name__}"
    done = subprocess.run(
        [sys.executable, "-P", "-m", __name__, side.__module__, side.__name__],
        input=msgspec.json.encode(asked),
        capture_output=True,
        env=environment(),
        check=False,
    )
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == REFUSED:
        raise UserError(said)
    if done.returncode != 0:
        raise ElfError(f"{name} failed: {said.splitlines()[-1] if said else f'status {done.returncode}'}")
    found: Answer = msgspec.json.decode(done.stdout.splitlines()[-1], type=get_type_hints(side)["return"])
    return found


def main() -> None:
    """Call the function of that module and name."""
    import pyarrow as pa

    pa.set_cpu_count(THREADS)
    pa.set_io_thread_count(THREADS)
    module, name = sys.argv[1:]
    side: Callable[[Any], object] = getattr(importlib.import_module(module), name)
    hints = get_type_hints(side)
    del hints["return"]
    (asked,) = hints.values()
    try:
        found = side(msgspec.json.decode(sys.stdin.buffer.read(), type=asked))
    except ElfError as error:
        print(error, file=sys.stderr)
        sys.exit(REFUSED)
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")


class Clock:
    """Seconds on the wall and of CPU that the block takes."""

    seconds: float
    cpu_seconds: float


@contextmanager
def clocked() -> Iterator[Clock]:
    """Time a block."""
    clock, began, cpu = Clock(), time.perf_counter(), time.process_time()
    yield clock
    clock.seconds, clock.cpu_seconds = time.perf_counter() - began, time.process_time() - cpu


def resident_bytes(name: str = "VmHWM", pid: int | None = None) -> int:
    """What a process (this one) has in memory, or had at most. (``getrusage`` counts its parent's before the
    exec, too.)"""
    status = Path(f"/proc/{pid or 'self'}/status")
    for line in status.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in {status}")


if __name__ == "__main__":
    main()
