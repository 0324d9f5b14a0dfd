"""Another layout for the archive of a stream: the rows of each hour and agent, sorted by a column.

A query for some values of that column then reads the row groups that have them, and of most files none. The
phases are those of Morphus (Assured Cloud Computing, section 6.4), with a layout (``agents.archive.layout``)
in place of a replica set:

    prepare   a hold is written: agents merge no files until it is let go
    isolate   the manifests are read: what readers are shown now, but for files that an agent is merging
    execute   each hour of an agent is read, sorted, and written under names that nobody is shown
    recovery  the manifests are read again, and what was shipped meanwhile is sorted too; in rounds, until
              little is new
    commit    one small file, the new layout, puts all of it in force

Reads go on all the while. A crash at any moment leaves the old layout or the new one; what lies about then
is deleted by the next recluster. Files that are replaced stay for an hour, for who has begun to read them.

It must never commit a file of which a source is no longer shown: retention has counted it as gone.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

from agents.archive import layout as layouts
from agents.archive.contents import contents
from agents.archive.layout import Hold, Layout
from agents.archive.manifest import File, agents_of, read
from agents.archive.partitions import ArchiveError, Target
from agents.archive.pieces import SORTED, file_of, piece_of
from agents.archive.retention import Limits
from agents.archive.shelf import described, wall_clock_ms
from agents.archive.summaries import Summary, blooms_path, encoded
from agents.formats import get_format
from agents.tasks.extracting import Extractor
from elf.errors import UserError
from elf.job.ports import Wanted
from elf.schema import Column, declare

ROUNDS_MAX: Final = 5
BATCH_BYTES: Final = 64 << 20
"""Of files that are sorted together: some six times as much in memory."""
GRACE_MS: Final = 3_600_000
"""So long files stay that are replaced."""
LEVEL: Final = 6
"""Of zstd: lines that are sorted by something else than time repeat less, and nobody waits."""
MARK: Final = "-by-"
"""In the names of files that are no agent's."""
SAMPLE_LINES: Final = 1_000
"""Of a file, to tell what its columns are."""


@dataclass
class Report:
    """What a recluster came to."""

    number: int = 0
    """Of the layout that is in force now."""
    files: int = 0
    replaced: int = 0
    rows: int = 0
    rounds: int = 0
    left: int = 0
    """Files that were in use, or gone, when it came to them: they are as they were."""


@dataclass
class _Made:
    """A file that is written, and what it stands for."""

    file: File
    sources: tuple[str, ...] = field(default_factory=tuple)


def recluster(
    path: str,
    stream: str,
    by: str,
    *,
    tell: Callable[[str], None] = lambda line: None,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> Report:
    """Sort the rows of a stream in the archive at ``path`` by a column. ``tell``: hears of each phase.

    Raises ``UserError``: for a stream or a column that is not there, where another recluster is at work, and
    as ``ArchiveError`` where the archive cannot be read or written; all is then as it was.
    """
    target = Target(path)
    if not target.everything(stream):
        raise UserError(f"there is no stream {stream} in the archive {path}")
    if target.local and Path(target.stream_folder(stream)).stat().st_uid != os.geteuid():
        raise UserError(f"run it as the user who owns {path}: agents and readers must read what it writes")
    uid = uuid.uuid4().hex
    _prepare(target, stream, uid, Hold(by=by, host=socket.gethostname(), pid=_pid(), since_ms=now_ms()))
    work = _Recluster(target, stream, by, uid, tell, now_ms)
    try:
        return work.run()
    except BaseException:
        work.undo()
        raise
    finally:
        layouts.let_go(target, stream, uid)


def _prepare(target: Target, stream: str, uid: str, mine: Hold) -> None:
    """Nobody else is at work, and agents see that somebody is."""
    for other, hold in layouts.holds(target, stream).items():
        if not _is_dead(hold, mine.host):
            raise _busy(target, stream, other, hold)
        layouts.let_go(target, stream, other)
    layouts.hold(target, stream, uid, mine)
    for other, hold in layouts.holds(target, stream).items():
        if other != uid:  # both may give way, and none goes on beside the other
            layouts.let_go(target, stream, uid)
            raise _busy(target, stream, other, hold)


def _busy(target: Target, stream: str, uid: str, hold: Hold) -> UserError:
    since = datetime.fromtimestamp(hold.since_ms / 1000, UTC)
    return UserError(
        f"stream {stream} is being sorted by {hold.by} since {since:%Y-%m-%d %H:%M:%S}, by process "
        f"{hold.pid} of {hold.host}: wait for it; if it is gone for good, delete "
        f"{layouts.hold_path(target, stream, uid)}"
    )


def _is_dead(hold: Hold, host: str) -> bool:
    """Who has written a hold; only known of a process of this machine."""
    if hold.host != host:
        return False
    try:
        return bool(psutil.Process(hold.pid).create_time() * 1000 > hold.since_ms)
    except psutil.NoSuchProcess:
        return True


def _pid() -> int:
    return psutil.Process().pid


class _Recluster:
    def __init__(
        self,
        target: Target,
        stream: str,
        by: str,
        uid: str,
        tell: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._target = target
        self._stream = stream
        self._by = by
        self._uid = uid
        self._tell = tell
        self._now_ms = now_ms
        self._folder = target.stream_folder(stream)
        self._made: list[_Made] = []
        self._report = Report()

    def run(self) -> Report:
        before = layouts.last_layout(self._target, self._stream)
        self._sweep(before)
        taken: set[str] = set()
        while self._report.rounds < ROUNDS_MAX:
            files = [file for file in self._isolated() if file.path not in taken]
            if self._report.rounds == 0:
                files = _worth(files, self._by)
            else:
                files = [file for file in files if file.by != self._by]
            if not files:
                break
            self._need_room(sum(file.bytes for file in files))
            self._report.rounds += 1
            self._tell(f"round {self._report.rounds}: {len(files)} files, {_rows(files):,} rows")
            self._execute(files)
            taken |= {file.path for file in files}
        return self._commit(before)

    def _need_room(self, size: int) -> None:
        """Agents would delete their oldest rows to make room for copies."""
        disk = psutil.disk_usage(self._target.root) if self._target.local else None
        if disk is not None and disk.free - 2 * size < Limits().floor(disk.total):
            raise UserError(
                f"no room to sort {self._stream}: copies take up to {2 * size:,} bytes, {disk.free:,} are "
                "free, and 5 % of the disk are to stay so: make room first"
            )

    def undo(self) -> None:
        """Delete what is written and in no layout."""
        named = {file.path for file in layouts.last_layout(self._target, self._stream).files}
        for made in self._made:
            if made.file.path not in named:
                self._remove(made.file.path)

    def _full(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def _sweep(self, before: Layout) -> None:
        """What a recluster that came to no end has written, and what earlier ones have replaced."""
        named = {file.path for file in before.files}
        for place in self._target.sizes(self._target.everything(self._stream)):
            path = place[len(self._folder) + 1 :]
            if MARK in path.rpartition("/")[2] and path not in named and path not in before.replaced:
                self._remove(path)
        for path, when_ms in before.replaced.items():
            if when_ms < self._now_ms() - GRACE_MS:
                self._remove(path)

    def _remove(self, path: str) -> None:
        self._target.remove(self._full(path))
        self._target.remove(blooms_path(self._full(path)))

    def _isolated(self) -> list[File]:
        """What readers are shown now, but for what an agent merges."""
        agents = agents_of(self._target, self._stream)
        busy = {path for agent in agents for path in read(self._target, self._stream, agent)[0].busy}
        found = contents(self._target, self._stream)
        for path, why in found.damaged.items():
            raise ArchiveError(f"{self._full(path)} is damaged ({why}): put a copy of it back")
        return [file for file in found.files if file.path not in busy]

    def _execute(self, files: Sequence[File]) -> None:
        def place(file: File) -> tuple[str, str]:
            return file.unit, file.life

        for (unit, _), each in groupby(sorted(files, key=lambda one: (*place(one), one.first)), key=place):
            for batch in _batches(list(each)):
                for made in self._sorted(unit, batch):
                    self._made.append(made)
                    self._report.rows += made.file.rows

    def _sorted(self, unit: str, files: Sequence[File]) -> Iterator[_Made]:
        """One file for all of these, or for those that say the same of themselves."""
        groups: dict[str, list[tuple[File, pa.Table]]] = defaultdict(list)
        for file in files:
            table = self._read(file)
            if table is None:  # retention was quicker
                self._report.left += 1
                continue
            groups[json.dumps(_facts(table), sort_keys=True)].append((file, table))
        for group in groups.values():
            sources = [file for file, _ in group]
            try:
                table = pa.concat_tables([table for _, table in group], promote_options="default")
                yield self._written(unit, sources, table.unify_dictionaries())
            except pa.ArrowException as error:  # more lines than Arrow sorts at once, say
                raise ArchiveError(f"cannot sort {self._full(sources[0].path)}: {error}") from error

    def _read(self, file: File) -> pa.Table | None:
        import pyarrow.parquet as pq

        try:
            with self._target.fs.open_input_file(self._full(file.path)) as opened:
                table = pq.ParquetFile(opened, page_checksum_verification=True).read(use_threads=False)
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(
                f"{self._full(file.path)} is damaged ({error}): put a copy of it back"
            ) from error
        return table.drop_columns([name for name in table.column_names if name.startswith(SORTED)])

    def _written(self, unit: str, sources: Sequence[File], table: pa.Table) -> _Made:
        names = dict.fromkeys([self._by, *(name for one in sources for name in one.columns)])
        columns = self._columns(table, list(names))
        values = _values(table, columns, _facts(table))
        summary = Summary(columns)
        summary.add(values)
        key = values[self._by]
        keyed = table.append_column(f"{SORTED}{self._by}", key)
        order = [(f"{SORTED}{self._by}", "ascending"), ("position", "ascending")]
        if "record" in table.column_names:
            order[1] = ("record", "ascending")
        rows = keyed.take(pc.sort_indices(keyed, sort_keys=order))
        parts = file_of([pa.py_buffer(piece_of(rows.combine_chunks(), level=LEVEL))])
        first, end = min(one.first for one in sources), max(one.end for one in sources)
        path = f"{unit}/{sources[0].life}-{first:020d}-{end:020d}{MARK}{self._uid}.parquet"
        self._target.place(self._full(path), parts)
        self._target.place(blooms_path(self._full(path)), [encoded(summary.blooms())])
        about = File(
            path=path,
            life=sources[0].life,
            first=first,
            end=end,
            rows=rows.num_rows,
            bytes=sum(map(len, parts)),
            columns=summary.bounds(),
            by=self._by,
            is_indexed=True,
            made_ms=self._now_ms(),
        )
        file = described(about, pa.BufferReader(parts[-1]))
        return _Made(file, tuple(one.path for one in sources))

    def _columns(self, table: pa.Table, names: Sequence[str]) -> list[Column]:
        """With the types that the agents give them."""
        facts = _facts(table)
        sample = table["line"].slice(0, SAMPLE_LINES).combine_chunks()
        schema = get_format(facts.get("format", "")).schema(sample, facts.get("timestamp") or None)
        if declared := json.loads(facts.get("columns", "{}")):
            schema = declare(schema, declared)
        known = {column.name: column for column in schema.columns}
        if self._by not in known:
            raise UserError(
                f"stream {self._stream} has no column {self._by}; it has {', '.join(known) or 'none'}"
            )
        return [known[name] for name in names if name in known]

    def _commit(self, before: Layout) -> Report:
        shown = {file.path for file in contents(self._target, self._stream).files}
        kept = [made for made in self._made if shown.issuperset(made.sources)]
        for made in self._made:
            if made not in kept:
                self._report.left += len(made.sources)
                self._remove(made.file.path)
        replaced = {path: self._now_ms() for made in kept for path in made.sources}
        self._report.files, self._report.replaced = len(kept), len(replaced)
        self._report.number = before.number
        if not kept:
            return self._report
        files = [file for file in before.files if file.path in shown and file.path not in replaced]
        layout = Layout(
            number=before.number + 1,
            files=(*files, *(made.file for made in kept)),
            replaced={**self._still_replaced(before), **replaced},
        )
        layouts.commit(self._target, self._stream, layout)
        self._report.number = layout.number
        return self._report

    def _still_replaced(self, before: Layout) -> Mapping[str, int]:
        """Of what was replaced before: what a manifest still names, or what is still there."""
        agents = agents_of(self._target, self._stream)
        named = {path for agent in agents for path in read(self._target, self._stream, agent)[0].files}
        return {
            path: when_ms
            for path, when_ms in before.replaced.items()
            if path in named or self._target.exists(self._full(path))
        }


def _worth(files: Sequence[File], by: str) -> list[File]:
    """Those of the hours of which not all is sorted yet."""
    units = {file.unit for file in files if file.by != by}
    return [file for file in files if file.unit in units]


def _batches(files: Sequence[File]) -> Iterator[list[File]]:
    batch: list[File] = []
    for file in files:
        if batch and sum(one.bytes for one in batch) + file.bytes > BATCH_BYTES:
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch


def _rows(files: Sequence[File]) -> int:
    return sum(max(0, file.rows) for file in files)


def _facts(table: pa.Table) -> dict[str, str]:
    """What the agent has written about the file of these rows."""
    metadata = table.schema.metadata or {}
    return {
        key.decode().removeprefix("elf."): value.decode()
        for key, value in metadata.items()
        if key.startswith(b"elf.")
    }


def _values(table: pa.Table, columns: Sequence[Column], facts: Mapping[str, str]) -> pa.Table:
    """The columns of all lines; NULL where a line does not parse."""
    fmt, event_time = get_format(facts.get("format", "")), facts.get("timestamp") or None
    extractor = Extractor(fmt, event_time, Wanted(tuple(columns)))
    try:
        parts = []
        for chunk in table["line"].chunks:
            found = extractor.extract(chunk)
            rows = found.table.drop_columns(["_ts"])
            if len(found.accepted) < len(chunk):
                places = np.zeros(len(chunk), np.int64)
                places[found.accepted] = np.arange(len(found.accepted))
                missing = np.ones(len(chunk), np.bool_)
                missing[found.accepted] = False
                rows = rows.take(pa.array(places, mask=missing))
            parts.append(rows)
        return pa.concat_tables(parts).combine_chunks()
    finally:
        extractor.close()
