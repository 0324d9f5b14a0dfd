"""The fast hash equals its definition, whatever the type, the batching and the slicing."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from unittest.mock import patch

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.keys import hash_keys
from tests.support.key_hashes import Value, hash_key_reference

KeyTable = tuple[list[pa.DataType], list[tuple[Value, ...]]]
CENTURIES = (datetime(1900, 1, 1), datetime(2200, 1, 1))
COLUMNS = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "text": (pa.string(), st.text(max_size=40)),
    "large": (pa.large_string(), st.text(max_size=20)),
    "bytes": (pa.binary(), st.binary(max_size=300)),
    "double": (pa.float64(), st.floats()),
    "bool": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us"), st.datetimes(*CENTURIES)),
    "zoned": (pa.timestamp("us", "UTC"), st.datetimes(*CENTURIES, timezones=st.just(UTC))),
    "decimal": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2200, 1, 1))),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "null": (pa.null(), st.none()),
}


@st.composite
def key_tables(draw: st.DrawFn) -> KeyTable:
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    row = st.tuples(*(st.none() | COLUMNS[name][1] for name in names))
    return [COLUMNS[name][0] for name in names], draw(st.lists(row, max_size=30))


@given(key_tables(), st.integers(0, 30), st.integers(0, 30))
@settings(max_examples=300, deadline=None)
def test_fast_equals_reference(table: KeyTable, checkpoint: int, skip: int) -> None:
    types, rows = table
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
    expected = [hash_key_reference(row) for row in rows]
    assert hash_keys(columns).tolist() == expected
    with patch("elf.native.library", return_value=None):
        assert hash_keys(columns).tolist() == expected
    chunked = [pa.chunked_array([column[:checkpoint], column[checkpoint:]]) for column in columns]
    assert hash_keys(chunked).tolist() == expected
    assert hash_keys([column[skip:] for column in columns]).tolist() == expected[skip:]


def test_every_length_of_text_in_one_array() -> None:
    values = [bytes(range(n % 251)) + b"x" * (n // 251) * 251 for n in range(600)]
    expected = [hash_key_reference((value,)) for value in values]
    assert hash_keys([pa.array(values)]).tolist() == expected
    with patch("elf.native.library", return_value=None):
        assert hash_keys([pa.array(values)]).tolist() == expected


@pytest.mark.parametrize("size", [*range(1, 50), 63, 64, 65, 190, 191, 192, 193, 300])
def test_texts_of_one_length(size: int) -> None:
    values = [bytes((7 * row + 31 * at) % 256 for at in range(size)) for row in range(9)]
    expected = [hash_key_reference((value,)) for value in values]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        column = pa.array(values, kind)
        assert hash_keys([column]).tolist() == expected
        assert hash_keys([column[3:7]]).tolist() == expected[3:7]


def test_more_rows_than_a_slice() -> None:
    numbers = pa.array(range(20_001))
    texts = numbers.cast(pa.string())
    expected = [hash_key_reference((n, str(n))) for n in range(20_001)]
    assert hash_keys([numbers, texts]).tolist() == expected


def test_a_dictionary_hashes_as_its_values() -> None:
    plain = pa.array(["a", None, "b", "a"])
    assert hash_keys([plain.dictionary_encode()]).tolist() == hash_keys([plain]).tolist()


def test_doubles_that_are_equal_keys_hash_alike() -> None:
    other_nan = np.array([0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    hashes = hash_keys([pa.array(np.array([0.0, -0.0, math.nan, other_nan[0]]))])
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]


def test_what_must_differ_differs() -> None:
    keys: list[tuple[Value, ...]] = [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")]
    keys += [(None, "abc"), ("abc", None), (0,), (0.0,), (False,), ("",), (None,), ("\0",), ("\0\0",)]
    keys += [(b"\0" * 8,), ("a",), ("a", "a"), (1, 2), (2, 1)]
    assert len({hash_key_reference(key) for key in keys}) == len(keys)


def test_it_is_murmur_and_never_changes() -> None:
    assert hash_key_reference(("video_games",)) == mmh3.hash64(b"video_games", 3, signed=False)[0]
    golden: dict[tuple[Value, ...], int] = {
        ("video_games",): 7452557468367799855,
        (7,): 11599536764630530413,
        (7, "video_games"): 12816179313185730905,
        (None,): 0,
        (1.5,): 11502178102556891326,
    }
    assert {key: hash_key_reference(key) for key in golden} == golden


def test_nested_keys_are_refused() -> None:
    with pytest.raises(TypeError, match="list"):
        hash_keys([pa.array([[1]])])


def test_no_columns() -> None:
    assert hash_key_reference(()) == 0
