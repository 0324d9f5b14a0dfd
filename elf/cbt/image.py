"""A whole tree as bytes and back, for recovery after a crash: all buffers as they are, nothing is merged.

Reading trusts no input: any bytes give a tree of the requested keys and states, or a ``PeerError``. The tree
itself checks afterwards what depends on all rows (order, ranges, hashes).
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from elf.batch import decode, encode
from elf.cbt.node import Inner, Leaf, Node, Sinking
from elf.cbt.pack import pack, unpack
from elf.cbt.run import Layout, weight
from elf.cbt.spill import Piece
from elf.errors import PeerError

_FORMAT = "elf-cbt-2"


class _NodeImage(msgspec.Struct, array_like=True):
    low: int
    solid: int
    runs: list[bytes]
    children: list[_NodeImage]


class _TreeImage(msgspec.Struct, array_like=True):
    """``types``: of the columns of all runs, as an empty encoded table."""

    format: str
    keys: list[str]
    states: list[tuple[str, str, bool]]
    types: bytes
    pending: list[bytes]
    top: _NodeImage | None


def write(layout: Layout, sinking: Sinking, pending: list[pa.Table], top: Node | None) -> bytes:
    """The tree as bytes. Raises ``SpillError``."""
    image = _TreeImage(
        _FORMAT,
        list(layout.keys),
        _states(layout),
        encode(layout.schema.empty_table()),
        [encode(t) for t in pending],
        _draw(layout, sinking, top) if top else None,
    )
    return msgspec.msgpack.encode(image)


def _states(layout: Layout) -> list[tuple[str, str, bool]]:
    return [(state.name, state.merge, state.identity_zero) for state in layout.states]


def _draw(layout: Layout, sinking: Sinking, node: Node) -> _NodeImage:
    runs = [_in_types(layout, piece, sinking.shelf.open(piece)) for piece in node.buffer.pieces]
    if isinstance(node, Leaf):
        return _NodeImage(node.low, node.solid, runs, [])
    return _NodeImage(node.low, 0, runs, [_draw(layout, sinking, child) for child in node.children])


def _in_types(layout: Layout, piece: Piece, data: memoryview) -> bytes:
    """A packed run in today's types."""
    if piece.schema == layout.schema:
        return bytes(data)
    return pack(layout.current(unpack(data, piece.schema)))


def read(layout: Layout, sinking: Sinking, data: bytes) -> tuple[list[pa.Table], Node | None]:
    """The root's buffer and the top node, whose runs are on the shelf of ``sinking``. The layout takes the
    types of the rows."""
    try:
        image = msgspec.msgpack.decode(data, type=_TreeImage)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise PeerError(f"not a tree: {error}") from error
    if image.format != _FORMAT or image.keys != list(layout.keys) or image.states != _states(layout):
        raise PeerError("the image of another kind of tree")
    try:
        _fit(layout, decode(image.types))
        top = _build(layout, sinking, image.top) if image.top else None
        return [_fit(layout, decode(table)) for table in image.pending], top
    except (ValueError, RecursionError) as error:
        raise PeerError(f"not a tree: {error}") from error


def _build(layout: Layout, sinking: Sinking, image: _NodeImage) -> Node:
    node: Node
    if image.children:
        node = Inner(image.low, [_build(layout, sinking, child) for child in image.children], owing=True)
    else:
        node = Leaf(image.low, solid=image.solid)
    for data in image.runs:
        run = unpack(data, layout.schema)
        run.validate(full=True)
        node.buffer.pieces.append(sinking.shelf.keep(data, run.num_rows, layout.schema))
        node.buffer.rows += run.num_rows
        node.buffer.weight += weight(run)
    return node


def _fit(layout: Layout, table: pa.Table) -> pa.Table:
    if table.column_names != layout.schema.names:
        raise ValueError(f"a buffer has the columns {table.column_names}")
    return layout.fit(table.combine_chunks())
