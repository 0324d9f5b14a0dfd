"""What a window covers, for people: one short line, made of its status.

``2 of 3 agents, web-2 missing, 3 late``. A window is *whole* when nothing else than ``3 of 3 agents`` is
said: nobody missing, no row or value left out, no byte lost, no earlier result that this one corrects, and no
promise broken (WITHIN).
Who prints windows prints the line of each that is not whole, without being asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from elf.client.values import for_terminal

NAMED_MAX: Final = 5
"""Agents that are named as missing, and gaps that are told, of however many."""

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


def _agents(status: Mapping[str, object]) -> list[str]:
    if "expected" not in status:
        return []
    expected, reported = _count(status, "expected"), _count(status, "reported")
    return [f"{reported:,} of {expected:,} {'agent' if expected == 1 else 'agents'}", *_whence(status)]


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
