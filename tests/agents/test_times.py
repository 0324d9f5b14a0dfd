"""Event times read eight bytes at a time are those that DuckDB reads."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.formats.dialect import DUCKDB
from agents.tasks.engine import Times
from agents.tasks.times import read_times

SEEDS = ("2025-12-31T23:59:59.999Z", "2024-02-29T00:00:00Z", "1000-01-01T09:10:00.123456Z")
LETTERS = "019 -+:.,TZte/\t\x00é"


def by_duckdb(texts: pa.StringArray) -> list[int | None]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("texts", pa.table({"text": texts}))
        found = connection.sql(f"SELECT {DUCKDB.time_us('text')} AS us FROM texts").fetchall()
    return [row[0] for row in found]


def check(texts: pa.StringArray) -> int:
    """Compare; the result is how many were read the quick way."""
    us, done = read_times(texts)
    expected = by_duckdb(texts)
    for text, at, quick, want in zip(texts.to_pylist(), us.tolist(), done.tolist(), expected, strict=True):
        assert not quick or at == want, text
    times = Times()
    assert times.read(texts).to_pylist() == expected
    times.close()
    return int(np.count_nonzero(done))


def test_two_wrong_letters_anywhere() -> None:
    found = []
    for seed in SEEDS:
        for i, j in itertools.combinations(range(len(seed)), 2):
            found += [seed[:i] + a + seed[i + 1 : j] + b + seed[j + 1 :] for a in LETTERS for b in LETTERS]
    assert check(pa.array(found, pa.string())) > 1_000


def test_every_day_and_fraction() -> None:
    start = datetime(1999, 12, 1, tzinfo=UTC)
    days = [start + timedelta(days=n, seconds=977 * n, microseconds=n) for n in range(3000)]
    texts = [
        f"{day:%Y-%m-%dT%H:%M:%S}.{day.microsecond:06d}"[: 20 + n % 7] + "Z" for n, day in enumerate(days)
    ]
    usual = sum(n % 7 != 0 for n in range(3000))
    assert check(pa.array(texts, pa.string())) == usual


def test_numbers_of_every_length_and_a_wrong_letter_in_each_place() -> None:
    numbers = [digit * length for length in range(1, 20) for digit in "0159"]
    numbers += [str(n) for k in range(19) for n in (10**k - 1, 10**k, 10**k + 1, 123456789 * 10**k)]
    found = [n[:i] + letter + n[i + 1 :] for n in numbers for i in range(len(n)) for letter in "09-.+e:/ é"]
    assert check(pa.array([*numbers, *found], pa.string())) > 1_000


def test_which_numbers_are_read_the_quick_way() -> None:
    texts = ["1767225600", "1767225600123", "1767225600123456", "0767225600", "17672256001234567", "12345678"]
    assert read_times(pa.array(texts))[1].tolist() == [True, True, True, False, False, False]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.none()
        | st.sampled_from([*SEEDS, "", "1767225600", "1767225600123", "2026-01-01 00:00:00+01:00"])
        | st.text("019-:TZ.")
    ),
    st.integers(0, 3),
)
def test_slices_nulls_and_mixtures(texts: list[str | None], skip: int) -> None:
    check(pa.array(["2026-01-01T00:00:00Z", None, "x", *texts], pa.string()).slice(skip))
