"""What compression makes of bytes that somebody has sent: bounded before it is made."""

from __future__ import annotations

import zlib
from typing import Final

_GZIP: Final = 31
"""zlib's number for gzip alone."""
_PIECE_BYTES: Final = 4 << 10
"""What zlib is given at once: what is behind the end of a part is copied."""
PARTS_MAX: Final = 1 << 16
HERE_BYTES_MAX: Final = 512 << 10
"""What comes to more is made on a thread: the loop has other things to do."""


class TooLarge(ValueError):
    """It comes to more than it may."""


def gunzipped(data: bytes, most: int) -> bytes:
    """All parts of a gzip; never holds more than ``most`` bytes and one. Raises ``ValueError``."""
    found, view, at = bytearray(), memoryview(data), 0
    for _ in range(PARTS_MAX):
        if at == len(view):
            return bytes(found)
        part = zlib.decompressobj(_GZIP)
        while not part.eof:
            piece = view[at : at + _PIECE_BYTES]
            if not piece:
                raise ValueError("it is no whole gzip")
            try:
                found += part.decompress(piece, most + 1 - len(found))
            except zlib.error as error:
                raise ValueError(f"it is no gzip: {error}") from None
            if len(found) > most:
                raise TooLarge(f"it comes to more than {most} bytes")
            at += len(piece) - len(part.unused_data) - len(part.unconsumed_tail)
    raise TooLarge(f"it is a gzip of more than {PARTS_MAX} parts")
