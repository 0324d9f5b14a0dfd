"""The upkeep of an agent's archive (``agents.archive.upkeep``) in its process: when it runs, and what people
hear of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from agents.archive.partitions import ArchiveError
from agents.archive.retention import Limits
from agents.archive.shelf import Held
from agents.archive.upkeep import LetGo, Upkeep
from agents.logs import Logger
from agents.metrics import Metrics
from agents.tasks.indexing import LineIndex
from agents.tasks.streamtask import StreamTask

if TYPE_CHECKING:  # ``elf run`` has no configuration, and no YAML
    from agents.config import ArchiveConfig

EVERY_S: Final = 10.0
"""Between two passes: a disk fills by a few hundred MB in that time."""
TOLD_EVERY_S: Final = 60.0
"""What goes on being wrong is said so often."""
TIGHT_S: Final = 3_600.0
"""So long a warning stays that rows went for want of room."""


class Housekeeping:
    """``run`` and ``close`` on the thread that ships; the rest from any."""

    def __init__(self, upkeep: Upkeep, metrics: Metrics) -> None:
        self._upkeep = upkeep
        self._metrics = metrics
        self._problem = ""
        self._told_s = 0.0
        self._tight: dict[str, tuple[float, str]] = {}
        self._held: Mapping[str, Held] = {}

    def run(self, log: Logger) -> None:
        """A pass, and what it came to."""
        try:
            for one in self._upkeep.run():
                self._tell(one, log)
            self._held = {s.stream: s.held() for s in self._upkeep.shelves if s.is_there}
        except ArchiveError as error:
            if self._problem != str(error) or time.monotonic() - self._told_s >= TOLD_EVERY_S:
                self._told_s = time.monotonic()
                log.warning("the upkeep of the archive has failed; it is tried again", reason=str(error))
            self._problem = str(error)
        else:
            self._problem = ""
        for stream, held in self._held.items():
            self._metrics.archived(stream, held.files, held.bytes, held.gone_rows)

    def _tell(self, one: LetGo, log: Logger) -> None:
        span = {"from": _moment(one.from_hour), "to": _moment(one.to_hour, end=True)}
        facts = {"files": one.files, "rows": one.rows, "bytes": one.bytes, **span}
        text = "the oldest rows of the archive are deleted"
        if one.why == "room":
            self._tight[one.stream] = (time.monotonic(), span["to"])
            log.warning(f"{text}: its disk has less free than archive.free_bytes", stream=one.stream, **facts)
        else:
            log.info(text, stream=one.stream, limit=f"archive.{one.why}", **facts)

    def held(self) -> Mapping[str, Held]:
        """What there is of each stream, as the last pass has seen it."""
        return self._held

    def warnings(self) -> list[str]:
        found = [f"the upkeep of the archive fails: {self._problem}"] if self._problem else []
        for stream, (when_s, until) in self._tight.items():
            if time.monotonic() - when_s < TIGHT_S:
                found.append(
                    f"stream {stream}: archived rows up to {until} were deleted: the disk of archive.path "
                    "has less free than archive.free_bytes"
                )
        return found


def housekeeping_of(
    config: ArchiveConfig, tasks: Sequence[StreamTask], metrics: Metrics
) -> Housekeeping | None:
    """None: there is no archive."""
    shelves = {task.facts.stream: task.shelf for task in tasks}
    indexing = {
        task.facts.stream: LineIndex(
            task.facts.format, task.facts.timestamp, config.index, task.facts.declared
        )
        for task in tasks
    }
    upkeep = Upkeep(
        [shelf for shelf in shelves.values() if shelf is not None],
        Limits(config.days, config.bytes, config.free_bytes),
        grace_ms=int(config.grace_secs * 1000),
        indexing=indexing if config.index else {},
    )
    return Housekeeping(upkeep, metrics) if upkeep.shelves else None


def _moment(hour: int | None, *, end: bool = False) -> str:
    """An hour since the epoch, for people; empty: rows without event time alone."""
    if hour is None:
        return ""
    at = datetime.fromtimestamp((hour + end) * 3600, UTC)
    return at.strftime("%Y-%m-%d %H:%M")
