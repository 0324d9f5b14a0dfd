"""Arrow tables as bytes and back: what snapshots, cuts and frames carry.

Encoding is an Arrow IPC stream with compressed buffers. Decoding trusts nobody: any bytes at all give a valid
table or a ``PeerError``, never another exception and never a table whose buffers lie about their lengths.

**What decoding may take** is known before anything is decoded (``elf.ipcsize``), and bounded: by what the
caller names, else by its length. lz4, which packs everything but joined tables, makes 255 bytes of one at
most; so a stream that claims more for its length is a lie. Types whose values are larger than their buffers
(run ends, views, unions) are refused, and a dictionary counts as what its values come to in all rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from elf.errors import PeerError
from elf.ipcsize import END, MARK, NotArrow, decoded_bytes

if TYPE_CHECKING:
    from elf.schema import ColumnType

ARROW_TYPES: Final[Mapping[ColumnType, pa.DataType]] = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
}
"""Of the types of ELF-QL."""

BYTES_MAX: Final = 512 << 20
"""The most that is taken for a caller who names nothing."""
BYTES_FREE: Final = 16 << 20
"""So much may come of a stream whatever its length."""
TIMES_MAX: Final = 256
"""What one byte of a stream may become."""
COLUMNS_MAX: Final = 4_096
"""Of a table, with what is nested in them."""
NO_CAST: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What Arrow raises where a cast cannot be: for a value that does not fit, and ("not implemented") where no
rule makes the one type of the other. All else that it raises, that memory ran out, is no matter of types."""
WRONG: Final = (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError)
"""What Arrow and numpy raise over a table that is whole, and not the one that was expected."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_SMALL = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)
_TINY_BYTES = 1 << 10
"""Not worth compressing: each buffer would come out longer than it went in."""


def encode(table: pa.Table, *, small: bool = False) -> bytes:
    """The table as an Arrow IPC stream, its buffers lz4-compressed but in tiny ones; ``small``: by zstd,
    which takes longer."""
    if table.get_total_buffer_size() < _TINY_BYTES and all(map(_is_flat, table.schema.types)):
        batches = (batch.serialize().to_pybytes() for batch in table.to_batches())  # half of a writer's time
        return b"".join((table.schema.serialize().to_pybytes(), *batches, END))
    options = _PLAIN if table.nbytes < _TINY_BYTES else _SMALL if small else _OPTIONS
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _is_flat(kind: pa.DataType) -> bool:
    """Whether values of a type are in its column alone: no dictionary goes before them."""
    return bool(kind.num_fields == 0 and not pa.types.is_dictionary(kind))


def _allowed(encoded_bytes: int) -> int:
    """What a stream of so many bytes may become where nothing else is said."""
    return min(BYTES_MAX, BYTES_FREE + TIMES_MAX * encoded_bytes)


def decode(data: bytes, bytes_max: int | None = None) -> pa.Table:
    """The table that ``encode`` made these bytes of; raises ``PeerError`` on anything else. ``bytes_max``:
    what it may take."""
    if not data.endswith(END):  # Arrow takes what stops between two messages for a shorter stream
        raise PeerError("not a whole Arrow table: its end is missing")
    limit = _allowed(len(data)) if bytes_max is None else bytes_max
    _check_size(data, limit)
    try:
        source = pa.BufferReader(data)
        with pa.ipc.open_stream(source, options=_READ) as reader:
            _check_types(reader.schema)
            table = reader.read_all()
        rest = source.size() - source.tell()
        table.validate(full=True)
        # Names are decoded lazily: a name that is no UTF-8 would raise in whoever asks for it first.
        repr((table.schema.names, table.schema.metadata))
        coded = _coded_bytes(table)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError, OverflowError) as error:
        raise PeerError(f"not an Arrow table: {error}") from error
    if rest:
        raise PeerError(f"{rest} bytes after the end of an Arrow table")
    if coded > limit:
        raise PeerError(f"an Arrow table whose dictionaries come to {coded} bytes; {limit} are taken at most")
    return table


def _check_size(data: bytes, bytes_max: int) -> None:
    """Raises ``PeerError`` unless a stream becomes at most so many bytes."""
    try:
        claimed = decoded_bytes(data)
    except NotArrow as error:
        raise PeerError(f"not an Arrow table: {error}") from None
    if claimed > bytes_max:
        raise PeerError(
            f"an Arrow table of {len(data)} bytes that comes to {claimed}; {bytes_max} are taken at most"
        )


def _check_types(schema: pa.Schema) -> None:
    """Raises ``PeerError`` where values could be larger than their buffers, and for too many columns."""
    kinds = list(schema.types)
    for kind in kinds:  # it grows
        if len(kinds) > COLUMNS_MAX:
            raise PeerError(f"an Arrow table of more than {COLUMNS_MAX} columns")
        dictionary = pa.types.is_dictionary(kind)
        if _unfolds(kind) or (dictionary and not _is_flat(kind.value_type)):
            raise PeerError(f"an Arrow table with a column of type {kind}")
        kinds += [kind.field(place).type for place in range(0 if dictionary else kind.num_fields)]


def _unfolds(kind: pa.DataType) -> bool:
    """Whether one stored value of a type may stand in many rows, without a dictionary that says so."""
    types = pa.types
    kinds = types.is_run_end_encoded, types.is_union, types.is_string_view, types.is_binary_view
    return any(is_one(kind) for is_one in (*kinds, types.is_list_view, types.is_large_list_view))


def _coded_bytes(table: pa.Table) -> int:
    """What the columns with dictionaries come to without them: as if each value were the longest."""
    found = 0
    arrays = [chunk for column in table.columns if not _is_flat(column.type) for chunk in column.chunks]
    for array in arrays:  # it grows
        if pa.types.is_dictionary(array.type):
            found += len(array) * _longest(array.dictionary)
        elif pa.types.is_struct(array.type):
            arrays += [array.field(place) for place in range(array.type.num_fields)]
        elif pa.types.is_map(array.type):
            arrays += [array.keys, array.items]
        elif array.type.num_fields:
            arrays.append(array.values)
    return found


def _longest(values: pa.Array) -> int:
    """The bytes of the longest of these."""
    if pa.types.is_fixed_size_binary(values.type):
        return int(values.type.byte_width)
    if any(kind(values.type) for kind in (pa.types.is_primitive, pa.types.is_decimal, pa.types.is_null)):
        return 32
    import pyarrow.compute as pc  # a client that opens no table of texts does without

    return int(pc.max(pc.binary_length(values)).as_py() or 0)


def decode_all(encoded: Iterable[bytes]) -> list[pa.Table]:
    """As ``decode`` of each, but those of one schema are one table: what differs in their streams comes after
    it, so they are read as one. Of small tables that takes as long as one of them does."""
    alike: dict[bytes, list[bytes]] = {}
    size = 0
    for data in encoded:
        if not data.endswith(END):
            raise PeerError("not a whole Arrow table: its end is missing")
        size += len(data)
        head = _head_bytes(data)
        alike.setdefault(data[:head], []).append(data)
    left = _allowed(size)
    found: list[pa.Table] = []
    for schema, streams in alike.items():
        found.append(decode(_one_stream(schema, streams), left))
        left -= found[-1].get_total_buffer_size()
    return found


def _one_stream(schema: bytes, streams: Sequence[bytes]) -> bytes:
    if len(streams) == 1:
        return streams[0]
    return b"".join((schema, *(data[len(schema) : -len(END)] for data in streams), END))


def _head_bytes(data: bytes) -> int:
    """Where the schema of a stream ends, which is its first message."""
    end = len(MARK) + 4
    end += int.from_bytes(data[len(MARK) : end], "little")
    return end if data.startswith(MARK) and end <= len(data) - len(END) else len(data) - len(END)


def empty(schema: pa.Schema) -> pa.Table:
    """A table of that schema without rows."""
    return schema.empty_table()
