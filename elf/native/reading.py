"""Readers of lines: what is to be read of them, told once; then buffers for a batch of lines, and a call."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.errors import ElfBug
from elf.native import binding
from elf.schema import ColumnType

Mask = npt.NDArray[np.bool_]
Path = tuple[str, ...]

NODES_MAX: Final = 64
"""As in ``native.h``."""
_TYPES: Final[dict[ColumnType, int]] = {"bigint": 0, "double": 1, "text": 2, "boolean": 3, "timestamp": 4}
_ARROW: Final[dict[ColumnType, pa.DataType]] = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
}
_NODE: Final = np.dtype([("child", "i4"), ("sibling", "i4"), ("key", "i4"), ("size", "i4")])
"""``struct elf_node``."""
ACCESS_FIELDS: Final = (
    "ts", "c_ip", "cs_username", "cs_method", "cs_uri_stem", "cs_uri_query", "cs_version", "sc_status",
    "sc_bytes", "cs_referer", "cs_user_agent", "cs_request", "_extra", "_date", "",
)  # fmt: skip
"""As ``enum field`` in ``access.c`` has them; the last one is never there."""


@dataclass(frozen=True)
class Field:
    """A column to be read. ``counted``: values that do not fit are counted."""

    type: ColumnType
    counted: bool = True


@dataclass(frozen=True, eq=False)
class Read:
    """What came of some lines: which of them are ``decided``; of these the ``columns`` (those of other lines
    mean nothing), how many of their values did not fit their types, and how many have more fields than the
    format."""

    decided: Mask
    columns: list[pa.Array]
    uncast: int
    beyond: int


class Reader(ABC):
    """Reads lines of one format. May be used by several threads at once."""

    def __init__(self, fields: Sequence[Field], library: ctypes.CDLL, level: int | None = None) -> None:
        self._fields = fields
        self._library = library
        self.level = library.elf_level() if level is None else level

    def read(self, lines: pa.StringArray) -> Read:
        """Never fails on a line (valid UTF-8 without NUL)."""
        batch = _Batch(lines, self._library, self.level)
        made = [_Made(field, batch.rows) for field in self._fields]
        columns = (binding.Column * len(made))(*(one.column() for one in made))
        for place, column in enumerate(columns):
            column.first, column.ways = self._place(place)
        verdicts = np.empty(batch.rows, dtype=np.bool_)
        uncast, beyond = self._call(batch, columns, verdicts)
        if uncast < 0:
            raise ElfBug("the native reader was given a plan, or lines, that are unsound")
        arrays = [one.array(batch, column) for one, column in zip(made, columns, strict=True)]
        return Read(verdicts, arrays, uncast, beyond)

    @abstractmethod
    def _place(self, number: int) -> tuple[int, int]:
        """``first`` and ``ways`` of a column."""

    @abstractmethod
    def _call(self, batch: _Batch, columns: ctypes.Array[binding.Column], verdicts: Mask) -> tuple[int, int]:
        """(values that do not fit, lines with more fields)."""


class JsonReader(Reader):
    """Of JSON lines. ``ways``: of each field the paths where it is looked for; the first one that is there
    and not null counts. Of two equal keys in an object the first counts."""

    def __init__(
        self,
        fields: Sequence[Field],
        ways: Sequence[Sequence[Path]],
        library: ctypes.CDLL,
        level: int | None = None,
    ) -> None:
        super().__init__(fields, library, level)
        tree = _Tree(path for every in ways for path in every)
        self._nodes, self._keys = tree.nodes(), np.frombuffer(tree.keys or b"\0", dtype=np.uint8)
        numbers = [[tree.number(path) for path in every] for every in ways]
        self._ways = np.array([number for every in numbers for number in every], dtype=np.int32)
        ends = np.cumsum([0, *map(len, numbers)])
        self._places = [
            (int(end) - len(every), len(every)) for end, every in zip(ends[1:], numbers, strict=True)
        ]
        self._plan = binding.Plan(
            self._nodes.ctypes.data,
            len(self._nodes),
            len(self._ways),
            self._ways.ctypes.data,
            self._keys.ctypes.data,
            len(tree.keys),
        )

    @staticmethod
    def takes(ways: Sequence[Sequence[Path]]) -> bool:
        """Whether so many keys can be looked for."""
        return (
            len({path[:size] for every in ways for path in every for size in range(len(path) + 1)})
            <= NODES_MAX
        )

    def _place(self, number: int) -> tuple[int, int]:
        return self._places[number]

    def _call(self, batch: _Batch, columns: ctypes.Array[binding.Column], verdicts: Mask) -> tuple[int, int]:
        found = self._library.elf_json(batch.lines, self._plan, columns, len(columns), verdicts.ctypes.data)
        return int(found), 0


class AccessReader(Reader):
    """Of access logs. ``names``: of each field its name in ``ACCESS_FIELDS``; others are never there."""

    def __init__(
        self,
        fields: Sequence[Field],
        names: Sequence[str],
        library: ctypes.CDLL,
        level: int | None = None,
        *,
        combined: bool,
    ) -> None:
        super().__init__(fields, library, level)
        absent = len(ACCESS_FIELDS) - 1
        self._places = [ACCESS_FIELDS.index(name) if name in ACCESS_FIELDS else absent for name in names]
        self._combined = combined

    def _place(self, number: int) -> tuple[int, int]:
        return self._places[number], 0

    def _call(self, batch: _Batch, columns: ctypes.Array[binding.Column], verdicts: Mask) -> tuple[int, int]:
        beyond = ctypes.c_int64(0)
        found = self._library.elf_access(
            batch.lines, self._combined, columns, len(columns), verdicts.ctypes.data, ctypes.byref(beyond)
        )
        return int(found), beyond.value


class _Tree:
    """The keys of some paths as ``struct elf_node``: each node behind its parent, siblings in order."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._numbers: dict[Path, int] = {(): 0}
        self.keys = b""
        for path in paths:
            for size in range(1, len(path) + 1):
                self._numbers.setdefault(path[:size], len(self._numbers))

    def number(self, path: Path) -> int:
        return self._numbers[path]

    def nodes(self) -> npt.NDArray[np.void]:
        nodes = np.zeros(len(self._numbers), dtype=_NODE)
        last: dict[Path, int] = {}
        for path, number in self._numbers.items():
            if not path:
                continue
            key, parent = path[-1].encode(), path[:-1]
            nodes[number]["key"], nodes[number]["size"] = len(self.keys), len(key)
            self.keys += key
            if parent in last:
                nodes[last[parent]]["sibling"] = number
            else:
                nodes[self._numbers[parent]]["child"] = number
            last[parent] = number
        return nodes


class _Batch:
    """Lines as ``struct elf_lines``, and the memory that it points to."""

    def __init__(self, lines: pa.StringArray, library: ctypes.CDLL, level: int) -> None:
        self.rows = len(lines)
        self._library = library
        offsets = np.zeros(1, dtype=np.int32)
        if self.rows:
            offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32)
            offsets = offsets[lines.offset : lines.offset + self.rows + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        data = np.zeros(0, dtype=np.uint8)
        if last > first:
            data = np.frombuffer(lines.buffers()[2], dtype=np.uint8)[first:last]
        self._kept = (
            data,
            offsets - np.int32(first) if first else offsets,
            np.empty(-(-len(data) // 64), np.uint64),
        )
        data, offsets, marks = self._kept
        library.elf_marks(data.ctypes.data, len(data), marks.ctypes.data, level)
        self.lines = binding.Lines(
            data.ctypes.data, len(data), offsets.ctypes.data, self.rows, marks.ctypes.data
        )

    def gathered(self, column: binding.Column) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
        """Offsets and bytes of a column of texts."""
        offsets, out = np.empty(self.rows + 1, dtype=np.int32), np.empty(column.bytes, dtype=np.uint8)
        if self._library.elf_gather(self.lines, column, offsets.ctypes.data, out.ctypes.data, len(out)) < 0:
            raise ElfBug("the native reader found texts outside of their lines")
        return offsets, out


class _Made:
    """A column that is being made: its memory."""

    def __init__(self, field: Field, rows: int) -> None:
        self._field = field
        self._rows = rows
        self._valid = _zeros(-(-rows // 8))
        self._values: pa.Buffer | None = None
        self._spans: pa.Buffer | None = None
        if field.type == "text":
            self._spans = pa.py_buffer(np.empty(2 * rows, dtype=np.int32))
        elif field.type == "boolean":
            self._values = _zeros(-(-rows // 8))
        else:
            self._values = _zeros(8 * rows)  # what is NULL must not show what was there before

    def column(self) -> binding.Column:
        """As C sees it, but for where it is read from."""
        starts = 0 if self._spans is None else self._spans.address
        return binding.Column(
            _TYPES[self._field.type],
            0,
            0,
            self._field.counted,
            0 if self._values is None else self._values.address,
            self._valid.address,
            starts,
            starts and starts + 4 * self._rows,
            0,
        )

    def array(self, batch: _Batch, column: binding.Column) -> pa.Array:
        """The column as Arrow has it."""
        if self._field.type == "text":
            offsets, out = batch.gathered(column)
            buffers = pa.py_buffer(offsets), pa.py_buffer(out), self._valid
            return pa.StringArray.from_buffers(self._rows, *buffers)
        return pa.Array.from_buffers(_ARROW[self._field.type], self._rows, [self._valid, self._values])


def _zeros(size: int) -> pa.Buffer:
    """Memory whose place is told quickly, unlike that of a numpy array."""
    return pa.py_buffer(np.zeros(size, dtype=np.uint8))
