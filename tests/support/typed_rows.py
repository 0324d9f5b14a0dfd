"""Rows with a column of each type, some of whose values are NULL, in three panes."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa

from elf.job.worker.fitting import arrow_schema
from elf.schema import Column, Schema

SCHEMA = Schema(
    (
        Column("k", "text"),
        Column("n", "bigint"),
        Column("x", "double"),
        Column("b", "boolean"),
        Column("at", "timestamp"),
    ),
    event_time="at",
)
AT = dt.datetime(2026, 1, 1)
SOME: dict[str, list[object]] = {
    "k": ["a", "b", "", "ä", None],
    "n": [0, 1, -7, 200, None],
    "x": [0.0, -0.0, 0.125, -3.5, 1e6, None],
    "b": [True, False, None],
    "at": [AT, AT + dt.timedelta(seconds=1), None],
}
CONSTANTS = {"k": "'a'", "n": "1", "x": "0.125", "b": "TRUE", "at": "TIMESTAMP '2026-01-01 00:00:01'"}


def rows_of(rng: random.Random, count: int) -> pa.Table:
    columns = {name: [rng.choice(values) for _ in range(count)] for name, values in SOME.items()}
    columns["_pane"] = [rng.randrange(3) for _ in range(count)]
    schema = arrow_schema(SCHEMA.columns).append(pa.field("_pane", pa.int64()))
    return pa.table(columns, schema=schema)
