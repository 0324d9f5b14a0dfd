"""A stream of an agent as its configuration has it: its stream task, restored to its last checkpoint, and
its input."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agents.config import FILES, Config, StreamConfig
from agents.disk.modes import Access
from agents.disk.store import Store
from agents.formats import Format, get_format
from agents.inputs.records import Records
from agents.inputs.tail import Tail
from agents.inputs.values import Input
from agents.lookups import LOOKUPS
from agents.masks import read_key
from agents.metrics import Metrics
from agents.ports import Receiver
from agents.receiving.opening import open_input
from agents.tasks.archive import Archive
from agents.tasks.archived import Archived
from agents.tasks.masking import Masked, lines_of
from agents.tasks.sinks import RejectFile, Sinks
from agents.tasks.spill import SpillFolder
from agents.tasks.streams import FunctionsAt, StreamEngine
from agents.tasks.streamtask import StreamTask, TaskStatus
from agents.tasks.tracing import Masks
from elf.fields import replace
from elf.job.catalog.membership import Identity
from elf.job.ports import Spill
from elf.job.reexecution import Reading
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.job.worker.taps import Ends
from elf.schema import ColumnType

TREE_BYTES_MIN: Final = 48 << 20
"""The least memory that a tree can work in."""
COPIED_MS: Final = 1_000
"""How often what has come to open panes is copied to neighbours, where copies are eager."""


def since_us(name: str, stream: StreamConfig, store: Store) -> int:
    """From which event time on this agent has a stream: ever, when it reads its files from their beginning,
    else from its first start with it.
    """
    if stream.initial_read_offset == "beginning":
        return LONG_AGO
    known = store.get(f"since.{name}")
    if known is None:
        known = str(time.time_ns() // 1000).encode()
        store.put(f"since.{name}", known)
    return int(known)


def task_of(
    config: Config,
    name: str,
    stream: StreamConfig,
    store: Store,
    folder: Path,
    me: Identity,
    metrics: Metrics,
    functions: FunctionsAt,
    receivers: dict[str, Receiver],
    ends: Mapping[str, Ends],
) -> tuple[StreamTask, Input]:
    """A stream's stream task, restored to its last checkpoint, and its input, opened where that checkpoint
    stands. What receives its lines is added to ``receivers``. ``ends``: how far jobs in Python have rows."""
    format_ = get_format(stream.zoned_format)
    declared: dict[str, ColumnType] = dict(stream.columns)  # type: ignore[arg-type]
    protocol = config.protocol
    place = config.archive.path if config.archive.enabled else ""
    facts = TaskStatus(name, format_, stream.timestamp, place, declared)
    settings = WorkerSettings(
        idle_ms=ms_of(stream.idle_timeout_secs),
        future_us=int(protocol.future_bound_secs * 1e6),
        lateness_us=int(stream.lateness_secs * 1e6),
        since_us=since_us(name, stream, store),
        checkpoint_ms=min(ms_of(protocol.cut_interval_secs), COPIED_MS if protocol.eager else 1 << 60),
        copies_ms=COPIED_MS if protocol.eager else None,
        agent=me.address,
        name=me.name,
        labels=tuple(config.agent.labels.items()),
        traces=config.archive.enabled,
    )
    reading = reading_of(stream, settings) if stream.shared else None
    settings = replace(settings, shared=repr(reading) if reading is not None else "")
    masks = _masks(stream, format_, folder)
    rejects = RejectFile(folder / "rejects" / f"{name}.jsonl")
    archive = _archive(config, name, stream, folder, me, masks.fact)
    task = StreamTask(
        facts,
        settings,
        store,
        shared=stream.shared,
        engine=StreamEngine(format_, stream.timestamp, functions),
        sinks=Sinks(archive, rejects),
        metrics=metrics,
        spill=_spill(config, folder, name),
        reading=reading,
        archived=Archived(folder / "rolls" / name, place, name, me.agent_id) if place else None,
        masks=masks,
        past_share=min(config.archive.past_share, 1.0),
        given=ends,
    )
    source: Input
    if stream.type == FILES:
        source = Tail(
            stream.include,
            stream.exclude,
            initial="end" if stream.initial_read_offset == "end" else "beginning",
            max_line_bytes=stream.max_line_bytes,
            rotate_wait_secs=stream.rotate_wait_secs,
            positions=task.positions,
            records=records_of(stream),
        )
    else:
        source, receivers[name] = open_input(config, name, stream, folder, task.positions, metrics)
    if stream.mask:
        return task, Masked(source, get_format(stream.format), stream.mask, read_key(folder))
    return task, source


def _masks(stream: StreamConfig, fmt: Format, folder: Path) -> Masks:
    """How lines are masked that are read again."""
    if not stream.mask:
        return Masks()
    fact = json.dumps(dict(sorted(stream.mask.items())))
    return Masks(fact, lambda: lines_of(fmt, stream.mask, read_key(folder)))


def _archive(
    config: Config, name: str, stream: StreamConfig, folder: Path, me: Identity, mask: str
) -> Archive | None:
    """None where lines are not archived. ``mask``: how they are masked, as ``Masks`` says it."""
    if not config.archive.enabled:
        return None
    return Archive(
        folder / "rolls" / name,
        config.archive.path,
        stream=name,
        agent=me.agent_id,
        roll_secs=config.archive.roll_secs,
        roll_bytes=config.archive.roll_bytes,
        facts={
            "format": stream.zoned_format,
            "timestamp": stream.timestamp or "",
            "columns": json.dumps(dict(stream.columns)),
            "agent_name": me.name,
            "labels": json.dumps(dict(config.agent.labels)),
            "mask": mask,
        },
        changing=lambda: {"lookups": json.dumps(LOOKUPS.told())},
        access=Access(config.archive.readers, config.archive.group),
    )


def records_of(stream: StreamConfig) -> Records | None:
    """None: each line is one."""
    several = stream.multiline
    return Records(several.start, ms_of(several.wait_secs)) if several.start else None


def reading_of(stream: StreamConfig, settings: WorkerSettings) -> Reading:
    """For who may read the stream's files in our place; the stream task finds the event time where none is
    set."""
    return Reading(
        stream.zoned_format,
        stream.timestamp,
        settings.future_us,
        settings.lateness_us,
        settings.since_us,
        stream.max_line_bytes,
        stream.include,
        stream.exclude,
    )


def _spill(config: Config, folder: Path, stream: str) -> Spill:
    """Each tree may hold a quarter of the agent's memory; the rest goes to files that end with it."""
    place = folder / "spill" / stream
    shutil.rmtree(place, ignore_errors=True)
    bytes_max = max(TREE_BYTES_MIN, config.memory_max_bytes // 4)
    return Spill(bytes_max, lambda flow: SpillFolder(place / hash_name(flow)))


def hash_name(text: str) -> str:
    """A name of a file for a name that comes from elsewhere, whatever is in it."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def ms_of(secs: float) -> int:
    return int(secs * 1000)
