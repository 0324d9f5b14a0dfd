"""Arrow tables as bytes and back: what snapshots, cuts and frames carry.

Encoding is an Arrow IPC stream with compressed buffers. Decoding trusts nobody: any bytes at all give a valid
table or a ``PeerError``, never another exception and never a table whose buffers lie about their lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from elf.errors import PeerError

NO_CAST: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""What Arrow raises where a cast cannot be: for a value that does not fit, and ("not implemented") where no
rule makes the one type of the other. All else that it raises, that memory ran out, is no matter of types."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_SMALL = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""How every stream ends."""
_MESSAGE = b"\xff\xff\xff\xff"
"""How every message of a stream begins; the length of its head follows, in four bytes."""
_TINY_BYTES = 1 << 10
"""Not worth compressing: each buffer would come out longer than it went in."""


def encode(table: pa.Table, *, small: bool = False) -> bytes:
    """The table as an Arrow IPC stream, its buffers lz4-compressed but in tiny ones; ``small``: by zstd,
    which takes longer."""
    if table.get_total_buffer_size() < _TINY_BYTES and all(map(_is_flat, table.schema.types)):
        batches = (batch.serialize().to_pybytes() for batch in table.to_batches())  # half of a writer's time
        return b"".join((table.schema.serialize().to_pybytes(), *batches, _END))
    options = _PLAIN if table.nbytes < _TINY_BYTES else _SMALL if small else _OPTIONS
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _is_flat(kind: pa.DataType) -> bool:
    """Whether values of a type are in its column alone: no dictionary goes before them."""
    return bool(kind.num_fields == 0 and not pa.types.is_dictionary(kind))


def decode(data: bytes) -> pa.Table:
    """The table that ``encode`` made these bytes of; raises ``PeerError`` on anything else."""
    if not data.endswith(_END):  # Arrow takes what stops between two messages for a shorter stream
        raise PeerError("not a whole Arrow table: its end is missing")
    try:
        source = pa.BufferReader(data)
        with pa.ipc.open_stream(source, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader:
            table = reader.read_all()
        rest = source.size() - source.tell()
        table.validate(full=True)
        # Names are decoded lazily: a name that is no UTF-8 would raise in whoever asks for it first.
        repr((table.schema.names, table.schema.metadata))
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError, OverflowError) as error:
        raise PeerError(f"not an Arrow table: {error}") from error
    if rest:
        raise PeerError(f"{rest} bytes after the end of an Arrow table")
    return table


def decode_all(encoded: Iterable[bytes]) -> list[pa.Table]:
    """As ``decode`` of each, but those of one schema are one table: what differs in their streams comes after
    it, so they are read as one. Of small tables that takes as long as one of them does."""
    alike: dict[bytes, list[bytes]] = {}
    for data in encoded:
        if not data.endswith(_END):
            raise PeerError("not a whole Arrow table: its end is missing")
        head = _head_bytes(data)
        alike.setdefault(data[:head], []).append(data)
    return [decode(_one_stream(schema, streams)) for schema, streams in alike.items()]


def _one_stream(schema: bytes, streams: Sequence[bytes]) -> bytes:
    if len(streams) == 1:
        return streams[0]
    return b"".join((schema, *(data[len(schema) : -len(_END)] for data in streams), _END))


def _head_bytes(data: bytes) -> int:
    """Where the schema of a stream ends, which is its first message."""
    end = len(_MESSAGE) + 4
    end += int.from_bytes(data[len(_MESSAGE) : end], "little")
    return end if data.startswith(_MESSAGE) and end <= len(data) - len(_END) else len(data) - len(_END)


def empty(schema: pa.Schema) -> pa.Table:
    """A table of that schema without rows."""
    return schema.empty_table()
