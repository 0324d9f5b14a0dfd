"""A user's final function over the rows of windows, at the master: ``def final(batch)``.

Each window that has rows is one call, after everything else that the query says of it; rows with the same
columns, of the same window, come back. The function runs while a commit is drafted, before there is a record
of it, so a window that is committed is never given to it again, by whichever leader; early results and
revisions go the same way. Its process lives for one draft: what it keeps in memory is soon gone, so that it
cannot make a window depend on which agent makes it.

A window that it fails on is neither lost nor passed off as treated: it is committed with the rows that the
function would have got and ``function_failed`` in its status, as are those after it in the draft, which it is
not tried on. The master hears of that with the commit, and takes the function out
(``elf.job.group.reconfiguration``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from agents.committing.spans import by_span, micros
from elf.batch import decode
from elf.functions import wire
from elf.functions.function import MORE_BYTES_MAX, Done, Failed, conform
from elf.ql.plan import Function, Plan

if TYPE_CHECKING:
    from agents.disk.store import Store
    from agents.tasks.streams import Running

BOUNDS: Final = ("window_start", "window_end")
FLAG: Final = "function_failed"
TRIED_COMMITS: Final = 20
"""So many commits are looked through for a window with rows, to try a function on."""


class FinalFunction:
    """The function of one version, for one draft; ``call``: what runs it. ``failure``: why it was taken out
    of the rest of the draft. Once the agent is ``stopping`` nobody asks for the draft any more."""

    def __init__(
        self,
        filename: str,
        call: Callable[[pa.RecordBatch], Done | Failed],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._filename = filename
        self._function = call
        self._stopping = stopping
        self._more = 0
        self.failure = ""

    def __call__(self, status: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """(status, rows) of windows, with what the function makes of the rows."""
        if not rows.num_rows:
            return status, rows
        windowed = BOUNDS[0] in rows.column_names and status[BOUNDS[0]].null_count == 0
        parts: Iterable[tuple[tuple[int, int] | None, pa.Table]]
        parts = by_span(rows).items() if windowed else [(None, rows)]
        made, failed = [], set()
        for span, part in parts:
            result = None if self.failure or self._stopping() else self._call(part)
            made.append(part if result is None else result)
            if result is None:
                failed.add(span)
        if failed:
            status = _flagged(status, failed.__contains__)
        return status, pa.concat_tables(made)

    def _call(self, rows: pa.Table) -> pa.Table | None:
        result = self.result(rows)
        if isinstance(result, pa.Table):
            return result
        self.failure = result
        return None

    def result(self, rows: pa.Table) -> pa.Table | str:
        """What it makes of the rows of one window, or why there is nothing: file, line, row and window."""
        batch = wire.one_batch(rows)
        done = self._function(batch)
        if isinstance(done, Failed):
            at = f" at row {done.row}" if done.row is not None else ""
            kept = f"; its input is in {done.kept}" if done.kept is not None else ""
            return f"{done.text}{at}{_of_window(rows)}{kept}"
        result = self._checked(done.batch, batch)
        self._more += max(0, result.nbytes - batch.nbytes) if isinstance(result, pa.Table) else 0
        if self._more > MORE_BYTES_MAX:
            who = f"{self._filename}: final()"
            return f"{who} gives {self._more} bytes more than it gets; at most {MORE_BYTES_MAX} are taken"
        return result

    def _checked(self, given: pa.RecordBatch, batch: pa.RecordBatch) -> pa.Table | str:
        """Rows of the window with its columns, in their types; others that the function adds are left out."""
        who = f"{self._filename}: final()"
        table = conform(who, given, batch.schema)
        if isinstance(table, str):
            return table
        for name in BOUNDS if batch.num_rows else ():
            there = name in batch.schema.names and set(table[name].unique().to_pylist())
            if there and not there <= set(batch[name].unique().to_pylist()):
                return f"{who} gives a row with a {name} that it was not given"
        return table


@contextlib.contextmanager
def running(
    function: Function, version: int, at: Running, stopping: Callable[[], bool] = lambda: False
) -> Iterator[FinalFunction]:
    """A function in a process of its own, which ends with the block."""
    with at.running(function, version) as call:
        yield FinalFunction(function.filename, call, stopping)


def _of_window(rows: pa.Table) -> str:
    if not rows.num_rows:
        return " on a window without rows"
    if BOUNDS[0] not in rows.column_names:
        return ""
    start, end = (rows[name][0].as_py() for name in BOUNDS)
    return f" of the window from {start} to {end}"


def _flagged(status: pa.Table, failed: Callable[[tuple[int, int] | None], bool]) -> pa.Table:
    def span(row: dict[str, Any]) -> tuple[int, int] | None:
        start, end = (row[name] for name in BOUNDS)
        return None if start is None else (micros(start), micros(end))

    flags = [row[FLAG] or failed(span(row)) for row in status.select([*BOUNDS, FLAG]).to_pylist()]
    return status.set_column(status.schema.get_field_index(FLAG), FLAG, pa.array(flags, pa.bool_()))


def flagged(status: pa.Table, windows: frozenset[tuple[int, int]] | None) -> pa.Table:
    """With a flag on these windows, and on those that contain one, of which they may be made; None, or none
    of them with bounds: on all."""
    if windows:
        spans = [*windows]
        return _flagged(
            status, lambda own: own is None or any(own[0] <= start and end <= own[1] for start, end in spans)
        )
    flags = pa.array([True] * status.num_rows, pa.bool_())
    return status.set_column(status.schema.get_field_index(FLAG), FLAG, flags)


def why_not(plan: Plan, uid: str, store: Store, at: Running) -> str:
    """Why a job cannot have the plan's final function; empty if it can. It is tried on the last window with
    rows that the job ``uid`` has made, or on no rows in the right columns."""
    if plan.final is None:
        return ""
    rows = _sample(store, uid, _no_rows(plan))
    with running(plan.final, 0, at) as function:
        result = function.result(rows)
    return result if isinstance(result, str) else ""


def _no_rows(plan: Plan) -> pa.Table:
    """The result of no window, in its types."""
    from agents.tasks.engine import Finisher, no_groups

    finisher = Finisher(plan)
    try:
        return finisher.run(*(no_groups(side) for side in plan.sides)).slice(0, 0)
    finally:
        finisher.close()


def _sample(store: Store, uid: str, empty: pa.Table) -> pa.Table:
    for commit in reversed(store.last_windows(uid, TRIED_COMMITS)):
        rows = decode(commit.rows)
        if rows.num_rows and rows.schema.equals(empty.schema):
            windows = list(by_span(rows).values()) if BOUNDS[0] in rows.column_names else [rows]
            return windows[-1]
    return empty
