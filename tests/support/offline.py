"""Archives of clicks for the Spark backend, and their windows counted by hand."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

import agents.tasks.archive
from agents.inputs.values import Source
from agents.tasks.archive import Archive
from elf.schema import Column, Schema
from spark_backend.offline import Archived

BASE_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z

SECOND = 1_000_000

CLICKS = Schema(
    (
        Column("ts", "timestamp"),
        Column("product", "text"),
        Column("user.location", "text"),
        Column("clicks", "bigint"),
        Column("price", "double"),
    ),
    event_time="ts",
)


AGGREGATES = (
    "STDDEV(clicks) AS a, VAR_POP(price) AS b, FIRST(clicks) AS c, LAST(price) AS d, "
    "FIRST(user.location) AS e, LAST(ts) AS f, BOOL_AND(clicks > 0) AS g, BOOL_OR(price = 2.5) AS h, "
    "COUNT(DISTINCT product) AS i, SUM(DISTINCT clicks) AS j, AVG(DISTINCT price) AS k, "
    "APPROX_COUNT_DISTINCT(ts) AS l, MEDIAN(price) AS m, PERCENTILE(clicks, 0.3) AS n, "
    "APPROX_PERCENTILE(price, 0.9) AS o, APPROX_TOP_K(product, 2) AS p, "
    "COUNT(*) FILTER (WHERE clicks > 2) AS q, APPROX_TOP_K(clicks, 5) AS r, "
    "APPROX_COUNT_DISTINCT(product) AS s"
)
"""Of clicks, one of each kind."""


@dataclass(frozen=True)
class Click:
    ts_us: int | None
    product: str
    location: str | None
    clicks: int
    price: float

    def line(self) -> str:
        fields = {"product": self.product, "clicks": self.clicks, "price": self.price}
        if self.ts_us is not None:
            fields["ts"] = (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=self.ts_us)).isoformat() + "Z"
        if self.location is not None:
            fields["user"] = {"location": self.location}
        return json.dumps(fields, ensure_ascii=False)


def clicks(count: int, seed: int, *, from_us: int = BASE_US, length_us: int = 60 * SECOND) -> list[Click]:
    rng = random.Random(seed)
    return [
        Click(
            None if n % 23 == 22 else from_us + rng.randrange(length_us),
            rng.choice(["doom", "zelda", "日本語", 'a "quoted" one']),
            rng.choice(["Ohio", "ohio", None]),
            rng.randrange(-3, 9),
            rng.choice([0.1, 0.2, 2.5]),
        )
        for n in range(count)
    ]


def store(
    path: Path,
    lines: list[str],
    ts: list[int | None],
    *,
    stream: str = "clicks",
    agent: str = "a",
    log: str = "/log/s",
    facts: Mapping[str, str] = {},
) -> None:
    rolls = path.parent / f"rolls {path.name} {agent}"
    archive = Archive(rolls, str(path), stream=stream, agent=agent, roll_secs=1, roll_bytes=1, facts=facts)
    archive.restore(0)
    offsets = np.arange(len(lines), dtype=np.int64)
    with patch.object(
        agents.tasks.archive, "PIECE_BYTES_MIN", 1_000
    ):  # files of pieces, and rows beside them
        for part in (slice(n, n + 40) for n in range(0, len(lines), 40)):
            times = pa.array(ts[part], pa.int64())
            archive.append(pa.array(lines[part]), times, Source("s", log), offsets[part])
            archive.sync()
    archive.roll()
    archive.ship(archive.sync())
    archive.close()


def store_clicks(path: Path, rows: list[Click], agent: str = "a") -> None:
    store(path, [row.line() for row in rows], [row.ts_us for row in rows], agent=agent)


def archived(
    path: Path, stream: str = "clicks", form: str = "json", timestamp: str | None = "ts"
) -> Archived:
    return Archived(str(path), stream, form, timestamp)


def windows(size_s: int, slide_s: int, count: int, from_us: int = BASE_US) -> list[tuple[int, int]]:
    starts = [from_us + n * slide_s * SECOND for n in range(count)]
    return [(start, start + size_s * SECOND) for start in starts]


def by_window(table: pa.Table) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    starts = table["window_start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    for start, row in zip(
        starts, table.drop_columns(["window_start", "window_end"]).to_pylist(), strict=True
    ):
        found[start].append(tuple(row.values()))
    return dict(found)


def counted(rows: list[Click], start: int, end: int) -> dict[str, tuple[int, int]]:
    """(rows, sum of clicks) by product."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.ts_us is not None and start <= row.ts_us < end:
            count, total = found.get(row.product, (0, 0))
            found[row.product] = (count + 1, total + row.clicks)
    return found
