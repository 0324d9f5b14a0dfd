"""``elf run --archive``: archived lines through the live engine, as if they came again.

Each agent of the archive is an agent here, under its name and with its labels, and each of its logs a source.
Its rolls come in their order, and the lines of a log in theirs: so what is late by a LATENESS is late again.
As fast as it can, the answer is the one that ``elf offline run`` gives. At a *pace* the lines come as far
apart as their event times say, so many times faster, and windows as they are complete; then what is late, or
of a log that stays behind, is told apart as in a fleet.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.archives import ArchivedFile, Contents, Span
from agents.inputs.values import Chunk, Counters, ReadOnce, Source

BATCH_ROWS: Final = 16_384
_COLUMNS: Final = ["line", "ts", "source", "log", "position"]
_NAME: Final = re.compile(r"(.*)-(\d{20})\.parquet")


@dataclass(frozen=True)
class ReplayedAgent:
    """An agent of an archive: its files by stream, what it is called, and its labels."""

    name: str
    labels: tuple[tuple[str, str], ...]
    files: Mapping[str, tuple[ArchivedFile, ...]]


class Pace:
    """Event time goes on ``speed`` times as fast as the clock, from the first row of all agents."""

    def __init__(self, speed: float, first_us: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._speed = speed
        self._first_us = first_us
        self._clock = clock
        self._began: float | None = None

    def due_us(self) -> int:
        """Up to which event time rows have come. The first call is the beginning."""
        now = self._clock()
        if self._began is None:
            self._began = now
        return self._first_us + int((now - self._began) * self._speed * 1e6)


def agents_of(contents: Sequence[Contents]) -> list[ReplayedAgent]:
    """The agents that have files in an archive, in the order of their names."""
    files: dict[str, dict[str, list[ArchivedFile]]] = {}
    for of in contents:
        for file in of.files:
            files.setdefault(file.agent, {}).setdefault(of.stream, []).append(file)
    found = []
    for agent, by_stream in files.items():
        facts = _facts([file for some in by_stream.values() for file in some])
        labels = json.loads(facts.get("labels", "{}"))
        each = {stream: tuple(sorted(some, key=_order)) for stream, some in by_stream.items()}
        found.append(ReplayedAgent(facts.get("agent_name", agent), tuple(labels.items()), each))
    return sorted(found, key=lambda one: one.name)


def _facts(files: Sequence[ArchivedFile]) -> dict[str, str]:
    """What the first of them that is whole says."""
    for file in files:
        with suppress(OSError, pa.ArrowException):
            return file.target.facts(file.path)
    return {}


def _order(file: ArchivedFile) -> tuple[object, ...]:
    """Rolls of one life of the agent's archive in their order; each hour of a roll has a file."""
    return (*_roll(file), file.hour is None, file.hour or 0)


def _roll(file: ArchivedFile) -> tuple[str, int]:
    """The life and the first position in the name of a file; what is called otherwise is a roll by itself."""
    match = _NAME.fullmatch(file.path.rsplit("/", 1)[1])
    return (match[1], int(match[2])) if match is not None else (file.path, 0)


def in_order(files: Sequence[ArchivedFile]) -> list[list[ArchivedFile]]:
    """The files of one agent and stream, by roll. A life of the archive is before another one if its first
    hour is."""
    rolls = [list(some) for _, some in groupby(sorted(files, key=_order), key=_roll)]
    begins: dict[str, int] = {}
    for roll in rolls:
        life, hours = _roll(roll[0])[0], [file.hour for file in roll if file.hour is not None]
        begins[life] = min([*hours, *([begins[life]] if life in begins else [])], default=0)
    return sorted(rolls, key=lambda roll: (begins[_roll(roll[0])[0]], _roll(roll[0])))


class Replayed(ReadOnce):
    """One agent's lines of one stream."""

    def __init__(
        self, files: Sequence[ArchivedFile], span: Span | None = None, pace: Pace | None = None
    ) -> None:
        self.counters = Counters()
        self.exhausted = False
        self.unread = 0
        self._span = span
        self._pace = pace
        self._rows = self._all(in_order(files))
        self._held: pa.Table | None = None
        self._chunks: deque[Chunk] = deque()
        self._ends: dict[str, int] = {}

    def read(self, bytes_max: int, now_ms: int) -> Chunk | None:
        """The next lines of a log; None when all were read, or none is due yet."""
        while not self._chunks:
            rows, self._held = self._held, None
            if rows is None and (rows := next(self._rows, None)) is None:
                self.exhausted = True
                return None
            due = rows.num_rows if self._pace is None else _before(rows, self._pace.due_us())
            if due < rows.num_rows:
                self._held = rows.slice(due)
            if not due:
                return None
            self._chunks.extend(self._chunks_of(rows.slice(0, due)))
        return self._chunks.popleft()

    def finished(self) -> tuple[str, ...]:
        """Nothing is known to have ended before all has."""
        return ()

    def close(self) -> None:
        self._rows.close()
        self._chunks.clear()

    def _all(self, rolls: Sequence[Sequence[ArchivedFile]]) -> Generator[pa.Table, None, None]:
        for roll in rolls:
            parts = _in_turn(roll[0]) if len(roll) == 1 else _together(roll)
            try:
                for rows in parts:
                    if (wanted := self._within(rows)).num_rows:
                        yield wanted
            except (OSError, pa.ArrowException) as error:
                for file in roll:
                    self.counters.problems[file.path] = str(error).splitlines()[0]
                self.counters.failed += 1

    def _within(self, rows: pa.Table) -> pa.Table:
        if self._span is None:
            return rows
        us = rows["ts"].cast(pa.int64())
        return rows.filter(pc.and_(pc.greater_equal(us, self._span[0]), pc.less(us, self._span[1])))

    def _chunks_of(self, rows: pa.Table) -> Iterator[Chunk]:
        """The rows, by source: each in its order."""
        sources = rows["source"].cast(pa.string())
        names = sources.unique().to_pylist()
        for name in names:
            part = rows if len(names) == 1 else rows.filter(pc.equal(sources, name))
            lines = part["line"].combine_chunks()
            start = self._ends.get(name, 0)
            end = self._ends[name] = start + (pc.sum(pc.binary_length(lines)).as_py() or 0) + len(lines)
            source = Source(name, part["log"][0].as_py())
            yield Chunk(source, start, end, lines, part["position"].to_numpy(), (), at_end=False)


def _in_turn(file: ArchivedFile) -> Iterator[pa.Table]:
    """The rows of a file, in bounded memory."""
    import pyarrow.parquet as pq

    with file.target.fs.open_input_file(file.path) as opened:
        read = pq.ParquetFile(opened, page_checksum_verification=True)
        for batch in read.iter_batches(BATCH_ROWS, columns=_COLUMNS, use_threads=False):
            yield pa.Table.from_batches([batch])


def _together(roll: Sequence[ArchivedFile]) -> Iterator[pa.Table]:
    """The rows of a roll with rows of several hours: those of each source in the order of their places."""
    rows = pa.concat_tables([part for file in roll for part in _in_turn(file)], promote_options="permissive")
    rows = rows.unify_dictionaries()
    plain = rows.set_column(2, "source", rows["source"].cast(pa.string()))
    yield plain.take(pc.sort_indices(plain, sort_keys=[("source", "ascending"), ("position", "ascending")]))


def _before(rows: pa.Table, us: int) -> int:
    """How many rows come before the first one that is later than that."""
    times = rows["ts"].cast(pa.int64()).fill_null(us).to_numpy()
    later = np.flatnonzero(times > us)
    return int(later[0]) if len(later) else rows.num_rows


def pace_of(agents: Sequence[ReplayedAgent], span: Span | None, speed: float | None) -> Pace | None:
    """The common pace of these agents, from their first row in the span; None: as fast as they go."""
    return None if speed is None else Pace(speed, _first_us(agents, span))


def _first_us(agents: Sequence[ReplayedAgent], span: Span | None) -> int:
    import pyarrow.parquet as pq

    files = [file for agent in agents for some in agent.files.values() for file in some]
    hours = [file.hour for file in files if file.hour is not None]
    found: list[int | None] = []
    for file in files:
        if hours and file.hour == min(hours):
            with suppress(OSError, pa.ArrowException), file.target.fs.open_input_file(file.path) as opened:
                times = pq.ParquetFile(opened).read(columns=["ts"])["ts"].cast(pa.int64())
                found.append(pc.min(times).as_py())
    earliest = min((us for us in found if us is not None), default=0)
    return earliest if span is None else max(earliest, span[0])
