"""The conditions of a join of two streams: which keys are equal, how far apart in event time two rows may be,
which conditions each side's agents can check, and how long panes are for all that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from elf.ql.draft import Draft
from elf.ql.expressions import Call, Constant, Expr, Ref, walk
from elf.ql.tables import Joined
from elf.schema import Schema
from elf.windows import pane_us_of
from elf.windows.kinds import HOUR_US, span

PANES_MAX: Final = 60
APART_US_MAX: Final = 24 * HOUR_US
"""The furthest that partners may be apart: the job groups' stores keep the rows of both streams for so
long."""
PANE_US_MIN: Final = 1_000_000
"""Panes are shorter than windows need them, so that a window waits for little more than the interval: at most
so many parts, and none shorter than that."""
_MIRROR: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Pair = tuple[Expr | None, Expr | None]
"""What something is in a left row, and in a right one."""


class Between(Struct, frozen=True):
    """Event time of the right row less that of the left one, in µs: from ``low`` to ``high``."""

    low: int
    high: int

    def about(self, streams: tuple[str, ...]) -> str:
        """For people."""
        left, right = (f"{stream}'" if stream.endswith("s") else f"{stream}'s" for stream in streams)
        ends = [
            f"{left} {'-' if us < 0 else '+'} {span(abs(us))}" if us else left for us in (self.low, self.high)
        ]
        return f"{right} event time from {ends[0]} to {ends[1]}"

    def reach(self, pane_us: int) -> tuple[int, int]:
        """(before, after) a left row's pane, in whole panes: where its partners are."""
        if not pane_us:
            return 0, 0
        before, after = max(0, -self.low), max(0, self.high)
        return -(-before // pane_us) * pane_us, -(-after // pane_us) * pane_us


class Conditions(Struct, frozen=True):
    """Conditions by where they are checked. ``keys``: (of the left row, of the right one), which are equal;
    ``on`` and ``where``: when the rows meet, and after that."""

    keys: tuple[tuple[Expr, Expr], ...]
    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    on: tuple[Expr, ...]
    where: tuple[Expr, ...]
    between: Between


def conditions_of(draft: Draft, joined: Joined, schemas: Mapping[str, Schema]) -> Conditions:
    """Raises ``QueryError`` where they do not bound what must be kept."""
    times = _event_times(draft, joined, schemas)
    place, inner = joined.place, not joined.left
    asked = dict.fromkeys((*joined.on, *draft.where) if inner else joined.on)
    keys = {one: key for one in asked if (key := _key(one, place)) is not None}
    between = _between(asked, times)
    if not keys or between is None:
        raise draft.source.error(_complaint(draft, joined, times, bool(keys)), joined.at)
    if between.low > between.high:
        raise draft.source.error("the bounds on the time between two rows leave no time at all", joined.at)
    if max(-between.low, between.high) > APART_US_MAX:
        message = (
            f"rows would be kept for more than {span(APART_US_MAX)}, which is the most; bound the time closer"
        )
        raise draft.source.error(message, joined.at)
    others = [one for one in asked if one not in keys]
    right = [one for one in others if _places(one) == {place}]
    left = [one for one in (others if inner else draft.where) if place not in _places(one)]
    right += [_known(key) for _, key in keys.values()]
    left += [_known(key) for key, _ in keys.values()] if inner else []
    return Conditions(
        keys=tuple(sorted(dict.fromkeys(keys.values()), key=repr)),
        left=tuple(left),
        right=tuple(right),
        on=tuple(one for one in others if one not in right and not (inner and one in left)),
        where=() if inner else tuple(one for one in draft.where if one not in left),
        between=between,
    )


def _event_times(draft: Draft, joined: Joined, schemas: Mapping[str, Schema]) -> tuple[Ref, Ref]:
    found = []
    for stream, place in zip(joined.streams, ("", joined.place), strict=True):
        column = schemas[stream].event_time
        if column is None:
            message = f"streams are joined within an interval of event time, and {stream} has none"
            raise draft.source.error(message, joined.at)
        found.append(Ref(column, "timestamp", 0, place))
    return found[0], found[1]


def _places(expr: Expr) -> set[str]:
    return {part.table for part in walk(expr) if isinstance(part, Ref)}


def _known(key: Expr) -> Expr:
    """NULL is equal to nothing."""
    return Call("not", (Call("is_null", (key,), "boolean"),), "boolean")


def _key(one: Expr, place: str) -> tuple[Expr, Expr] | None:
    """The two expressions that an equality compares."""
    if not isinstance(one, Call) or one.op != "=":
        return None
    a, b = one.args
    sides = _places(a), _places(b)
    if sides == ({""}, {place}):
        return a, b
    return (b, a) if sides == ({place}, {""}) else None


def _between(conditions: Iterable[Expr], times: tuple[Ref, Ref]) -> Between | None:
    """The tightest bounds that all of the conditions put on the time between; None without both."""
    lows, highs = [], []
    for one in conditions:
        if not isinstance(one, Call) or one.op not in _MIRROR:
            continue
        op, (a, b) = one.op, (_moment(arg, times) for arg in one.args)
        if a is None or b is None or a[0] == b[0]:
            continue
        if a[0] == 0:
            op, a, b = _MIRROR[op], b, a
        apart = b[1] - a[1]
        if op in (">=", ">", "="):
            lows.append(apart)
        if op in ("<=", "<", "="):
            highs.append(apart)
    return Between(max(lows), min(highs)) if lows and highs else None


def _moment(expr: Expr, times: tuple[Ref, Ref]) -> tuple[int, int] | None:
    """(0 or 1, µs): the event time of the left or of the right row, and so much."""
    if expr in times:
        return times.index(expr), 0
    match expr:
        case Call("from us", (Call("+", (Call("epoch_us", (moment,)), Constant(value=int(us)))),)):
            found = _moment(moment, times)
            return None if found is None else (found[0], found[1] + us)
    return None


def _complaint(draft: Draft, joined: Joined, times: tuple[Ref, Ref], keyed: bool) -> str:
    left, right = draft.streams[-1] if draft.streams and joined.name else "a", joined.name or "b"
    early, late = f"{left}.{times[0].name}", f"{right}.{times[1].name}"
    bound = f"{late} BETWEEN {early} AND {early} + INTERVAL 10 SECONDS"
    if not keyed:
        return (
            "any row of one stream could meet any row of the other: say which keys are equal, as in "
            f"ON {left}.key = {right}.key AND {bound}"
        )
    return (
        "the rows of two streams would have to be kept for each other, without bound: say how far apart in "
        f"event time two rows may be, from when to when, as in ON … AND {bound}"
    )


def pane_us(draft: Draft, between: Between) -> int:
    """A whole part of the windows' unit: no longer than the interval reaches, so that a window waits for less
    than twice that, except with the shortest intervals."""
    unit = pane_us_of(draft.windows)
    wanted = [reach for reach in (-between.low, between.high) if reach > 0]
    if not unit or not wanted:
        return unit
    parts_max = max(1, min(PANES_MAX, unit // PANE_US_MIN))
    whole = [parts for parts in range(1, parts_max + 1) if unit % parts == 0]
    return unit // next((parts for parts in whole if unit // parts <= min(wanted)), whole[-1])
