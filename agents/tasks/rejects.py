"""The reject file of a stream: what did not parse, with its source and offset, for a person to look at.

JSON lines, append-only: ``source`` (path), ``id`` (of the source), ``offset``, ``reason``, ``length``
(bytes that the line had), ``when`` (RFC 3339), and the bytes that were kept: as ``text``, or as ``base64``
where they are not UTF-8. The checkpoint holds the position of its end: what lies beyond after a crash is
dropped, since those lines are read again. It has a quota; what is beyond it is counted, not kept. Moving or
deleting the file makes room.
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

from agents.disk.durable import sync
from agents.inputs.values import Reject
from elf.errors import UserError

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


def _open(path: Path) -> tuple[BinaryIO, int]:
    # Appending: after a truncation the next record goes to the new end.
    file = path.open("ab")
    return file, file.tell()
