"""What the calls of a client come to (``elf.client.client``), as values; but windows are in
``elf.client.windows``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from elf.wire.clients import TapReply

if TYPE_CHECKING:
    from elf.job.messages.groups import JobStatus


@dataclass(frozen=True, eq=False)
class Result:
    """What a statement came to.

    Attributes:
        text (str): for people; empty where the rows say it all.
        table (pyarrow.Table | None): the rows, if the statement has any. Their columns are those that
            ``elf sql`` prints.
        waiting (bool): whether there is more to come, and the text says why nothing has for some seconds.
        data (dict[str, object] | None): the same as the text, for programs.

    Example:
        >>> result = await client.sql("SHOW STREAMS")
        >>> result.table["stream"].to_pylist(), result.waiting
        (['clicks'], False)
    """

    text: str
    table: pa.Table | None
    waiting: bool = False
    data: dict[str, object] | None = None


def facts_of(described: Result) -> dict[str, str]:
    """What DESCRIBE has told of a job, by name."""
    rows = [] if described.table is None else described.table.to_pylist()
    return {row["fact"]: row["value"] for row in rows}


class ArchiveStatus(msgspec.Struct, frozen=True):
    """Where the lines of a job's stream are archived, and how to read them.

    Attributes:
        stream (str): the stream.
        format (str): the format of its lines, such as ``json``.
        timestamp (str | None): the column that event time is read from; None: the format knows.
        archives (tuple[str, ...]): paths or URIs of the members' archives, each once.
        silent (tuple[str, ...]): names of the members that were not reached, so that their last rows may be
            in no archive yet.
        off (tuple[str, ...]): names of the members that keep no archive (``archive: off``).

    Example:
        >>> facts = await client.compare_facts("busy")
        >>> [(one.stream, one.format, len(one.archives), one.silent) for one in facts.archives]
        [('clicks', 'json', 1, ())]
    """

    stream: str
    format: str
    timestamp: str | None
    archives: tuple[str, ...]
    silent: tuple[str, ...]
    off: tuple[str, ...] = ()


class Archives(msgspec.Struct, frozen=True):
    """Those of all streams of a job, as an agent tells of them."""

    streams: tuple[ArchiveStatus, ...]


@dataclass(frozen=True, eq=False)
class Tapped:
    """Rows of a stream since the last ones.

    Attributes:
        rows (pyarrow.Table | None): the time column (timestamp[us], UTC), ``_agent`` (the agent's name), and
            the other columns. None: no row came.
        told (elf.wire.clients.TapReply): counts of the rows that are not among them, agents that are silent,
            and when to ask next (ms).

    Example:
        >>> async for tapped in client.tap("clicks", columns=["product"]):
        ...     if tapped.rows is not None:
        ...         break
        >>> tapped.rows.column_names, tapped.told.silent
        (['created_at', '_agent', 'product'], {})
    """

    rows: pa.Table | None
    told: TapReply


@dataclass(frozen=True, eq=False)
class CompareFacts:
    """What an offline run of a job needs.

    Attributes:
        archives (tuple[ArchiveStatus, ...]): the archives of its streams.
        job (elf.job.messages.groups.JobStatus): the job as its master knows it. ``job.windows`` are its last
            committed results, at most 1,000, of its current version or of all; ``split`` reads them.
            ``job.versions`` has what is known of each version.

    Example:
        >>> facts = await client.compare_facts("busy")
        >>> facts.job.spec.name, [one.stream for one in facts.archives]
        ('busy', ['clicks'])
    """

    archives: tuple[ArchiveStatus, ...]
    job: JobStatus
