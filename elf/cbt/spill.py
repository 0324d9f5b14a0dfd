"""What lies in memory and what was spilled: the pieces of all buffers of one tree.

Paper, section 2.2: buffers that are cold may be "externalized to SSD or disk". The tree itself knows no
files: it has a store, puts pieces there when it holds more than its limit, and reads them one at a time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from elf.errors import ElfError


class SpillError(ElfError):
    """Spilling failed, or what was spilled cannot be read back as written: then the tree can only be
    emptied."""


class SpillStore(Protocol):
    """Where a tree puts pieces away. A store serves one tree; ``ticket`` names what was written.

    ``write`` and ``read`` may raise ``OSError``, which the tree passes on as ``SpillError``.
    """

    def write(self, data: bytes) -> int:
        """Keep these bytes; returns their ticket."""
        ...

    def read(self, ticket: int) -> bytes:
        """The bytes of a ticket."""
        ...

    def free(self, ticket: int) -> None:
        """Forget a ticket. Must not raise."""
        ...


@dataclass(eq=False)
class Piece:
    """A packed run: in memory (``data``) or in the store (``ticket``).

    Lasting pieces are in Arrow's memory, temporary data in numpy's and Python's: mixed in one heap, the
    former would keep the system from getting the latter's memory back.
    """

    schema: pa.Schema
    rows: int
    size: int
    data: pa.Buffer | None
    ticket: int = 0
    checksum: int = 0


class Shelf:
    """All pieces of a tree, counted. ``resident_bytes`` and ``spilled_bytes`` add up to what it holds."""

    def __init__(self, store: SpillStore | None = None) -> None:
        self._store = store
        self.resident_bytes = 0
        self.spilled_bytes = 0

    def keep(self, data: bytes, rows: int, schema: pa.Schema) -> Piece:
        """Put a packed run into memory."""
        self.resident_bytes += len(data)
        held = pa.allocate_buffer(len(data))
        memoryview(held).cast("B")[:] = data
        return Piece(schema, rows, len(data), held)

    def open(self, piece: Piece) -> memoryview:
        """The bytes of a piece, wherever it is; it stays there. Raises ``SpillError``."""
        if piece.data is not None:
            return memoryview(piece.data)
        try:
            data = self._given_store().read(piece.ticket)
        except OSError as error:
            raise SpillError(f"cannot read what was spilled: {error}") from error
        if len(data) != piece.size or zlib.crc32(data) != piece.checksum:
            raise SpillError("what was spilled has been changed")
        return memoryview(data)

    def drop(self, pieces: Iterable[Piece]) -> None:
        """Forget pieces."""
        for piece in pieces:
            if piece.data is not None:
                self.resident_bytes -= piece.size
            else:
                self.spilled_bytes -= piece.size
                self._given_store().free(piece.ticket)

    def spill(self, pieces: Iterable[Piece], resident_max: int) -> None:
        """Put pieces away, the largest first, until no more than ``resident_max`` bytes are in memory."""
        for piece in sorted(pieces, key=lambda piece: -piece.size):
            if self.resident_bytes <= resident_max:
                return
            if piece.data is None:
                continue
            try:
                piece.ticket = self._given_store().write(piece.data.to_pybytes())
            except OSError as error:
                raise SpillError(f"cannot spill: {error}") from error
            piece.checksum, piece.data = zlib.crc32(piece.data), None
            self.resident_bytes -= piece.size
            self.spilled_bytes += piece.size

    def _given_store(self) -> SpillStore:
        if self._store is None:
            raise SpillError("there is no store to spill to")
        return self._store
