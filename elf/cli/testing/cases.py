"""A file of tests: what is given, what is asked and what is expected, as it is written.

    config: elf.yaml              # streams as an agent has them (and their masks); instead of, or beside:
    streams:
      access: {format: combined, lines: "…"}
    tests:
      NAME:
        query: SELECT …           # or job: a file of SQL
        windows: [{start: …, rows: [{column: value}]}]

Names of files are relative to the folder of the file of tests. What the streams of a test say goes over what
those of the file say, key by key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from agents.settings.tree import Branch, ConfigProblems, Leaf, plain, read_yaml
from elf.errors import UserError
from elf.schema import ColumnType

_PLACE: Final = re.compile(r" - at `(?:key in )?\$?([^`]*)`")

T = TypeVar("T")


class Lines(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A stream. ``lines``: its log, as a text; ``file``: or where it is. What else is not said is the
    stream's in ``config``, or is told from the lines."""

    lines: str | None = None
    file: str | None = None
    format: str | None = None
    timestamp: str | None = None
    timezone: str | None = None
    columns: dict[str, ColumnType] = {}

    def over(self, other: Lines) -> Lines:
        """With what the other one says where this one says nothing."""
        has_log = self.lines is not None or self.file is not None
        return Lines(
            lines=self.lines if has_log else other.lines,
            file=self.file if has_log else other.file,
            format=self.format or other.format,
            timestamp=self.timestamp or other.timestamp,
            timezone=self.timezone or other.timezone,
            columns=self.columns or other.columns,
        )


class Expected(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A window and its rows. ``end`` tells windows with one start apart."""

    start: datetime
    rows: list[dict[str, Any]]
    end: datetime | None = None


class Case(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A test. ``query`` or ``job`` (a file) is what is asked. One of ``windows``, ``rows`` (of what has no
    windows) and ``error`` (a part of the refusal) is expected. ``rejected``: the lines that are; ``late``:
    how many are in no window since they came too late."""

    query: str | None = None
    job: str | None = None
    streams: dict[str, Lines] = {}
    agents: int = 1
    windows: list[Expected] | None = None
    rows: list[dict[str, Any]] | None = None
    error: str | None = None
    rejected: list[str] = []
    late: int = 0


class Head(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a file says beside streams and tests. ``config``: an agent's configuration, whose streams these
    are."""

    config: str | None = None


@dataclass(frozen=True)
class File:
    """All of it."""

    tests: dict[str, Case]
    config: str | None
    streams: dict[str, Lines]


def read_cases(path: Path) -> File:
    """The tests of a file. Raises ``UserError``: what is wrong, with its place."""
    problems: list[str] = []
    try:
        tree = read_yaml(path, problems)
    except ConfigProblems as error:
        raise UserError(str(error)) from None
    if problems:
        raise UserError("\n".join(problems))
    tests = tree.children.pop("tests", None)
    if not isinstance(tests, Branch):
        raise UserError(f"{path}: tests: there is none (tests: NAME: …)")
    streams = _streams(tree)
    config = _converted(tree, Head, str(path)).config
    return File({name: _case(name, node) for name, node in tests.children.items()}, config, streams)


def _case(name: str, node: Leaf | Branch) -> Case:
    if not isinstance(node, Branch):
        raise UserError(f"{node.place}: {name}: a test is keys with values")
    streams = _streams(node)
    case = msgspec.structs.replace(_converted(node, Case, name), streams=streams)
    if why := _wrong(case):
        raise UserError(f"{node.place}: {name}: {why}")
    return case


def _streams(node: Branch) -> dict[str, Lines]:
    """What stands below ``streams``, which is taken out."""
    below = node.children.pop("streams", None)
    if below is None:
        return {}
    if not isinstance(below, Branch):
        raise UserError(f"{below.place}: streams: NAME: … is wanted")
    found = {name: _converted(one, Lines, f"streams.{name}") for name, one in below.children.items()}
    for name, one in found.items():
        if one.lines is not None and one.file is not None:
            raise UserError(f"{below.children[name].place}: streams.{name}: give lines or file, one of them")
    return found


def _converted(node: Leaf | Branch, kind: type[T], name: str) -> T:
    try:
        return msgspec.convert(plain(node), kind)
    except msgspec.ValidationError as error:
        found = _PLACE.search(str(error))
        where, what = found[1] if found else "", _PLACE.sub("", str(error))
        key = where.lstrip(".").partition(".")[0].partition("[")[0]
        deeper = node.children.get(key) if isinstance(node, Branch) else None
        raise UserError(f"{(deeper or node).place}: {name}{where}: {what[0].lower()}{what[1:]}") from None


def _wrong(case: Case) -> str:
    """Why a test cannot be made; empty: it can."""
    if (case.query is None) == (case.job is None):
        return "give query (SQL) or job (a file of SQL), one of them"
    if sum(one is not None for one in (case.windows, case.rows, case.error)) != 1:
        return "say what is expected: windows, rows (of a query without windows) or error, one of them"
    if case.error == "":
        return "error: say a part of the refusal"
    if case.agents < 1:
        return f"agents: {case.agents}: at least one is needed"
    for rows in [case.rows or [], *(window.rows for window in case.windows or [])]:
        if any(row.keys() != rows[0].keys() for row in rows):
            return "the rows of a window must name the same columns"
    keys = [(utc(one.start), one.end and utc(one.end)) for one in case.windows or []]
    if len(set(keys)) < len(keys):
        return "a window stands there twice; give its end if there are several with one start"
    return ""


def utc(moment: datetime) -> datetime:
    """A moment in UTC, which it is in where it does not say."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
