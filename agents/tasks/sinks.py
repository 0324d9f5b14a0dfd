"""Where the lines of a stream go: those that parsed to the archive, the others to the reject file.

The reject file has what did not parse, with its source and offset, for a person to look at: JSON lines,
append-only: ``source`` (path), ``id`` (of the source), ``offset``, ``reason``, ``length`` (bytes that the
line had), ``when`` (RFC 3339), and the bytes that were kept: as ``text``, or as ``base64`` where they are not
UTF-8. The checkpoint holds the position of its end: what lies beyond after a crash is dropped, since those
lines are read again. It has a quota; what is beyond it is counted, not kept. Moving or deleting the file
makes room.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np
import pyarrow as pa

from agents.archive.shelf import Shelf
from agents.disk.durable import sync
from agents.formats import Format
from agents.inputs.values import REJECT_KEPT_BYTES, Chunk, Reject
from agents.masks import WITHHELD
from agents.tasks.archive import Archive
from agents.tasks.ownarchive import OwnArchive
from agents.tasks.past import Archived, NothingArchived
from elf.errors import UserError
from elf.job.commands import Outcome

QUOTA_BYTES: Final = 64 << 20


class RejectFile:
    """Appends to ``path``, whose folder is made. ``clock`` gives seconds since the epoch."""

    def __init__(
        self, path: Path, *, bytes_max: int = QUOTA_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self.not_kept = 0
        """Rejects that did not fit the quota since it was opened."""
        self._path = path
        self._bytes_max = bytes_max
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._position = _open(path)
        self._synced = False

    def add(self, reject: Reject) -> bool:
        """Keeps a reject; False when the quota is used up."""
        record = msgspec.json.encode(self._record(reject)) + b"\n"
        if self._position + len(record) > self._bytes_max:
            self.not_kept += 1
            return False
        with self._writing():
            self._file.write(record)
        self._synced = False
        self._position += len(record)
        return True

    def _record(self, reject: Reject) -> dict[str, str | int]:
        when = dt.datetime.fromtimestamp(self._clock(), dt.UTC)
        record: dict[str, str | int] = {
            "source": reject.path,
            "id": reject.source,
            "offset": reject.offset,
            "reason": reject.reason,
            "length": reject.length,
            "when": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        try:
            return record | {"text": reject.data.decode()}
        except UnicodeDecodeError:
            return record | {"base64": base64.b64encode(reject.data).decode()}

    def sync(self) -> int:
        """Makes all that was added durable; the position that the checkpoint must name."""
        if not self._synced:
            with self._writing():
                self._file.flush()
                sync(self._file.fileno())
            self._synced = True
        if self._moved():
            self._file.close()
            self._file, self._position = _open(self._path)
        return self._position

    def _moved(self) -> bool:
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return True
        here = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def truncate_to(self, position: int) -> None:
        """Drops what lies beyond the position of the last checkpoint (nothing, if the file was replaced
        meanwhile)."""
        if position >= self._position:
            return
        self._file.flush()
        self._file.truncate(position)
        self._position = position

    def close(self) -> None:
        with suppress(OSError):  # what is not in it is beyond the checkpoint
            self._file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write to the reject file {self._path}: {error.strerror}") from error


def rejected_line(chunk: Chunk, index: int, fmt: Format) -> Reject:
    """A line of a chunk that does not parse, and why."""
    line = chunk.lines[index].as_py().encode()
    kept = line[:REJECT_KEPT_BYTES]
    why = "" if kept == WITHHELD.encode() else fmt.why_not(kept.decode(errors="replace"))
    reason = f"no {fmt.name} line" + (f": {why}" if why else "")
    offset = int(chunk.offsets[index])
    return Reject(chunk.source.id, chunk.source.path, offset, reason, kept, len(line))


def _open(path: Path) -> tuple[BinaryIO, int]:
    # Appending: after a truncation the next record goes to the new end.
    file = path.open("ab")
    return file, file.tell()


class Sinks:
    """Of one stream; either may be missing. All belongs to the stream task, but ``ship``."""

    def __init__(self, archive: Archive | None = None, rejects: RejectFile | None = None) -> None:
        self._archive = archive
        self._rejects = rejects
        self._durable = 0

    def restore(self, archive: int, rejects: int) -> None:
        """Back to the positions in the last checkpoint; what lies beyond is dropped. Comes first."""
        self._durable = archive
        if self._archive is not None:
            self._archive.restore(archive)
        if self._rejects is not None:
            self._rejects.truncate_to(rejects)

    def take(self, chunk: Chunk, outcome: Outcome, fmt: Format) -> None:
        """The lines of a chunk, as the worker has told them apart."""
        accepted, rejected = outcome.accepted, outcome.rejected
        if self._archive is not None and accepted is not None and outcome.ts is not None and len(accepted):
            whole = len(accepted) == len(chunk.lines)
            lines = chunk.lines if whole else chunk.lines.take(pa.array(accepted))
            offsets = chunk.offsets if whole else chunk.offsets[accepted]
            self._archive.append(lines, outcome.ts, chunk.source, offsets)
        if self._rejects is None:
            return
        for reject in chunk.rejects:
            self._rejects.add(reject)
        for index in rejected if rejected is not None else np.empty(0, np.int64):
            self._rejects.add(rejected_line(chunk, int(index), fmt))

    def sync(self) -> tuple[int, int]:
        """Make all that was taken durable: the positions in archive and rejects that the checkpoint must
        name."""
        archive = self._archive.sync() if self._archive is not None else self._durable
        return archive, self._rejects.sync() if self._rejects is not None else 0

    def covered(self, archive: int) -> None:
        """A durable checkpoint names this position of the archive: what is below may be shipped."""
        self._durable = archive

    def due(self, now_ms: int) -> bool:
        """Whether the archive's open roll is to be closed."""
        return self._archive is not None and self._archive.due(now_ms)

    def roll(self) -> None:
        """Close it."""
        if self._archive is not None:
            self._archive.roll()

    @property
    def shelf(self) -> Shelf | None:
        """Where the archive ships to; None: there is none."""
        return None if self._archive is None else self._archive.shelf

    @property
    def archives(self) -> bool:
        return self._archive is not None

    def spare(self, position: int | None) -> None:
        """Retention leaves what was archived from this position on (None: nothing for that reason)."""
        if self._archive is not None:
            self._archive.shelf.spare(self._archive.life, position)

    def archived(self) -> Archived:
        """What lies in the archive."""
        return NothingArchived() if self._archive is None else OwnArchive(self._archive)

    @property
    def unshipped(self) -> int:
        """Closed rolls that are not in the archive yet."""
        return 0 if self._archive is None else self._archive.unshipped

    def ship(self) -> None:
        """Ship the closed rolls that the last checkpoint covers; on any thread. Raises ``ArchiveError``."""
        if self._archive is not None:
            self._archive.ship(self._durable)

    @property
    def rejects_not_kept(self) -> int:
        """Rejects beyond the quota of the reject file."""
        return 0 if self._rejects is None else self._rejects.not_kept

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
        if self._rejects is not None:
            self._rejects.close()
