"""Arrow tables as bytes and back: what snapshots, cuts and frames carry.

Encoding is an Arrow IPC stream with compressed buffers. Decoding trusts nobody: any bytes at all give a valid
table or a ``PeerError``, never another exception and never a table whose buffers lie about their lengths.
"""

from __future__ import annotations

import pyarrow as pa

from elf.errors import PeerError

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_SMALL = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
_PLAIN = pa.ipc.IpcWriteOptions(use_threads=False)
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""How every stream ends."""
_TINY_BYTES = 1 << 10
"""Not worth compressing: each buffer would come out longer than it went in."""


def encode(table: pa.Table, *, small: bool = False) -> bytes:
    """The table as an Arrow IPC stream, its buffers lz4-compressed but in tiny ones; ``small``: by zstd,
    which takes longer."""
    options = _PLAIN if table.nbytes < _TINY_BYTES else _SMALL if small else _OPTIONS
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


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


def empty(schema: pa.Schema) -> pa.Table:
    """A table of that schema without rows."""
    return schema.empty_table()
