"""What a window covers, for people: one short line, made of its status.

``2 of 3 agents, web-2 missing, 3 late``. A window is *whole* when nothing else than ``3 of 3 agents`` is
said: nobody missing, no row or value left out, no byte lost, no earlier result that this one corrects, and no
promise broken (WITHIN).
Who prints windows prints the line of each that is not whole, without being asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from elf.client.values import for_terminal

NAMED_MAX: Final = 5
"""Agents that are named as missing, and gaps that are told, of however many."""

Z_99: Final = 2.576
"""99 % of what is distributed normally is no further from its mean, in standard deviations."""

COUNTS: Final = {
    "late": "late",
    "rejected": "rejected",
    "future": "ahead of the clock",
    "unrostered": "outside the roster",
    "shed": "shed",
    "leapt": "leapt",
    "uncast": "uncast",
}
"""The counts of a status of what is not in the rows, and how each is said."""

FLAGS: Final = {
    "skipped": "skipped by a change of the job",
    "function_failed": "a function failed, or a graph was too large",
}


def coverage(status: Mapping[str, object], revision: int = 0) -> str:
    """The line of a window with that status; empty where the status says nothing.

    A status of another elf may have fewer counts, and more: those that are unknown here are not told.

    Args:
        status (Mapping[str, object]): ``Window.status``, or its JSON.
        revision (int): ``Window.revision``.

    Returns:
        str: one line for people.

    Raises:
        Nothing.

    Example:
        >>> coverage({"expected": 3, "reported": 2, "missing": ["web-2"], "late": 3}, revision=1)
        '2 of 3 agents, web-2 missing, 3 late, revision 1'
    """
    return ", ".join([*_agents(status), *_beside(status, revision)])


def is_whole(status: Mapping[str, object], revision: int = 0) -> bool:
    """Whether the line says nothing but that all agents are in.

    Args:
        status (Mapping[str, object]): ``Window.status``, or its JSON.
        revision (int): ``Window.revision``.

    Returns:
        bool: False also for a window that corrects an earlier result.

    Raises:
        Nothing.

    Example:
        >>> is_whole({"expected": 3, "reported": 3}), is_whole({"expected": 3, "reported": 3, "late": 1})
        (True, False)
    """
    return not _beside(status, revision) and _count(status, "reported") == _count(status, "expected")


def weight_of(status: Mapping[str, object]) -> int:
    """For how many rows one row of a window stands at most: rows were left out over a budget.

    Args:
        status (Mapping[str, object]): ``Window.status``, or its JSON.

    Returns:
        int: 1 where all rows were counted.

    Raises:
        Nothing.

    Example:
        >>> weight_of({"budgets": [{"agent": "web-1", "budget": "job top", "weight": 8}]})
        8
    """
    found = (one.get("weight") for one in _over(status))
    return max([1, *(weight for weight in found if isinstance(weight, int))])


def margin(status: Mapping[str, object], value: float, largest: float = 1.0) -> float:
    """How far a COUNT or a SUM of a group may be off, since rows were left out over a budget: in 99 of 100
    cases no further. Of an average it says nothing.

    Args:
        status (Mapping[str, object]): ``Window.status``, or its JSON.
        value (float): the count, or the sum of values of one sign.
        largest (float): of a sum: the largest value of a row.

    Returns:
        float: 0 where all rows were counted.

    Raises:
        Nothing.

    Example:
        >>> status = {"budgets": [{"agent": "web-1", "budget": "job top", "weight": 4}]}
        >>> round(margin(status, 10_000))
        466
    """
    more = (weight_of(status) - 1) * largest
    return Z_99 * math.sqrt(more * abs(value)) + Z_99**2 * more


def _agents(status: Mapping[str, object]) -> list[str]:
    if "expected" not in status:
        return []
    expected, reported = _count(status, "expected"), _count(status, "reported")
    agents = f"{reported:,} of {expected:,} {'agent' if expected == 1 else 'agents'}"
    return [agents, *_whence(status), *_waited(status)]


def _over(status: Mapping[str, object]) -> list[Mapping[object, object]]:
    """Budgets that were used up."""
    return [one for one in _list(status, "budgets") if isinstance(one, Mapping)]


def _waited(status: Mapping[str, object]) -> list[str]:
    """Whose rows were read late, since the agent's budget was used up."""
    names = list(dict.fromkeys(one.get("agent") for one in _over(status) if one.get("weight") == 1))
    return [f"{_listed(names)} read late for its budget"] if names else []


def _sampled(status: Mapping[str, object]) -> list[str]:
    """Rows that were left out over budgets: how many of how many, whose budgets, and what that does."""
    weight = weight_of(status)
    if weight == 1:
        return []
    whose = [f"{one.get('budget')} on {one.get('agent')}" for one in _over(status) if one.get("weight") != 1]
    share = f"{_count(status, 'sampled'):,} of {_count(status, 'rows_in'):,} rows left out"
    return [f"{share} over budget ({_listed(whose)}), a count n within {_margin(weight)}"]


def _margin(weight: int) -> str:
    """Of a count n, in a formula."""
    return f"±({Z_99:.1f}·√({weight - 1}·n)+{Z_99**2 * (weight - 1):.0f})"


def _whence(status: Mapping[str, object]) -> list[str]:
    """Which rows were read from archives, where the job began in the past."""
    archived, rows = _count(status, "archived"), _count(status, "rows_in")
    if status.get("offline"):
        return ["from archives, by Spark"]
    if not archived:
        return []
    return ["from archives" if archived == rows else f"{archived:,} of {rows:,} rows from archives"]


def _beside(status: Mapping[str, object], revision: int) -> list[str]:
    """All that a whole window has nothing of."""
    covered = _list(status, "covered")
    names = [name for name in _list(status, "missing") if name not in covered]
    found = [f"{_listed(names)} missing"] if names else []
    found += [f"{_listed(covered)} up to its last copy"] if covered else []
    found += _sampled(status)
    found += [f"{count:,} {word}" for name, word in COUNTS.items() if (count := _count(status, name))]
    found += [word for name, word in FLAGS.items() if status.get(name)]
    found += [f"revision {revision}"] if revision else []
    found += [_late(status)] if _count(status, "took_ms") > _count(status, "promised_ms") > 0 else []
    gaps = _list(status, "gaps")
    found += [_gap(gap) for gap in gaps[:NAMED_MAX] if isinstance(gap, Mapping)]
    return [*found, f"{len(gaps) - NAMED_MAX:,} more gaps"] if len(gaps) > NAMED_MAX else found


def _late(status: Mapping[str, object]) -> str:
    """Of a window that came later than its job promises."""
    return f"{_count(status, 'took_ms'):,} ms after it was due, {_count(status, 'promised_ms'):,} promised"


def _gap(gap: Mapping[str, object]) -> str:
    """Bytes of an agent's log that nobody will read."""
    where = " ".join(for_terminal(gap[name]) for name in ("agent", "source") if gap.get(name))
    size = f"{_count(gap, 'bytes'):,} bytes" if gap.get("bytes") is not None else "bytes unknown"
    times = _times(gap.get("from"), gap.get("to"))
    return ", ".join(part for part in (f"gap: {where}", size, times) if part)


def _times(*moments: object) -> str:
    """``10:02:11 to 10:03:40``; with the day where it is not one."""
    known = [moment for one in moments if (moment := _moment(one)) is not None]
    day = "" if len({moment.date() for moment in known}) < 2 else "%Y-%m-%d "
    return " to ".join(f"{moment:{day}%H:%M:%S}" for moment in known)


def _moment(value: object) -> datetime | None:
    """A time of a status, or of its JSON, in UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is None else value.astimezone(UTC)


def _listed(names: Sequence[object]) -> str:
    shown = ", ".join(map(for_terminal, names[:NAMED_MAX]))
    more = len(names) - NAMED_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown


def _count(counts: Mapping[str, object], name: str) -> int:
    value = counts.get(name)
    return value if isinstance(value, int) else 0


def _list(status: Mapping[str, object], name: str) -> list[object]:
    value = status.get(name)
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else []
