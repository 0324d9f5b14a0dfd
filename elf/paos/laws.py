"""What must hold of an aggregate of one's own, tried on rows: on drawn ones, and on some of an agent's own.

    parts together    states of parts, merged, give what the state of all rows gives
    commutative       merge(a, b) gives what merge(b, a) gives
    associative       merge(merge(a, b), c) gives what merge(a, merge(b, c)) gives
    groups apart      several groups in one call give what each gives by itself, in create and in merge
    one alone         a state that is merged with none stays what it is

What is compared are values (``finalize``), since a state may be written in several ways. Doubles may differ
by one part in 10⁹ of the largest number that takes part: sums of them depend on their order. A law that is
broken is told with the smallest rows that were found to break it, in one line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from elf.paos.groups import Groups
from elf.paos.running import Calls, States

Row = tuple[Any, ...]
Parts = tuple[tuple[Row, ...], ...]
"""Rows in two parts or three, of which each has one at least."""

ROUNDS: Final = 32
OWN_ROUNDS: Final = 16
"""How often parts are drawn."""
OWN_ROWS_MAX: Final = 1_000
"""Of an agent's own rows."""
_TOLERANCE: Final = 1e-9
_DRAWN: Final[Mapping[pa.DataType, tuple[Any, ...]]] = {
    pa.int64(): (0, 1, 2, 3, 5, -1, -7, 10, 100, 4_096, 1_000_000),
    pa.float64(): (0.0, 1.0, 2.0, 0.5, 0.1, 3.75, -1.0, -2.5, 10.0, 1e-3, 1234.5, 1e6),
    pa.string(): ("", "a", "b", "ab", "B", "é", "/index.html", "10", "9"),
    pa.bool_(): (True, False),
    pa.timestamp("us"): tuple(
        pa.scalar(us, pa.timestamp("us")).as_py() for us in (0, 1, 10**6, 1_767_225_600 * 10**6)
    ),
}
"""By type, the simplest first."""


@dataclass(frozen=True)
class Law:
    """``sides``: the values of its two sides, over two parts or three; ``left`` and ``right`` say what they
    are."""

    broken: str
    left: str
    right: str
    sides: Callable[[Calls, Parts], tuple[list[Any], list[Any]]]


def _state(calls: Calls, rows: Sequence[Row]) -> States:
    return calls.create(Groups(np.zeros(len(rows), np.int64), 1), _columns(calls, rows))


def _columns(calls: Calls, rows: Sequence[Row]) -> list[pa.Array]:
    return [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(calls.arguments)]


def _merge(calls: Calls, *states: States) -> States:
    whole = [pa.concat_arrays(some) for some in zip(*states, strict=True)]
    return calls.merge(Groups(np.zeros(len(whole[0]), np.int64), 1), whole)


def _value(calls: Calls, states: States) -> list[Any]:
    found: list[Any] = calls.finalize(states).to_pylist()
    return found


def _together(calls: Calls, parts: Parts) -> tuple[list[Any], list[Any]]:
    merged = _merge(calls, *(_state(calls, part) for part in parts))
    whole = [row for part in parts for row in part]
    return _value(calls, merged), _value(calls, _state(calls, whole))


def _commuted(calls: Calls, parts: Parts) -> tuple[list[Any], list[Any]]:
    one, other = (_state(calls, part) for part in parts[:2])
    return _value(calls, _merge(calls, one, other)), _value(calls, _merge(calls, other, one))


def _associated(calls: Calls, parts: Parts) -> tuple[list[Any], list[Any]]:
    first, second, third = (_state(calls, (parts * 2)[place]) for place in range(3))
    left = _merge(calls, _merge(calls, first, second), third)
    return _value(calls, left), _value(calls, _merge(calls, first, _merge(calls, second, third)))


def _created_apart(calls: Calls, parts: Parts) -> tuple[list[Any], list[Any]]:
    # The rows of groups are mixed, as they come.
    mixed = [
        pair
        for some in itertools.zip_longest(*(tuple((n, row) for row in part) for n, part in enumerate(parts)))
        for pair in some
        if pair is not None
    ]
    groups = Groups([number for number, _ in mixed], len(parts))
    at_once = calls.create(groups, _columns(calls, [row for _, row in mixed]))
    alone = [_value(calls, _state(calls, part))[0] for part in parts]
    return _value(calls, at_once), alone


def _merged_apart(calls: Calls, parts: Parts) -> tuple[list[Any], list[Any]]:
    rows = [(number, row) for number, part in enumerate(parts) for row in part]
    rows = rows[::2] + rows[1::2]
    each = calls.create(Groups(np.arange(len(rows)), len(rows)), _columns(calls, [row for _, row in rows]))
    at_once = calls.merge(Groups([number for number, _ in rows], len(parts)), each)
    alone = []
    for number in range(len(parts)):
        own = pa.array([place for place, (of, _) in enumerate(rows) if of == number], pa.int64())
        alone.append(_value(calls, _merge(calls, [one.take(own) for one in each]))[0])
    return _value(calls, at_once), alone


def _alone(calls: Calls, parts: Parts) -> tuple[list[Any], list[Any]]:
    state = _state(calls, parts[0])
    return _value(calls, _merge(calls, state)), _value(calls, state)


LAWS: Final = (
    Law("create() of several groups mixes them up", "at once they give", "each by itself", _created_apart),
    Law("merge() of several groups mixes them up", "at once they give", "each by itself", _merged_apart),
    Law("merge() changes a state that is alone", "merged it gives", "before", _alone),
    Law("merge() is not commutative", "merged in this order they give", "in the other", _commuted),
    Law("merge() is not associative", "merged from the left they give", "from the right", _associated),
    Law(
        "create() over parts, merged, is not create() over all rows",
        "the parts merged give",
        "all rows at once",
        _together,
    ),
)


def broken_law(calls: Calls, own: Sequence[pa.Array] = ()) -> str:
    """The first law that is broken, in one line with the smallest example that was found; empty: none.
    ``own``: a column for each argument, with rows of an agent's own, without NULLs; without any, rows are
    drawn. What the class raises comes as it is."""
    for parts in _parts(calls, own):
        for law in LAWS:
            if _breaks(law, calls, parts):
                return _told(law, calls, _smallest(law, calls, parts))
    return ""


def _parts(calls: Calls, own: Sequence[pa.Array]) -> Iterator[Parts]:
    rng = np.random.default_rng(20140619)
    for place in range(0 if own else ROUNDS):
        pools = [_DRAWN[kind][: 3 + place] for kind in calls.arguments]
        sizes = rng.integers(1, 2 + place // 8, 3)
        yield tuple(
            tuple(tuple(pool[rng.integers(len(pool))] for pool in pools) for _ in range(size))
            for size in sizes
        )
    rows = list(zip(*(column.slice(0, OWN_ROWS_MAX).to_pylist() for column in own), strict=True))
    if len(rows) < 3:
        return
    for _ in range(OWN_ROUNDS):
        chosen = rng.permutation(len(rows))[: int(rng.integers(3, 13))]
        cuts = sorted(rng.choice(np.arange(1, len(chosen)), 2, replace=False).tolist())
        yield tuple(tuple(rows[place] for place in some) for some in np.split(chosen, cuts))
    third = len(rows) // 3
    yield tuple(tuple(some) for some in (rows[:third], rows[third : 2 * third], rows[2 * third :]))


def _breaks(law: Law, calls: Calls, parts: Parts) -> bool:
    left, right = law.sides(calls, parts)
    return not all(_alike(one, other, parts) for one, other in zip(left, right, strict=True))


def _alike(one: Any, other: Any, parts: Parts) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other) or math.isinf(one) or math.isinf(other):
            return (math.isnan(one) and math.isnan(other)) or one == other
        given = (abs(x) for part in parts for row in part for x in row if isinstance(x, int | float))
        return abs(one - other) <= _TOLERANCE * max(1.0, abs(one), abs(other), *given)
    return bool(one == other)


def _smallest(law: Law, calls: Calls, parts: Parts) -> Parts:
    """Rows are left out and made simpler, one at a time, as long as the law stays broken. What makes the
    class raise is no smaller example."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(calls, parts):
            try:
                still = _breaks(law, calls, smaller)
            except Exception:
                still = False
            if still:
                parts, changed = smaller, True
                break
    return parts


def _smaller(calls: Calls, parts: Parts) -> Iterator[Parts]:
    if len(parts) > 2:
        for number in range(len(parts)):
            yield parts[:number] + parts[number + 1 :]
    for number, part in enumerate(parts):
        for place in range(len(part) if len(part) > 1 else 0):
            yield _with(parts, number, part[:place] + part[place + 1 :])
    for number, part in enumerate(parts):
        for place, row in enumerate(part):
            for which, kind in enumerate(calls.arguments):
                pool = _DRAWN[kind]
                before = pool[: pool.index(row[which])] if row[which] in pool else pool
                for simple in before:
                    fresh = (*row[:which], simple, *row[which + 1 :])
                    yield _with(parts, number, (*part[:place], fresh, *part[place + 1 :]))


def _with(parts: Parts, number: int, part: tuple[Row, ...]) -> Parts:
    return (*parts[:number], part, *parts[number + 1 :])


def _told(law: Law, calls: Calls, parts: Parts) -> str:
    left, right = law.sides(calls, parts)
    rows = " | ".join(
        "[" + ", ".join(repr(row[0]) if len(row) == 1 else repr(row) for row in part) + "]" for part in parts
    )
    values = [value[0] if len(value) == 1 else value for value in (left, right)]
    return f"{calls.title}: {law.broken}: of {rows} {law.left} {values[0]!r}, {law.right} {values[1]!r}"
