"""What a reader is to read of a stream: the files that manifests and layout name, and no others.

``contents`` looks at the manifests first and then at the folders. So a file that a manifest names and that is
not there is missing, and one that is there and that its agent's manifest does not name is not shipped yet, or
not any more. Of an agent that has no manifest (of an earlier release, and not started since) all files count.

It must never read a file to tell whether it is needed: what is known of it is in its manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from agents.archive.layout import last_layout
from agents.archive.manifest import File, Gone, State, agents_of, read
from agents.archive.partitions import HOUR_US, Target, agent_of

_LIFE: Final = re.compile(r"([0-9a-f]{32})-(\d{20})")


@dataclass(frozen=True)
class Contents:
    """Of a stream, or of a span of it."""

    files: tuple[File, ...]
    """Those to read, in the order of their paths; whole, as far as their sizes tell."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Paths of files that are to be read too, and why they cannot be."""
    gone: Mapping[str, tuple[Gone, ...]] = field(default_factory=dict)
    """By agent: what retention has deleted of hours in the span."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the agents are called."""

    def lacking(self) -> list[str]:
        """What is gone of these hours, for people, a line for each agent."""
        return [
            f"{self.names.get(agent) or agent} has deleted {sum(one.rows for one in gone):,} rows of "
            + ", ".join(_hours(gone))
            for agent, gone in self.gone.items()
        ]


def contents(
    target: Target, stream: str, from_us: int | None = None, to_us: int | None = None, *, agent: str = ""
) -> Contents:
    """What there is of a stream.

    With a span only of the rows with ``from_us`` ≤ ts < ``to_us`` (a row without a time is in no span), with
    an ``agent`` only of that one. Raises ``ArchiveError`` where the archive cannot be read, and for a
    manifest that is damaged or of a newer version.
    """
    needed = [one for one in agents_of(target, stream) if agent in ("", one)]
    states = {one: read(target, stream, one)[0] for one in needed}
    layout = last_layout(target, stream)  # read last: agents drop what a layout replaces once it is there
    known = {path: file for state in states.values() for path, file in state.files.items()}
    dropped = {path for state in states.values() for path in state.dropped}
    known |= {file.path: file for file in layout.files if file.path not in dropped}
    if from_us is None or to_us is None:
        sizes = _sizes(target, stream, target.everything(stream))
    else:
        sizes = _sizes(target, stream, target.hours(stream, from_us, to_us))
        known = {path: file for path, file in known.items() if _is_within(file, from_us, to_us)}
    for path, size in sizes.items():
        if path not in known and agent_of(path) not in states:
            known[path] = unlisted(path, size)
    shown = [file for path, file in sorted(known.items()) if path not in layout.replaced]
    if agent:
        shown = [file for file in shown if file.agent == agent]
    damaged = {file.path: why for file in shown if (why := _why_not(file, sizes.get(file.path)))}
    asked = {one: state for one, state in states.items() if agent in ("", one)}
    gone = _gone(asked, from_us, to_us)
    names = {one: state.name for one, state in states.items()}
    return Contents(tuple(file for file in shown if file.path not in damaged), damaged, gone, names)


def held_by(target: Target, stream: str, agent: str, *, from_record: int = 0, life: str = "") -> list[File]:
    """The files of an agent that hold records from ``from_record`` on (of a ``life``, if one is given), in
    the order of their first records. Each may hold others as well: its column ``record`` tells."""
    files = contents(target, stream, agent=agent).files
    found = [file for file in files if file.end > from_record and life in ("", file.life)]
    return sorted(found, key=lambda file: (file.first, file.path))


def unlisted(path: str, size: int) -> File:
    """A file of which there is only its name."""
    match = _LIFE.match(path.rpartition("/")[2])
    life, first = (match[1], int(match[2])) if match else ("", 0)
    return File(path=path, life=life, first=first, end=1 << 62, rows=-1, bytes=size)


def _sizes(target: Target, stream: str, folders: list[str]) -> dict[str, int]:
    """By path below the stream's folder; of files that lie where an agent's files do."""
    before = len(target.stream_folder(stream)) + 1
    found = {path[before:]: size for path, size in target.sizes(folders).items()}
    return {path: size for path, size in found.items() if path.count("/") == 3}


def _is_within(file: File, from_us: int, to_us: int) -> bool:
    if file.least_us is None or file.greatest_us is None:
        return False
    return file.least_us < to_us and from_us <= file.greatest_us


def _why_not(file: File, size: int | None) -> str:
    if size is None:
        return "the manifest names it, and it is not there"
    return "" if size == file.bytes else f"it has {size} bytes and not {file.bytes}"


def _gone(states: Mapping[str, State], from_us: int | None, to_us: int | None) -> dict[str, tuple[Gone, ...]]:
    def within(hour: int | None) -> bool:
        if from_us is None or to_us is None:
            return True
        return hour is not None and hour * HOUR_US < to_us and from_us < (hour + 1) * HOUR_US

    found = {
        agent: tuple(one for hour, one in sorted(state.gone.items(), key=_by_hour) if within(hour))
        for agent, state in states.items()
    }
    return {agent: gone for agent, gone in found.items() if gone}


def _hours(gone: Iterable[Gone]) -> Iterator[str]:
    """Runs of hours, such as ``2026-11-26 09:00 to 12:00``."""
    hours = [one.hour for one in gone]
    runs: list[list[int]] = []
    for hour in sorted(hour for hour in hours if hour is not None):
        if runs and hour == runs[-1][-1] + 1:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    for run in runs:
        start, end = (datetime.fromtimestamp(hour * 3600, UTC) for hour in (run[0], run[-1] + 1))
        until = f"{end:%H:%M}" if end.date() == start.date() else f"{end:%Y-%m-%d %H:%M}"
        yield f"{start:%Y-%m-%d %H:%M} to {until}"
    if None in hours:
        yield "no hour"


def _by_hour(item: tuple[int | None, Gone]) -> int:
    return -1 << 40 if item[0] is None else item[0]
