"""What compression makes of bytes that somebody has sent: bounded before it is made."""

from __future__ import annotations

import zlib
from typing import Final

_GZIP: Final = 31
"""zlib's number for gzip alone."""


class TooLarge(ValueError):
    """It comes to more than it may."""


def gunzipped(data: bytes, most: int) -> bytes:
    """All parts of a gzip; never holds more than ``most`` bytes and one. Raises ``ValueError``."""
    found, rest = bytearray(), data
    while rest:
        part = zlib.decompressobj(_GZIP)
        try:
            found += part.decompress(rest, most + 1 - len(found))
        except zlib.error as error:
            raise ValueError(f"it is no gzip: {error}") from None
        if len(found) > most:
            raise TooLarge(f"it comes to more than {most} bytes")
        if not part.eof:
            raise ValueError("it is no whole gzip")
        rest = part.unused_data
    return bytes(found)
