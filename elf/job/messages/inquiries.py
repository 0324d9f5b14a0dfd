"""Questions about flows, trees and streams, to the nodes that know; and two requests: to tell all workers of
a job something, and to ship an open roll."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from elf.fields import (
    Address,
    Count,
    FlowUid,
    JobUid,
    Label,
    Length,
    Locality,
    Micros,
    Name,
    Number,
    Pane,
    Serial,
    Statement,
    Text,
    span,
)
from elf.job.spec import JobSpec
from elf.schema import Column, Schema
from elf.security.authored import Authorship
from elf.wire.base import Request
from elf.wire.clients import LINES_MAX, ROWS_MAX

PANES_MAX: Final = 65_536
"""Ranges of panes, and parts, that somebody may ask about at once."""
TRACED_MAX: Final = 100_000
"""Rows of a window that an agent shows."""


class LocateInTree(Request, frozen=True, kw_only=True):
    """To the members of a stream, and routed to its topic: where do you hang in its tree? Answered with
    ``TreePlace``.
    """

    stream: Name


class DescribeStream(Request, frozen=True, kw_only=True):
    """Which columns have you seen in this stream? Answered with ``StreamSeen``."""

    stream: Name


class NotifyJob(Request, frozen=True, kw_only=True):
    """To the root of a job's flow: tell all its workers this. Answered with the ids of the agents it was
    sent to. ``author``: the signed statement, where there are keys."""

    uid: JobUid
    text: Text
    flow: FlowUid
    author: Authorship | None = None


class AskWhy(Request, frozen=True, kw_only=True):
    """To a flow's root: why is nothing committed? Answered with a text."""

    uid: FlowUid


class InspectClocks(Request, frozen=True, kw_only=True):
    """To the root of some flow: how far apart are the clocks that you hear? Answered with a map from address
    to ms ahead of their median."""


class InspectLoads(Request, frozen=True, kw_only=True):
    """To a voter of the catalog log: what does every agent do? Answered with a map from address to
    ``AgentLoad``, of those that have said it of late."""


class InspectFlow(Request, frozen=True, kw_only=True):
    """To a flow's root: its tree and its readers. Answered with ``FlowStatus``."""

    uid: FlowUid


class RollArchive(Request, frozen=True, kw_only=True):
    """To a member: close and ship the open roll of the stream."""

    stream: Name


class SampleRows(Request, frozen=True, kw_only=True):
    """To a member: the rows that have come since the last request of ``row_sample``, a viewer that keeps
    looking; the first time, none. Answered with ``SampledRows``.

    ``columns`` of the rows for which ``where`` is true: a condition of ELF-QL over these columns (empty:
    all), which the member binds and renders by itself. At most ``lines_max`` lines a second are examined,
    ``rows_max`` rows a second shown, and ``bytes_max`` held.
    """

    stream: Name
    row_sample: Name
    columns: tuple[Column, ...]
    where: Statement
    rows_max: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)]
    lines_max: Annotated[int, msgspec.Meta(ge=1, le=LINES_MAX)]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=32 << 20)]


class LookAt(Request, frozen=True, kw_only=True):
    """To a member: rows of the lines that it keeps of the stream, as ``query`` asks for them: a SELECT
    without groups over these columns, which it plans by itself (``elf.ql.looks``). Answered with
    ``SampledRows``: the last rows that ``bytes_max`` holds, ``hidden`` those that it does not, ``unseen`` of
    how many lines.
    """

    stream: Name
    query: Statement
    columns: tuple[Column, ...]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=32 << 20)]


class TraceRows(Request, frozen=True, kw_only=True):
    """To a member: the rows that panes of a flow have counted of it, as a commit names its contributions:
    those in its snapshots of panes in ``spans``, ``[start, end)`` each, and in ``parts``, (pane, part), of
    late rows. The flow is one of the job in ``spec``, which brings its definition. Answered with
    ``TracedRows``.

    Of the rows that the job's own WHERE takes, those for which ``where`` is true, a condition of ELF-QL over
    ``columns`` (empty: all); the first ``rows_max`` of them by event time, as far as ``bytes_max`` holds.
    """

    stream: Name
    spec: JobSpec
    flow: FlowUid
    spans: Annotated[tuple[tuple[Pane, Pane], ...], msgspec.Meta(max_length=PANES_MAX)]
    parts: Annotated[tuple[tuple[Pane, Serial], ...], msgspec.Meta(max_length=PANES_MAX)]
    columns: tuple[Column, ...]
    where: Statement
    rows_max: Annotated[int, msgspec.Meta(ge=0, le=TRACED_MAX)]
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=32 << 20)]

    def __post_init__(self) -> None:
        self.spec.check()
        for start, end in self.spans:
            span(start, end)


class TracedRows(msgspec.Struct, frozen=True):
    """``rows``: a table of event time (``time``), log (``_source``), byte offset (``_offset``) and line
    (``_line``). ``matched``: how many there are. ``counted``: rows that the panes have counted, before any
    WHERE; ``found``: how many of these are archived. ``why``: what is against their being all."""

    rows: bytes
    matched: Count
    counted: Count
    found: Count
    why: tuple[Text, ...] = ()


class TreeEdge(msgspec.Struct, frozen=True):
    """A member's place in a flow's tree, as its root last heard. ``region``: where it stands, if trees go by
    regions."""

    member: Number
    name: Name
    address: Address
    parent: Address
    sealed_us: Micros | None
    region: Locality = ""


class FlowReader(msgspec.Struct, frozen=True):
    """A job that reads a flow."""

    name: Name
    creator: Name
    master: Address


class FlowStatus(msgspec.Struct, frozen=True):
    """What a flow's root knows of it, counted since the root is where it is. ``leader``: the root's address;
    ``first_us``: start of its first pane. ``mirrored``: how many snapshots of each agent neighbours have sent
    (``STRAGGLERS MIRROR``).
    ``reexecution``: for (agent, by whom) how many panes were run again; ``not_run``: for each agent how often
    that failed, and why. ``unusable``: for each agent how many pieces could not be opened, and why."""

    flow: FlowUid
    stream: Name
    leader: Address
    first_us: Micros | None
    committed_us: Micros | None
    readers: tuple[FlowReader, ...]
    tree: tuple[TreeEdge, ...]
    mirrored: dict[Name, Count] = {}
    unusable: dict[Name, tuple[Count, Text]] = {}
    reexecution: tuple[tuple[Name, Name, Count], ...] = ()
    not_run: dict[Name, tuple[Count, Text]] = {}


class TreePlace(msgspec.Struct, frozen=True):
    """A node and its parent in a tree: "" for the root, and for a node that has none yet."""

    address: Address
    parent: Address


class SampledRows(msgspec.Struct, frozen=True):
    """Rows as they came: ``_ts`` (int64, µs; for a stream without event time, when they were read), then the
    columns. ``hidden``: rows beyond ``rows_max``; ``unseen``: lines that were not examined."""

    rows: bytes
    hidden: Count
    unseen: Count


class StreamSeen(msgspec.Struct, frozen=True):
    """A member's view of a stream."""

    schema: Schema
    format: Label
    timestamp: Label | None
    archive: Label
    rows: Count
    lookups: tuple[Label, ...] = ()
    """The functions of ``elf.ql.lookups`` that it can answer, and ``elf.ql.graphs.ABLE`` where it can make
    graphs."""
    lateness_us: Length | None = None
    """How late a row may be, of flows that do not say it; None: it does not tell."""


INQUIRIES = (
    LocateInTree,
    DescribeStream,
    NotifyJob,
    AskWhy,
    InspectClocks,
    InspectFlow,
    InspectLoads,
    RollArchive,
    SampleRows,
    LookAt,
    TraceRows,
)
