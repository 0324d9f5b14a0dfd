"""``elf run --archive``: archived lines through the live engine, as if they came again.

Each agent of the archive is an agent here, under its name and with its labels, and each of its logs a source.
Lines come in the order in which it read them: so what is late by a LATENESS is late again.
As fast as it can, the answer is the one that ``elf offline run`` gives. At a *pace* the lines come as far
apart as their event times say, so many times faster, and windows as they are complete; then what is late, or
of a log that stays behind, is told apart as in a fleet.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agents.archived import ArchivedFile, ArchivedStream, Span
from agents.inputs.values import Chunk, Counters, ReadOnce, Source
from elf.errors import ElfBug

BATCH_ROWS: Final = 16_384
_COLUMNS: Final = ["line", "ts", "source", "log", "position", "record"]


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


def agents_of(streams: Sequence[ArchivedStream]) -> list[ReplayedAgent]:
    """The agents that have files in an archive, in the order of their names."""
    files: dict[str, dict[str, list[ArchivedFile]]] = {}
    for of in streams:
        for file in of.files:
            files.setdefault(file.agent, {}).setdefault(of.stream, []).append(file)
    found = []
    for agent, by_stream in files.items():
        facts = _facts([file for some in by_stream.values() for file in some])
        labels = json.loads(facts.get("labels", "{}"))
        each = {stream: tuple(some) for stream, some in by_stream.items()}
        found.append(ReplayedAgent(facts.get("agent_name", agent), tuple(labels.items()), each))
    return sorted(found, key=lambda one: one.name)


def _facts(files: Sequence[ArchivedFile]) -> dict[str, str]:
    """What the first of them that is whole says."""
    for file in files:
        with suppress(OSError, pa.ArrowException):
            return file.target.facts(file.path)
    return {}


def _lives(files: Sequence[ArchivedFile]) -> list[list[ArchivedFile]]:
    """The files of each life of an agent's archive, within which its records are numbered through; a life is
    before another one if its first hour is."""
    found: dict[str, list[ArchivedFile]] = {}
    for file in files:
        found.setdefault(file.about.life, []).append(file)

    def begins(life: Sequence[ArchivedFile]) -> tuple[int, str]:
        hours = [file.hour for file in life if file.hour is not None]
        return min(hours, default=0), life[0].about.life

    return sorted(found.values(), key=begins)


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
        self._rows = self._all(_lives(files))
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

    def _all(self, lives: Sequence[Sequence[ArchivedFile]]) -> Generator[pa.Table, None, None]:
        for life in lives:
            for rows in self._merged(life):
                if (wanted := self._within(rows)).num_rows:
                    yield wanted

    def _merged(self, life: Sequence[ArchivedFile]) -> Iterator[pa.Table]:
        """The rows of these files in the order of their records; few files are open at a time."""
        waiting = deque(sorted(life, key=lambda file: file.about.first))
        reading: list[_Reader] = []
        try:
            while waiting or reading:
                least = min((one.head for one in reading), default=None)
                if waiting and (least is None or waiting[0].about.first <= least):
                    reading.append(_Reader(waiting.popleft(), self._failed))
                else:
                    one = min(reading, key=lambda other: other.head)
                    ends = [other.head for other in reading if other is not one]
                    ends += [waiting[0].about.first] if waiting else []
                    yield one.take(min(ends, default=None))
                reading = [one for one in reading if not one.is_done]
        finally:
            for one in reading:
                one.close()

    def _failed(self, path: str, why: str) -> None:
        self.counters.problems[path] = why
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


class _Reader:
    """A file's rows in the order of their records, a batch at a time. What cannot be read of it is told."""

    def __init__(self, file: ArchivedFile, failed: Callable[[str, str], None]) -> None:
        self._file = file
        self._failed = failed
        self._batches = self._read()
        self._rows = next(self._batches, None)
        self._records = self._numbers()

    @property
    def is_done(self) -> bool:
        return self._rows is None

    @property
    def head(self) -> int:
        """The record of the next row."""
        return int(self._records[0]) if len(self._records) else self._file.about.first

    def take(self, end: int | None) -> pa.Table:
        """The next rows of records below ``end``, one at least, and no more than a batch."""
        rows = self._rows
        if rows is None:
            raise ElfBug(f"{self._file.path} has no more rows")
        count = len(self._records) if end is None else max(int(np.searchsorted(self._records, end)), 1)
        self._rows, self._records = rows.slice(count), self._records[count:]
        if not len(self._records):
            self._rows = next(self._batches, None)
            self._records = self._numbers()
        return rows.slice(0, count)

    def close(self) -> None:
        self._batches.close()

    def _numbers(self) -> npt.NDArray[np.int64]:
        return np.empty(0, np.int64) if self._rows is None else self._rows["record"].to_numpy()

    def _read(self) -> Generator[pa.Table, None, None]:
        import pyarrow.parquet as pq

        file, seen = self._file, self._file.about.first
        try:
            with file.target.fs.open_input_file(file.path) as opened:
                read = pq.ParquetFile(opened, page_checksum_verification=True)
                columns = [name for name in _COLUMNS if name in read.schema_arrow.names]
                if file.about.by:
                    rows = read.read(columns=columns).sort_by("record")
                    yield from (pa.Table.from_batches([one]) for one in rows.to_batches(BATCH_ROWS))
                    return
                for batch in read.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
                    rows = pa.Table.from_batches([batch])
                    if "record" not in columns:  # of an earlier release
                        rows = rows.append_column("record", pa.array(np.arange(seen, seen + len(batch))))
                        seen += len(batch)
                    yield rows
        except (OSError, pa.ArrowException) as error:
            self._failed(file.path, str(error).splitlines()[0])


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
