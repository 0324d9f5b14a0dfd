"""Files that somebody has compressed: gzip, bzip2, xz and zstd, told by how they begin.

Each is read from front to back, and again from the front to go back; all parts of a file that has several.
What damage leaves is what was unpacked before it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GZIP: Final = b"\x1f\x8b"
DAMAGE: Final = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a damaged one raises."""
_PIECE_BYTES: Final = 64 << 10
"""So much is unpacked at once where damage takes along what is unpacked with it."""


class _Kept:
    """A file that its reader does not close."""

    closed = False

    def __init__(self, raw: BinaryIO) -> None:
        self.read = raw.read

    def close(self) -> None: ...


class _Zstd(io.RawIOBase):
    """Arrow's, which can't go back by itself."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._begin()

    def _begin(self) -> None:
        import pyarrow as pa  # here, as few files are of that kind

        self._raw.seek(0)
        self._stream = pa.CompressedInputStream(pa.PythonFile(_Kept(self._raw), mode="r"), "zstd")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        data: bytes = self._stream.read(min(len(view), _PIECE_BYTES))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a compressed file has an end when it was read to it")
        if offset < self._at:
            self._begin()
        while self._at < offset and self.readinto(bytearray(min(offset - self._at, _PIECE_BYTES))):
            pass
        return self._at


_OPENERS: Final[dict[bytes, Callable[[BinaryIO], object]]] = {
    GZIP: lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda raw: io.BufferedReader(_Zstd(raw), _PIECE_BYTES),
}
MAGICS: Final = tuple(_OPENERS)
"""How such files begin."""
_MAGIC_BYTES: Final = max(map(len, MAGICS))


def magic_of(head: bytes) -> bytes:
    """How a file that begins so is compressed; empty: not in a way that is known."""
    return next((magic for magic in MAGICS if head.startswith(magic)), b"")


def is_packed(path: str) -> bool:
    """Whether a file begins like a compressed one."""
    with Path(path).open("rb") as file:
        return bool(magic_of(file.read(_MAGIC_BYTES)))


def unpacked(raw: BinaryIO) -> io.BufferedReader:
    """The contents of a file that was just opened, and is compressed; it stays the caller's."""
    magic = magic_of(raw.read(_MAGIC_BYTES))
    raw.seek(0)
    return unpacking(raw, magic)


def unpacking(raw: BinaryIO, magic: bytes) -> io.BufferedReader:
    """The contents of an open file, which stays the caller's."""
    return cast(io.BufferedReader, _OPENERS[magic](raw))
