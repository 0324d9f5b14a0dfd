"""The WINDOWING clause: from what was written to kinds of windows."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from elf.ql.dialect import UNITS_US, Duration, Emit, Stragglers, Windowing, Windowings
from elf.ql.source import Source
from elf.windows import Counted, Cumulative, Kind, Landmark, Session, Sliding, counted, pane_us_of
from elf.windows.kinds import span

DAY_US: Final = UNITS_US["DAY"]
REVISE_US: Final = 10 * UNITS_US["MINUTE"]
CHANGES_US: Final = UNITS_US["SECOND"]
CHANGES_US_MIN: Final = 100_000
"""Defaults of ``EMIT FINAL REVISE`` and ``EMIT CHANGES``, and the shortest period of the latter."""
WAIT_US_MAX: Final = 10 * UNITS_US["MINUTE"]
"""The longest ``STRAGGLERS WAIT``: roots keep all waiting panes in memory."""
DURATION_US_MAX: Final = 1_000_000 * DAY_US
"""The longest duration that is understood."""
ROWS_MAX: Final = 1_000_000
"""The most rows of a window of rows: agents keep open windows."""
PANES_MAX: Final = 100_000
"""The most panes of a window (a day has 86,400 seconds): each is rolled up by itself, and kept while a window
has it."""
LAGS_US_MAX: Final = 3_660 * DAY_US
"""The longest time of which one window needs panes, with those of LAG and LEAD."""


def windows_of(source: Source, clause: Windowings) -> tuple[Kind, ...]:
    """The kinds of a WINDOWING clause, each once, in its order. Raises ``QueryError``."""
    kinds = {_window(source, kind): kind for kind in clause.expressions}
    alone = next((kind for kind in kinds if isinstance(kind, Session | Counted)), None)
    if alone is not None and len(kinds) > 1:
        what = "sessions" if isinstance(alone, Session) else "windows of rows"
        raise source.at(kinds[alone], f"{what} stand alone; make another job for the other windows")
    pane_us = pane_us_of(tuple(kinds))
    for kind, written in kinds.items():
        if isinstance(kind, Sliding | Cumulative) and kind.size_us > PANES_MAX * pane_us:
            raise source.at(
                written,
                f"a window of {span(kind.size_us)} would be made of {kind.size_us // pane_us:,} panes of "
                f"{span(pane_us)}, and {PANES_MAX:,} is the most: let it slide, or step, by longer times",
            )
    return tuple(kinds)


def _window(source: Source, clause: Windowing) -> Kind:
    kind = clause.args["kind"]
    if kind == "rows":
        digits = clause.args["size"].name
        rows = int(digits) if len(digits) <= len(str(ROWS_MAX)) else 0
        if not 1 <= rows <= ROWS_MAX:
            raise source.at(clause, f"a window has 1 to {ROWS_MAX:,} rows: agents keep what is open")
        return counted(rows)
    size = _positive_us(source, clause.args["size"])
    other = clause.args.get("slide")
    second = None if other is None else _positive_us(source, other)
    match kind:
        case "session":
            return _session(source, size, second, other)
        case "landmark":
            return Landmark(size)
        case "cumulate":
            if second is None or size % second:
                raise source.at(
                    other or clause, "the size of a cumulative window must be a multiple of its STEP"
                )
            return Cumulative(size, second)
    if second is not None and second > size and other is not None:
        raise source.at(other, "the slide is longer than the window, so rows between windows would be lost")
    return Sliding(size, size if second is None else second)


def _session(source: Source, gap: int, longest: int | None, node: Duration | None) -> Session:
    """Without MAX a session lasts a day at most, or a little more, so that its gap divides that."""
    if longest is None:
        return Session(gap, 2 * gap * -(-DAY_US // (2 * gap)))
    if longest < 2 * gap and node is not None:
        raise source.at(node, "MAX must be at least twice the gap of the sessions")
    return Session(gap, longest)


def emission_of(source: Source, clause: Emit, windows: tuple[Kind, ...]) -> tuple[int | None, int | None]:
    """How late a row may revise a window, and how often changes are sent (µs). Raises ``QueryError``."""
    given = clause.args.get("this")
    kind = clause.args["kind"]
    if kind == "final":
        return None, None
    if any(isinstance(window, Counted) for window in windows):
        raise source.at(clause, "windows of rows are said once, when they are full: leave EMIT out")
    if kind == "revise":
        return (REVISE_US if given is None else _positive_us(source, given, "the bound of REVISE")), None
    every = CHANGES_US if given is None else duration_us(source, given)
    if every < CHANGES_US_MIN and given is not None:
        raise source.at(given, "EMIT CHANGES comes at most every 100 MILLISECONDS")
    if any(isinstance(kind, Session) for kind in windows):
        raise source.at(clause, "EMIT CHANGES of sessions is not supported: their ends are not known early")
    return None, every


def stragglers_of(source: Source, clause: Stragglers, windows: tuple[Kind, ...]) -> tuple[int | None, str]:
    """How long windows wait for agents that are behind (µs; None: as the settings say), and the policy: wait,
    revise, leap or mirror. Raises ``QueryError``.
    """
    given, kind = clause.args.get("this"), str(clause.args["kind"])
    if kind == "leap" and any(isinstance(window, Counted) for window in windows):
        raise source.at(clause, "a window of rows is of one source, which no other agent has: leave LEAP out")
    if given is None:
        return None, kind
    wait_us = _positive_us(source, given, "the bound of WAIT")
    if wait_us > WAIT_US_MAX:
        raise source.at(given, "STRAGGLERS WAIT takes 10 MINUTES at most: all that waits is kept in memory")
    return wait_us, kind


def _positive_us(source: Source, node: Duration, what: str = "a window's size and slide") -> int:
    found = duration_us(source, node)
    if found == 0:
        raise source.at(node, f"{what} must be more than 0")
    return found


def duration_us(source: Source, node: Duration) -> int:
    """Raises ``QueryError`` if it is not a whole number of milliseconds."""
    exact = Decimal(node.name) * UNITS_US[node.args["unit"].removesuffix("S")]
    if exact > DURATION_US_MAX:
        raise source.at(node, "a duration is at most 1000000 DAYS")
    if exact % 1000:
        raise source.at(node, "durations are whole milliseconds")
    return int(exact)
