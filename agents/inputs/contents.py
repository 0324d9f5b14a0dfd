"""The bytes of a log file by position, whether it lies there as it was written or compressed.

What rotation has compressed is read through its decompressor, from front to back: positions are those of the
contents. Going back by more than the last read begins again at the front, so readers go forward.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final, Protocol

from agents.inputs.packed import DAMAGE, GZIP, magic_of, unpacking
from agents.inputs.ranges import MAGIC_BYTES

HEAD_BYTES: Final = 256
"""The fingerprint of a file covers at most so many bytes of its beginning."""

_BLOCK_BYTES: Final = 1 << 20
_GET_VERSION: Final = 0x80087601
"""``FS_IOC_GETVERSION`` of Linux."""


class Content(Protocol):
    """``damage``: why it ends before its end (empty: it does not)."""

    damage: str

    def status(self) -> os.stat_result:
        """Of the file."""
        ...

    def version(self) -> int:
        """Of the file's inode; 0 where the file system has none."""
        ...

    def size(self) -> int:
        """Bytes of the contents, as far as they can be read."""
        ...

    def is_of_size(self, size: int) -> bool:
        """Whether it is known without reading it that it has so many bytes."""
        ...

    def read(self, count: int, offset: int) -> bytes:
        """Up to so many bytes from ``offset`` on; fewer only at the end."""
        ...

    def data_at(self, offset: int) -> int:
        """The first place from ``offset`` on that is no hole of a sparse file."""
        ...

    def close(self) -> None: ...


class Plain:
    """A file as it was written, by its descriptor. It may grow and shrink."""

    damage = ""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def status(self) -> os.stat_result:
        return os.fstat(self._descriptor)

    def version(self) -> int:
        return _inode_version(self._descriptor)

    def size(self) -> int:
        return self.status().st_size

    def is_of_size(self, size: int) -> bool:
        return self.size() == size

    def read(self, count: int, offset: int) -> bytes:
        return os.pread(self._descriptor, count, offset)

    def data_at(self, offset: int) -> int:
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError:
            return offset  # nothing but a hole behind it, or a file system that knows none

    def close(self) -> None:
        os.close(self._descriptor)


class Compressed:
    """A file that somebody has compressed when it was complete. It is read through once to know its size."""

    def __init__(self, descriptor: int, magic: bytes) -> None:
        self._magic = magic
        self._raw = os.fdopen(descriptor, "rb")
        self._file = unpacking(self._raw, magic)
        self._window, self._window_at = b"", 0
        self.damage = ""
        self._size: int | None = None
        self._head = self._forward(HEAD_BYTES, 0)

    def status(self) -> os.stat_result:
        return os.fstat(self._raw.fileno())

    def version(self) -> int:
        return _inode_version(self._raw.fileno())

    def size(self) -> int:
        if self._size is None:
            self._size = self._measured()
        return self._size

    def is_of_size(self, size: int) -> bool:
        """By what gzip writes behind the contents: the lowest 32 bits of their size. False of others."""
        if self._magic != GZIP:
            return False
        end = os.pread(self._raw.fileno(), 4, max(self.status().st_size - 4, 0))
        return int.from_bytes(end, "little") == size % (1 << 32)

    def _measured(self) -> int:
        at = len(self._head)
        while block := self._forward(_BLOCK_BYTES, at):
            at += len(block)
        return at

    def read(self, count: int, offset: int) -> bytes:
        if offset + count <= len(self._head):
            return self._head[offset : offset + count]
        begin = offset - self._window_at
        known = self._window[begin : begin + count] if 0 <= begin <= len(self._window) else b""
        return known + self._forward(count - len(known), offset + len(known), known)

    def _forward(self, count: int, offset: int, before: bytes = b"") -> bytes:
        """Reads on from ``offset``; ``before``: what stands there in front of it is kept with it."""
        pieces, missing = [], count
        try:
            if self._file.tell() != offset:
                self._file.seek(offset)
            while missing and (piece := self._file.read1(min(missing, _BLOCK_BYTES))):
                pieces.append(piece)
                missing -= len(piece)
        except DAMAGE as error:
            self.damage = str(error)
        data = b"".join(pieces)
        self._window, self._window_at = before + data, offset - len(before)
        return data

    def data_at(self, offset: int) -> int:
        return offset

    def close(self) -> None:
        self._file.close()
        self._raw.close()


def _inode_version(descriptor: int) -> int:
    try:
        return int.from_bytes(fcntl.ioctl(descriptor, _GET_VERSION, bytes(8))[:4], "little")
    except OSError:
        return 0


def opened(path: str) -> Content:
    """The content of a regular file. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        head = os.pread(descriptor, MAGIC_BYTES, 0)
    except OSError:
        os.close(descriptor)
        raise
    magic = magic_of(head)
    return Compressed(descriptor, magic) if magic else Plain(descriptor)
