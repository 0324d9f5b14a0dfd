"""What came of a test beside what it expects: each difference, and where it is.

Rows are compared by the columns that the expected ones name, in their order where the query has ORDER BY and
in any order otherwise. Whole numbers are equal if all digits are, others if twelve are. A window without rows
that nobody expects is no difference.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from difflib import SequenceMatcher
from typing import Any, Final

from elf.cli.testing.cases import Case, Expected, utc
from elf.cli.testing.running import Came, Row, rows_of
from elf.client.values import rfc3339
from elf.client.windows import WINDOW_COLUMNS

LINES_MAX: Final = 40
"""Of a difference that are shown."""


@dataclass(frozen=True)
class Difference:
    """``lines`` begin with ``-`` (expected, and did not come) or ``+`` (came, and was not expected)."""

    where: str
    lines: tuple[str, ...] = ()


def differences(case: Case, came: Came) -> list[Difference]:
    """None: the test passes."""
    if case.error is not None:
        if case.error in came.error:
            return []
        said = came.error or "it was answered"
        return [Difference("error", (f"- {case.error}", *_under("+ ", said)))]
    if came.error:
        return [Difference("error", tuple(_under("+ ", came.error)))]
    found = [*(_windows(case, came) if case.windows is not None else _rows(case, came))]
    found += _of("rejected", case.rejected, [line for line, _ in came.rejected], dict(came.rejected))
    if case.late != came.late:
        found.append(Difference("late", (f"- {case.late}", f"+ {came.late}")))
    return [*found, *(Difference("not read to the end", (f"+ {text}",)) for text in came.unread)]


def _under(sign: str, text: str) -> Iterator[str]:
    """The lines of a text."""
    yield from (f"{sign if not place else '  '}{line}" for place, line in enumerate(text.splitlines()))


def _rows(case: Case, came: Came) -> list[Difference]:
    if came.windows:
        return [Difference("rows: the query has windows: expect windows")]
    return _compared("rows", case.rows or [], came.rows or [], came)


def _windows(case: Case, came: Came) -> Iterator[Difference]:
    if came.rows is not None:
        yield Difference("windows: the query has no windows: expect rows")
        return
    left = dict(came.windows)
    for expected in case.windows or []:
        keys = [key for key in left if _is(expected, *key)]
        if len(keys) > 1:
            yield Difference(f"window {_span(*keys[0])}: several begin there: give its end")
        elif not keys:
            rows = tuple(f"- {_shown(row)}" for row in expected.rows)
            yield Difference(f"window {_span(utc(expected.start), expected.end)} did not come", rows)
        else:
            got = rows_of(left.pop(keys[0]).table)
            yield from _compared(f"window {_span(*keys[0])}", expected.rows, got, came)
    for key, window in left.items():
        if window.table.num_rows:
            lines = tuple(f"+ {_shown(_own(row))}" for row in rows_of(window.table))
            yield Difference(f"window {_span(*key)} was not expected", _cut(lines))


def _is(expected: Expected, start: datetime, end: datetime) -> bool:
    return utc(expected.start) == start and (expected.end is None or utc(expected.end) == end)


def _span(start: datetime, end: datetime | None) -> str:
    return rfc3339(start) if end is None else f"{rfc3339(start)} … {rfc3339(end)}"


def _own(row: Row) -> Row:
    """Without the window, which is said already."""
    return {name: value for name, value in row.items() if name not in WINDOW_COLUMNS}


def _compared(where: str, expected: Sequence[Row], got: Sequence[Row], came: Came) -> list[Difference]:
    names = list(expected[0]) if expected else None
    lacking = [name for name in names or [] if name not in came.columns]
    if lacking and came.columns:
        known = ", ".join(name for name in came.columns if name not in WINDOW_COLUMNS)
        return [Difference(f"{where}: there is no column {lacking[0]}; columns: {known}")]
    if names is None:
        shown = [_own(row) for row in got]
    else:
        shown = [{name: row.get(name) for name in names} for row in got]
    doubles = {name for row in shown for name, value in row.items() if isinstance(value, float)}
    wanted = [
        {name: _double(value) if name in doubles else value for name, value in row.items()}
        for row in expected
    ]
    want, have = [*map(_shown, wanted)], [*map(_shown, shown)]
    return _ordered(where, want, have) if came.ordered else _of(where, want, have)


def _ordered(where: str, want: Sequence[str], have: Sequence[str]) -> list[Difference]:
    lines: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, want, have, autojunk=False).get_opcodes():
        if kind != "equal":
            lines += [f"- {row}" for row in want[a:b]] + [f"+ {row}" for row in have[c:d]]
    return [Difference(where, _cut(lines))] if lines else []


def _of(
    where: str, want: Sequence[str], have: Sequence[str], why: dict[str, str] | None = None
) -> list[Difference]:
    """In any order. ``why``: what to add to one that was not expected."""
    missing, more = Counter(want) - Counter(have), Counter(have) - Counter(want)
    lines = [f"- {one}" for one in missing.elements()]
    lines += [f"+ {one}" + (f"   ({why[one]})" if why and why.get(one) else "") for one in more.elements()]
    return [Difference(where, _cut(lines))] if lines else []


def _cut(lines: Sequence[str]) -> tuple[str, ...]:
    more = len(lines) - LINES_MAX
    return (*lines[:LINES_MAX], *([f"… and {more} more"] if more > 0 else []))


def _shown(row: Row) -> str:
    """A row as one text, equal for equal rows."""
    return json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False)


def _double(value: Any) -> Any:
    """What is expected of a column of doubles: a whole number stands for one."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_whole and abs(value) < sys.float_info.max else value


def _plain(value: Any) -> Any:
    """A value as it is compared: YAML has dates and times, JSON has numbers of one kind."""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        rounded = float(f"{value:.12g}")
        return int(rounded) if rounded.is_integer() else rounded
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return value
