"""What sides do around their work: plan the query, time the run, keep the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from elf.batch import encode
from elf.errors import UserError
from elf.ql import planner, statements
from elf.ql.plan import Plan
from elf.schema import Schema
from lab.bench.sides import clocked, resident_bytes

STREAM: Final = "input"
CHUNK_MIB: Final = 8
"""As an agent reads under a backlog."""


class Run(msgspec.Struct, frozen=True):
    """One run of one side. ``groups`` is the size of its answer: partial aggregates of all panes."""

    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    events: int
    bytes: int
    groups: int

    @property
    def cores(self) -> float:
        return self.cpu_seconds / self.seconds


class Task(msgspec.Struct, frozen=True):
    """What a side is to do. ``answer``: where its partial aggregates go, as ``elf.batch.encode`` writes them.

    The rest is for the stream task: how many ``jobs`` run the query, in ``distinct`` fragments; ``cores`` 2:
    reading and splitting on a thread of their own; ``archive``: every line goes to the archive too;
    ``chunk_bytes``: are read at a time; ``native``: by the native reader.
    """

    path: str
    format: str
    query: str
    answer: str = ""
    jobs: int = 1
    distinct: int = 1
    cores: int = 1
    archive: bool = False
    chunk_bytes: int = CHUNK_MIB << 20
    native: bool = True
    durable: bool | None = None
    """As in a fleet: panes are sealed as time goes on, and cuts and snapshots go to the state file, with
    (False: without) waiting for the disk. None: everything is sealed at the end, in memory."""


@dataclass(frozen=True)
class Done:
    """What the work came to."""

    events: int
    answer: pa.Table
    """The partial aggregates of all panes."""


def timed(task: Task, work: Callable[[], Done]) -> Run:
    """Do the work; imports, planning and connections are before it."""
    with clocked() as clock:
        done = work()
    peak = resident_bytes()
    Path(task.answer).write_bytes(encode(done.answer))
    size = Path(task.path).stat().st_size
    return Run(clock.seconds, clock.cpu_seconds, peak, done.events, size, done.answer.num_rows)


def plan_of(sql: str, schema: Schema) -> Plan:
    """The plan of one SELECT over the columns of a file. Raises ``QueryError``, ``UserError``."""
    parsed = statements.parse(sql)
    if len(parsed) != 1 or not isinstance(parsed[0], statements.Select):
        raise UserError("the benchmark takes one SELECT")
    return planner.plan(parsed[0].query, schema, stream=STREAM)
