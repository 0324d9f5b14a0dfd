"""Looks at the rows of a stream as they come (``elf tap``).

The stream task lays some lines of each chunk aside, as far as each row sample has room, and does nothing
else: no row is parsed for a row sample on the stream task's thread, and none ever waits for one. Who asks
gets what lies there, parsed on a thread beside the stream task; all that was not laid aside, or not shown, is
counted. A row sample that nobody has asked for ``LEASE_MS`` is over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agents.formats import Format
from elf.batch import encode
from elf.errors import UserError
from elf.job.messages.inquiries import SampledRows, SampleRows
from elf.job.ports import Wanted
from elf.job.worker.fitting import with_origins
from elf.job.worker.stream import WorkerSettings
from elf.schema import LABELS, Column, Schema, is_origin

if TYPE_CHECKING:  # DuckDB, as in agents.tasks.streams
    from agents.tasks.engine import Mapper, SqlExtractor
    from agents.tasks.extracted import Extracted

Held = tuple[pa.StringArray, str, int]
"""Lines, the log that they are of, and when they were read (ms)."""

LEASE_MS: Final = 10_000
ROW_SAMPLES_MAX: Final = 8
"""Peeks of one stream of an agent."""


class PerSecond:
    """So many a second, by the second of the clock."""

    def __init__(self, each_second: int) -> None:
        self._each_second = each_second
        self._second = 0
        self._taken = 0

    def take(self, wanted: int, now_ms: int) -> int:
        """How many of these may be had now."""
        second = now_ms // 1_000
        if second != self._second:
            self._second, self._taken = second, 0
        had = min(wanted, self._each_second - self._taken)
        self._taken += had
        return had


class _RowSample:
    """One of them. ``hold`` and ``take`` are called under the lock of all, ``read`` on the row samples'
    thread."""

    def __init__(self, request: SampleRows, where: str, settings: WorkerSettings, now_ms: int) -> None:
        self.asked_ms = now_ms
        self._request = request
        self._settings = settings
        self._origins = tuple(column.name for column in request.columns if is_origin(column.name))
        self._looked = PerSecond(request.lines_max)
        self._shown = PerSecond(request.rows_max)
        self._held: list[Held] = []
        self._lines = 0
        self._bytes = 0
        self._unseen = 0
        self._where = where
        self._extractor: SqlExtractor | None = None
        self._chooser: Mapper | None = None
        """Of the rows with their origins, where the condition is about these."""

    def hold(self, lines: pa.StringArray, log: str, now_ms: int) -> None:
        """Lay the first of these lines aside, as a copy: a slice would keep the whole chunk."""
        limit = min(len(lines), self._request.lines_max - self._lines)
        sizes = np.cumsum(pc.binary_length(lines[:limit]).to_numpy(zero_copy_only=False))
        room = int(np.searchsorted(sizes, self._request.bytes_max - self._bytes, side="right"))
        taken = self._looked.take(room, now_ms)
        self._unseen += len(lines) - taken
        if taken:
            self._held.append((lines.take(pa.array(np.arange(taken))), log, now_ms))
            self._lines += taken
            self._bytes += int(sizes[taken - 1])

    def take(self) -> tuple[list[Held], int]:
        """What lies there, and how many lines do not."""
        held, unseen = self._held, self._unseen
        self._held, self._lines, self._bytes, self._unseen = [], 0, 0, 0
        return held, unseen

    def read(
        self, held: Sequence[Held], unseen: int, fmt: Format, event_time: str | None, now_ms: int
    ) -> SampledRows:
        """The rows of these lines."""
        if not held:
            return SampledRows(b"", 0, unseen)
        # a line was read: the stream task knows the event time if there is one
        extractor = self._extractor or self._prepared(fmt, event_time)
        found = extractor.extract(pa.concat_arrays([lines for lines, *_ in held]))
        rows = found.table
        if event_time is None:
            read_us = np.repeat([at * 1_000 for *_, at in held], [len(lines) for lines, *_ in held])
            rows = rows.set_column(0, "_ts", pa.array(read_us[found.accepted], pa.int64()))
        rows = self._chosen(rows, found, held)
        shown = self._shown.take(rows.num_rows, now_ms)
        payload = encode(rows.slice(0, shown).combine_chunks()) if shown else b""
        return SampledRows(payload, rows.num_rows - shown, unseen)

    def _prepared(self, fmt: Format, event_time: str | None) -> SqlExtractor:
        from agents.tasks.engine import Mapper, SqlExtractor

        read = tuple(column for column in self._request.columns if column.name not in self._origins)
        of_origin = any(name in self._where for name in self._origins)
        wheres = (self._where,) if self._where and not of_origin else ()
        self._extractor = SqlExtractor(fmt, event_time, Wanted(read, wheres))
        if of_origin:
            sql = f"SELECT r.* EXCLUDE (_pane) FROM rows AS r WHERE {self._where}"
            self._chooser = Mapper(sql, (Column("_ts", "bigint"), *self._request.columns))
        return self._extractor

    def _chosen(self, rows: pa.Table, found: Extracted, held: Sequence[Held]) -> pa.Table:
        """Those for which the condition holds, with their origins."""
        if self._origins:
            of = np.repeat(np.arange(len(held)), [len(lines) for lines, *_ in held])[found.accepted]
            logs = pa.array([log for _, log, _ in held]).take(pa.array(of))
            rows = with_origins(rows, self._origins, self._settings.name, logs, self._settings.labels)
        if self._chooser is not None:
            rows = self._chooser.run(rows.append_column("_pane", pa.array(np.zeros(len(rows), np.int64))))
        return rows if found.wanted is None else rows.filter(pa.array(np.asarray(found.wanted, np.bool_)))

    def close(self) -> None:
        for one in (self._extractor, self._chooser):
            if one is not None:
                one.close()


@lru_cache(maxsize=64)
def rendered(where: str, columns: tuple[Column, ...], stream: str) -> str:
    """A condition as this agent binds and renders it; empty where all rows are wanted. Raises
    ``UserError``."""
    if not where:
        return ""
    from elf.ql.conditions import condition

    read = tuple(column for column in columns if not is_origin(column.name))
    labels = tuple(name[len(LABELS) :] for column in columns if (name := column.name).startswith(LABELS))
    return condition(where, Schema(read, labels=labels), stream=stream).where_sql


class RowSamples:
    """All row samples of a stream. ``see`` is the stream task's, ``look`` belongs to one other thread."""

    def __init__(self, stream: str, settings: WorkerSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._row_samples: dict[str, _RowSample] = {}
        self._over: list[_RowSample] = []
        self._lock = threading.Lock()

    def see(self, lines: pa.StringArray, log: str, now_ms: int) -> None:
        """These lines of a log were fed."""
        if not self._row_samples:
            return
        with self._lock:
            self._end(now_ms)
            for row_sample in self._row_samples.values():
                row_sample.hold(lines, log, now_ms)

    def look(self, request: SampleRows, fmt: Format, event_time: str | None, now_ms: int) -> SampledRows:
        """What has come since this row sample was here last; the first time it begins. Raises
        ``UserError``."""
        where = rendered(request.where, request.columns, request.stream)
        with self._lock:
            self._end(now_ms)
            over, self._over = self._over, []
            row_sample = self._row_samples.get(request.row_sample)
            if row_sample is None and len(self._row_samples) >= ROW_SAMPLES_MAX:
                raise UserError(f"{ROW_SAMPLES_MAX} others look at stream {self._stream} there already")
            if row_sample is None:
                row_sample = _RowSample(request, where, self._settings, now_ms)
                self._row_samples[request.row_sample] = row_sample
            row_sample.asked_ms = now_ms
            held, unseen = row_sample.take()
        for ended in over:
            ended.close()
        return row_sample.read(held, unseen, fmt, event_time, now_ms)

    def _end(self, now_ms: int) -> None:
        """Those that nobody asks for are over; ``look`` closes them, on the thread that used them."""
        for name in [name for name, one in self._row_samples.items() if now_ms - one.asked_ms > LEASE_MS]:
            self._over.append(self._row_samples.pop(name))

    def close(self) -> None:
        """When nobody looks any more."""
        for row_sample in (*self._over, *self._row_samples.values()):
            row_sample.close()
