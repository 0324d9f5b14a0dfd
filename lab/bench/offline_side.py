"""One side of ``elf bench offline``: a query, by Spark, in a process of its own."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow import compute as pc

from agents.archived import Span
from agents.formats import get_format
from agents.tasks.engine import EVENT_LAST_US
from elf.client.values import json_rows
from elf.ql.plan import Plan
from spark_backend import offline, queries, session

STREAM: Final = "log"
BY_HAND: Final = {
    "json": """
SELECT timestamp_micros(day) AS window_start, timestamp_micros(day + 86400000000L) AS window_end,
       product, SUM(clicks) AS n
FROM (SELECT unix_micros(ts) - pmod(unix_micros(ts), 86400000000L) AS day,
             get_json_object(line, '$.product') AS product,
             CAST(get_json_object(line, '$.clicks_count') AS DECIMAL(38, 0)) AS clicks
      FROM {lines})
GROUP BY day, product ORDER BY day, n DESC, product""",
    "combined": """
SELECT timestamp_micros(day) AS window_start, timestamp_micros(day + 86400000000L) AS window_end,
       uri, COUNT(*) AS n
FROM (SELECT unix_micros(ts) - pmod(unix_micros(ts), 86400000000L) AS day,
             nullif(regexp_extract(line, '"[A-Z]+ ([^ "?]*)', 1), '') AS uri
      FROM {lines})
GROUP BY day, uri ORDER BY day, n DESC, uri""",
}
"""What somebody who knows the lines would write of ``QUERIES``."""
QUERIES: Final = {
    "json": "SELECT product, SUM(clicks_count) AS n FROM log GROUP BY product ORDER BY n DESC "
    "WINDOWING 1 DAY",
    "combined": "SELECT cs_uri_stem AS uri, COUNT(*) AS n FROM log GROUP BY cs_uri_stem ORDER BY n DESC "
    "WINDOWING 1 DAY",
}
ONE_COLUMN: Final = {
    "json": "SELECT store, COUNT(*) AS n FROM log GROUP BY store WINDOWING 1 HOUR",
    "combined": "SELECT sc_status, COUNT(*) AS n FROM log GROUP BY sc_status WINDOWING 1 HOUR",
}


class Asked(msgspec.Struct, frozen=True):
    """``way``: ``elf``, ``by hand``, ``raw`` or ``compare``. ``archive`` and ``log``: where the same lines
    are."""

    way: str
    archive: str
    log: str
    format: str
    master: str
    span: Span | None = None


class Answered(msgspec.Struct, frozen=True):
    """``answer``: a digest of the rows, ``rows`` how many."""

    seconds: float
    start_seconds: float
    rows: int
    answer: str


def run_side(asked: Asked) -> Answered:
    """Spark is started, as ``elf offline run`` starts it, and has run a query before the clock of ``seconds``
    begins."""
    began = time.perf_counter()
    with session.opened(asked.master, progress=False, brief=_is_brief(asked), memory="2g") as spark:
        spark.sql("SELECT COUNT(*) FROM range(1000)").collect()
        started = time.perf_counter()
        table = _WAYS[asked.way](spark, asked)
        ended = time.perf_counter()
    micros = [pc.cast(column, pa.string()) for column in table.columns]
    lines = sorted(json_rows(pa.table(micros, names=table.column_names)))
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return Answered(ended - started, started - began, table.num_rows, digest)


def _is_brief(asked: Asked) -> bool:
    if asked.way != "elf":
        return False
    return queries.question(_query(asked), [asked.archive], asked.span).bytes <= session.BRIEF_BYTES_MAX


def _elf(spark: Any, asked: Asked) -> pa.Table:
    question = queries.question(_query(asked), [asked.archive], asked.span)
    return offline.collected(offline.answer(spark, question.plan, question.archived, asked.span))


def _by_hand(spark: Any, asked: Asked) -> pa.Table:
    lines = f"parquet.`{asked.archive}/stream={STREAM}`"
    return spark.sql(BY_HAND[asked.format].format(lines=lines)).toArrow()


def _raw(spark: Any, asked: Asked) -> pa.Table:
    """The same query over text: each line is parsed, and so is its time."""
    plan = _plan(asked)
    spark.read.text(asked.log).withColumnRenamed("value", "line").createOrReplaceTempView(offline.LINES)
    format_ = get_format(asked.format)
    event_time = "created_at" if asked.format == "json" else "ts"
    selection = format_.spark_select(list(plan.fragment.columns), event_time)
    spark.sql(selection.sql(offline.LINES, checked=False)).createOrReplaceTempView(offline.VIEW)
    found = spark.sql(plan.spark_sql)
    if asked.span is not None:
        begin, end = (f"timestamp_micros({us}L)" for us in asked.span)
        found = found.where(f"window_start >= {begin} AND window_end <= {end}")
    return found.toArrow()


def _compared(spark: Any, asked: Asked) -> pa.Table:
    """What ``elf compare`` asks of three windows that lie together."""
    question = queries.question(ONE_COLUMN[asked.format], [asked.archive], asked.span)
    begin, end = asked.span or (0, EVENT_LAST_US)
    hour = (end - begin) // 3
    windows = [(begin + n * hour, begin + (n + 1) * hour) for n in range(3)]
    return offline.run(spark, question.plan, question.archived, windows)


def _plan(asked: Asked) -> Plan:
    return queries.question(_query(asked), [asked.archive]).plan


def _query(asked: Asked) -> str:
    return (QUERIES if asked.span is None else ONE_COLUMN)[asked.format]


_WAYS: Final[dict[str, Callable[[Any, Asked], pa.Table]]] = {
    "elf": _elf,
    "by hand": _by_hand,
    "raw": _raw,
    "compare": _compared,
}
