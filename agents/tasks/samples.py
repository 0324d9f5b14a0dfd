"""Sample lines of finite inputs, to infer columns from before anything is read for good.

From all over each file, since columns come and go in a long log, and a column may be whole numbers for long
before it shows a fraction. Bounded: a few MiB a file, whatever its size. What cannot be read again (a pipe)
gives no samples.
"""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from agents.inputs.ranges import check_path, is_gzip
from agents.inputs.split import BYTE_ORDER_MARK, split
from agents.inputs.values import Source
from elf.errors import InputError

LINES_MAX: Final = 30_000
"""Lines of all files together; looking at one takes some 10 µs."""
FILE_LINES_MIN: Final = 100
_PLACES: Final = 32
_PLACE_BYTES: Final = 128 << 10
_LINE_BYTES_MAX: Final = 1 << 20


def sample_lines(paths: Sequence[str], lines_max: int = LINES_MAX) -> list[str]:
    """At most ``lines_max`` valid, non-empty lines of all paths together (or some of each, of very many), in
    order.

    Raises ``InputError`` for a path that cannot be read.
    """
    found: list[str] = []
    for path in paths:
        check_path(path)
        if Path(path).is_file():
            lines = [line for place in _all_places(path) for line in _lines(place)]
            found += spread(lines, max(lines_max // len(paths), FILE_LINES_MIN))
    return found


def sample_head(data: bytes) -> list[str]:
    """Of the beginning of what can be read only once. Raises ``InputError`` where no line of it is text."""
    lines = _lines(data)
    if not lines and data.strip():
        raise InputError("cannot read the input: no line at its beginning is text (UTF-8)")
    return spread(lines, LINES_MAX)


def is_blank(path: str) -> bool:
    """Whether there is nothing where samples are taken from, but perhaps blank lines."""
    return not any(place.removeprefix(BYTE_ORDER_MARK).strip() for place in _all_places(path))


def spread(lines: Sequence[str], lines_max: int) -> list[str]:
    """Of too many lines so many, from the first to the last."""
    if len(lines) <= lines_max:
        return list(lines)
    return [lines[number * (len(lines) - 1) // (lines_max - 1)] for number in range(lines_max)]


def _all_places(path: str) -> list[bytes]:
    return _gzip_places(path) if is_gzip(path) else _places(path)


def _places(path: str) -> list[bytes]:
    """Whole lines from the beginning to the end; all of a small file."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        if size <= _PLACES * _PLACE_BYTES:
            return [file.read(size)]
        places = [_cut_end(file.read(_PLACE_BYTES))]
        for number in range(1, _PLACES):
            at = number * (size - _PLACE_BYTES) // (_PLACES - 1)
            file.seek(at)
            # What stands before the first newline is the rest of another line.
            _, _, rest = file.read(_PLACE_BYTES).partition(b"\n")
            places.append(rest if number == _PLACES - 1 else _cut_end(rest))
        return places


def _gzip_places(path: str) -> list[bytes]:
    """The beginning only: gzip cannot be entered elsewhere. Damage ends it early."""
    with gzip.open(path, "rb") as file:
        data, whole = bytearray(), _PLACES * _PLACE_BYTES
        with contextlib.suppress(OSError, EOFError, zlib.error):
            while len(data) < whole and (piece := file.read1(whole - len(data))):
                data += piece
            return [_cut_end(bytes(data)) if len(data) == whole else bytes(data)]
        return [_cut_end(bytes(data))]


def _cut_end(data: bytes) -> bytes:
    """Without an unfinished last line (unless it is all there is)."""
    return data[: data.rfind(b"\n") + 1]


def _lines(data: bytes) -> list[str]:
    found = split(Source("", ""), data, 0, _LINE_BYTES_MAX).lines.to_pylist()
    return [line for line in found if line.strip()]
