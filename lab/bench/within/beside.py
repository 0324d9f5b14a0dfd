"""Other engines beside elf: the same lines at the same rate, the same counts, and how long after its end a
window is there. Each is a process of its own (``lab.bench.within.engines``).

The clock of a window stops when the last of its rows is read from what the engine prints.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from elf.cli.processes import Child, Processes, ended, environment
from elf.errors import ElfError
from lab.bench.within.engines import HOST, Job
from lab.bench.within.load import TICK_SECS, Lines, Workload

STUCK_SECS: Final = 1.0
WARM_SECS: Final = 10.0
"""From the first window on, whose windows are not counted, since engines compile at first."""
START_SECS: Final = 240.0
SCRIPT: Final = Path(__file__).with_name("engines.py")
_ROW: Final = re.compile(rb"\+I\[([^,]+), .*, (\d+)\]")


class Took(msgspec.Struct, frozen=True):
    """``took_ms``: of each window; ``rate``: lines a second; ``wrong``: windows whose counts are not those of
    the lines that were written (of sessions nobody looks)."""

    took_ms: list[float]
    rate: float
    wrong: int


@dataclass(frozen=True)
class Beside:
    """An engine, by its name in ``lab.bench.within.engines``, and what runs it there."""

    name: str
    title: str
    python: Sequence[str]


class Seen:
    """The windows that an engine prints, by their end in ms: when the last row came, and the rows' sum."""

    def __init__(self) -> None:
        self.came: dict[int, float] = {}
        self.counted: Counter[int] = Counter()

    def read(self, pipe: int) -> None:
        """Until the engine's end."""
        with open(pipe, "rb") as printed:
            for line in printed:
                self.hear(line, time.time() * 1e3)

    def hear(self, line: bytes, now_ms: float) -> None:
        """One that is no row is passed over: libraries print, too."""
        if row := _ROW.fullmatch(line.strip()):
            moment = datetime.fromisoformat(row[1].decode()).replace(tzinfo=UTC)
            end = round(moment.timestamp() * 1e3)
            self.came[end] = now_ms
            self.counted[end] += int(row[2])

    def took(self, workload: Workload, rate: float, written: Counter[int], warm: int) -> Took:
        """Of all windows but the first ``warm``, and the last, of which rows may be missing. ``written``:
        lines, by their time in ms."""
        ends = list(self.came)[warm:-1]
        wrong = 0
        for end in ends if workload.slide_ms else ():
            lines = sum(written[ms] for ms in range(end - workload.size_ms, end))
            wrong += lines != self.counted[end]
        return Took([round(self.came[end] - end, 1) for end in ends], rate, wrong)


def beside(engine: Beside, workload: Workload, rate: float, seconds: float) -> Took:
    """The windows of so many seconds, when some have come. Raises ``ElfError``."""
    seen, written = Seen(), Counter[int]()
    with (
        tempfile.TemporaryDirectory(prefix="elf-bench-") as folder,
        socket.create_server((HOST, 0)) as listening,
        ended() as processes,
        _writing(listening, rate, written),
    ):
        port = listening.getsockname()[1]
        job = Job(port, workload.keys, workload.size_ms, workload.slide_ms, f"{folder}/checkpoints")
        command = [*engine.python, str(SCRIPT), engine.name, json.dumps(asdict(job))]
        log, env = Path(folder) / "said", _environment(folder)
        child = processes.run(engine.title, command, log, talks=True, env=env)
        assert child.process.stdout is not None
        printed = os.dup(child.process.stdout.fileno())
        reading = threading.Thread(target=seen.read, args=(printed,), daemon=True)
        reading.start()
        _wait(processes, child, START_SECS, lambda: bool(seen.came))
        if not seen.came:
            raise ElfError(f"{engine.title} has made no window in {START_SECS:g} s")
        _wait(processes, child, WARM_SECS)
        warm = len(seen.came)
        _wait(processes, child, seconds)
    reading.join()
    took = seen.took(workload, rate, written, warm)
    if not took.took_ms:
        raise ElfError(f"{engine.title} has made no window in {seconds:g} s")
    return took


def _environment(folder: str) -> dict[str, str]:
    """What Java, Python and Flink leave behind is in the folder."""
    options = f"-Djava.io.tmpdir={folder}"
    return {**environment(), "TMPDIR": folder, "FLINK_LOG_DIR": folder, "JAVA_TOOL_OPTIONS": options}


def _wait(
    processes: Processes, child: Child, seconds: float, done: Callable[[], bool] = lambda: False
) -> None:
    """Until then, at most so long. Raises ``ElfError`` when the engine ends before."""
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        processes.check([child])
        time.sleep(TICK_SECS)


@contextmanager
def _writing(listening: socket.socket, rate: float, written: Counter[int]) -> Iterator[None]:
    stopped = threading.Event()
    writing = threading.Thread(target=_write, args=(listening, rate, written, stopped), daemon=True)
    writing.start()
    try:
        yield
    finally:
        stopped.set()
        writing.join()


def _write(listening: socket.socket, rate: float, written: Counter[int], stopped: threading.Event) -> None:
    """To whoever connects last: Spark does so once to see the columns, and once to read."""
    lines, due, at = Lines(1), 0.0, time.monotonic()
    listening.settimeout(TICK_SECS)
    reader: socket.socket | None = None
    while not stopped.is_set():
        with suppress(TimeoutError):
            reader, _ = listening.accept()
            reader.settimeout(STUCK_SECS)
        now = time.monotonic()
        due, at = due + rate * (now - at), now
        ms, count, due = time.time_ns() // 1_000_000, int(due), due % 1
        if reader is not None:
            with suppress(OSError):
                reader.sendall(lines.take(ms * 1_000, count))
                written[ms] += count
    if reader is not None:
        reader.close()
