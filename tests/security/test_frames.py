"""Bombs: few bytes that claim to be many, wherever a stranger's bytes are opened. None costs memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import msgspec
import pyarrow as pa
import pytest

from agents import codec
from agents.committing import opening
from elf.batch import BYTES_FREE, decode, decode_all, encode
from elf.errors import PeerError, UserError
from elf.functions import wire
from elf.ipcsize import MARK, NotArrow, decoded_bytes
from elf.job.contributions import Piece, numbers
from elf.job.program.values import unpack_value
from elf.ql.tables import TABLE_BYTES_MAX, table_of
from elf.wire.frames import FrameRefused
from lab.bench.fuzz.frames import sealed
from lab.chaos.engine import plan
from tests.support.long import cases

FREE = 4 << 20
"""Arrow may take so much to find out."""


@contextmanager
def without_memory(bytes_max: int = FREE) -> Iterator[None]:
    """Arrow takes no more than that meanwhile."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() is None or pool.max_memory() <= bytes_max, pool.max_memory()


def packed(table: pa.Table, codec_name: str = "zstd") -> bytes:
    """As an enemy packs it: as small as it gets."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec_name)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def zeros(mib: int) -> pa.Table:
    return pa.table({"n": pa.array(memoryview(bytes(mib << 20)).cast("q"), pa.int64())})


GOOD = {"_pane": [1], "k0": ["a"], "s0": [3]}
TYPES = pa.schema([("_pane", pa.int64()), ("k0", pa.string()), ("s0", pa.int64())])
ZEROS = packed(zeros(64))
"""64 MiB."""


def lying() -> bytes:
    """A small table one of whose buffers says that it is a tebibyte."""
    honest = packed(pa.table({"n": list(range(5_000))}))
    body = honest.rindex(MARK, 0, -8)
    head = int.from_bytes(honest[body + 4 : body + 8], "little")
    at = body + 8 + head
    assert int.from_bytes(honest[at : at + 8], "little") == 40_000
    return honest[:at] + (1 << 40).to_bytes(8, "little") + honest[at + 8 :]


def one_text_in_many_rows() -> bytes:
    codes = pa.array(memoryview(bytes(1 << 16)).cast("b"), pa.int8())
    return packed(pa.table({"k": pa.DictionaryArray.from_arrays(codes, ["x" * (1 << 16)])}))


def inside_of_a_list() -> bytes:
    codes = pa.array(memoryview(bytes(1 << 16)).cast("b"), pa.int8())
    texts = pa.DictionaryArray.from_arrays(codes, ["x" * (1 << 16)])
    return packed(pa.table({"k": pa.ListArray.from_arrays([0, 1 << 16], texts)}))


BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros": lambda: ZEROS,
    "a length that lies": lying,
    "rows without buffers": lambda: packed(pa.table({"n": pa.nulls(1 << 26)})),
    "one text in many rows": one_text_in_many_rows,
    "the same inside of a list": inside_of_a_list,
    "runs": lambda: packed(pa.table({"n": pa.RunEndEncodedArray.from_arrays([1 << 30], [7])})),
    "views": lambda: packed(pa.table({"n": pa.array(["x" * 100] * 9, pa.string_view())})),
    "unions": lambda: packed(
        pa.table({"n": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])})
    ),
    "many columns": lambda: packed(pa.table([pa.array([1])] * 5_000, names=[f"c{n}" for n in range(5_000)])),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_table_that_comes_to_more_than_its_bytes_can(name: str) -> None:
    bomb = BOMBS[name]()
    assert len(bomb) < 1 << 21
    with without_memory(), pytest.raises(PeerError):
        decode(bomb)
    with without_memory(), pytest.raises(PeerError):
        decode_all([encode(pa.table({"n": [1]})), bomb])


def test_bombs_together() -> None:
    """Each of them would be let through."""
    some = [packed(zeros(12)), *(packed(zeros(12).rename_columns([f"n{n}"])) for n in range(9))]
    decode(some[0])
    with pytest.raises(PeerError, match="at most"):
        decode_all(some)


def test_what_the_caller_names_is_the_limit() -> None:
    table = zeros(1)
    assert decode(packed(table), 2 << 20).equals(table)
    assert decode(packed(zeros(64)), 80 << 20).num_rows == 8 << 20
    with pytest.raises(PeerError, match="1000000 are taken at most"):
        decode(packed(table), 1_000_000)
    assert decode(packed(zeros((BYTES_FREE >> 20) - 2), "lz4")).num_rows, "as much is free"


@pytest.mark.parametrize("seed", range(cases(3, 30)))
def test_heads_that_lie_anywhere(seed: int) -> None:
    """Whatever stands in a head: the size that is found is one that Arrow does not exceed, or none."""
    rng = Random(seed)
    table = pa.table(
        {"t": ["x" * 9, None] * 200, "n": range(400), "l": [[1, 2], []] * 200, "b": [True] * 400}
    )
    whole = packed(table)
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        try:
            size = decoded_bytes(bytes(data))
        except NotArrow:
            size = 0
        with without_memory(size + FREE):
            try:
                decode(bytes(data))
            except PeerError:
                continue


def test_no_piece_of_a_peer_is_opened_that_is_a_bomb() -> None:
    """At an inner node and at a root: the others are merged, and its member is named."""
    fragment = plan().fragment
    bombs = [bomb() for bomb in BOMBS.values()]
    pieces = [
        Piece(1, 2, 1, b"", encode(pa.table(GOOD))),
        *(Piece(1, 2, 2 << n, b"", bomb) for n, bomb in enumerate(bombs)),
    ]
    with without_memory(), pytest.raises(opening.PiecesUnusable) as caught:
        opening.merge(fragment, pieces)
    assert [piece for piece, _ in caught.value.pieces] == pieces[1:]


@pytest.mark.parametrize(
    "columns",
    [
        {"_pane": [1], "k0": [{"a": 1}], "s0": [3]},
        {"_pane": [1], "k0": [[1]], "s0": [3]},
        {"_pane": [1], "k0": ["a"], "s0": ["no number"]},
        {"_pane": [1], "k0": ["a"], "s0": [[3]]},
    ],
)
def test_columns_that_cannot_be_merged(columns: dict[str, list[object]]) -> None:
    """At an inner node, which does not look at types in which all agree: theirs alone are left out."""
    bad, worse, good = (
        Piece(1, 2, 1 << n, b"", encode(pa.table(one))) for n, one in enumerate((columns, columns, GOOD))
    )
    for pieces in ([bad, worse], [bad, good], [good, bad]):
        with pytest.raises(opening.PiecesUnusable) as caught:
            opening.merge(plan().fragment, pieces, types=lambda _: TYPES, last=False)
        assert [piece for piece, _ in caught.value.pieces] == [one for one in pieces if one is not good]


def test_a_clients_table_and_a_functions_result() -> None:
    huge = packed(zeros(2 * TABLE_BYTES_MAX >> 20))
    with without_memory(), pytest.raises(UserError, match="no table"):
        table_of("teams.csv", huge)
    with without_memory(), pytest.raises(wire.Broken):
        wire.from_bytes(ZEROS, 32 << 20)
    message = msgspec.msgpack.encode([msgspec.msgpack.Ext(1, ZEROS)])
    with without_memory(), pytest.raises(PeerError):
        unpack_value(message)


@pytest.mark.parametrize(
    "body",
    [
        b"\x91" * 100_000 + b"\xc0",
        b"\xdd\xff\xff\xff\xff",
        b"\x93\x01\x01\xdd\x7f\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x92\xc6\xff\xff\xff\xff",
        b"\x92\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
    ],
)
@pytest.mark.parametrize(
    "tag", ["job.Progress", "job.Answer", "overlay.LeafProbe", "group.AppendRequests", "job.AddJob"]
)
def test_containers_that_announce_gigabytes(tag: str, body: bytes) -> None:
    with pytest.raises(FrameRefused):
        codec.decode(sealed(tag, body, "c", "s"), cluster="c", max_bytes=1 << 20)


def test_a_member_of_a_high_number_makes_no_large_bitmap() -> None:
    for number in (1 << 20, 1 << 60, -1):
        body = msgspec.msgpack.encode([number, 1, [], 0])
        with pytest.raises(FrameRefused, match="fields"):
            codec.decode(sealed("job.Progress", body, "c", "s"), cluster="c", max_bytes=1 << 20)
    every = (1 << (1 << 20)) - 1
    assert len(numbers(every)) == 1 << 20, "and all of them are taken apart at once"
