"""The raw stream on its way to Parquet: rolls of records in the data folder, then files in the archive.

A *roll* is a run of records of one stream, numbered through by *position* (records appended since the archive
began). Its life, by the name of its file (protocol 3.7):

    open-FROM.roll        is appended to, frame by frame; ``sync`` makes it durable up to a position, which
                          goes into the checkpoint (a thread has begun with it)
    roll-FROM-TO.roll     closed by ``roll``: nothing is added any more
    …/LIFE-FROM.parquet   shipped by ``ship``, a file for each event hour in it, which the manifest then
                          names (``agents.archive``); then the roll is deleted

What is appended waits in memory for more, up to ``PIECE_BYTES`` of lines or the next ``sync``. Where lines
come fast, a frame is a piece of the Parquet file of its hour (``agents.archive.pieces``), made once by a
thread of the archive's own, and shipped as it is. Fewer rows than make a good piece are a frame of Arrow,
which costs a tenth; ``ship`` makes one piece of all of these, the last in the file of its hour.

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
import struct
import threading
import uuid
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agents.archive.partitions import ArchiveError, Target, by_hour
from agents.archive.pieces import file_of, piece_of
from agents.archive.shelf import Shelf
from agents.disk.durable import sync, sync_path
from agents.disk.modes import Access
from elf.batch import encode
from elf.errors import ElfBug
from elf.job.ports import SourceLike

__all__ = ["Archive", "ArchiveError"]

_OPEN: Final = re.compile(r"open-(\d{20})\.roll")
_CLOSED: Final = re.compile(r"roll-(\d{20})-(\d{20})\.roll")
PIECE_BYTES: Final = 4 << 20
"""Of lines, where they come fast; a checkpoint waits for one, 10 ms."""
PIECE_BYTES_MIN: Final = 1 << 20
"""Rows of one hour with less are no piece: each row group costs its readers something."""
PIECES_AHEAD: Final = 4
"""So many may wait for the thread, or be under way; then the stream task waits."""
BESIDE_BYTES: Final = 1 << 20
"""Where lines come fast so much is made durable beside the stream task, so that a checkpoint finds little
that is not."""
SPREAD_MS: Final = 30_000
"""Rolls that may be as old are spread over the agents (``sooner_ms``)."""
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
_TS: Final = pa.timestamp("us", tz="UTC")
_FIELDS: Final = [
    ("line", pa.string()),
    ("ts", _TS),
    ("source", _NAME),
    ("log", _NAME),
    ("position", pa.int64()),
    ("record", pa.int64()),
]
_HEAD: Final = struct.Struct("<qqq")
"""Of a frame: the hour since the epoch, how many rows, and the bytes behind it."""
_ROWS: Final = -1 << 40
"""In place of the hour: they are rows in Arrow, of any hours."""
_UNTIMED: Final = _ROWS + 1
"""In place of the hour of rows without one."""


@dataclass(frozen=True)
class _Frame:
    """``bytes``: where they are in the file."""

    hour: int
    rows: int
    bytes: slice


@dataclass(frozen=True)
class Roll:
    """Records ``[start, end)``, closed."""

    path: Path
    start: int
    end: int


def sooner_ms(roll_ms: int, stream: str, agent: str) -> int:
    """By so much the first roll of a life is shorter, up to a half: agents that were started together do not
    ship together ever after. Short ones are not."""
    share = zlib.crc32(f"{agent} {stream}".encode()) / (1 << 32)
    return int(share * roll_ms / 2) if roll_ms >= SPREAD_MS else 0


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
        changing: Callable[[], Mapping[str, str]] = dict,
        access: Access = Access(),  # noqa: B008 (it is a value)
    ) -> None:
        """``directory``: the stream's own folder for rolls, made when missing. ``target``: ``archive.path``,
        and ``access`` who may read what is shipped there.

        ``facts`` (format, time column, …) go into the metadata of each file, and those that are ``changing``
        too: when they do, a roll is due. ``restore`` comes first.
        """
        self._directory = directory
        self.shelf = Shelf(Target(target, access), stream, agent, facts.get("agent_name", ""))
        self._stream = stream
        self._roll_ms = int(roll_secs * 1000)
        self._sooner_ms = sooner_ms(self._roll_ms, stream, agent)
        self._roll_bytes = roll_bytes
        self._facts, self._changing = facts, changing
        self._say()
        self._closed: deque[Roll] = deque()
        self._shipping = threading.Lock()
        self._open: _OpenRoll | None = None
        self._beside = ThreadPoolExecutor(1, f"archive {stream}")
        self._position = 0
        self._life = ""
        self._usable = False
        self._failure: OSError | None = None

    def _say(self) -> None:
        """What is written down with the next file."""
        self._said = self._changing()
        metadata = {f"elf.{key}": value for key, value in {**self._facts, **self._said}.items()}
        self._schema = pa.schema(_FIELDS, metadata=metadata)

    # -- records ---------------------------------------------------------------------------------------------

    def append(
        self, lines: pa.StringArray, ts: pa.Array, source: SourceLike, offsets: npt.NDArray[np.int64]
    ) -> None:
        """Adds records of one source. ``ts``: int64 µs, nullable; ``offsets``: byte position of each line."""
        if not len(lines) == len(ts) == len(offsets):
            raise ElfBug(f"{len(lines)} lines with {len(ts)} times and {len(offsets)} offsets")
        if len(lines) == 0:
            return
        records = _Records(lines, ts, source, offsets, self._position)
        with self._writing():
            if self._open is None:
                self._say()
                path = self._directory / f"open-{self._position:020d}.roll"
                self._open = _OpenRoll(path, self._schema, self._beside)
            self._open.write(records)
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
            self._open.since_ms = now_ms - self._sooner_ms
            self._sooner_ms = 0
        full = now_ms - self._open.since_ms >= self._roll_ms or self._open.nbytes >= self._roll_bytes
        return full or self._said != self._changing()

    def roll(self) -> None:
        """Closes the open roll, if there is one. It can be shipped once a durable checkpoint covers it."""
        with self._writing():
            if self._open is not None:
                self._open.close()
                closed = self._renamed(self._open.path, self._open.start, self._position)
                self._open = None
                self._closed.append(closed)

    @property
    def position(self) -> int:
        """How many records were appended."""
        return self._position

    @property
    def shipped(self) -> int:
        """All records below this position are at the target."""
        if closed := self.closed():
            return closed[0].start
        return self._position if self._open is None else self._open.start

    def closed(self) -> tuple[Roll, ...]:
        """The closed rolls that are not shipped; on any thread."""
        return tuple(self._closed)

    def pieces(self, roll: Roll) -> dict[int | None, list[pa.Buffer]]:
        """What a closed roll's files will be, by hour. Raises ``FileNotFoundError`` when it is shipped."""
        found = _pieces(roll.path, roll.end - roll.start)
        return {None if hour == _UNTIMED else hour: parts for hour, parts in found.items()}

    @property
    def facts(self) -> dict[bytes, bytes]:
        """What is written down with each file."""
        return dict(self._schema.metadata or {})

    @property
    def life(self) -> str:
        """Names the run of positions that began with 0."""
        return self._life

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

    def _ship(self, roll: Roll) -> list[str]:
        try:
            files = {hour: file_of(pieces) for hour, pieces in self.pieces(roll).items()}
            paths = self.shelf.ship(files, life=self._life, first=roll.start, end=roll.end)
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

    def _kept(self, path: Path, position: int) -> list[Roll]:
        """What of a roll's file is below ``position``, closed; the rest of it is deleted."""
        if match := _CLOSED.fullmatch(path.name):
            start, end = int(match[1]), int(match[2])
            if end <= position:
                return [Roll(path, start, end)]
        elif match := _OPEN.fullmatch(path.name):
            start = int(match[1])
        else:
            return []
        if start >= position:
            path.unlink()
            return []
        end = _frames(_bytes(path), path, position - start)[-1].bytes.stop
        with path.open("rb+") as file:
            file.truncate(end)
            sync(file.fileno())
        return [self._renamed(path, start, position)]

    def _renamed(self, path: Path, start: int, end: int) -> Roll:
        """Closed. The new name is durable with that of the next roll: until then this one ends where the
        checkpoint does, and a start finds it under either name."""
        closed = path.with_name(f"roll-{start:020d}-{end:020d}.roll")
        path.replace(closed)
        return Roll(closed, start, end)

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


@dataclass(frozen=True, eq=False)
class _Records:
    """Of one source, as they were appended."""

    lines: pa.StringArray
    ts: pa.Array
    source: SourceLike
    offsets: npt.NDArray[np.int64]
    start: int


def _table(records: Sequence[_Records], schema: pa.Schema) -> pa.Table:
    """The lines are not copied."""
    sizes = [len(one.lines) for one in records]
    columns = [
        _joined([one.lines for one in records]),
        _joined([one.ts.view(_TS) for one in records]),
        _named([one.source.id for one in records], sizes),
        _named([one.source.log for one in records], sizes),
        _joined([pa.array(one.offsets) for one in records]),
        _joined([pa.array(np.arange(one.start, one.start + len(one.lines))) for one in records]),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _named(each: Sequence[str], sizes: Sequence[int]) -> pa.DictionaryArray:
    """A name for so many rows, and the next one."""
    names = list(dict.fromkeys(each))
    numbers = np.repeat(np.array([names.index(name) for name in each], np.int32), sizes)
    return pa.DictionaryArray.from_arrays(pa.array(numbers), pa.array(names, pa.string()), safe=False)


def _joined(arrays: list[pa.Array]) -> pa.Array | pa.ChunkedArray:
    return arrays[0] if len(arrays) == 1 else pa.chunked_array(arrays)


class _OpenRoll:
    """A file that grows. What is written waits for the thread ``beside``, which compresses it and makes it
    durable. A failure there shows in the next write or sync, as the disk tells of it once only."""

    def __init__(self, path: Path, schema: pa.Schema, beside: ThreadPoolExecutor) -> None:
        self.path = path
        self.start = int(path.stem.removeprefix("open-"))
        self.nbytes = 0
        """Of lines."""
        self.since_ms: int | None = None
        self._schema = schema
        self._beside = beside
        self._gathered: list[_Records] = []
        self._gathered_bytes = 0
        self._under_way: deque[Future[None]] = deque()
        self._file = path.open("wb")
        self._bases = Counter[int]()
        """By hour, the bytes of its pieces."""
        self._unsynced = 0
        self._named = False

    def write(self, records: _Records) -> None:
        self._gathered.append(records)
        self._gathered_bytes += records.lines.nbytes
        self.nbytes += records.lines.nbytes
        if self._gathered_bytes >= PIECE_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        """What has gathered, to the thread."""
        self._await(PIECES_AHEAD - 1)
        self._under_way.append(self._beside.submit(self._put, self._gathered))
        self._gathered, self._gathered_bytes = [], 0

    def _await(self, most: int) -> None:
        """So many of those under way, at most, are left, and none of the others has failed."""
        while len(self._under_way) > most:
            self._under_way.popleft().result()

    def _put(self, records: Sequence[_Records]) -> None:
        """On the thread, or when it does nothing."""
        table = _table(records, self._schema)
        rows = [table] if table.nbytes < PIECE_BYTES_MIN else []
        for hour, part in _by_hour(table) if not rows else ():
            if part.nbytes < PIECE_BYTES_MIN:
                rows.append(part)
            else:
                piece = piece_of(part, self._bases[hour])
                self._bases[hour] += len(piece)
                self._add(hour, part.num_rows, piece)
        if rows:
            self._add(_ROWS, sum(part.num_rows for part in rows), encode(pa.concat_tables(rows)))
        if self._unsynced >= BESIDE_BYTES:
            self._make_durable()

    def _add(self, hour: int, rows: int, data: bytes) -> None:
        self._file.write(_HEAD.pack(hour, rows, len(data)))
        self._file.write(data)
        self._unsynced += len(data)

    def _make_durable(self) -> None:
        self._file.flush()
        sync(self._file.fileno())
        self._unsynced = 0

    def sync(self) -> None:
        self._await(0)
        if self._gathered:
            self._put(self._gathered)
            self._gathered, self._gathered_bytes = [], 0
        if self._unsynced:
            self._make_durable()
        if not self._named:
            sync_path(self.path.parent)
            self._named = True

    def close(self) -> None:
        self.sync()
        self._file.close()

    def abandon(self) -> None:
        """Closes the file without what has gathered: it may be in any state, and the disk full."""
        for one in self._under_way:
            with suppress(OSError):
                one.result()
        with suppress(OSError):
            self._file.close()


def _frames(data: pa.Buffer, path: Path, records: int) -> list[_Frame]:
    """Those with the first ``records`` of a file. Never looks at what stands after them: it may be torn."""
    found: list[_Frame] = []
    seen = at = 0
    while seen < records and at + _HEAD.size <= len(data):
        hour, rows, size = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        at = start + size
        if not (rows > 0 and start < at <= len(data)):
            break
        found.append(_Frame(hour, rows, slice(start, at)))
        seen += rows
    if seen < records:
        raise ArchiveError(f"{path} is damaged: it holds {seen} records, the cut says {records}")
    if seen > records:
        raise ElfBug(f"{path}: no frame ends at record {records}, the cut's position")
    return found


def frames_of(path: Path) -> Iterator[tuple[int | None, pa.Buffer]]:
    """(hour, piece) of each whole frame of a roll, which may be growing; without an hour it is Arrow. Pieces
    of rows without event time are left out."""
    if not path.stat().st_size:
        return
    data, at = _bytes(path), 0
    while at + _HEAD.size <= len(data):
        hour, _, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        if at > len(data):
            return
        if hour != _UNTIMED:
            yield None if hour == _ROWS else hour, data[at - size : at]


def _bytes(path: Path) -> pa.Buffer:
    """Of a file, which are read when they are looked at."""
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def _pieces(path: Path, records: int) -> dict[int, list[pa.Buffer]]:
    """All rows of a closed roll, by hour."""
    data = _bytes(path)
    found: dict[int, list[pa.Buffer]] = {}
    rows: list[pa.Table] = []
    for frame in _frames(data, path, records):
        if frame.hour == _ROWS:
            rows.append(pa.ipc.open_stream(data[frame.bytes]).read_all())
        else:
            found.setdefault(frame.hour, []).append(data[frame.bytes])
    for hour, part in _by_hour(pa.concat_tables(rows).unify_dictionaries()) if rows else ():
        pieces = found.setdefault(hour, [])
        pieces.append(pa.py_buffer(piece_of(part, sum(map(len, pieces)))))
    return found


def _by_hour(table: pa.Table) -> list[tuple[int, pa.Table]]:
    return [(_UNTIMED if hour is None else hour, rows) for hour, rows in by_hour(table)]
