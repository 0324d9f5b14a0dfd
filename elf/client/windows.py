"""Windows as a reader of results sees them: one value a window, out of the batches that masters publish.

A ``WindowResult`` holds the rows and the status of many windows as two Arrow tables. Nothing here talks to
anybody; it never changes rows, their order within a window, or their types.

Those of a job that says ``EMIT CHANGES`` are rows with a sign (``Changes``): what differs from what a reader
had of the window before. Early results are whole each time, so a reader that comes late, or to whom some get
lost, still gets changes that add up: after each result the rows with ``+`` less those with ``-`` are that
result, and after the committed one the window.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa

from elf.batch import decode
from elf.client import coverage
from elf.wire.clients import WindowResult

WINDOW_COLUMNS: Final = ("window_start", "window_end")
_US: Final = pa.timestamp("us")

_Span = tuple[datetime | None, datetime | None]
OP: Final = "_op"
"""The column of changes before those of the SELECT list: ``+`` or ``-``."""
REMEMBERED_MAX: Final = 1_000
"""Windows of which the last rows are kept; a revision of an older one comes with ``+`` alone."""
_Place = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Window:
    """One committed window of a job: its rows, and what they cover.

    Attributes:
        job (str): the job's uid: its app id in hexadecimal, a dot, and its generation.
        name (str): the job's name.
        version (int): the version of the job that made the window, from 1.
        master (str): the address of the agent that made it.
        start (datetime | None): in UTC, aware. None when the job has no windows.
        end (datetime | None): in UTC, aware; the window ends before it. None when the job has no windows.
        revision (int): 0 for the first commit of the window, then 1, 2 …
        status (dict[str, object]): the counts ``expected`` and ``reported`` (agents), ``rows_in``, ``late``,
            ``rejected``, ``future``, ``unrostered``, ``shed`` and ``leapt`` (rows), ``archived`` (of
            ``rows_in``: read from archives), ``sampled`` (of ``rows_in``: left out over budgets, others stand
            for them), ``uncast`` (values); the names ``missing``; the lists ``gaps`` and ``budgets``;
            ``skipped``; ``version``; ``function_failed``: whether the rows, or some of their panes, are those
            from before the job's final or reduce function, which failed; ``offline``: Spark has made it, of
            before the job began; of a job with WITHIN ``promised_ms`` and ``took_ms``, from when the window
            was due until its commit.
        table (pyarrow.Table): ``window_start`` and ``window_end`` (timestamp[us], UTC) when the job has
            windows, then the columns of the SELECT list. Sums of integers are decimal128(38, 0).
        provisional (bool): whether it is no commit. Masters of this release publish none.
        early (int): above 0 the window is not complete, and this is no commit; later ones have higher
            numbers.
        emits_changes (bool): whether the job says EMIT CHANGES.
        changes (pyarrow.Table | None): of a job that says EMIT CHANGES, where ``Client`` gives it: what
            differs from the result before, with a column ``_op`` (``+`` or ``-``).

    Example:
        >>> window = Window(
        ...     job="00.1", name="busy", version=1, master="web-1:7071", revision=0,
        ...     start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
        ...     status={"expected": 3, "reported": 2, "missing": ["web-2"], "late": 4},
        ...     table=pa.table({"n": [12]}),
        ... )
        >>> window.coverage
        '2 of 3 agents, web-2 missing, 4 late'
        >>> window.whole
        False
        >>> window.key[:2], window.key[4]
        (('00.1', 1), 0)
    """

    job: str
    name: str
    version: int
    master: str
    start: datetime | None
    end: datetime | None
    revision: int
    status: dict[str, object]
    table: pa.Table
    provisional: bool = False
    early: int = 0
    emits_changes: bool = False
    changes: pa.Table | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What tells one result from every other: two with the same key are the same (protocol 7.3)."""
        return (self.job, self.version, self.start, self.end, self.revision, self.provisional, self.early)

    @property
    def coverage(self) -> str:
        """What it covers, in a line for people: ``2 of 3 agents, web-2 missing, 3 late``."""
        return coverage.coverage(self.status, self.revision)

    @property
    def whole(self) -> bool:
        """Whether nobody and nothing is missing in it, and it is the first result of its window."""
        return coverage.is_whole(self.status, self.revision)


def split(result: WindowResult) -> Iterator[Window]:
    """The windows of a result, by their start. One without rows and without a status is not in it.

    Args:
        result (elf.wire.clients.WindowResult): windows as a master publishes them: ``status`` and
            ``payload`` are Arrow tables (``elf.batch``) with ``window_start`` and ``window_end`` first.

    Yields:
        Window: one a window. No row is copied when they come window by window.

    Raises:
        PeerError: when ``status`` or ``payload`` is no table.

    Example:
        >>> from elf.batch import encode
        >>> start, end = datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 1)
        >>> rows = pa.table({"window_start": [start, start], "window_end": [end, end], "n": [1, 2]})
        >>> status = pa.table({"window_start": [start], "window_end": [end], "late": [0]})
        >>> result = WindowResult(
        ...     job="00.1", name="busy", version=1, master="web-1:7071", first_us=0, last_us=0, revision=0,
        ...     status=encode(status), payload=encode(rows),
        ... )
        >>> [(window.start.isoformat(), window.table.num_rows) for window in split(result)]
        [('2026-01-01T00:00:00+00:00', 2)]
    """
    status, rows = _table(result.status), _table(result.payload)
    facts = {_span(row): row for row in status.to_pylist()} if status.num_rows else {}
    parts, nothing = dict(_parts(rows)), rows.slice(0, 0)
    for span in sorted({*facts, *parts}, key=lambda span: (span[0] is not None, span)):
        row = facts.get(span, {})
        revision = row.pop("revision", None)
        yield Window(
            job=result.job,
            name=result.name,
            version=result.version,
            master=result.master,
            start=_utc(span[0]),
            end=_utc(span[1]),
            revision=revision if isinstance(revision, int) else result.revision,
            status=row,
            table=parts.get(span, nothing),
            provisional=result.provisional,
            early=result.early,
            emits_changes=result.changes,
        )


def _parts(rows: pa.Table) -> Iterator[tuple[_Span, pa.Table]]:
    """(start and end, rows) of each window that has rows. Slices: no row is copied when they come window by
    window.
    """
    if not rows.num_rows:
        return
    if tuple(rows.column_names[:2]) != WINDOW_COLUMNS:
        yield (None, None), rows
        return
    starts, ends = (rows.column(i).cast(_US).cast(pa.int64()).to_numpy() for i in (0, 1))
    later = np.diff(starts)
    if (later < 0).any() or ((later == 0) & (np.diff(ends) < 0)).any():
        order = np.lexsort((ends, starts))
        rows, starts, ends = rows.take(pa.array(order)), starts[order], ends[order]
    edges = (np.diff(starts) != 0) | (np.diff(ends) != 0)
    bounds = [0, *(np.flatnonzero(edges) + 1).tolist(), len(starts)]
    spans = zip(*(pa.array(us[bounds[:-1]], _US).to_pylist() for us in (starts, ends)), strict=True)
    for span, (begin, end) in zip(spans, itertools.pairwise(bounds), strict=True):
        yield span, rows.slice(begin, end - begin)


def _table(data: bytes) -> pa.Table:
    return decode(data) if data else pa.table({})


def _span(row: dict[str, object]) -> _Span:
    """The window that a status is of, which is taken out of it."""
    start, end = (row.pop(name, None) for name in WINDOW_COLUMNS)
    return (
        start if isinstance(start, datetime) else None,
        end if isinstance(end, datetime) else None,
    )


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


class Changes:
    """What one reader has of each window. ``Client`` uses one for a job that says EMIT CHANGES.

    Example:
        >>> from datetime import UTC, datetime
        >>> def result(early, *rows):
        ...     start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        ...     table = pa.table({"n": rows})
        ...     return Window("00.1", "busy", 1, "web-1:7071", start, end, 0, {}, table, early=early)
        >>> changes = Changes()
        >>> changes.of(result(1, 4)).to_pylist()
        [{'_op': '+', 'n': 4}]
        >>> changes.of(result(0, 7)).to_pylist()
        [{'_op': '-', 'n': 4}, {'_op': '+', 'n': 7}]
    """

    def __init__(self) -> None:
        self._had: OrderedDict[_Place, pa.Table] = OrderedDict()

    def of(self, window: Window) -> pa.Table:
        """The changes that this result makes, those that take away first.

        Args:
            window (Window): a result, in the order in which results came.

        Returns:
            pyarrow.Table: rows of this result and of the one before it, with the column ``_op`` (``+`` or
            ``-``) after the window's own columns. Of at most the last 1,000 windows the rows are kept; a
            later revision of an older one comes with ``+`` alone.

        Raises:
            Nothing.
        """
        place = (window.job, window.start, window.end)  # an open window may become another version's
        before = self._had.pop(place, None)
        self._had[place] = window.table
        if len(self._had) > REMEMBERED_MAX:
            self._had.popitem(last=False)
        if before is None or not before.num_rows:
            return _signed(window.table, "+")
        gone, come = _differing(before, window.table)
        parts = [_signed(before.take(pa.array(gone, pa.int64())), "-")] if gone else []
        parts += [_signed(window.table.take(pa.array(come, pa.int64())), "+")] if come else []
        parts = parts or [_signed(window.table.slice(0, 0), "+")]
        return pa.concat_tables(parts, promote_options="permissive")


def _differing(before: pa.Table, after: pa.Table) -> tuple[list[int], list[int]]:
    """The places of rows that are in only one of both, as often as they are."""
    old, new = (list(map(repr, table.to_pylist())) for table in (before, after))
    return _beyond(old, Counter(new)), _beyond(new, Counter(old))


def _beyond(rows: list[str], others: Counter[str]) -> list[int]:
    found = []
    for place, row in enumerate(rows):
        others[row] -= 1
        if others[row] < 0:
            found.append(place)
    return found


def _signed(rows: pa.Table, sign: str) -> pa.Table:
    place = len(WINDOW_COLUMNS) if tuple(rows.column_names[:2]) == WINDOW_COLUMNS else 0
    return rows.add_column(place, OP, pa.array([sign] * rows.num_rows, pa.string()))
