"""What windows say to an alert (``elf.job.alerts``): for which groups its condition is true in each.

The condition is ELF-QL over the columns of the job's rows, bound to the types that the rows have: a job that
was altered may have others, or lack one, and then the window is unknown. Of a job without GROUP BY a window
without rows has the one row that SQL gives over no rows, so ``COUNT(*) = 0`` is true in it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Final, cast

import pyarrow as pa
import pyarrow.types as pat

from agents.committing.windowcommits import one_without_rows
from elf.batch import ARROW_TYPES
from elf.client.values import json_rows
from elf.client.windows import WINDOW_COLUMNS, Window
from elf.errors import UserError
from elf.job.alerts import GROUPS_MAX, Memory, Transition, Verdict, follow_on, judged
from elf.ql.alert import Alert
from elf.ql.plan import Plan
from elf.schema import Column, ColumnType, Schema

ROWS_MAX: Final = 20
"""Rows for which the condition is true, that go with a transition."""
_GROUP_CHARS: Final = 200
_MISSING_MAX: Final = 20
_MISSING_CHARS: Final = 200
"""Of all three as much as can be kept of ``WINDOWS_MAX`` windows (``OutputKept.state``)."""
_CONDITIONS_KEPT: Final = 64


@dataclass(frozen=True)
class Alarm:
    """A transition, with its window and the first rows for which the condition is true in it."""

    transition: Transition
    window: Window
    rows: tuple[str, ...]


def alarms(
    alert: Alert, memory: Memory, plan: Callable[[int], Plan | None], windows: Sequence[Window]
) -> tuple[Memory, list[Alarm]]:
    """The memory after these windows of a job, and what changes with each. ``plan``: of a version."""
    found: list[Alarm] = []
    for window in windows:
        verdict, rows = verdict_of(alert, plan(window.version), window)
        memory, change = judged(alert, memory, verdict)
        if change is not None:
            found.append(Alarm(change, window, rows))
    return memory, found


def verdict_of(alert: Alert, plan: Plan | None, window: Window) -> tuple[Verdict, tuple[str, ...]]:
    """What one window says, and the first rows for which the condition is true. ``plan``: of its version;
    None: nobody knows it any more."""
    assert window.start is not None
    assert window.end is not None
    start_us, end_us = (round(at.timestamp() * 1_000_000) for at in (window.start, window.end))
    unknown = _bounded(_why_unknown(alert, plan, window))
    rows = window.table
    if not unknown and not rows.num_rows and plan is not None and not alert.by and not _has_groups(plan):
        rows = _over_nothing(plan)
    try:
        true = rows.take(_chooser(alert.when, _schema(rows)).places(rows)) if rows.num_rows else rows
        groups = sorted(set(_groups(alert.by, true)))
    except UserError as error:
        true, groups, unknown = rows.slice(0, 0), [], _bounded((str(error),))
    verdict = Verdict(
        start_us,
        end_us,
        window.version,
        window.revision,
        not unknown,
        tuple(groups[:GROUPS_MAX]),
        max(len(groups) - GROUPS_MAX, 0),
        unknown,
    )
    return verdict, tuple(json_rows(true.slice(0, ROWS_MAX)))


def _why_unknown(alert: Alert, plan: Plan | None, window: Window) -> tuple[str, ...]:
    """The agents that are missing, where they are too many, or what else is against the window."""
    status = window.status
    expected, reported = (cast(int, status.get(name) or 0) for name in ("expected", "reported"))
    if plan is None and not window.table.num_rows and not alert.by:
        return (f"version {window.version} of the job is over, and its window has no rows",)
    if plan is not None and not follow_on(plan):
        return ("the job's windows do not follow one another any more",)
    if status.get("skipped"):
        return ("the window was skipped",)
    if status.get("function_failed"):
        return ("a function failed, or a graph was too large",)
    if not expected:
        return ("no agent was expected",) if alert.coverage else ()
    if reported < alert.coverage * expected:
        return tuple(map(str, cast(list[object], status.get("missing") or ["an agent"])))
    return ()


def _bounded(missing: tuple[str, ...]) -> tuple[str, ...]:
    more = len(missing) - _MISSING_MAX
    named = (one if len(one) <= _MISSING_CHARS else f"{one[:_MISSING_CHARS]}…" for one in missing)
    return (*itertools.islice(named, _MISSING_MAX), *([f"and {more} more"] if more > 0 else []))


def _has_groups(plan: Plan) -> bool:
    return bool(plan.stages) or len(plan.made.keys) > len(plan.made.cells)


def _groups(by: tuple[str, ...], rows: pa.Table) -> Iterator[str]:
    """The group of each row. Raises ``UserError``."""
    if not by or not rows.num_rows:
        yield from ("{}" for _ in range(rows.num_rows))
        return
    names = [next((name for name in rows.column_names if name.lower() == one.lower()), "") for one in by]
    if "" in names:
        raise UserError(f"the job has no column {by[names.index('')]} any more")
    for text in json_rows(rows.select(names)):
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        yield text if len(text) <= _GROUP_CHARS else f"{text[:_GROUP_CHARS]}… {digest}"


@lru_cache(maxsize=_CONDITIONS_KEPT)
def _over_nothing(plan: Plan) -> pa.Table:
    """The row of a window without rows; no row where HAVING says so."""
    from agents.tasks.engine import Finisher, no_groups  # DuckDB, as in agents.tasks.streams

    groups, finisher = no_groups(plan), Finisher(plan)
    row = one_without_rows(groups.schema, plan.made)
    for place, name in enumerate(WINDOW_COLUMNS):
        row = row.add_column(place, name, pa.array([0], pa.timestamp("us")))
    try:
        return finisher.run(row)
    finally:
        finisher.close()


def _schema(rows: pa.Table) -> Schema:
    """The columns of result rows that a condition may be about. A sum of integers is a double here."""
    kinds = ((field.name, _kind(field.type)) for field in rows.schema)
    return Schema(tuple(Column(name, kind) for name, kind in kinds if kind is not None))


def _kind(kind: pa.DataType) -> ColumnType | None:
    if pat.is_decimal(kind):
        return "double"
    if pat.is_integer(kind):
        return "bigint"
    if pat.is_timestamp(kind):
        return "timestamp"
    return next((name for name, arrow in ARROW_TYPES.items() if kind == arrow), None)


class _Chooser:
    """A condition over rows of these types, as a prepared statement. Raises ``UserError``."""

    def __init__(self, when: str, schema: Schema) -> None:
        from agents.tasks.engine import Mapper
        from elf.ql.conditions import condition

        read = condition(when, schema, stream="rows")
        self._columns = read.columns
        self._mapper = Mapper(f"SELECT r._pane FROM rows AS r WHERE {read.where_sql}", read.columns)
        self._lock = Lock()

    def places(self, rows: pa.Table) -> pa.Int64Array:
        """The places of the rows for which it is true, in their order."""
        columns = [rows[one.name].cast(ARROW_TYPES[one.type]) for one in self._columns]
        names = [one.name for one in self._columns]
        numbered = pa.table([*columns, pa.array(range(rows.num_rows), pa.int64())], names=[*names, "_pane"])
        with self._lock:
            found = self._mapper.run(numbered)
        return pa.array(sorted(found["_pane"].to_pylist()), pa.int64())


_chooser = lru_cache(maxsize=_CONDITIONS_KEPT)(_Chooser)
