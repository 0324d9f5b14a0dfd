"""Spark's answers over a log: its accepted lines, parsed by Spark as an archive's are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from agents.formats import get_format
from elf.batch import decode
from elf.ql.plan import Plan
from elf.ql.templates import name
from elf.ql.unions import side_view, view_of
from lab.bench.differential.asked import plan_of
from lab.bench.differential.differences import Answer, plain
from lab.bench.differential.live import Answered
from lab.bench.differential.logs import SCHEMA, SCHEMAS, Log
from spark_backend.batch import Batch, Table
from spark_backend.offline import VIEW

BOTH: Final = "all_of_both"


class Offline:
    """Answers over one log after the other."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def load(self, log: Log) -> None:
        """From now on answers are over this log."""
        for stream, schema in SCHEMAS.items():
            before = log.rows(stream)["_before"]
            lines = pa.table({"line": pa.array(log.accepted(stream), pa.string()), "_before": before})
            self._batch.load(get_format("json"), lines, schema.columns, "ts", _all_of(stream))
        self._batch.unite(BOTH, [_all_of(stream) for stream in SCHEMAS])

    def answers(self, queries: Sequence[str]) -> list[Answered | None]:
        """Each query's answer, or what is wrong with it; None where Spark is not asked."""
        plans = [plan_of(query) for query in queries]
        for table in (table for plan in plans for one in plan.fragments for table in one.tables):
            self._batch.join(table.relation, decode(table.data))
        asked = [(plan.spark_sql, _views(plan)) for plan in plans if plan.spark_sql]
        found = iter(self._batch.answers(asked))
        return [_answer(next(found)) if plan.spark_sql else None for plan in plans]


def _answer(one: Table | str) -> Answered:
    return one if isinstance(one, str) else Answer(one.names, [tuple(map(plain, row)) for row in one.rows])


def _all_of(stream: str) -> str:
    return f"all_of_{stream}"


def _views(plan: Plan) -> dict[str, str]:
    """What the plan's SQL reads: for each of the jobs that are joined, the rows of its streams, together or
    by themselves. Rows that are late in their file are none of an archive's business: they are left out here.
    """
    views = {}
    for number, side in enumerate(plan.sides):
        streams = dict.fromkeys(one.stream for one in (side.fragment, *side.more))
        for stream in streams:
            columns, rows = SCHEMAS[stream].columns, _all_of(stream)
            if not side.apart and len(streams) > 1:
                columns, rows = SCHEMA.columns, BOTH
            names = ", ".join(name(column.name, "spark") for column in columns)
            view = side_view(number, view_of(stream) if side.apart else VIEW)
            views[view] = f"SELECT {names}, _ts FROM {rows} WHERE {_on_time(side)}"
    return views


def _on_time(plan: Plan) -> str:
    if plan.fragment.lateness_us is None or not plan.windows:
        return "TRUE"
    pane = plan.fragment.pane_us
    end = f"_ts - pmod(_ts, {pane}L) + {pane}L"
    waited = plan.fragment.lateness_us + (plan.fragment.revise_us or 0)
    return f"_before IS NULL OR {end} + {waited}L > _before"
