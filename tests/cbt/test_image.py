"""What load makes of bytes that are not quite what dump wrote."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.aggregates import State
from elf.cbt import BufferTree
from elf.cbt.pack import pack, unpack
from elf.errors import ElfBug, PeerError
from elf.keys import hash_keys
from tests.support.long import cases

STATES = (State("n", "sum", identity_zero=True),)


def fresh() -> BufferTree:
    return BufferTree.of_partials(["k"], STATES, node_bytes_max=600, fanout=4)


def grown() -> BufferTree:
    tree = fresh()
    edges = [*range(0, 600, 60), 590, 600]
    for start, end in pairwise(edges):
        tree.insert_partials(pa.table({"k": list(range(start, end)), "n": [1] * (end - start)}))
    return tree


IMAGE = grown().dump()


def test_it_has_nodes_and_a_root_buffer() -> None:
    _, _, _, _, pending, top = msgspec.msgpack.decode(IMAGE)
    assert pending
    assert len(top[3]) > 1


def test_a_loaded_tree_goes_on() -> None:
    tree = fresh()
    tree.load(IMAGE)
    tree.insert_partials(pa.table({"k": [0, 1000], "n": [5, 7]}))
    tree.check()
    groups = dict(zip(*(c.to_pylist() for c in tree.partials().columns), strict=True))
    assert groups == dict.fromkeys(range(1, 600), 1) | {0: 6, 1000: 7}


def test_an_empty_tree_has_an_image() -> None:
    tree = grown()
    tree.load(fresh().dump())
    assert tree.rows == 0


@given(st.binary(max_size=60) | st.integers(0, len(IMAGE) - 1).map(lambda size: IMAGE[:size]))
def test_other_bytes(data: bytes) -> None:
    with pytest.raises(PeerError):
        fresh().load(data)


@given(st.lists(st.tuples(st.integers(0, len(IMAGE) - 1), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=cases(100, 300), deadline=None)
def test_damaged_bytes_give_a_sound_tree_or_an_error(damage: list[tuple[int, int]]) -> None:
    data = bytearray(IMAGE)
    for place, value in damage:
        data[place] = value
    tree = fresh()
    try:
        tree.load(bytes(data))
    except PeerError:
        assert tree.rows == 0
        return
    tree.check()
    tree.partials()


def test_the_tree_is_kept_when_loading_fails() -> None:
    tree = grown()
    before = tree.partials()
    with pytest.raises(PeerError):
        tree.load(IMAGE[:-1])
    assert tree.partials().equals(before)


def test_a_loaded_tree_has_the_types_of_its_image() -> None:
    tree = fresh()
    tree.insert_partials(pa.table({"k": ["text"], "n": [1]}))
    tree.load(IMAGE)
    assert tree.partials().num_rows == 600


@pytest.mark.parametrize(
    "other",
    [
        BufferTree.of_partials(["j"], STATES),
        BufferTree.of_partials(["k"], [State("n", "max")]),
        BufferTree.of_partials(["k"], [*STATES, State("m", "min")]),
    ],
)
def test_the_image_of_another_tree(other: BufferTree) -> None:
    with pytest.raises(PeerError, match="another kind"):
        other.load(IMAGE)


def first_leaf(top: list[object]) -> list[object]:
    node = top
    while node[3]:
        assert isinstance(node[3], list)
        node = node[3][0]
    return node


SCHEMA = pa.schema([("k0", pa.int64()), ("s0", pa.int64())])


def run_of(rows: list[int]) -> bytes:
    return pack(pa.table([pa.array(rows, pa.int64()), pa.array([1] * len(rows), pa.int64())], schema=SCHEMA))


@pytest.mark.parametrize("broken", ["order", "twice", "range", "empty"])
def test_runs_that_lie(broken: str) -> None:
    image = msgspec.msgpack.decode(IMAGE)
    leaf = first_leaf(image[5])
    assert isinstance(leaf[2], list)
    keys = unpack(leaf[2][0], SCHEMA)["k0"].to_pylist()
    other = max(range(1000), key=lambda key: int(hash_keys([pa.array([key])])[0]))
    leaf[2][0] = run_of(
        {"order": keys[::-1], "twice": [keys[0], *keys], "range": [*keys, other], "empty": []}[broken]
    )
    with pytest.raises(PeerError):
        fresh().load(msgspec.msgpack.encode(image))


def test_check_finds_what_is_broken() -> None:
    tree = grown()
    tree.check()
    tree._root._tables_weight += 1
    with pytest.raises(ElfBug):
        tree.check()
