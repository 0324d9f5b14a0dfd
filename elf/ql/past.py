"""Statements about windows that are over: SELECT … FROM JOB name WINDOWS, and ROWS OF."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from msgspec import Struct

from elf.errors import QueryError
from elf.ql.moments import HOW, moment_us

if TYPE_CHECKING:  # they are read by its parser
    from elf.ql.statements import Words

ROWS_DEFAULT: Final = 20
ROWS_MAX: Final = 100_000
"""Rows that ROWS OF shows."""


class PastSelect(Struct, frozen=True):
    """``SELECT … FROM JOB name WINDOWS [SINCE moment] [UNTIL moment] [ALL REVISIONS] …``. ``select``: the
    same for DuckDB, over a table with the job's name. Moments are as they were written; empty: none."""

    sql: str
    job: str
    select: str
    since: str = ""
    until: str = ""
    all_revisions: bool = False

    def span(self, now_us: int) -> tuple[int | None, int | None]:
        """Since when and until when windows are to start. Raises ``QueryError``."""
        return _moment("SINCE", self.since, now_us), _moment("UNTIL", self.until, now_us)


class RowsOf(Struct, frozen=True):
    """``ROWS OF name WINDOW 'start' [TO 'end'] [WHERE condition] [LIMIT n]``: the rows that a committed
    window has counted."""

    sql: str
    job: str
    start: str
    end: str = ""
    where: str = ""
    limit: int = ROWS_DEFAULT

    def span(self, now_us: int) -> tuple[int, int | None]:
        """Start and end of the window. Raises ``QueryError``."""
        start = _moment("WINDOW", self.start, now_us)
        if start is None:
            raise QueryError(f"WINDOW takes the time at which a window starts: {HOW}")
        return start, _moment("TO", self.end, now_us)


def _moment(word: str, text: str, now_us: int) -> int | None:
    if not text:
        return None
    us = moment_us(text, now_us)
    if us is None:
        raise QueryError(f"{word} '{text}': that is no time; a time is {HOW}")
    return us


def read_past_select(words: Words) -> PastSelect | None:
    """A SELECT over past windows; None where it is over anything else."""
    texts = [token.text.upper() for token in words.tokens]
    places = [
        place
        for place in range(1, len(texts) - 2)
        if texts[place] == "JOB"
        and texts[place + 2] == "WINDOWS"
        and texts[place - 1] in ("FROM", "JOIN", ",")
    ]
    if not places:
        return None
    sql, begin = words.text, words.tokens[0].start
    words.index = places[0] + 1
    job = words.name("the job's name")
    words.expect("WINDOWS")
    said: dict[str, str] = {}
    while True:
        for word in ("SINCE", "UNTIL"):
            if words.next_is(word):
                _once(words, said, word)
                said[word] = words.string(f"a time in quotes ({HOW})")
                break
        else:
            if not words.next_is("ALL", "REVISIONS"):
                break
            _once(words, said, "ALL REVISIONS")
            said["ALL REVISIONS"] = "all"
    if len(places) > 1:
        words.index = places[1]
        words.fail("expected one JOB … WINDOWS in a SELECT")
    first, end = words.tokens[places[0]].start, words.tokens[words.index - 1].end + 1
    text = words.source.text
    select = f'{text[begin:first]}"{job}"{text[end : words.tokens[-1].end + 1]}'
    bounds = said.get("SINCE", ""), said.get("UNTIL", "")
    return PastSelect(sql, job, select, *bounds, all_revisions="ALL REVISIONS" in said)


def _once(words: Words, said: dict[str, str], word: str) -> None:
    if word in said:
        words.index -= 1
        words.fail(f"{word} is said twice")


def read_rows_of(words: Words) -> RowsOf:
    """The whole statement."""
    sql = words.text
    words.expect("ROWS", "OF")
    words.next_is("JOB")
    job = words.name("the job's name")
    words.expect("WINDOW")
    start = words.string("when the window starts, in quotes ('2026-01-31T12:00:00Z')")
    end = words.string("when the window ends, in quotes") if words.next_is("TO") else ""
    where, limit = "", ROWS_DEFAULT
    if words.next_is("WHERE"):
        where = _rest(words)
    if words.next_is("LIMIT"):
        limit = words.whole(f"how many rows, up to {ROWS_MAX:,}")
        if limit > ROWS_MAX:
            words.index -= 1
            words.fail(f"expected {ROWS_MAX:,} rows at most")
    words.end()
    return RowsOf(sql, job, start, end, where, limit)


def _rest(words: Words) -> str:
    """A condition: all up to a LIMIT at the end."""
    tokens = words.tokens[words.index :]
    if len(tokens) > 2 and tokens[-2].text.upper() == "LIMIT":
        tokens = tokens[:-2]
    if not tokens:
        _no_condition(words)
    words.index += len(tokens)
    return words.source.text[tokens[0].start : tokens[-1].end + 1]


def _no_condition(words: Words) -> NoReturn:
    words.fail("expected a condition over the columns of the stream")
