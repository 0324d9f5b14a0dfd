"""A whole tree as bytes and back, for recovery after a crash: all buffers as they are, nothing is merged.

Reading trusts nobody: any bytes give a tree of the asked keys and states, or a ``PeerError``. What only a
look at all rows can tell (order, ranges, hashes) is checked by the tree afterwards.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa

from elf.batch import decode, encode
from elf.cbt.node import Inner, Leaf, Node
from elf.cbt.run import HASH, Layout, weight
from elf.errors import PeerError

_FORMAT = "elf-cbt-1"


class _NodeImage(msgspec.Struct, array_like=True):
    low: int
    settled: int
    runs: list[bytes]
    children: list[_NodeImage]


class _TreeImage(msgspec.Struct, array_like=True):
    format: str
    keys: list[str]
    states: list[tuple[str, str, bool]]
    pending: list[bytes]
    top: _NodeImage | None


def write(layout: Layout, pending: list[pa.Table], top: Node | None) -> bytes:
    """The tree as bytes."""
    return msgspec.msgpack.encode(
        _TreeImage(
            _FORMAT,
            list(layout.keys),
            _states(layout),
            [encode(t) for t in pending],
            _draw(top) if top else None,
        )
    )


def _states(layout: Layout) -> list[tuple[str, str, bool]]:
    return [(state.name, state.merge, state.identity_zero) for state in layout.states]


def _draw(node: Node) -> _NodeImage:
    if isinstance(node, Leaf):
        return _NodeImage(node.low, node.settled, node.buffer.runs, [])
    return _NodeImage(node.low, 0, node.buffer.runs, [_draw(child) for child in node.children])


def read(layout: Layout, data: bytes) -> tuple[list[pa.Table], Node | None]:
    """The root's buffer and the top node. The layout takes the types of the rows."""
    try:
        image = msgspec.msgpack.decode(data, type=_TreeImage)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise PeerError(f"not a tree: {error}") from error
    if image.format != _FORMAT or image.keys != list(layout.keys) or image.states != _states(layout):
        raise PeerError("the image of another kind of tree")
    try:
        top = _build(layout, image.top) if image.top else None
        return [_rows(layout, run, with_hash=False) for run in image.pending], top
    except (ValueError, RecursionError) as error:
        raise PeerError(f"not a tree: {error}") from error


def _build(layout: Layout, image: _NodeImage) -> Node:
    node: Node
    if image.children:
        node = Inner(image.low, [_build(layout, child) for child in image.children])
    else:
        node = Leaf(image.low, settled=image.settled)
    for data in image.runs:
        run = _rows(layout, data, with_hash=True)
        node.buffer.runs.append(data)
        node.buffer.rows += run.num_rows
        node.buffer.weight += weight(run)
    return node


def _rows(layout: Layout, data: bytes, *, with_hash: bool) -> pa.Table:
    table = decode(data).combine_chunks()
    expected = [HASH, *layout.schema.names] if with_hash else layout.schema.names
    if table.column_names != expected:
        raise ValueError(f"a buffer has the columns {table.column_names}")
    if not with_hash:
        return layout.fit(table)
    if table.schema.types[0] != pa.uint64() or table[HASH].null_count:
        raise ValueError("a run without hashes")
    layout.fit(table.select(layout.schema.names))
    return table
