"""elf: the lane of an agent, its tree, the commits of panes and windows at the master; as ``elf run``."""

from __future__ import annotations

import pyarrow as pa

from elf import __version__
from elf.bench.peers.serve import Job, Rows
from elf.bench.sides import THREADS
from elf.bench.sliding import Job as SlidingJob
from elf.bench.sliding_side import Master, sealed_of, spec_of
from elf.job.spec import END_OF_TIME, START_OF_TIME


class Engine:
    version = __version__

    def __init__(self, job: Job, scratch: str) -> None:
        self.job = job
        pa.set_cpu_count(THREADS)
        pa.set_io_thread_count(THREADS)

    def lay(self, path: str) -> None:
        job = self.job
        task = SlidingJob("elf", path, job.size_ms // 1000, job.slide_ms // 1000, job.store)
        spec, self.lane, self.source = spec_of(task)
        self.master = Master(spec)

    def run(self) -> None:
        sealed = sealed_of(self.lane, self.source)
        self.master.panes(sealed.start, sealed.end, sealed.tally, sealed.payload)
        self.master.windows(START_OF_TIME, END_OF_TIME, (sealed.start, sealed.end))

    def answer(self) -> Rows:
        return [(start_us // 1000, product, clicks) for start_us, product, clicks in self.master.answer()]
