"""The WINDOWING clause: from what was written to kinds of windows."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from elf.ql.dialect import UNITS_US, Duration, Windowing, Windowings
from elf.ql.source import Source
from elf.windows import Cumulative, Kind, Landmark, Session, Sliding

DAY_US: Final = UNITS_US["DAY"]


def windows_of(source: Source, clause: Windowings) -> tuple[Kind, ...]:
    """The kinds of a WINDOWING clause, each once, in its order. Raises ``QueryError``."""
    kinds = {_window(source, kind): kind for kind in clause.expressions}
    alone = next((node for kind, node in kinds.items() if isinstance(kind, Session)), None)
    if alone is not None and len(kinds) > 1:
        raise source.at(alone, "sessions stand alone; make another job for the other windows")
    return tuple(kinds)


def _window(source: Source, clause: Windowing) -> Kind:
    kind = clause.args["kind"]
    if kind == "rows":
        raise source.at(clause, "WINDOWING … ROWS (windows of a number of rows) is not supported yet")
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


def _positive_us(source: Source, node: Duration) -> int:
    found = duration_us(source, node)
    if found == 0:
        raise source.at(node, "a window's size and slide must be more than 0")
    return found


def duration_us(source: Source, node: Duration) -> int:
    """Raises ``QueryError`` where it is no whole number of milliseconds."""
    exact = Decimal(node.name) * UNITS_US[node.args["unit"].removesuffix("S")]
    if exact % 1000:
        raise source.at(node, "durations are whole milliseconds")
    return int(exact)
