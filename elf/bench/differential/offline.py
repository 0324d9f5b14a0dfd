"""Spark's answers over a log: its accepted lines, parsed by Spark as an archive's are."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from agents.formats import get_format
from elf.bench.differential.differences import Answer, plain
from elf.bench.differential.live import Answered
from elf.bench.differential.logs import SCHEMA, Log
from elf.ql.planner import plan_text
from elf.ql.render import name
from spark_backend.batch import Batch


class Offline:
    """Answers over one log after the other."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def load(self, log: Log) -> None:
        """From now on answers are over this log."""
        lines = {"line": pa.array(log.accepted(), pa.string()), "_before": log.rows()["_before"]}
        self._batch.load(get_format("json"), pa.table(lines), SCHEMA.columns, "ts")

    def answers(self, queries: Sequence[str]) -> list[Answered]:
        """Each query's answer, or what is wrong with it."""
        found = self._batch.answers([_spark_sql(query) for query in queries])
        return [
            one if isinstance(one, str) else Answer(one.names, [tuple(map(plain, row)) for row in one.rows])
            for one in found
        ]


def _spark_sql(query: str) -> str:
    """The plan's rendering; rows that are late in their file are none of an archive's business, so they are
    left out by hand.
    """
    plan = plan_text(query, SCHEMA)
    if plan.fragment.lateness_us is None or not plan.windows:
        return plan.spark_sql
    pane = plan.fragment.pane_us
    end = f"_ts - pmod(_ts, {pane}L) + {pane}L"
    waited = plan.fragment.lateness_us + (plan.fragment.revise_us or 0)
    columns = ", ".join(name(column.name, "spark") for column in SCHEMA.columns)
    on_time = f"_before IS NULL OR {end} + {waited}L > _before"
    in_time = f"(SELECT {columns}, _ts FROM rows WHERE {on_time})"
    return plan.spark_sql.replace("FROM rows AS r", f"FROM {in_time} AS r")
