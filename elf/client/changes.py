"""Results of a job that says ``EMIT CHANGES`` as rows with a sign: what differs from what a reader had of the
window before.

Early results are whole each time, so a reader that comes late, or to whom some get lost, still gets changes
that add up: after each result the rows with ``+`` less those with ``-`` are that result, and after the
committed one the window.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

import pyarrow as pa

from elf.client.windows import WINDOW_COLUMNS, Window

OP: Final = "_op"
"""The column of changes before those of the SELECT list: ``+`` or ``-``."""
REMEMBERED_MAX: Final = 1_000
"""Windows of which the last rows are kept; a revision of an older one comes with ``+`` alone."""

_Place = tuple[object, ...]


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
