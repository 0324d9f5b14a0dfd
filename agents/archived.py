"""What an archive holds of a stream, told from its files and manifests alone: their hours and agents, the
format of the lines, and the columns that samples of them show. So an archive is read where no fleet runs.

Samples are from all over the span that is asked for, bounded whatever its size. Nothing is written.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from agents.archive.contents import contents, unlisted
from agents.archive.manifest import File
from agents.archive.partitions import ArchiveError, Target
from agents.formats import Format, get_format
from agents.tasks.samples import declared_columns, guess_format, spread
from elf.errors import InputError, UserError
from elf.fields import replace
from elf.schema import ColumnType, Schema, declare

SAMPLED_FILES: Final = 16
SAMPLED_PLACES: Final = 3
"""Of a file: row groups whose first lines are looked at."""
SAMPLED_ROWS: Final = 1_024
"""Of each of them."""
LINES_MAX: Final = 10_000
Span = tuple[int, int]
"""Event times ``[from, to)`` in µs since the epoch."""

_STREAM: Final = re.compile(r"stream=([^/]+)")
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, eq=False)
class ArchivedFile:
    """A file of an archive, and what its manifest says of it."""

    target: Target
    path: str
    about: File

    @property
    def hour(self) -> int | None:
        """Since the epoch; None: its rows have no event time."""
        return self.about.hour

    @property
    def agent(self) -> str:
        return self.about.agent


@dataclass(frozen=True)
class ArchivedStream:
    """Of a stream, within a span: its files, and how its lines are read."""

    stream: str
    files: tuple[ArchivedFile, ...]
    format: Format
    format_text: str
    timestamp: str | None
    schema: Schema
    samples: tuple[str, ...]
    """Some of its lines, from the first to the last."""

    def types(self) -> dict[str, ColumnType]:
        """Of its columns, but for those that are only known as NULL."""
        return {one.name: one.type for one in self.schema.columns if one.name not in self.schema.unsure}


def targets_of(paths: Sequence[str]) -> list[Target]:
    """The archives at these paths or URIs. Raises ``ArchiveError`` where there is none."""
    found = [Target(path) for path in paths]
    for target in found:
        if not _folders(target):
            raise ArchiveError(
                f"there is no archive at {target.uri}: it has no folder stream=… (archive.path of an agent)"
            )
    return found


def streams_in(targets: Sequence[Target]) -> tuple[str, ...]:
    """The names of the streams in these archives, in order."""
    return tuple(sorted({name for target in targets for name in _folders(target)}))


def archived_streams(
    targets: Sequence[Target], streams: Sequence[str], span: Span | None, declared: Mapping[str, ColumnType]
) -> list[ArchivedStream]:
    """What there is of each of these streams. ``declared``: types of columns that are said.

    Raises ``UserError`` for a stream that is not there, for a span of which nothing is there, for files
    whose lines are of several formats, and for a declared column that no stream can have.
    """
    found = [_look_at(targets, stream, span) for stream in streams]
    schemas = {one.stream: (one.format, one.schema) for one in found}
    types = declared_columns(schemas, declared)
    return [replace(one, schema=declare(one.schema, types[one.stream])) for one in found]


def files_of(targets: Sequence[Target], stream: str, span: Span | None) -> list[ArchivedFile]:
    """The stream's files that may have rows of that span, by hour and agent; all of them without one. With
    those that are damaged: who reads the rows says so. Raises ``ArchiveError``."""
    found = []
    for target in targets:
        held = contents(target, stream, *(span or (None, None)))
        paths = {file.path: file for file in held.files}
        paths |= {path: unlisted(path, 0) for path in held.damaged}
        folder = target.stream_folder(stream)
        found += [ArchivedFile(target, f"{folder}/{path}", file) for path, file in paths.items()]
    return sorted(found, key=lambda one: (one.hour is None, one.hour or 0, one.agent, one.path))


def hour_text(hour: int | None) -> str:
    """An hour since the epoch, for people."""
    return "no time" if hour is None else f"{_EPOCH + timedelta(hours=hour):%Y-%m-%d %H:00}"


def moment_text(us: int) -> str:
    """A moment in µs since the epoch, for people."""
    return (_EPOCH + timedelta(microseconds=us)).replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")


def extent(files: Sequence[ArchivedFile]) -> str:
    """From when to when there are rows, for people."""
    hours = sorted(one.hour for one in files if one.hour is not None)
    if not hours:
        return "rows without a time alone"
    return f"{hour_text(hours[0])} to {hour_text(hours[-1] + 1)}"


# -- folders -------------------------------------------------------------------------------------------------


def _folders(target: Target) -> list[str]:
    names = map(_STREAM.fullmatch, target.names(target.root))
    return [unquote(match[1]) for match in names if match is not None]


# -- what the lines are --------------------------------------------------------------------------------------


def _look_at(targets: Sequence[Target], stream: str, span: Span | None) -> ArchivedStream:
    files = files_of(targets, stream, span)
    if not files:
        raise _nothing(targets, stream, span)
    facts = {}
    for one in files:
        with suppress(OSError, pa.ArrowException):  # who reads the rows says that it is damaged
            facts[one] = one.target.facts(one.path)
    text, timestamp = _one_format(stream, facts)
    lines = spread([line for one in spread_files(list(facts)) for line in _lines(one)], LINES_MAX)
    format_ = get_format(text) if text else guess_format(lines)
    schema = format_.schema(pa.array(lines, pa.string()), timestamp or None)
    if facts:
        known = json.loads(facts[next(reversed(facts))].get("columns", "{}"))
        schema = declare(schema, known)
    labels = {name for of in facts.values() for name in json.loads(of.get("labels", "{}"))}
    schema = replace(schema, labels=tuple(sorted(labels)))
    return ArchivedStream(
        stream, tuple(files), format_, text or format_.name, timestamp or None, schema, tuple(lines)
    )


def spread_files(files: Sequence[ArchivedFile]) -> list[ArchivedFile]:
    """Of many files some, from the first to the last."""
    if len(files) <= SAMPLED_FILES:
        return list(files)
    return [files[n * (len(files) - 1) // (SAMPLED_FILES - 1)] for n in range(SAMPLED_FILES)]


def _one_format(stream: str, facts: Mapping[ArchivedFile, Mapping[str, str]]) -> tuple[str, str]:
    """The format and the time column of all files."""
    found: dict[tuple[str, str], list[ArchivedFile]] = {}
    for file, of in facts.items():
        found.setdefault((of.get("format", ""), of.get("timestamp", "")), []).append(file)
    if len(found) > 1:
        each = "; ".join(f"{_said(*how)} from {extent(files)}" for how, files in found.items())
        raise InputError(
            f"the lines of stream {stream} are not of one format in this range: {each}; "
            "choose hours of one of them with --from and --to"
        )
    return next(iter(found), ("", ""))


def _said(format_: str, timestamp: str) -> str:
    return (format_ or "an unknown format") + (f" with the time in {timestamp}" if timestamp else "")


def _lines(file: ArchivedFile) -> list[str]:
    """Some lines of a file; none of a damaged one."""
    import pyarrow.parquet as pq

    found: list[str] = []
    with suppress(OSError, pa.ArrowException), file.target.fs.open_input_file(file.path) as opened:
        read = pq.ParquetFile(opened)
        groups = range(read.num_row_groups)
        places = {n * (len(groups) - 1) // (SAMPLED_PLACES - 1) for n in range(SAMPLED_PLACES)}
        for place in sorted(places) if groups else ():
            batches = read.iter_batches(SAMPLED_ROWS, row_groups=[place], columns=["line"], use_threads=False)
            found += next(iter(batches))["line"].to_pylist()
    return found


def _nothing(targets: Sequence[Target], stream: str, span: Span | None) -> UserError:
    """Why there is nothing to read."""
    known, where = streams_in(targets), ", ".join(target.uri for target in targets)
    if stream not in known:
        near = difflib.get_close_matches(stream, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"streams there: {', '.join(known)}"
        return UserError(f"there is no stream {stream} in the archive {where}; {hint}")
    every = files_of(targets, stream, None)
    if span is None or not every:
        gone = [line for target in targets for line in contents(target, stream).lacking()]
        return UserError(f"the archive {where} has no file of stream {stream}{_deleted(gone)}")
    gone = [line for target in targets for line in contents(target, stream, *span).lacking()]
    return UserError(
        f"the archive {where} has no rows of stream {stream} from {moment_text(span[0])} to "
        f"{moment_text(span[1])}{_deleted(gone)}; it has {extent(every)}"
    )


def _deleted(lines: Sequence[str]) -> str:
    """What retention has deleted, behind what is not there."""
    return "".join(f"; retention: {line}" for line in lines)
