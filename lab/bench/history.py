"""``elf bench history``: ROWS OF a cell, out of a day of archives on many agents.

Each agent has read and archived its day with a real stream task, which has written down which rows each pane
counted; its rolls are shipped every few minutes. Then the rows of windows are asked for that are drawn by
chance: all rows of a window, and those of one page. Agents look at the same time, each on a machine of its
own, so a window takes as long as the slowest of them; here they look one after the other, on one core. What
is not measured is the network: one round trip to the job's group, and one to the agents.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
from typer import Option

from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.values import Chunk, Source
from agents.tasks.archive import Archive
from agents.tasks.archived import Archived
from agents.tasks.sinks import Sinks
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.errors import ElfError
from elf.job.commands import Finish, Install
from elf.job.messages.inquiries import TracedRows, TraceRows
from elf.job.worker.stream import WorkerSettings
from elf.schema import Column
from lab.bench.measure import plan_of
from lab.bench.options import Agents
from lab.bench.pipeline import flow_of
from lab.bench.runner import Bench, Figure, Report, Scratch, percentiles
from lab.chaos.engine import spec_of

STREAM: Final = "clicks"
QUERY: Final = f"SELECT page, COUNT(*) AS n FROM {STREAM} WHERE ms < 900 GROUP BY page WINDOWING 1 MINUTES"
FIRST_S: Final = 1_767_225_600
SHIPPED_MINUTES: Final = 20
SEED: Final = 8
_JSON: Final = get_format("json")
_PAGES: Final = tuple(f"/page/{number}" for number in range(50))


@dataclass(frozen=True)
class History(Bench[str, Sequence[float]]):
    """Agents with an archive each, on one machine; what is asked of them."""

    agents: Agents = 16
    rate: Annotated[int, Option("--rate", min=1, help="Rows a second of each agent.")] = 3
    hours: Annotated[int, Option("--hours", min=1, max=24, help="Hours of the archives.")] = 24
    windows: Annotated[int, Option("--windows", min=1, help="Windows whose rows are asked for.")] = 100

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Sequence[float]]]:
        rng = random.Random(SEED)
        tasks = [_read(scratch.folder, number, self.rate, self.hours, rng) for number in range(self.agents)]
        for task in tasks:
            scratch.callback(task.close, checkpoint=False)
        minutes = [rng.randrange(self.hours * 60) for _ in range(self.windows)]
        page = f"page = '{_PAGES[0]}'"
        return {
            "all rows": partial(_ask, tasks, minutes, ""),
            "one page": partial(_ask, tasks, minutes, page),
        }

    def report(self, runs: Mapping[str, Sequence[Sequence[float]]]) -> Report:
        found = {side: percentiles([1e3 * one for run in some for one in run]) for side, some in runs.items()}
        of = f"{self.hours} h of {self.agents} agents, {self.rate} rows/s each"
        figures = [
            Figure(f"rows of a window, {side}, {of}: p50, p99", (each["p50"], each["p99"]), "ms")
            for side, each in found.items()
        ]
        return Report({"agents": self.agents, "windows": self.windows, **found}, figures)


_SCHEMA: Final = _JSON.schema(
    pa.array(['{"created_at": "2026-01-01T00:00:00.000Z", "page": "/", "ip": "10.0.0.1", "ms": 1}']), None
)
_FLOW: Final = flow_of(plan_of(QUERY, _SCHEMA))
_SPEC: Final = spec_of("busy", "bench", 1, plan_of(QUERY, _SCHEMA), (_FLOW,))


def _read(folder: Path, number: int, rate: int, hours: int, rng: random.Random) -> StreamTask:
    """An agent that has read its day."""
    name, target = f"agent-{number}", str(folder / "archive")
    (folder / name).mkdir()
    rolls = folder / name / "rolls"
    facts = {"format": "json", "timestamp": ""}
    archive = Archive(
        rolls, target, stream=STREAM, agent=name, roll_secs=60, roll_bytes=64 << 20, facts=facts
    )
    task = StreamTask(
        TaskStatus(STREAM, _JSON, "created_at", target),
        WorkerSettings(future_us=None, lateness_us=1_000_000, checkpoint_ms=60_000, traces=True),
        Store(folder / name / "store"),
        sinks=Sinks(archive),
        archived=Archived(rolls, target, STREAM, name),
    )
    task.perform(Install(_FLOW), 0)
    at = 0
    for minute in range(0, hours * 60, SHIPPED_MINUTES):
        lines = _lines(minute * 60, rate, rng)
        sizes = np.array([len(line) + 1 for line in lines], np.int64)
        offsets = at + np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        end = at + int(sizes.sum())
        chunk = Chunk(Source("log", "/log"), at, end, pa.array(lines), offsets, (), at_end=True)
        task.feed(chunk, (), minute * 60_000)
        task.ship()
        at = end
    task.perform(Finish(), 0)
    task.roll_archive()
    return task


def _lines(first: int, rate: int, rng: random.Random) -> list[str]:
    span = SHIPPED_MINUTES * 60
    found = []
    for at in sorted(rng.random() * span for _ in range(rate * span)):
        moment = datetime.fromtimestamp(FIRST_S + first + at, UTC).isoformat(timespec="milliseconds")
        ip = f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"
        row = {"created_at": moment, "page": rng.choice(_PAGES), "ip": ip, "ms": rng.randrange(1_000)}
        found.append(json.dumps(row))
    return found


def _ask(tasks: Sequence[StreamTask], minutes: Sequence[int], where: str) -> list[float]:
    """Seconds of the slowest agent, for each window. Raises ``ElfError`` where rows are not found."""
    columns: tuple[Column, ...] = _SCHEMA.columns if where else ()
    found = []
    for minute in minutes:
        pane = FIRST_S * 1_000_000 // _FLOW.fragment.pane_us + minute
        request = TraceRows(
            id=0,
            origin="",
            stream=STREAM,
            spec=_SPEC,
            flow=_FLOW.uid,
            spans=((pane, pane + 1),),
            parts=(),
            columns=columns,
            where=where,
            rows_max=20,
            bytes_max=1 << 20,
        )
        slowest = 0.0
        for task in tasks:
            began = perf_counter()
            traced = msgspec.msgpack.decode(task.row_sample(request, 0), type=TracedRows)
            slowest = max(slowest, perf_counter() - began)
            if traced.why or not traced.counted:
                raise ElfError(f"minute {minute}: {traced.found} of {traced.counted} rows: {traced.why}")
        found.append(slowest)
    return found
