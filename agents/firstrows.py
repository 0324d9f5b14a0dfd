"""``elf run`` of a SELECT without groups: the first rows of the inputs that it asks for (``elf.ql.looks``).
No fleet is made, and reading ends with the last row that is wanted.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from agents import logs
from agents.formats import Format
from agents.inputs.ranges import Range
from agents.inputs.values import Chunk, Input
from agents.inputs.whole import Whole
from agents.replay import Replayed
from agents.runinputs import FleetStream, RunRequest, streams_of
from agents.tasks.looking import Looking
from agents.tasks.sinks import RejectFile, rejected_line
from elf.batch import encode
from elf.job.worker.stream import WorkerSettings
from elf.ql.looks import TIME, look_of
from elf.schema import declare
from elf.wire.clients import Reply

CHUNK_BYTES: Final = 1 << 18


def first_rows(request: RunRequest) -> Reply:
    """The rows, and in words whether they are all. Raises ``UserError``."""
    logs.configure("error", "console")
    (stream,), notes = streams_of(request)
    facts, (query,) = stream.facts, request.asked.queries
    schema = facts.format.schema(pa.array(list(stream.samples), pa.string()), facts.timestamp)
    schema = declare(schema, facts.declared) if facts.declared else schema
    look = look_of(query, schema)
    found: list[pa.Table] = []
    left, rejected, problems = look.rows, 0, dict[str, str]()
    kept = None if request.rejects is None else RejectFile(request.rejects / f"{facts.stream}.jsonl")
    for settings, source in _sources(request, stream):
        looking = Looking(look, facts.format, schema.event_time, settings)
        try:
            while left > 0 and (chunk := source.read(CHUNK_BYTES, 0)) is not None:
                of = pa.array([chunk.source.log] * len(chunk.lines), pa.string())
                found.append(looking.rows(chunk.lines, of).slice(0, left).drop_columns([TIME]))
                left -= found[-1].num_rows
                if kept is not None:
                    _keep(chunk, looking, facts.format, kept)
        finally:
            source.close()
            looking.close()
        rejected, problems = rejected + looking.rejected, problems | source.counters.problems
    if kept is not None:
        kept.close()
    count = look.rows - left
    whole, part = (
        f"all {count:,} rows that match",
        f"the first {count:,} rows that match; reading ended there",
    )
    told = [whole if left else part]
    told += [f"{rejected:,} of the lines that were read do not parse"] if rejected else []
    told += [f"{path} was not read to the end: {why}" for path, why in problems.items()]
    return Reply(
        request=1, text="; ".join([*told, *notes]), payload=encode(pa.concat_tables(found)) if found else b""
    )


def _keep(chunk: Chunk, looking: Looking, fmt: Format, kept: RejectFile) -> None:
    """What of a chunk that was looked at is no line of its format."""
    for reject in (*chunk.rejects, *(rejected_line(chunk, int(one), fmt) for one in looking.refused)):
        kept.add(reject)


def _sources(request: RunRequest, stream: FleetStream) -> Iterator[tuple[WorkerSettings, Input]]:
    """The lines, by who has read them."""
    if request.replay is None:
        yield (
            WorkerSettings(name=platform.node()),
            Whole([one for share in stream.shares for one in share if isinstance(one, Range)]),
        )
        return
    for agent in stream.agents:
        files = agent.files.get(stream.facts.stream, ())
        yield WorkerSettings(name=agent.name, labels=agent.labels), Replayed(files, request.replay.span)
