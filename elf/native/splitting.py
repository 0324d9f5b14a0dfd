"""Bytes to lines."""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LINE_BYTES: Final = 24
"""Lines of a log are longer than that, on average: there is room for so many at first."""
_UNSOUND: Final = -1


def split(
    data: npt.NDArray[np.uint8], first: int, longest: int, library: ctypes.CDLL
) -> tuple[pa.StringArray, npt.NDArray[np.int64]] | None:
    """(the lines of valid UTF-8, as strings of their own without their ends; where each begins). The first
    one begins at ``first``. None where a line has more than ``longest`` bytes, or a NUL is in the data, or
    there is more of it than Arrow's strings can hold."""
    size, out = len(data), np.empty(len(data), dtype=np.uint8)
    for rows in (size // _LINE_BYTES + 1, size + 1):
        starts, offsets = np.empty(rows, dtype=np.int64), np.empty(rows + 1, dtype=np.int32)
        places = data.ctypes.data, size, first, longest, rows
        found = library.elf_split(*places, starts.ctypes.data, offsets.ctypes.data, out.ctypes.data)
        if found >= 0:
            kept = pa.py_buffer(offsets[: found + 1].copy())
            return pa.StringArray.from_buffers(found, kept, pa.py_buffer(out)), starts[:found].copy()
        if found != _UNSOUND:
            break
    return None
