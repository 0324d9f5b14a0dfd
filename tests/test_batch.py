"""Tables survive the way through bytes; other bytes give PeerError and nothing else."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.batch import decode, decode_all, empty, encode
from elf.errors import PeerError
from tests.support.long import cases

TABLE = pa.table(
    {
        "text": ["x", "", None, "a\0b"] * 20,
        "number": pa.array(range(80), pa.int64()),
        "sum": pa.array([Decimal(10**37), None] * 40, pa.decimal128(38, 0)),
        "real": [0.5, float("inf")] * 40,
        "flag": [True, None] * 40,
        "when": pa.array([0, 1] * 40, pa.timestamp("us")),
    }
)
WHOLE = encode(TABLE)


def test_round_trip() -> None:
    assert decode(WHOLE).equals(TABLE)
    assert decode(encode(TABLE.slice(7, 9))).equals(TABLE.slice(7, 9))
    assert decode(encode(pa.concat_tables([TABLE, TABLE]))).equals(pa.concat_tables([TABLE, TABLE]))


def test_without_rows_or_columns() -> None:
    assert decode(encode(empty(TABLE.schema))).equals(TABLE.slice(0, 0))
    assert decode(encode(pa.table({}))).num_columns == 0


@given(st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_a_tiny_table_is_written_as_any(first: int, rows: int, twice: bool) -> None:
    table = TABLE.slice(first, rows)
    table = pa.concat_tables([table, TABLE.slice(0, 1), table]) if twice else table.combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert encode(table) == sink.getvalue().to_pybytes()


def test_it_is_compressed() -> None:
    flat = pa.table({"n": [7] * 100_000})
    assert len(encode(flat)) < flat.nbytes // 50


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(PeerError):
        decode(data)


@given(st.integers(0, len(WHOLE) - 1))
def test_every_truncation_is_refused(size: int) -> None:
    with pytest.raises(PeerError):
        decode(WHOLE[:size])


def test_what_stops_between_two_messages_is_no_shorter_table() -> None:
    message = pa.ipc.read_message(WHOLE)  # the schema alone
    schema = WHOLE[: WHOLE.index(b"\xff\xff\xff\xff", 8)]
    assert message.type == "schema"
    assert pa.ipc.open_stream(schema).read_all().num_rows == 0, "Arrow itself takes it"
    with pytest.raises(PeerError, match="end is missing"):
        decode(schema)


def test_trailing_bytes_are_refused() -> None:
    with pytest.raises(PeerError):
        decode(WHOLE + b"\0")
    with pytest.raises(PeerError, match="after the end"):
        decode(WHOLE + WHOLE)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=cases(500, 2_000), deadline=None)
def test_damaged_bytes_give_a_valid_table_or_an_error(damage: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for place, value in damage:
        data[place] = value
    try:
        table = decode(bytes(data))
    except PeerError:
        return
    table.validate(full=True)
    assert isinstance(table.column_names, list)


OTHER = pa.table({"text": ["y"], "number": [1]})
CODED = pa.table({"key": pa.array(["a", "b", "a"]).dictionary_encode()})


def test_tables_that_are_alike_are_read_as_one() -> None:
    again = TABLE.slice(3, 2)
    found = decode_all([WHOLE, encode(OTHER), encode(again), encode(TABLE.slice(0, 0)), encode(OTHER)])
    assert [table.to_pydict() for table in found] == [
        pa.concat_tables([TABLE, again]).to_pydict(),
        pa.concat_tables([OTHER, OTHER]).to_pydict(),
    ]
    assert decode_all([]) == []
    assert [table.num_columns for table in decode_all([encode(pa.table({}))] * 2)] == [0]


def test_each_has_its_own_dictionary() -> None:
    more = pa.table({"key": pa.array(["c", "a"]).dictionary_encode()})
    (found,) = decode_all([encode(CODED), encode(more)])
    assert found["key"].to_pylist() == ["a", "b", "a", "c", "a"]


@given(st.binary(max_size=200))
def test_any_bytes_beside_a_table(data: bytes) -> None:
    for encoded in ([WHOLE, data], [data, WHOLE], [WHOLE, data + WHOLE[-8:]], [data + WHOLE[-8:], WHOLE]):
        with pytest.raises(PeerError):
            decode_all(encoded)


def test_trailing_bytes_are_refused_beside_a_table() -> None:
    for encoded in ([WHOLE, WHOLE + WHOLE], [WHOLE + WHOLE, WHOLE]):
        with pytest.raises(PeerError, match="after the end"):
            decode_all(encoded)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=cases(300, 1_000), deadline=None)
def test_damaged_bytes_beside_a_table_give_valid_tables_or_an_error(damage: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for place, value in damage:
        data[place] = value
    try:
        found = decode_all([WHOLE, bytes(data), WHOLE])
    except PeerError:
        return
    for table in found:
        table.validate(full=True)


def test_text_that_is_no_text() -> None:
    liar = pa.Array.from_buffers(pa.string(), 1, [None, *pa.array([b"\xff\xfe"]).buffers()[1:]])
    with pytest.raises(PeerError):
        decode(encode(pa.table({"t": liar})))
