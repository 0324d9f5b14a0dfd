"""Another layout for the archive of a stream: the rows of each hour and agent, sorted by a column.

A query for some values of that column then reads the row groups that have them, and of most files none. The
phases are those of Morphus (Assured Cloud Computing, section 6.4), with a layout (``agents.archive.layout``)
in place of a replica set:

    prepare   a hold is written: agents merge no files until it is let go
    isolate   the manifests are read: what readers are shown now, but for files that an agent is merging
    execute   each hour of an agent is read, sorted, and written under names that nobody is shown
    recovery  the manifests are read again, and what was shipped meanwhile is sorted too; in rounds, until
              little is new
    commit    the hold says so: agents let no file go until it is let go; then one small file, the new layout,
              puts all of it in force

Reads go on all the while. A crash at any moment leaves the old layout or the new one; what lies about then
is deleted by the next recluster. Files that are replaced stay for an hour, for who has begun to read them.

Rows are sorted in memory, a run of row groups at a time (``RUN_BYTES``): a file that is larger becomes one
file of several runs, each sorted by itself. Rows of files in which no line has the column stay in their
order, in files of their own.

It must never commit a file of which a source is no longer shown: retention has counted it as gone.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
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
from agents.disk.modes import access_of
from agents.formats import get_format
from agents.tasks.extracting import Extractor
from elf.errors import UserError
from elf.job.ports import Wanted
from elf.schema import Column, declare

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROUNDS_MAX: Final = 5
RUN_BYTES: Final = 64 << 20
"""Of row groups that are sorted together, as they lie on disk: some thirty times as much in memory."""
RENEW_MS: Final = 60_000
"""So often the hold says that somebody is at work, or as often as a file is done."""
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
    without: list[str] = field(default_factory=list)
    """Files in which no line has the column: their rows stay in their order."""


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
    if target.local:
        folder = Path(target.stream_folder(stream))
        if folder.stat().st_uid != os.geteuid():
            raise UserError(f"run it as the user who owns {path}: agents must read what it writes")
        target = Target(path, access_of(folder))
    uid, place = uuid.uuid4().hex, layouts.here()
    mine = Hold(by=by, host=socket.gethostname(), pid=os.getpid(), since_ms=now_ms(), place=place)
    _prepare(target, stream, uid, mine)
    work = _Recluster(target, stream, by, uid, mine, tell, now_ms)
    try:
        return work.run()
    except BaseException:
        work.undo()
        raise
    finally:
        layouts.let_go(target, stream, uid)


def _prepare(target: Target, stream: str, uid: str, mine: Hold) -> None:
    """Nobody else is at work, and agents see that somebody is."""
    for other, hold in layouts.live_holds(target, stream, mine.since_ms).items():
        raise _busy(target, stream, other, hold)
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


class _Recluster:
    def __init__(
        self,
        target: Target,
        stream: str,
        by: str,
        uid: str,
        hold: Hold,
        tell: Callable[[str], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._hold = hold
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
            if self._report.rounds == 0:
                self._check_column(files)
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
        """What readers are shown now, but for what an agent merges or lets go of."""
        taken, found = self._taken(), contents(self._target, self._stream)
        for path, why in found.damaged.items():
            raise ArchiveError(f"{self._full(path)} is damaged ({why}): put a copy of it back")
        return [file for file in found.files if file.path not in taken]

    def _taken(self) -> set[str]:
        """The files that agents merge, or let go of."""
        agents = agents_of(self._target, self._stream)
        states = [read(self._target, self._stream, agent)[0] for agent in agents]
        return {path for state in states for path in (*state.busy, *state.going)}

    def _check_column(self, files: Sequence[File]) -> None:
        """Raises ``UserError`` where no file has it; the newest are looked at first."""
        known: list[str] = []
        for file in sorted(files, key=lambda one: (one.made_ms, one.first), reverse=True):
            names = self._names(file)
            if self._by in names:
                return
            known = known or names
        raise UserError(
            f"stream {self._stream} has no column {self._by}; it has {', '.join(known) or 'none'}"
        )

    def _names(self, file: File) -> list[str]:
        """The columns of a file, as far as its first lines show them; none of one that has gone."""
        import pyarrow.parquet as pq

        try:
            with self._target.fs.open_input_file(self._full(file.path)) as opened:
                batches = pq.ParquetFile(opened).iter_batches(SAMPLE_LINES, columns=["line"])
                lines = next((batch.column(0) for batch in batches), pa.array([], pa.string()))
            return [column.name for column in _schema(lines, self._target.facts(self._full(file.path)))]
        except FileNotFoundError:
            return []
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(file, error) from error

    def _damaged(self, file: File, error: Exception) -> ArchiveError:
        return ArchiveError(f"{self._full(file.path)} is damaged ({error}): put a copy of it back")

    def _execute(self, files: Sequence[File]) -> None:
        def place(file: File) -> tuple[str, str]:
            return file.unit, file.life

        for (unit, _), each in groupby(sorted(files, key=lambda one: (*place(one), one.first)), key=place):
            for batch in _batches(list(each)):
                for made in self._sorted(unit, batch):
                    self._made.append(made)
                    self._report.rows += made.file.rows
                    self._say_so()

    def _say_so(self) -> None:
        """That it is at work."""
        if self._now_ms() - max(self._hold.seen_ms, self._hold.since_ms) >= RENEW_MS:
            self._hold = msgspec.structs.replace(self._hold, seen_ms=self._now_ms())
            layouts.hold(self._target, self._stream, self._uid, self._hold)

    def _sorted(self, unit: str, files: Sequence[File]) -> Iterator[_Made]:
        """One file for all of these, or for those that say the same of themselves."""
        with ExitStack() as opened:
            groups: dict[str, list[tuple[File, pq.ParquetFile]]] = defaultdict(list)
            for file in files:
                source = self._opened(file, opened)
                if source is None:  # retention was quicker
                    self._report.left += 1
                    continue
                facts = _facts(source.schema_arrow)
                groups[json.dumps(facts, sort_keys=True)].append((file, source))
            for group in groups.values():
                try:
                    yield self._written(unit, [file for file, _ in group], self._runs(group))
                except pa.ArrowException as error:  # more lines than Arrow sorts at once, say
                    raise ArchiveError(f"cannot sort {self._full(group[0][0].path)}: {error}") from error

    def _opened(self, file: File, until: ExitStack) -> pq.ParquetFile | None:
        import pyarrow.parquet as pq

        try:
            opened = until.enter_context(self._target.fs.open_input_file(self._full(file.path)))
            return pq.ParquetFile(opened, page_checksum_verification=True)
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(file, error) from error

    def _runs(self, sources: Sequence[tuple[File, pq.ParquetFile]]) -> Iterator[pa.Table]:
        """The rows, so many at a time as are sorted together."""
        run: list[pa.Table] = []
        size = 0
        for file, source in sources:
            names = [name for name in source.schema_arrow.names if not name.startswith(SORTED)]
            for number in range(source.num_row_groups):
                try:
                    run.append(source.read_row_group(number, columns=names, use_threads=False))
                except (OSError, pa.ArrowException) as error:
                    raise self._damaged(file, error) from error
                group = source.metadata.row_group(number)
                size += sum(group.column(at).total_compressed_size for at in range(group.num_columns))
                if size >= RUN_BYTES:
                    yield _together(run)
                    run, size = [], 0
        if run:
            yield _together(run)

    def _written(self, unit: str, sources: Sequence[File], runs: Iterable[pa.Table]) -> _Made:
        names = dict.fromkeys([self._by, *(name for one in sources for name in one.columns)])
        columns: list[Column] = []
        summary: Summary | None = None
        pieces: list[pa.Buffer] = []
        for table in runs:
            if summary is None:
                columns = _columns(table, list(names))
                summary = Summary(columns)
            values = _values(table, columns, _facts(table.schema))
            summary.add(values)
            rows = _in_order(table, values, self._by)
            pieces.append(pa.py_buffer(piece_of(rows, sum(map(len, pieces)), level=LEVEL)))
        if summary is None:
            raise ArchiveError(f"{self._full(sources[0].path)} has no rows, and its manifest says otherwise")
        if all(column.name != self._by for column in columns):
            self._report.without += [self._full(one.path) for one in sources]
        parts = file_of(pieces)
        first, end = min(one.first for one in sources), max(one.end for one in sources)
        path = f"{unit}/{sources[0].life}-{first:020d}-{end:020d}{MARK}{self._uid}.parquet"
        self._target.place(self._full(path), parts)
        self._target.place(blooms_path(self._full(path)), [encoded(summary.blooms())])
        about = File(
            path=path,
            life=sources[0].life,
            first=first,
            end=end,
            rows=0,
            bytes=sum(map(len, parts)),
            columns=summary.bounds(),
            by=self._by,
            is_indexed=True,
            made_ms=self._now_ms(),
        )
        file = described(about, pa.BufferReader(parts[-1]))
        return _Made(file, tuple(one.path for one in sources))

    def _commit(self, before: Layout) -> Report:
        last = layouts.last_layout(self._target, self._stream)
        if self._uid not in layouts.holds(self._target, self._stream) or last.number != before.number:
            raise UserError(
                f"this sorting of {self._stream} was taken for dead, and another may be at work; nothing is "
                "changed: run it again"
            )
        self._hold = msgspec.structs.replace(self._hold, is_committing=True, seen_ms=self._now_ms())
        layouts.hold(self._target, self._stream, self._uid, self._hold)
        taken = self._taken()
        shown = {file.path for file in contents(self._target, self._stream).files} - taken
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
        if self._now_ms() - self._hold.seen_ms > layouts.COMMITTING_MS // 2:
            raise UserError(
                f"the new layout of {self._stream} took too long; nothing is changed: run it again"
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
        if batch and sum(one.bytes for one in batch) + file.bytes > RUN_BYTES:
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch


def _rows(files: Sequence[File]) -> int:
    return sum(max(0, file.rows) for file in files)


def _facts(schema: pa.Schema) -> dict[str, str]:
    """What the agent has written about a file with this schema."""
    metadata = schema.metadata or {}
    return {
        key.decode().removeprefix("elf."): value.decode()
        for key, value in metadata.items()
        if key.startswith(b"elf.")
    }


def _schema(lines: pa.StringArray, facts: Mapping[str, str]) -> tuple[Column, ...]:
    """The columns that lines show, with the types that the agents give them."""
    schema = get_format(facts.get("format", "")).schema(lines, facts.get("timestamp") or None)
    if declared := json.loads(facts.get("columns", "{}")):
        schema = declare(schema, declared)
    return schema.columns


def _columns(table: pa.Table, names: Sequence[str]) -> list[Column]:
    """Those of these that there are."""
    sample = table["line"].slice(0, SAMPLE_LINES).combine_chunks()
    known = {column.name: column for column in _schema(sample, _facts(table.schema))}
    return [known[name] for name in names if name in known]


def _together(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


def _in_order(table: pa.Table, values: pa.Table, by: str) -> pa.Table:
    """Rows by their values of a column, which they get beside them; without such a column as they came."""
    came = "record" if "record" in table.column_names else "position"
    order = [(came, "ascending")]
    if by in values.column_names:
        table = table.append_column(f"{SORTED}{by}", values[by])
        order = [(f"{SORTED}{by}", "ascending"), *order]
    return table.take(pc.sort_indices(table, sort_keys=order)).combine_chunks()


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
