"""What agents do that simulated ones do not, in milliseconds, as this machine does it: measured at the start.

CPU is that of the whole process (ZeroMQ has threads of its own), the median of several times. A sync's wait
is wall clock less CPU, the first tenth: on a busy machine the others wait for a core too.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pyarrow as pa

from agents.disk.store import Store
from agents.inputs.values import Source
from agents.tasks.archive import Archive
from elf.functions import wire
from elf.functions.sandbox import Limits, Sandbox, Sandboxes
from elf.job.program.calls import Place, Timer
from elf.transport.zeromq import ZeroMqTransport

SMALL: Final = 300
LARGE: Final = 60_000
"""Bytes of frames: of a word between nodes, and of a slice with many groups."""
FAN: Final = 16
"""To so many a node of a tree sends what comes down, and hears from as many."""
TIMES: Final = 40
LINES: Final = 20
CALLS: Final = 2_000


@dataclass(frozen=True)
class Costs:
    """CPU, but for ``sync_ms`` and ``archive_sync_ms``, which are waits.

    A message of n bytes costs its sender ``send_ms`` and its share of ``mib_ms`` (socket and I/O thread),
    its receiver likewise; ``hop_ms``: from the loop to a thread and back; ``archive_ms``: a few lines are
    archived; ``sandbox_ms``: a callback of a job in Python, there and back (of both processes).
    """

    send_ms: float = 0.0
    receive_ms: float = 0.0
    mib_ms: float = 0.0
    hop_ms: float = 0.0
    sync_ms: float = 0.0
    archive_ms: float = 0.0
    archive_sync_ms: float = 0.0
    sandbox_ms: float = 0.0

    def facts(self) -> dict[str, float]:
        """For people, by name."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def measured() -> Costs:
    """All of them; takes a second or two."""
    send, receive, mib = asyncio.run(_messages())
    with tempfile.TemporaryDirectory(prefix="elf-sim-") as folder:
        archive, archive_sync = _archive(Path(folder) / "rolls")
        sync = _sync(Path(folder) / "store.sqlite")
    return Costs(send, receive, mib, asyncio.run(_hop()), sync, archive, archive_sync, _sandbox())


async def _messages() -> tuple[float, float, float]:
    """One to many and back: what a message costs its sender, its receiver, and each of them a MiB."""
    hub = await ZeroMqTransport.listen("127.0.0.1:0")
    others = [await ZeroMqTransport.listen("127.0.0.1:0") for _ in range(FAN)]
    try:
        await _round(hub, others, SMALL)
        small = [await _round(hub, others, SMALL) for _ in range(TIMES)]
        large = [await _round(hub, others, LARGE) for _ in range(TIMES // 4)]
    finally:
        for one in (hub, *others):
            await one.close()
    sent, received = (statistics.median(column) for column in zip(*small, strict=True))
    both = statistics.median(map(sum, large))
    return sent, received, max(0.0, (both - sent - received) / (2 * (LARGE - SMALL))) * 2**20


async def _round(hub: ZeroMqTransport, others: list[ZeroMqTransport], size: int) -> tuple[float, float]:
    """A message to each and one back from each: CPU of sender and of receiver a message."""
    frames, messages = [bytes(size)], 2 * len(others)
    process, thread, sending = time.process_time(), time.thread_time(), 0.0
    for origin, targets in ((hub, others), *((one, [hub]) for one in others)):
        began = time.thread_time()
        for target in targets:
            origin.send(target.address, frames)
        sending += time.thread_time() - began
        if origin is hub:
            await asyncio.gather(*(one.receive() for one in others))
    for _ in others:
        await hub.receive()
    loop, all_ = time.thread_time() - thread, time.process_time() - process
    aside = max(0.0, all_ - loop) / 2
    return 1e3 * (sending + aside) / messages, 1e3 * (loop - sending + aside) / messages


async def _hop() -> float:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        await loop.run_in_executor(pool, int)
        began = time.process_time()
        for _ in range(10 * TIMES):
            await loop.run_in_executor(pool, int)
        return 1e3 * (time.process_time() - began) / (10 * TIMES)


def _sync(path: Path) -> float:
    store = Store(path)
    try:
        return _least([_waited(partial(store.put, "fact", str(n).encode())) for n in range(TIMES)])
    finally:
        store.close()


def _archive(folder: Path) -> tuple[float, float]:
    """CPU of a few lines, and the wait for their sync."""
    where = str(folder / "shipped")
    archive = Archive(folder, where, stream="s", agent="a", roll_secs=60, roll_bytes=1 << 30, facts={})
    archive.restore(0)
    lines = pa.array(["x" * 100] * LINES)
    cpu, waits = [], []
    try:
        for n in range(TIMES):
            began = time.process_time()
            archive.append(lines, pa.array(np.arange(LINES) + n), Source("log", "log"), np.arange(LINES))
            waits.append(_waited(archive.sync))
            cpu.append(1e3 * (time.process_time() - began))
    finally:
        archive.close()
    return statistics.median(cpu), _least(waits)


def _waited(action: Callable[[], object]) -> float:
    began, cpu = time.perf_counter(), time.process_time()
    action()
    return max(0.0, 1e3 * (time.perf_counter() - began - (time.process_time() - cpu)))


def _least(waits: Sequence[float]) -> float:
    """The tenth of them that is the least ends here."""
    return sorted(waits)[len(waits) // 10]


def _sandbox() -> float:
    """A timer of a job that does nothing."""
    text = "from elf.job import Job\n\n\nclass Idle(Job):\n    def on_timer(self):\n        pass\n"
    here = Place("", 0)
    sandboxes = Sandboxes()
    sandbox = Sandbox(sandboxes, Limits(), lambda _: None)
    try:
        sandbox.call(wire.LoadJob(text, "idle.py", "idle", "me", here))
        child = psutil.Process(sandbox.pid)
        began = time.process_time() + _cpu_secs(child)
        for _ in range(CALLS):
            sandbox.call(wire.CallJob(Timer(), here))
        return 1e3 * (time.process_time() + _cpu_secs(child) - began) / CALLS
    finally:
        sandbox.close()
        sandboxes.close()


def _cpu_secs(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system
