"""The raw stream on its way to Parquet: rolls of Arrow records in the data folder, then files in the archive.

A *roll* is a run of records of one stream, numbered through by *position* (records appended since the archive
began). Its life, by the name of its file (protocol 3.7):

    open-FROM.arrows      an Arrow IPC stream that is appended to, not compressed (so a roll is about as large
                          as its lines, lives for a minute, and costs a copy to write and nothing to read);
                          ``sync`` makes it durable up to a position, which goes into the checkpoint (a thread
                          has begun with it, every 4 MiB)
    roll-FROM-TO.arrows   closed by ``roll``: nothing is added any more
    …/LIFE-FROM.parquet   shipped by ``ship``, a file for each event hour in it; then the roll is deleted

Exactly once rests on three rules:

1. Only a roll that ends at or below the position of a *durable* cut is shipped. So what a crash takes back
   (``restore`` drops all from the checkpoint's position on; those lines are read and appended again, perhaps
   in another order, under the same positions) was never shipped.
2. A roll that ends at or below the checkpoint never changes again, and decides alone the names and the
   contents of its files. So shipping it again, after a crash before its deletion, replaces files by equal
   ones.
3. LIFE is drawn anew whenever positions start at 0, or the folder was lost. So a data folder that starts over
   can't overwrite what an earlier one shipped.

It must never delete a roll before all its files are durable, or go on after a failed write (``ArchiveError``:
the stream must start again from its checkpoint).
"""

from __future__ import annotations

import re
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.disk.durable import sync, sync_path
from agents.disk.modes import Access
from agents.tasks.partitions import ArchiveError, Target
from elf.errors import ElfBug

__all__ = ["Archive", "ArchiveError"]

_OPEN: Final = re.compile(r"open-(\d{20})\.arrows")
_CLOSED: Final = re.compile(r"roll-(\d{20})-(\d{20})\.arrows")
BESIDE_BYTES: Final = 4 << 20
"""Where lines come fast so much is made durable beside the stream task, so that a checkpoint finds little
that is not."""
_SOURCE: Final = pa.dictionary(pa.int32(), pa.string())
_TS: Final = pa.timestamp("us", tz="UTC")
_FIELDS: Final = [("line", pa.string()), ("ts", _TS), ("source", _SOURCE), ("position", pa.int64())]


@dataclass(frozen=True)
class _Roll:
    """Records ``[start, end)``, closed."""

    path: Path
    start: int
    end: int


class Archive:
    """One stream of one agent. All belongs to the stream's stream task, but ``ship`` may run in another
    thread."""

    def __init__(
        self,
        directory: Path,
        target: str,
        *,
        stream: str,
        agent: str,
        roll_secs: float,
        roll_bytes: int,
        facts: Mapping[str, str],
        access: Access = Access(),  # noqa: B008 (it is a value)
    ) -> None:
        """``directory``: the stream's own folder for rolls, made when missing. ``target``: ``archive.path``,
        and ``access`` who may read what is shipped there.

        ``facts`` (format, time column, …) go into the metadata of each file. ``restore`` comes first.
        """
        self._directory = directory
        self._target = Target(target, access)
        self._stream = stream
        self._agent = agent
        self._roll_ms = int(roll_secs * 1000)
        self._roll_bytes = roll_bytes
        metadata = {f"elf.{key}": value for key, value in facts.items()}
        self._schema = pa.schema(_FIELDS, metadata=metadata)
        self._closed: deque[_Roll] = deque()
        self._shipping = threading.Lock()
        self._open: _OpenRoll | None = None
        self._beside = ThreadPoolExecutor(1, f"archive {stream}")
        self._position = 0
        self._life = ""
        self._usable = False
        self._failure: OSError | None = None

    # -- records ---------------------------------------------------------------------------------------------

    def append(
        self, lines: pa.StringArray, ts: pa.Array, source: str, offsets: npt.NDArray[np.int64]
    ) -> None:
        """Adds records of one source. ``ts``: int64 µs, nullable; ``offsets``: byte position of each line."""
        if not len(lines) == len(ts) == len(offsets):
            raise ElfBug(f"{len(lines)} lines with {len(ts)} times and {len(offsets)} offsets")
        if len(lines) == 0:
            return
        sources = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(lines), np.int32)), pa.array([source]))
        columns = [lines, ts.cast(pa.int64()).view(_TS), sources, pa.array(offsets, pa.int64())]
        with self._writing():
            if self._open is None:
                path = self._directory / f"open-{self._position:020d}.arrows"
                self._open = _OpenRoll(path, self._schema, self._beside)
            self._open.write(pa.record_batch(columns, schema=self._schema), lines.nbytes)
            self._position += len(lines)

    def sync(self) -> int:
        """Makes all that was appended durable; the position that the checkpoint must name."""
        with self._writing():
            if self._open is not None:
                self._open.sync()
            return self._position

    # -- rolls -----------------------------------------------------------------------------------------------

    def due(self, now_ms: int) -> bool:
        """Is the open roll old enough (since it was first asked about) or large enough to be closed?"""
        if self._open is None:
            return False
        if self._open.since_ms is None:
            self._open.since_ms = now_ms
        return now_ms - self._open.since_ms >= self._roll_ms or self._open.nbytes >= self._roll_bytes

    def roll(self) -> None:
        """Closes the open roll, if there is one. It can be shipped once a durable checkpoint covers it."""
        with self._writing():
            if self._open is not None:
                start = int(self._open.path.stem.removeprefix("open-"))
                self._open.close()
                closed = self._renamed(self._open.path, start, self._position)
                self._open = None
                self._closed.append(closed)

    @property
    def unshipped(self) -> int:
        """Closed rolls that wait for a checkpoint, or for a target that could not be reached."""
        return len(self._closed)

    def ship(self, checkpoint: int) -> list[str]:
        """Ships the closed rolls that end at or below ``checkpoint``, the position in a checkpoint that is
        *durable*.

        Returns the paths written, as the target's file system names them. Raises ``ArchiveError`` when the
        target can't be written; the rolls stay, call again.
        """
        with self._shipping:
            paths: list[str] = []
            while self._closed and self._closed[0].end <= checkpoint:
                paths += self._ship(self._closed[0])
                self._closed.popleft()
            return paths

    def _ship(self, roll: _Roll) -> list[str]:
        name = f"{self._life}-{roll.start:020d}"
        try:
            with pa.memory_map(str(roll.path)) as file:
                table = pa.ipc.open_stream(file).read_all()
            if table.num_rows != roll.end - roll.start:
                raise ArchiveError(f"{roll.path} is damaged: it holds {table.num_rows} records")
            plain = table.set_column(2, "source", table["source"].cast(pa.string()))
            paths = self._target.write(plain, stream=self._stream, agent=self._agent, name=name)
            roll.path.unlink()
        except (OSError, pa.ArrowInvalid) as error:
            raise ArchiveError(f"cannot ship {roll.path}: {error}") from error
        return paths

    # -- after a start ---------------------------------------------------------------------------------------

    def restore(self, position: int) -> None:
        """Goes back to the position in the last durable checkpoint (0 without one); what lies beyond is
        dropped.

        Comes before anything else. Raises ``ArchiveError`` when unshipped records below it are not there.
        """
        if self._open is not None:
            self._open.abandon()
            self._open = None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._life = self._begin_life(position)
            kept = [roll for path in sorted(self._directory.iterdir()) for roll in self._kept(path, position)]
            sync_path(self._directory)
        except OSError as error:
            raise ArchiveError(f"cannot use the archive's folder {self._directory}: {error}") from error
        self._closed = deque(sorted(kept, key=lambda roll: roll.start))
        for before, after in pairwise(self._closed):
            if before.end != after.start:
                raise ArchiveError(f"records {before.end} to {after.start} are gone from {self._directory}")
        self._position = position
        self._usable, self._failure = True, None

    def close(self) -> None:
        """Lets go of the open roll as it is; the next start goes on from the checkpoint."""
        self._usable = False
        if self._open is not None:
            self._open.abandon()
            self._open = None
        self._beside.shutdown()

    def _begin_life(self, position: int) -> str:
        path = self._directory / "life"
        if position > 0 and path.exists():
            return path.read_text()
        life = uuid.uuid4().hex
        fresh = self._directory / "life.new"
        fresh.write_text(life)
        sync_path(fresh)
        fresh.replace(path)
        sync_path(self._directory)
        return life

    def _kept(self, path: Path, position: int) -> list[_Roll]:
        """What of a roll's file is below ``position``, closed; the rest of it is deleted."""
        if match := _CLOSED.fullmatch(path.name):
            start, end = int(match[1]), int(match[2])
            if end <= position:
                return [_Roll(path, start, end)]
        elif match := _OPEN.fullmatch(path.name):
            start = int(match[1])
        else:
            return []
        if start >= position:
            path.unlink()
            return []
        with path.open("rb+") as file:
            file.truncate(_end_of(path, position - start))
            sync(file.fileno())
        return [self._renamed(path, start, position)]

    def _renamed(self, path: Path, start: int, end: int) -> _Roll:
        closed = path.with_name(f"roll-{start:020d}-{end:020d}.arrows")
        path.replace(closed)
        sync_path(self._directory)
        return _Roll(closed, start, end)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._failure is not None:
            raise ArchiveError(f"a write to {self._directory} has failed: {self._failure}") from self._failure
        if not self._usable:
            raise ElfBug(f"the archive of {self._stream} must be restored to its cut first")
        self._usable = False  # stays so if the write fails: what the file then holds is not known
        try:
            yield
        except OSError as error:
            self._failure = error
            raise ArchiveError(f"cannot write to the archive's folder {self._directory}: {error}") from error
        self._usable = True


class _OpenRoll:
    """An Arrow IPC stream that grows. A failure of what is made durable ``beside`` shows in the next write or
    sync, as the disk tells of it once only."""

    def __init__(self, path: Path, schema: pa.Schema, beside: ThreadPoolExecutor) -> None:
        self.path = path
        self.nbytes = 0
        self._beside = beside
        self._under_way: Future[None] | None = None
        self._asked_bytes = 0
        self.since_ms: int | None = None
        self._file = path.open("wb", buffering=1 << 20)
        self._writer = pa.ipc.new_stream(self._file, schema)
        self._named = False

    def write(self, batch: pa.RecordBatch, nbytes: int) -> None:
        self._writer.write_batch(batch)
        self.nbytes += nbytes
        idle = self._under_way is None or self._under_way.done()
        if idle and self.nbytes - self._asked_bytes >= BESIDE_BYTES:
            self._await()
            self._file.flush()
            self._asked_bytes = self.nbytes
            self._under_way = self._beside.submit(sync, self._file.fileno())

    def _await(self) -> None:
        """What is made durable beside us is, or has failed."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def sync(self) -> None:
        self._await()
        self._file.flush()
        sync(self._file.fileno())
        if not self._named:
            sync_path(self.path.parent)
            self._named = True

    def close(self) -> None:
        self._writer.close()
        self.sync()
        self._file.close()

    def abandon(self) -> None:
        """Closes the file without an end mark: it may be in any state, and the disk full."""
        with suppress(OSError):
            self._await()
        with suppress(OSError):
            self._file.close()


def _end_of(path: Path, records: int) -> int:
    """Where in the file its first ``records`` end. Never reads what stands after them: it may be torn."""
    seen = 0
    with pa.OSFile(str(path)) as file:
        try:
            reader = pa.ipc.open_stream(file)
            while seen < records:
                seen += reader.read_next_batch().num_rows
        except (pa.ArrowInvalid, StopIteration, OSError) as error:
            raise ArchiveError(f"{path} holds {seen} records, the cut says {records}: {error}") from error
        if seen != records:
            raise ElfBug(f"{path}: no batch ends at record {records}, the cut's position")
        return int(file.tell())
