"""What ``elf run`` is asked, and of which inputs: the streams that the query reads, each with what is told
from samples of its lines, and spread over the agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from sqlglot import exp

from agents.archived import ArchivedFile, Span, archived_streams, streams_in, targets_of
from agents.formats import Format
from agents.formats.json import JSON
from agents.formats.zones import Zoned
from agents.inputs.piped import Piped
from agents.inputs.ranges import Range, split_inputs
from agents.replay import ReplayedAgent, agents_of
from agents.tasks.samples import (
    better_format,
    check_one_a_line,
    check_timestamp,
    declared_columns,
    guess_format,
    is_blank,
    named_format,
    richer_format,
    sample_head,
    sample_lines,
)
from agents.tasks.streamtask import TaskStatus
from elf.errors import InputError, UserError
from elf.ql.aggregates import CreateAggregate
from elf.ql.dialect import Emit, Windowings
from elf.ql.files import files_of
from elf.ql.looks import is_look
from elf.ql.planner import streams_of as streams_named
from elf.ql.rules_joins import is_file
from elf.ql.statements import CreateJob, Describe, Explain, Query, Select, Statement, parse
from elf.schema import ColumnType


@dataclass(frozen=True)
class Asked:
    """The text that ``elf run`` is given. It is parsed once, by the first that wants to know something of it;
    that and what follows from it raise ``UserError``.
    """

    sql: str

    @cached_property
    def statements(self) -> list[Statement]:
        return parse(self.sql)

    @property
    def last(self) -> Statement | None:
        """The statement whose answer is printed."""
        return self.statements[-1] if self.statements else None

    @property
    def is_question(self) -> bool:
        """Whether it is no query, but ``EXPLAIN`` of one, or ``DESCRIBE`` of an input."""
        return isinstance(self.last, Explain | Describe)

    @property
    def is_look(self) -> bool:
        """Whether it is a SELECT without groups, for some rows."""
        return isinstance(self.last, Select) and is_look(self.last.query)

    @cached_property
    def queries(self) -> list[Query]:
        """Those of the jobs that are created for the SELECT, and its own, the last; none to describe an
        input."""
        asked = [one for one in self.statements if not isinstance(one, CreateAggregate)]
        jobs = [one.query for one in asked[:-1] if isinstance(one, CreateJob)]
        match self.last:
            case Select(query=query) if len(jobs) + 1 == len(asked):
                return [*jobs, query]
            case Explain(target=Query() as query, analyze=False) if len(asked) == 1:
                return [query]
            case Describe() if len(self.statements) == 1:
                return []
        raise UserError(
            "elf run answers one SELECT (after CREATE JOB for each job that it reads, and CREATE AGGREGATE), "
            "EXPLAIN SELECT or DESCRIBE; all other statements are for a fleet: elf sql"
        )

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose tables the queries join."""
        return tuple(dict.fromkeys(file for query in self.queries for file in files_of(query).values()))

    @property
    def has_code(self) -> bool:
        """Whether it brings aggregates of one's own."""
        return any(isinstance(one, CreateAggregate) for one in self.statements)

    @property
    def comes_early(self) -> bool:
        """Whether its windows can be said while a pipe is read. Those of several streams, or of jobs, wait
        for its end, and so do revisions."""
        if len(self.queries) != 1 or self.is_question or self.queries[0].tree.find(Windowings) is None:
            return False
        tree = self.queries[0].tree
        revised = any(emit.args["kind"] == "revise" for emit in tree.find_all(Emit))
        return not revised and all(is_file(join.this) for join in tree.find_all(exp.Join))


@dataclass(frozen=True)
class Replay:
    """An archive whose lines come again. ``span``: event times ``[from, to)`` in µs; ``speed``: so many times
    as fast as they came, None: as fast as it goes."""

    archives: tuple[str, ...]
    streams: tuple[str, ...] = ()
    """Only these; empty: those that the query names."""
    span: Span | None = None
    speed: float | None = None


@dataclass(frozen=True)
class Stated:
    """What is said of the lines of one stream; what is not is told from samples."""

    format: str | None = None
    timestamp: str | None = None
    timezone: str | None = None
    columns: Mapping[str, ColumnType] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRequest:
    """What to run. ``inputs``: paths by stream name; any name after FROM means the only stream there is.
    ``format`` and ``timestamp`` None: guessed from the first lines.
    """

    asked: Asked
    inputs: Mapping[str, tuple[str, ...]]
    format: str | None = None
    timestamp: str | None = None
    agents: int = 1
    tables: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the files that the query joins, by name."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts of the aggregates that it creates, by file."""
    columns: Mapping[str, ColumnType] = field(default_factory=dict)
    """Types that are declared; all others are those of samples."""
    timezone: str | None = None
    """Of the clocks whose times the lines have, where they name none; None: UTC."""
    pipe: Piped | None = None
    """In place of the only path that there is: windows come while it is read."""
    replay: Replay | None = None
    """In place of inputs."""
    told: Callable[[int], None] | None = None
    """Called again and again with the bytes that were read, as long as the run goes on."""
    stated: Mapping[str, Stated] = field(default_factory=dict)
    """Of single streams, in place of ``format``, ``timestamp``, ``timezone`` and ``columns``."""
    rejects: Path | None = None
    """A folder for what is rejected, in files as agents have them (``agents.tasks.sinks``)."""

    def stated_of(self, stream: str) -> Stated:
        """What is said of a stream."""
        said = Stated(self.format, self.timestamp, self.timezone, self.columns)
        return self.stated.get(stream, said)


Share: TypeAlias = Range | ArchivedFile
"""A part of what an agent reads."""


@dataclass(frozen=True)
class FleetStream:
    """A stream, and what each agent reads of it."""

    facts: TaskStatus
    shares: Sequence[Sequence[Share]]
    samples: Sequence[str]
    agents: tuple[ReplayedAgent, ...] = ()
    """Of an archive: who reads each of the shares."""


def streams_of(request: RunRequest) -> tuple[list[FleetStream], tuple[str, ...]]:
    """The streams that the query reads, and what a person should know of them."""
    if request.replay is not None:
        return _replayed(request, request.replay), ()
    whole = any(query.goes_by_source for query in request.asked.queries)
    paths = _paths_of(request)
    samples = {name: _samples(of, request.pipe) for name, of in paths.items()}
    said = {name: request.stated_of(name) for name in paths}
    formats = {
        name: _zoned(_format(said[name].format, some), said[name].timezone) for name, some in samples.items()
    }
    lines = {name: pa.array(some, pa.string()) for name, some in samples.items()}
    schemas = {name: (one, one.schema(lines[name], said[name].timestamp)) for name, one in formats.items()}
    for name, (format_, schema) in schemas.items():
        if samples[name] and not schema.columns:
            raise InputError(f"no line of the input is of format {format_.name}, where it was looked at")
    for timestamp in sorted({one.timestamp for one in said.values() if one.timestamp is not None}):
        of = [name for name in formats if said[name].timestamp == timestamp]
        without = {name: (formats[name], formats[name].schema(lines[name], None)) for name in of}
        check_timestamp(without, timestamp)
    types = declared_columns(
        {name: one for name, one in schemas.items() if name not in request.stated}, request.columns
    )
    for name in schemas.keys() & request.stated.keys():
        types |= declared_columns({name: schemas[name]}, said[name].columns)
    made = [
        FleetStream(
            TaskStatus(name, format_, said[name].timestamp, "", types[name]),
            _shares(request, paths[name], whole=whole),
            samples[name],
        )
        for name, format_ in formats.items()
    ]
    notes = [
        f"the lines have more fields than format {format_.name} takes: "
        f"they look like {richer.name} (--format {richer.name})"
        for name, format_ in formats.items()
        if (richer := richer_format(format_, samples[name])) is not None
    ]
    return made, tuple(dict.fromkeys(notes))


def _replayed(request: RunRequest, replay: Replay) -> list[FleetStream]:
    """An agent for each of those in the archive."""
    targets = targets_of(replay.archives)
    streams = replay.streams or _named(request) or streams_in(targets)
    found = archived_streams(targets, streams, replay.span, request.columns)
    agents = agents_of(found)
    return [
        FleetStream(
            TaskStatus(of.stream, of.format, of.timestamp, "", of.types()),
            [agent.files.get(of.stream, ()) for agent in agents],
            of.samples,
            tuple(agents),
        )
        for of in found
    ]


def _named(request: RunRequest) -> list[str]:
    """The streams that the queries name; none where one reads all."""
    read = [streams_named(query, jobs=True) for query in request.asked.queries]
    return [] if "*" in read else list(dict.fromkeys(name for names in read for name in names))


def _shares(request: RunRequest, paths: Sequence[str], *, whole: bool) -> list[list[Range]]:
    if request.pipe is None:
        return split_inputs(paths, request.agents, whole_files=whole)
    return [[Range(path) for path in paths], *([] for _ in range(request.agents - 1))]


def _samples(paths: Sequence[str], pipe: Piped | None) -> list[str]:
    if pipe is not None:
        return sample_head(pipe.head())
    samples = sample_lines(paths)
    if not samples and not all(is_blank(path) for path in paths):
        raise InputError("cannot read the input: where it was looked at, no line of it is text (UTF-8)")
    return samples


def _format(named: str | None, samples: Sequence[str]) -> Format:
    if named is None:
        return guess_format(samples)
    format_ = named_format(named, samples)
    if format_ is JSON:
        check_one_a_line(samples)
    if (better := better_format(format_, samples)) is not None:
        raise InputError(
            f"hardly any line of the input is of format {named}, where it was looked at; it looks like "
            f"{better.name} (--format {better.name})"
        )
    return format_


def _zoned(format_: Format, zone: str | None) -> Format:
    if zone is None:
        return format_
    if isinstance(format_, Zoned):
        raise UserError(f"--timezone {zone}: the format has a zone already, {format_.zone}")
    return Zoned(zone, format_)


def _paths_of(request: RunRequest) -> dict[str, tuple[str, ...]]:
    """The streams that the query reads, and their paths: the only one, those that it names, or all."""
    if request.agents < 1:
        raise UserError(f"--agents {request.agents}: at least one agent is needed")
    if not request.inputs or not any(request.inputs.values()):
        raise InputError("no input: name at least one with --input PATH or --stream NAME=PATH")
    named = _named(request)
    if not named or (len(request.inputs) == 1 and len(named) < 2):
        return dict(request.inputs)
    for name in named:
        if name not in request.inputs:
            known = ", ".join(sorted(request.inputs))
            raise UserError(f"there is no stream {name}; streams: {known} (--stream NAME=PATH makes one)")
    return {name: request.inputs[name] for name in named}
