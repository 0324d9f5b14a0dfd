"""Bytewax: a fold over windows a product, one worker; the top sums are taken after the clock has stopped.

Its watermark goes on with the machine's clock where events pause: with a wait of 2 s, which is the events'
disorder, it loses some when the machine is busy; a long one keeps windows open and makes it slower.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import bytewax.operators as op
import orjson
from bytewax.connectors.files import FileSource
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing
from bytewax.testing import TestingSink, run_main

if TYPE_CHECKING:
    from elf.bench.peers.serve import Job, Rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BATCH_LINES = 10_000
WAIT = timedelta(seconds=30)


class Engine:
    version = version("bytewax")

    def __init__(self, job: Job, scratch: str) -> None:
        self.job = job
        size, slide = timedelta(milliseconds=job.size_ms), timedelta(milliseconds=job.slide_ms)
        self.windower = (
            windowing.TumblingWindower(align_to=EPOCH, length=size)
            if job.tumbles
            else windowing.SlidingWindower(align_to=EPOCH, length=size, offset=slide)
        )
        self.out: list[tuple[str, tuple[int, int]]] = []

    def lay(self, path: str) -> None:
        store = self.job.store

        def parsed(line: str) -> tuple[str, tuple[int, int]] | None:
            row = orjson.loads(line)
            if store is not None and row["store"] != store:
                return None
            return row["product"], (row["created_at"], row["clicks_count"])

        clock = windowing.EventClock(
            ts_getter=lambda click: datetime.fromtimestamp(click[0] / 1000, UTC),
            wait_for_system_duration=WAIT,
        )
        self.out = []
        self.flow: Any = Dataflow("clicks")
        lines = op.input("lines", self.flow, FileSource(path, batch_size=BATCH_LINES))
        clicks = op.filter_map("parsed", lines, parsed)
        sums = windowing.fold_window(
            "sums",
            clicks,
            clock,
            self.windower,
            builder=lambda: 0,
            folder=lambda total, click: total + click[1],
            merger=lambda one, other: one + other,
            ordered=False,
        )
        op.output("out", sums.down, TestingSink(self.out))

    def run(self) -> None:
        run_main(self.flow)

    def answer(self) -> Rows:
        return [(number * self.job.slide_ms, product, clicks) for product, (number, clicks) in self.out]
