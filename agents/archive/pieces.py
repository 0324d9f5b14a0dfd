"""Archived rows as Parquet, a *piece* at a time.

A piece is a Parquet file as pyarrow writes it, but for the places in it, which are all ``base`` bytes further
on: as they are when so many bytes stand in front of it. A file of the archive is its pieces, one behind the
other, and a footer with the row groups of all of them. The pieces' own footers stay between the row groups,
where no reader looks. So rows are compressed once, when they come, and are not read again to be shipped.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

ROW_GROUP_ROWS_MAX: Final = 131_072
"""Small enough that the statistics of ``ts`` let a reader skip most of an hour, large enough to compress."""
LEVEL: Final = 1
SORTED: Final = "by_"
"""Before the name of the column that rows are sorted by: its values have a column of their own."""
_GROWING: Final = ("ts", "position", "record")
"""Columns of which each value is near the one before it."""
_NOTHING: Final = pa.py_buffer(np.zeros(64 << 20, dtype=np.uint8))
"""No page of it is ever touched."""


class _Written:
    """Takes what a writer writes: ``parts``. A writer knows places by counting what goes through ``file``; so
    what is passed over goes through it too, and is not kept."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._left_out = 0
        self.file = pa.PythonFile(self, mode="w")

    def write(self, data: bytes | pa.Buffer) -> int:
        if self._left_out:
            self._left_out -= len(data)
        else:
            self.parts.append(bytes(data))
        return len(data)

    def pass_over(self, count: int) -> None:
        """So many bytes."""
        self._left_out = count
        while self._left_out:
            self.file.write(_NOTHING.slice(0, min(self._left_out, len(_NOTHING))))

    def flush(self) -> None:
        """It is kept already."""


def piece_of(table: pa.Table, base: int = 0, level: int = LEVEL) -> bytes:
    """The rows as a piece that has ``base`` bytes in front of it. ``ts`` and the column that rows are sorted
    by get statistics, by which readers skip row groups."""
    import pyarrow.parquet as pq

    written = _Written()
    with pq.ParquetWriter(
        written.file,
        table.schema,
        compression="zstd",
        compression_level=level,
        write_page_checksum=True,
        use_dictionary=["source", "log"],  # lines and times hardly repeat: to look for repeats costs a fifth
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _GROWING if name in table.schema.names},
        write_statistics=[name for name in table.schema.names if _is_skipped_by(name)],
    ) as writer:
        written.pass_over(base)
        writer.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX)
    return b"".join(written.parts)


def file_of(pieces: Sequence[pa.Buffer]) -> list[pa.Buffer]:
    """The file that these pieces, at least one, make: what it is from its first byte to its last. Raises
    ``pa.ArrowInvalid`` for pieces that are damaged."""
    import pyarrow.parquet as pq

    whole, *others = (pq.read_metadata(pa.BufferReader(piece)) for piece in pieces)
    if not others:
        return list(pieces)
    for other in others:
        whole.append_row_groups(other)
    footer = io.BytesIO()
    whole.write_metadata_file(footer)
    return [*pieces, pa.py_buffer(footer.getvalue())]


def _is_skipped_by(name: str) -> bool:
    """Whether readers pass over row groups by a column."""
    return name in ("ts", "record") or name.startswith(SORTED)
