"""One agent's files of one stream: how a file gets there, is replaced, and goes.

Calls may come from any thread; one is at work at a time. The order of each change is such that a crash in
the middle leaves what was, or what is to be:

    ship       files durable → their entry → the caller deletes the roll
    merge      ``busy`` → no hold → the new file durable → its entry, which drops the old ones
    let_go     ``going`` → no hold that is committing → an entry drops files and counts what is gone
    sweep      what was dropped long ago is deleted → ``deleted``

Rules: the entry of a file comes after the file, and before what could make it again is deleted. A file that
is dropped stays for a while, for those who have begun to read it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from agents.archive.contents import unlisted
from agents.archive.footers import NotParquet, facts_of, joined
from agents.archive.layout import Layout, last_layout, live_holds
from agents.archive.manifest import File, Gone, Manifest
from agents.archive.partitions import ArchiveError, Target, agent_of, unit_folder
from agents.archive.summaries import Summary, blooms_path, encoded


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Indexing(Protocol):
    """What looks at the values of chosen columns (``archive.index``)."""

    def summary(self, lines: Iterable[pa.StringArray]) -> Summary:
        """Of the lines of a file."""


@dataclass(frozen=True)
class Held:
    """What is on a shelf, for people."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    from_hour: int | None = None
    """Of the oldest row, since the epoch."""
    gone_rows: int = 0
    gone_bytes: int = 0
    gone_hour: int | None = None
    """The last hour of which something is gone."""
    hold: str = ""
    """Who sorts the stream by another column."""


class Shelf:
    """See above. What goes wrong is an ``ArchiveError``, and the call can be made again."""

    def __init__(
        self,
        target: Target,
        stream: str,
        agent: str,
        name: str = "",
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        """``name``: the agent's, for people."""
        self.target = target
        self.stream = stream
        self.agent = agent
        self._folder = target.stream_folder(stream)
        self._manifest = Manifest(target, stream, agent, name)
        self._layout: Layout | None = None
        self._lock = threading.RLock()
        self._now_ms = now_ms
        self._spared: tuple[str, int | None] = ("", None)

    def spare(self, life: str, position: int | None) -> None:
        """Retention leaves what is at this position of a life, and behind it: it is not read yet (None: all
        is)."""
        self._spared = (life, position)

    def is_spared(self, file: File) -> bool:
        life, position = self._spared
        return position is not None and file.life == life and file.end > position

    def ship(
        self, files: Mapping[int | None, Sequence[pa.Buffer]], *, life: str, first: int, end: int
    ) -> list[str]:
        """The records ``[first, end)`` of a life, as files by their hours; those of a life come in order.
        Nothing is done for what is there already. Returns the paths of the files."""
        with self._lock:
            self._adopt()
            if end <= self._manifest.state.shipped.get(life, 0):
                return []
            added = []
            for hour, parts in files.items():
                path = f"{unit_folder(hour, self.agent)}/{life}-{first:020d}.parquet"
                self.target.place(self.full(path), parts)
                size, now_ms = sum(map(len, parts)), self._now_ms()
                about = File(path=path, life=life, first=first, end=end, rows=0, bytes=size, made_ms=now_ms)
                added.append(described(about, pa.BufferReader(parts[-1])))  # which has the footer
            self._manifest.append(added=added, shipped={life: end})
            return [self.full(file.path) for file in added]

    def full(self, path: str) -> str:
        """The path of a file, as the target's file system names it."""
        return f"{self._folder}/{path}"

    @property
    def is_known(self) -> bool:
        """Whether its agent has said what there is."""
        return not self._manifest.is_new()

    def shipped(self, life: str) -> int:
        """Up to which record all of a life is shipped."""
        with self._lock:
            self._adopt()
            return self._manifest.state.shipped.get(life, 0)

    @property
    def is_there(self) -> bool:
        """Whether anything was ever shipped, as far as that is known without a look at a file system far
        away."""
        return not self.target.local or Path(self._folder).exists()

    def held(self) -> Held:
        """What there is."""
        with self._lock:
            files, gone = self.files(), self._manifest.state.gone
            holds = live_holds(self.target, self.stream, self._now_ms()).values()
        hours = [file.hour for file in files if file.hour is not None]
        lost = [hour for hour in gone if hour is not None]
        return Held(
            files=len(files),
            rows=sum(file.rows for file in files),
            bytes=sum(file.bytes for file in files),
            from_hour=min(hours, default=None),
            gone_rows=sum(one.rows for one in gone.values()),
            gone_bytes=sum(one.bytes for one in gone.values()),
            gone_hour=max(lost, default=None),
            hold="; ".join(f"by {one.by}, process {one.pid} of {one.host}" for one in holds),
        )

    def files(self) -> list[File]:
        """Those that readers are shown, as far as ``look`` has seen."""
        with self._lock:
            self._adopt()
            state, layout = self._manifest.state, self._laid()
            own = [file for path, file in state.files.items() if path not in layout.replaced]
            laid = [file for file in layout.files if file.agent == self.agent]
            return [*own, *(file for file in laid if file.path not in state.dropped)]

    def gone(self) -> dict[int | None, Gone]:
        """What retention has deleted, by hour."""
        with self._lock:
            self._adopt()
            return dict(self._manifest.state.gone)

    # -- keeping house ---------------------------------------------------------------------------------------

    def look(self) -> None:
        """See what a recluster has done: files that its layout stands for are dropped, and a merge that a
        crash has ended is given up."""
        with self._lock:
            self._adopt()
            state, layout = self._manifest.state, last_layout(self.target, self.stream)
            self._layout = layout
            if state.going:
                self._manifest.append(going=())
            if state.busy:
                self.target.remove(self.full(_merged_path([state.files[path] for path in state.busy])))
                self._manifest.append(busy=())
            replaced = layout.replaced
            if found := {path: replaced[path] for path in state.files if path in replaced}:
                self._manifest.append(dropped=found)

    def _laid(self) -> Layout:
        """The layout as ``look`` has last seen it; before that, as it is."""
        if self._layout is None:
            self._layout = last_layout(self.target, self.stream)
        return self._layout

    def let_go(self, files: Sequence[File], *, at_once: bool) -> bool:
        """Retention: these are not shown any more, and counted. ``at_once``: their room is needed. False: a
        recluster puts its layout in force just now, which may stand for them; the next pass sees it."""
        with self._lock:
            paths = {file.path: 0 if at_once else self._now_ms() for file in files}
            self._manifest.append(going=tuple(paths))
            if self._is_taken(paths.keys(), committing=True):
                self._manifest.append(going=())
                return False
            gone = [Gone(file.hour, file.rows, file.bytes) for file in files]
            self._manifest.append(dropped=paths, gone=gone, going=())
            return True

    def sweep(self, before_ms: int) -> None:
        """Delete what was dropped before then."""
        with self._lock:
            laid = {file.path for file in self._laid().files}
            due = [path for path, when_ms in self._manifest.state.dropped.items() if when_ms < before_ms]
            for path in due:
                self.target.remove(self.full(path))
                self.target.remove(blooms_path(self.full(path)))
            # What a layout names stays dropped, or it would be shown again.
            if deleted := [path for path in due if path not in laid]:
                self._manifest.append(deleted=deleted)

    def merge(self, files: Sequence[File], indexing: Indexing | None = None) -> File | None:
        """One file in place of these, which are one hour's, follow each other, and are of one life; of one
        file alone the chosen columns are looked at. None: a recluster is at work, or they differ in what is
        said about them."""
        with self._lock, ExitStack() as opened:
            if len(files) == 1:
                return self._look_at(files[0], indexing)
            if self._is_held():  # below it would cost two segments to find that out
                return None
            read = [opened.enter_context(self.target.opened(self.full(file.path))) for file in files]
            try:
                if len({facts_of(file) for file in read}) > 1:
                    return None
                self._manifest.append(busy=tuple(file.path for file in files))
                if self._is_taken({file.path for file in files}, committing=False):
                    self._manifest.append(busy=())
                    return None
                path = _merged_path(files)
                self.target.place(self.full(path), joined(read))
            except (NotParquet, OSError) as error:
                raise ArchiveError(f"cannot merge files of {self.full(files[0].unit)}: {error}") from error
            whole = _together(path, files, self.target.size(self.full(path)), self._now_ms())
            if indexing is not None:
                whole = self._indexed(whole, indexing)
            dropped = {file.path: self._now_ms() for file in files}
            self._manifest.append(added=[whole], dropped=dropped, busy=())
            return whole

    def _is_taken(self, paths: Set[str], *, committing: bool) -> bool:
        """By a recluster that is under way (and, if so asked, committing), or that has ended by now: it looks
        at what is busy or going once it has said so in its hold, and lets go of that after its layout."""
        if self._is_held(committing=committing):
            return True
        return not paths.isdisjoint(last_layout(self.target, self.stream).replaced)

    def _is_held(self, *, committing: bool = False) -> bool:
        found = live_holds(self.target, self.stream, self._now_ms()).values()
        return any(hold.is_committing or not committing for hold in found)

    def _look_at(self, file: File, indexing: Indexing | None) -> File | None:
        if indexing is None:
            return None
        looked_at = self._indexed(file, indexing)
        self._manifest.append(added=[looked_at])
        return looked_at

    def _indexed(self, file: File, indexing: Indexing) -> File:
        """With the bounds of the chosen columns; their filters lie beside the file."""
        with self.target.opened(self.full(file.path)) as opened:
            summary = indexing.summary(lines_of(opened))
        self.target.place(blooms_path(self.full(file.path)), [encoded(summary.blooms())])
        return replace(file, columns=summary.bounds(), is_indexed=True)

    def _adopt(self) -> None:
        """What is there already, if this agent has no manifest yet: it has shipped without one."""
        if not self._manifest.is_new():
            return
        folder = self.target.stream_folder(self.stream)
        found = []
        for path, size in self.target.sizes(self.target.everything(self.stream)).items():
            below = path[len(folder) + 1 :]
            if below.count("/") == 3 and agent_of(below) == self.agent:
                try:
                    with self.target.fs.open_input_file(path) as file:
                        found.append(described(replace(unlisted(below, size), made_ms=self._now_ms()), file))
                except (OSError, pa.ArrowException) as error:
                    raise ArchiveError(
                        f"{path} is damaged ({error}): put a copy of it back, or take it out of the archive"
                    ) from error
        rows = Counter[tuple[str, int]]()
        for one in found:
            rows[one.life, one.first] += one.rows
        ends = {roll: roll[1] + count for roll, count in rows.items()}
        shipped: dict[str, int] = {}
        for life, first in sorted(ends):
            shipped[life] = ends[life, first]
        added = [replace(one, end=ends[one.life, one.first]) for one in found]
        self._manifest.append(added=added, shipped=shipped)


def lines_of(file: pa.NativeFile) -> Iterator[pa.StringArray]:
    """The lines of a file, in parts."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(file).iter_batches(columns=["line"], use_threads=False):
        yield batch.column(0)


def _merged_path(files: Sequence[File]) -> str:
    """Decided by what it is made of."""
    first, end = files[0].first, max(file.end for file in files)
    return f"{files[0].unit}/{files[0].life}-{first:020d}-{end:020d}.parquet"


def _together(path: str, files: Sequence[File], size: int, now_ms: int) -> File:
    least = [file.least_us for file in files if file.least_us is not None]
    greatest = [file.greatest_us for file in files if file.greatest_us is not None]
    return File(
        path=path,
        life=files[0].life,
        first=files[0].first,
        end=max(file.end for file in files),
        rows=sum(file.rows for file in files),
        bytes=size,
        least_us=min(least, default=None),
        greatest_us=max(greatest, default=None),
        made_ms=now_ms,
    )


def described(file: File, footer: object) -> File:
    """With what the footer of a file says: its rows, and their times."""
    import pyarrow.parquet as pq

    read = pq.read_metadata(footer)
    least, greatest = [], []
    at = read.schema.names.index("ts")
    for group in range(read.num_row_groups):
        times = read.row_group(group).column(at).statistics
        if times is not None and times.has_min_max:
            least.append(times.min_raw)
            greatest.append(times.max_raw)
    if file.hour is None or not least:
        return replace(file, rows=read.num_rows)
    return replace(file, rows=read.num_rows, least_us=min(least), greatest_us=max(greatest))
