"""Sample lines of finite inputs, to infer columns from before anything is read for good.

From the beginning, the middle and the end of each file, since columns come and go in a long log. Bounded: a
few hundred KiB a file, whatever its size. What cannot be read again (a pipe) gives no samples.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agents.inputs.ranges import check_path, is_gzip
from agents.inputs.split import split
from agents.inputs.values import Source

_PLACE_BYTES: Final = 256 << 10
_LINE_BYTES_MAX: Final = 1 << 20


def sample_lines(paths: Sequence[str], lines_max: int = 1000) -> list[str]:
    """At most ``lines_max`` valid, non-empty lines of each path, in order.

    Raises ``InputError`` for a path that cannot be read.
    """
    found: list[str] = []
    for path in paths:
        check_path(path)
        if not Path(path).is_file():
            continue
        places = [_lines(place) for place in (_gzip_places(path) if is_gzip(path) else _places(path))]
        found += _spread(places[0] if len(places) == 1 else [*places[0], *places[1], *places[2]], lines_max)
    return found


def is_blank(path: str) -> bool:
    """Whether there is nothing where samples are taken from, but perhaps blank lines."""
    return not any(place.strip() for place in (_gzip_places(path) if is_gzip(path) else _places(path)))


def _spread(lines: list[str], lines_max: int) -> list[str]:
    """The first, the middle and the last lines of too many."""
    spare = len(lines) - lines_max
    if spare <= 0:
        return lines
    third = lines_max // 3
    middle = (len(lines) - third) // 2
    return lines[:third] + lines[middle : middle + third] + lines[len(lines) - (lines_max - 2 * third) :]


def _places(path: str) -> list[bytes]:
    """Whole lines from the beginning, the middle and the end; all of a small file."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        if size <= 3 * _PLACE_BYTES:
            return [file.read(size)]
        places = [_cut_end(file.read(_PLACE_BYTES))]
        for at in ((size - _PLACE_BYTES) // 2, size - _PLACE_BYTES):
            file.seek(at)
            # What stands before the first newline is the rest of another line.
            _, _, rest = file.read(_PLACE_BYTES).partition(b"\n")
            places.append(rest if at == size - _PLACE_BYTES else _cut_end(rest))
        return places


def _gzip_places(path: str) -> list[bytes]:
    """The beginning only: gzip cannot be entered elsewhere. Damage ends it early."""
    with gzip.open(path, "rb") as file:
        data, whole = b"", 3 * _PLACE_BYTES
        with contextlib.suppress(OSError, EOFError, zlib.error):
            while len(data) < whole and (piece := file.read1(whole - len(data))):
                data += piece
            return [_cut_end(data) if len(data) == whole else data]
        return [_cut_end(data)]


def _cut_end(data: bytes) -> bytes:
    """Without an unfinished last line (unless it is all there is)."""
    return data[: data.rfind(b"\n") + 1]


def _lines(data: bytes) -> list[str]:
    found = split(Source("", ""), data, 0, _LINE_BYTES_MAX).lines.to_pylist()
    return [line for line in found if line.strip()]
