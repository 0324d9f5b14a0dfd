"""A small table with everything that is unpleasant: NULLs, empty and non-ASCII text, ends of ranges, times
before 1970.
"""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa

from elf.batch import encode
from elf.schema import Column, Schema

SCHEMA = Schema(
    (
        Column("id", "bigint"),
        Column("ts", "timestamp"),
        Column("product", "text"),
        Column("store", "text"),
        Column("clicks", "bigint"),
        Column("big", "bigint"),
        Column("price", "double"),
        Column("ok", "boolean"),
        Column("user.location", "text"),
        Column("raw", "text"),
        Column("seen", "timestamp"),
    ),
    event_time="ts",
)

_PRODUCTS = ["Angry Birds", "Doom", "doom", "Zelda", "élan vital", "日本語", "🦆 duck", "", " spaced ", None]
_STORES = ["video_games", "video_games", "books", "toys", None]
_RAW = [
    "1", "-2", "+3", " 4 ", "3.7", "2.5", "-2.5", "1e3", "0x10", "1_000", "", "abc", "true", "No", "1d", ".5",
    "5.", "9223372036854775807", "9223372036854775808", "1e400", "nan", "inf", "2024-01-02", "2024-02-30",
    "2024-01-02T03:04:05.5Z", "2024-01-02 03:04", "/a/b?c=1", "GET /x HTTP/1.1", "a\\b", "100%",
    "under_score", "line\nbreak", None,
]  # fmt: skip
_BIG = [2**63 - 1, -(2**63), 2**62, -(2**62), 0, 1, -1, 7, -7, None]
_PRICES = [0.0, 0.1, -0.1, 2.5, -2.5, 3.5, 1e15, 1.5e300, 0.30000000000000004, 1.005, 2.675, 19.99, None]
_EPOCH = dt.datetime(1970, 1, 1)


def rows(count: int = 400, seed: int = 7) -> pa.Table:
    """``count`` rows in random order of time, the first ones in turn through every unpleasant value."""
    rng = random.Random(seed)
    base = 1_700_000_000_000_000
    columns: dict[str, list[object]] = {column.name: [] for column in SCHEMA.columns}
    for number in range(count):
        swing = rng.randrange(90_000_000)
        micros = swing - 45_000_000 if number % 5 == 0 else base + swing
        columns["id"].append(number)
        columns["ts"].append(None if number % 41 == 40 else _EPOCH + dt.timedelta(microseconds=micros))
        columns["product"].append(_PRODUCTS[number % len(_PRODUCTS)])
        columns["store"].append(rng.choice(_STORES))
        columns["clicks"].append(None if rng.random() < 0.1 else rng.randrange(-3, 9))
        columns["big"].append(_BIG[number % len(_BIG)])
        columns["price"].append(_PRICES[number % len(_PRICES)])
        columns["ok"].append(rng.choice([True, False, None]))
        columns["user.location"].append(rng.choice(["Ohio", "ohio", "Paris", None]))
        columns["raw"].append(_RAW[number % len(_RAW)])
        columns["seen"].append(
            None if rng.random() < 0.1 else _EPOCH + dt.timedelta(microseconds=micros + rng.randrange(10**13))
        )
    types = {
        "bigint": pa.int64(),
        "double": pa.float64(),
        "text": pa.string(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us"),
    }
    return pa.table(
        {column.name: pa.array(columns[column.name], types[column.type]) for column in SCHEMA.columns}
    )


STORES = pa.table(
    {
        "store": ["video_games", "books", "books", "garden", None],
        "city": ["Ōsaka", "Paris", "Lyon", "Ghent", "nowhere"],
        "rating": [4.5, None, -0.0, 2.0, 1.0],
        "opened": pa.array([_EPOCH, None, _EPOCH + dt.timedelta(days=9), _EPOCH, _EPOCH], pa.timestamp("us")),
    }
)
"""To be joined: a key twice, a NULL key, keys on either side only, a name that the rows have too."""
BANDS = pa.table(
    {"low": [-5, 1, 4], "high": [0, 3, 8], "band": ["few", "some", "many"], "ok": [True, None, False]}
)
CONTENTS = {"d/stores.csv": encode(STORES), "bands.parquet": encode(BANDS)}
