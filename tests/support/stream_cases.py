"""Joins of two streams: random rows, queries, and the same questions put to DuckDB by hand."""

from __future__ import annotations

import json
import random
from typing import Final

import pyarrow as pa

from elf.schema import Column, Schema

CLICKS: Final = Schema(
    (
        Column("ts", "timestamp"),
        Column("user", "text"),
        Column("product", "text"),
        Column("n", "bigint"),
        Column("store", "text"),
    ),
    "ts",
)
BUYS: Final = Schema(
    (
        Column("user", "text"),
        Column("product", "text"),
        Column("time", "timestamp"),
        Column("n", "double"),
        Column("price", "bigint"),
    ),
    "time",
)
START_US: Final = 1_700_000_000_000_000
TYPES: Final = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "text": pa.string(),
    "timestamp": pa.timestamp("us"),
}


def rows(seed: int, count: int) -> dict[str, pa.Table]:
    """Disordered rows, some of them equal, some without a key; times before 10 minutes have passed."""
    chosen = random.Random(seed)

    def one(schema: Schema) -> dict[str, object]:
        values: dict[str, object] = {}
        for column in schema.columns:
            kind = column.type
            if kind == "timestamp":
                values[column.name] = (
                    START_US + chosen.randrange(120) * 1_000_000 + chosen.choice([0, 0, 500_000, 1])
                )
            elif kind == "text":
                values[column.name] = chosen.choice(
                    ["a", "b", "é", None] if column.name == "user" else ["x", "y"]
                )
            else:
                values[column.name] = chosen.choice([None, 1, 2, 5] if kind == "bigint" else [1.0, 2.5, None])
        return values

    found = {}
    for stream, schema in (("clicks", CLICKS), ("buys", BUYS)):
        made = [one(schema) for _ in range(count)]
        made += chosen.sample(made, count // 5)
        fields = [pa.field(c.name, TYPES[c.type]) for c in schema.columns]
        found[stream] = pa.Table.from_pylist(made, schema=pa.schema(fields))
    return found


def lines(table: pa.Table) -> list[str]:
    """As JSON."""
    return [json.dumps(row, default=lambda ts: f"{ts.isoformat()}Z") for row in table.to_pylist()]


def windowed(size: int, slide: int) -> str:
    """The clicks, once for each window that they are in; in seconds."""
    size, slide = size * 1_000_000, slide * 1_000_000
    first = f"((epoch_us(ts) - {size}) // {slide} + 1) * {slide}"
    starts = f"SELECT *, unnest(range({first}, epoch_us(ts) + 1, {slide})) AS s FROM clicks"
    bounds = f"make_timestamp(s) AS window_start, make_timestamp(s + {size}) AS window_end"
    return f"(SELECT *, {bounds} FROM ({starts}))"


# What each is about: windows, trees and AVG; what came before, conditions of every kind, and windows that are
# no multiples of the interval; left rows without a partner, and keys that are NULL; a stream with itself,
# in a subquery, with a query over its groups, in two kinds of windows; no windows at all; equal times as a
# key; windows beside others (no join of streams, but made like one).
CASES: Final = [
    (
        """
        SELECT c.product, COUNT(*) AS bought, AVG(b.price) AS price FROM clicks AS c JOIN buys AS b
        ON c.user = b.user AND c.product = b.product AND b.time BETWEEN c.ts AND c.ts + INTERVAL 10 SECONDS
        WHERE c.store = 'x' GROUP BY c.product WINDOWING 30 SECONDS TREES 4
        """,
        f"""
        SELECT window_start, window_end, c.product, COUNT(*) AS bought, AVG(b.price) AS price
        FROM {windowed(30, 30)} AS c JOIN buys AS b
        ON c.user = b.user AND c.product = b.product AND b.time BETWEEN c.ts AND c.ts + INTERVAL 10 SECONDS
        WHERE c.store = 'x' GROUP BY ALL ORDER BY 1, 3
        """,
    ),
    (
        """
        SELECT upper(b.user) AS u, SUM(c.n) AS s, COUNT(DISTINCT b.n) AS d, MAX(b.time) AS m
        FROM clicks AS c JOIN buys AS b ON c.user = b.user AND c.n <= b.price AND b.price > 1
        WHERE b.time >= c.ts - INTERVAL 7 SECONDS AND b.time < c.ts AND c.n > 0
        GROUP BY u WINDOWING 20 SECONDS SLIDE 8 SECONDS
        """,
        f"""
        SELECT window_start, window_end, upper(b.user) AS u, SUM(c.n)::BIGINT AS s, COUNT(DISTINCT b.n) AS d,
        MAX(b.time) AS m FROM {windowed(20, 8)} AS c JOIN buys AS b
        ON c.user = b.user AND c.n <= b.price AND b.price > 1
        WHERE b.time >= c.ts - INTERVAL 7 SECONDS AND b.time < c.ts AND c.n > 0 GROUP BY ALL ORDER BY 1, 3
        """,
    ),
    (
        """
        SELECT c.user, COUNT(*) AS n, COUNT(b.price) AS priced,
        SUM(CASE WHEN b.time IS NULL THEN 1 ELSE 0 END) AS alone
        FROM clicks AS c LEFT JOIN buys AS b ON c.user = b.user AND b.price >= 2 AND c.store = 'y'
        AND b.time BETWEEN c.ts - INTERVAL 2 SECONDS AND c.ts + INTERVAL 1 SECOND
        WHERE c.n IS NOT NULL AND (b.n IS NULL OR b.n < 2)
        GROUP BY c.user ORDER BY n DESC LIMIT 3 WINDOWING 30 SECONDS TREES 2
        """,
        f"""
        SELECT * FROM (SELECT window_start, window_end, c.user, COUNT(*) AS n, COUNT(b.price) AS priced,
        SUM(CASE WHEN b.time IS NULL THEN 1 ELSE 0 END)::BIGINT AS alone
        FROM {windowed(30, 30)} AS c LEFT JOIN buys AS b ON c.user = b.user AND b.price >= 2 AND c.store = 'y'
        AND b.time BETWEEN c.ts - INTERVAL 2 SECONDS AND c.ts + INTERVAL 1 SECOND
        WHERE c.n IS NOT NULL AND (b.n IS NULL OR b.n < 2) GROUP BY ALL)
        QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n DESC, user NULLS LAST) <= 3
        ORDER BY 1, n DESC, 3 NULLS LAST
        """,
    ),
    (
        """
        WITH pairs AS (SELECT a.product AS p, b.n - a.n AS more FROM clicks AS a JOIN clicks AS b
        ON a.user = b.user AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 4 SECONDS),
        sums AS (SELECT p AS p, more, COUNT(*) AS k FROM pairs GROUP BY p, more)
        SELECT p, MAX(k) AS most, COUNT(*) AS different FROM sums GROUP BY p WINDOWING 1 MINUTE, 15 SECONDS
        """,
        f"""
        SELECT window_start, window_end, p, MAX(k) AS most, COUNT(*) AS different FROM (
        SELECT window_start, window_end, a.product AS p, b.n - a.n AS more, COUNT(*) AS k
        FROM (SELECT * FROM {windowed(60, 60)} UNION ALL SELECT * FROM {windowed(15, 15)}) AS a
        JOIN clicks AS b ON a.user = b.user AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 4 SECONDS
        GROUP BY ALL)
        GROUP BY ALL ORDER BY 1, 2, 3
        """,
    ),
    (
        """
        SELECT COUNT(*) AS n, APPROX_PERCENTILE(b.price, 0.5) AS p FROM clicks AS c JOIN buys AS b
        USING (user, product) WHERE b.time BETWEEN c.ts AND c.ts + INTERVAL 10 SECONDS
        """,
        """
        SELECT COUNT(*) AS n, quantile_disc(b.price, 0.5)::DOUBLE AS p FROM clicks AS c JOIN buys AS b
        USING (user, product) WHERE b.time BETWEEN c.ts AND c.ts + INTERVAL 10 SECONDS
        """,
    ),
    (
        """
        SELECT COUNT(*) AS n FROM clicks AS c JOIN buys AS b ON c.n = b.n AND c.ts = b.time
        WINDOWING CUMULATE 1 MINUTE STEP 20 SECONDS
        """,
        """
        SELECT make_timestamp(s) AS window_start, make_timestamp(e) AS window_end, COUNT(*) AS n
        FROM (SELECT c.ts, epoch_us(c.ts) // 60000000 * 60000000 AS s
        FROM clicks AS c JOIN buys AS b ON c.n = b.n AND c.ts = b.time),
        LATERAL (SELECT unnest(range(epoch_us(ts) // 20000000 * 20000000 + 20000000, s + 60000001, 20000000))
        AS e)
        GROUP BY ALL ORDER BY 1, 2
        """,
    ),
    (
        "SELECT store, COUNT(*) AS n, LAG(COUNT(*), 1, 0) AS before, LEAD(MAX_BY(user, n)) AS best "
        "FROM clicks GROUP BY store WINDOWING 15 SECONDS",
        f"""
        WITH g AS (
            SELECT window_start, window_end, store, COUNT(*) AS n,
                last(user ORDER BY n, user) FILTER (WHERE n IS NOT NULL AND user IS NOT NULL) AS best
            FROM {windowed(15, 15)} GROUP BY ALL
        )
        SELECT g.window_start, g.window_end, g.store, g.n, COALESCE(b.n, 0) AS before, a.best
        FROM g LEFT JOIN g AS b ON b.store = g.store AND b.window_end = g.window_start
        LEFT JOIN g AS a ON a.store = g.store AND a.window_start = g.window_end ORDER BY 1, 2, 3
        """,
    ),
]
