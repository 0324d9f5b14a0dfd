"""What is said of a flow: its members and its root, what goes up the flow's tree (protocol 4.1) and what
comes down; the root and the nodes whose jobs read the flow from there (protocol 7.2); owner, holder and root
about replicas of snapshots (``elf.job.rollup.replication``); and agents whose files others see too, the roots
of their flows, and who runs their work again (``elf.job.reexecution``).
"""

from __future__ import annotations

import math
from typing import Annotated, Final, get_args

import msgspec

from elf.fields import (
    Address,
    Count,
    FlowUid,
    JobUid,
    Members,
    Millis,
    Number,
    Pane,
    Serial,
    Text,
    span,
)
from elf.job.commits import part_names
from elf.job.reexecution import Reading, SourceOffsets, Where
from elf.job.replicas import Replica, ReplicaName
from elf.job.spec import START_OF_TIME
from elf.ql.plan import Top
from elf.security.authored import Authorship
from elf.wire.base import Message

Verdicts = Annotated[str, msgspec.Meta(pattern=r"\A(included|final|leapt|answered|covered|send|wait)\Z")]
"""What a root may say of a snapshot."""
UNIT_PANES_MAX: Final = 600_000
"""Panes of a unit: 10 minutes of panes of 1 ms (``elf.job.units.UNIT_US_MAX``)."""


class Slice(Message, frozen=True, kw_only=True):
    """Worker or inner node to its parent, or (``direct``) to the root: panes ``[start, end)`` of a flow for
    ``members``.

    ``payload`` holds the non-empty panes (``_pane``, keys, states) and is empty when there are none;
    ``counters`` counts rows a pane. ``parts``: it is a later delta, named as a (member, part) pair, of one
    pane and of no members.
    """

    flow: FlowUid
    start: Pane
    end: Pane
    members: Members
    parts: tuple[tuple[Number, Serial], ...] = ()
    direct: bool = False
    counters: bytes = b""
    payload: bytes = b""

    def __post_init__(self) -> None:
        span(self.start, self.end)
        if self.parts and (len(self.parts) > 1 or self.members.strip(b"\0") or self.end > self.start + 1):
            raise ValueError("a delta that is none")


class Excerpt(Slice, frozen=True, kw_only=True):
    """A slice in which groups are left out (``elf.job.thresholds``)."""


class UnitSlice(Slice, frozen=True, kw_only=True):
    """A slice of as many panes as ``unit`` says, whose rows stand in the first of them
    (``elf.job.units``)."""

    unit: Annotated[int, msgspec.Meta(gt=1, le=UNIT_PANES_MAX)]

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = 1 < self.unit == self.end - self.start and self.start % self.unit == 0
        if not whole or self.parts or self.direct:
            raise ValueError("a unit that is none")


class LeaveOut(Message, frozen=True, kw_only=True):
    """Root to all workers, down the tree: which groups to send from now on (``elf.job.thresholds``); with
    ``least`` 0 all."""

    flow: FlowUid
    least: float
    watched: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.least < math.inf or len(self.watched) % 8:
            raise ValueError("a threshold that is none")


class FlowProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a member is with a flow: the first pane that it answers for, the first pane that it has not
    sealed; its parent in the tree. Since its start: rows in time, late rows, and rows from the future.
    ``later_ms``: with many job groups to speak to, its next message to this one comes that much later than
    after a second. ``past``: it still reads its archive (``elf.job.past``)."""

    flow: FlowUid
    live_from: Pane
    sealed: Pane
    parent: Address = ""
    rows: Count = 0
    late: Count = 0
    future: Count = 0
    later_ms: Millis = 0
    past: bool = False


class Progress(Message, frozen=True, kw_only=True):
    """Member to the job group of its flows, every second and when something changed; to each of many job
    groups in its turn, at least every four seconds. Carries the watermark."""

    member: Number
    incarnation: Serial
    flows: tuple[FlowProgress, ...]
    now_ms: Millis = 0
    """The sender's clock."""


class Began(msgspec.Struct, frozen=True, array_like=True):
    """A member that answers for a flow from pane ``live_from`` on; ``sealed`` as in ``FlowProgress``."""

    member: Number
    live_from: Pane
    sealed: Pane


class FlowBegun(msgspec.Struct, frozen=True, array_like=True):
    """Members that have begun a flow."""

    flow: FlowUid
    members: tuple[Began, ...]


class Begun(Message, frozen=True, kw_only=True):
    """Members to the job groups of new flows, up their trees: who has begun (``elf.job.rollup.combiner``)."""

    flows: tuple[FlowBegun, ...]


class EarlyState(Message, frozen=True, kw_only=True):
    """Member to the root of a flow, and on to its readers: all open panes, from ``start`` on, as they are now
    (``elf.job.group.subscribers``). ``end``: after the last with a row; ``number``: counts since the agent's
    start."""

    flow: FlowUid
    member: Number
    incarnation: Serial
    number: Serial
    start: Pane
    end: Pane
    counters: bytes = b""
    payload: bytes = b""


class Behind(Message, frozen=True, kw_only=True):
    """Inner node to root: these children, or its own worker (no address), have fallen two intervals behind
    half of their siblings in panes below that one (``elf.job.rollup.combiner``)."""

    flow: FlowUid
    children: tuple[tuple[Address, Pane], ...]


class AskDecided(Message, frozen=True, kw_only=True):
    """The root of a key range to that of the first one, ``flow``: who is in the panes of flow ``follower``
    from ``start`` on (``elf.job.rollup.decisions``)?"""

    flow: FlowUid
    follower: FlowUid
    start: Pane


class Decided(Message, frozen=True, kw_only=True):
    """The answer, and at each commit: (first pane, end, members). ``free``: the first of these is of panes of
    which nobody decides."""

    flow: FlowUid
    spans: tuple[tuple[Pane, Pane, Members], ...]
    free: bool = False


class Resend(Message, frozen=True, kw_only=True):
    """Root to a missing member: send your snapshots of these panes directly to me."""

    flow: FlowUid
    start: Pane
    end: Pane


class Offer(Message, frozen=True, kw_only=True):
    """Member to root, for snapshots that it still retains: are these included?"""

    flow: FlowUid
    member: Number
    panes: tuple[tuple[Pane, Pane], ...]
    parts: tuple[tuple[Pane, Pane, Serial], ...] = ()
    """(First pane, end, part) of parts of late rows."""


class Verdict(Message, frozen=True, kw_only=True):
    """The root's answer to an offer: ``included`` (delete it), ``final`` (too late, count it as left out),
    ``leapt`` (count its rows, see ``elf.job.stragglers``), ``answered`` (by another, from the source offsets
    with that number: count what that one lacked, see ``elf.job.reexecution``), ``covered`` (open parts of the
    pane are in it: offer the others, see ``elf.job.openparts``), ``send``."""

    flow: FlowUid
    start: Pane
    end: Pane
    verdict: Verdicts
    part: Serial = 0
    offsets: Serial = 0


class Committed(Message, frozen=True, kw_only=True):
    """Root to all workers, down the tree: panes ``[start, end)`` are committed with these members. ``parts``:
    (member, part) of late rows that the revision adds; ``reexecution``: (member, source offsets) of members
    whose work another agent has run (``elf.job.reexecution``)."""

    flow: FlowUid
    start: Pane
    end: Pane
    revision: Serial
    members: Members
    parts: tuple[tuple[Number, Serial], ...] = ()
    reexecution: tuple[tuple[Number, Serial], ...] = ()


class Broadcast(Message, frozen=True, kw_only=True):
    """The root of a job's flow to all its workers, down the tree: a message from a person
    (``elf.job.rollup.broadcasts``). ``sent_ms`` is the root's clock; ``author``: the signed statement, where
    there are keys."""

    job: JobUid
    sent_ms: Millis
    text: Text
    flow: FlowUid
    author: Authorship | None = None


ROLLUP_MESSAGES = (
    Slice,
    Excerpt,
    UnitSlice,
    Progress,
    Begun,
    EarlyState,
    LeaveOut,
    Behind,
    AskDecided,
    Decided,
    Resend,
    Offer,
    Verdict,
    Committed,
    Broadcast,
)


# -- readers -------------------------------------------------------------------------------------------------


class PaneRequest(msgspec.Struct, frozen=True):
    """What a reader has of a flow, durably: commits up to number ``after``, panes below ``end``. It wants the
    later commits of panes from ``start`` on; with None it wants to begin where the flow is now. ``cut``: the
    rows that it needs of each pane."""

    flow: FlowUid
    after: Serial
    start: Pane | None
    end: Pane
    cut: Top | None = None


class ReadPanes(Message, frozen=True, kw_only=True):
    """A node whose jobs read flows, to the root of these, every second or in its turn: what it has (which the
    root need not keep for it), and that it is alive."""

    requests: tuple[PaneRequest, ...]


class FlowHead(Message, frozen=True, kw_only=True):
    """Root to a reader that begins: commit ``after`` was the last one; pane ``start`` is the next. ``known``:
    how far the logs of the roots had come that committed what is before it."""

    flow: FlowUid
    after: Serial
    start: Pane
    known: Serial = 0


class PaneRow(Message, frozen=True, kw_only=True):
    """Root to a reader, at each commit and when asked: commit number ``seq`` of a flow, the next one after
    ``after`` that concerns the reader, if it wants panes from ``wanted`` on. ``more``: there are others to
    ask for. ``cut``: the rows of each pane in it; None: all."""

    flow: FlowUid
    after: Serial
    seq: Serial
    more: bool = False
    start: Pane
    end: Pane
    revision: Serial
    members: Members
    roster_version: Serial
    counters: bytes = b""
    payload: bytes = b""
    cut: Top | None = None
    wanted: Pane = START_OF_TIME
    parts: Annotated[bytes, msgspec.Meta(max_length=1 << 20)] = b""
    """Those of late rows in the revision, as they are stored (``elf.job.parts``)."""

    def __post_init__(self) -> None:
        span(self.start, self.end)
        if self.parts:
            part_names(self.parts)


READING_MESSAGES = (ReadPanes, FlowHead, PaneRow)


# -- replicas ------------------------------------------------------------------------------------------------


class KeepReplicas(Message, frozen=True, kw_only=True):
    """Owner to holder: keep these until they are answered."""

    replicas: tuple[Replica, ...]


class ReplicasKept(Message, frozen=True, kw_only=True):
    """Holder to owner: these are durable here; the ``refused`` ones will never be."""

    names: tuple[ReplicaName, ...]
    refused: tuple[ReplicaName, ...] = ()


class DropReplicas(Message, frozen=True, kw_only=True):
    """Owner to holder: these are answered."""

    names: tuple[ReplicaName, ...]


class OfferReplicas(Message, frozen=True, kw_only=True):
    """Holder to root, about snapshots (first pane, end, part) of a member: what is to become of them?"""

    flow: FlowUid
    member: Number
    names: tuple[tuple[Pane, Pane, Serial], ...]


class ReplicaVerdict(Message, frozen=True, kw_only=True):
    """The root's answer, as a ``Verdict`` on a member's own: ``included``, ``final``, ``leapt`` and
    ``covered`` mean forget it. ``send``: the owner is gone, and you are its proxy."""

    flow: FlowUid
    member: Number
    start: Pane
    end: Pane
    verdict: Verdicts
    part: Serial = 0


ReplicaMessage = KeepReplicas | ReplicasKept | DropReplicas | OfferReplicas | ReplicaVerdict
REPLICA_MESSAGES: Final[tuple[type[Message], ...]] = get_args(ReplicaMessage)


# -- work that others run again ------------------------------------------------------------------------------


class Whereabouts(Message, frozen=True, kw_only=True):
    """Member to the root of a flow, when a checkpoint is durable. The sender can also run others' work."""

    member: Number
    where: Where


class Reexecute(Message, frozen=True, kw_only=True):
    """Root to another member that shares the stream: answer for ``member`` in this pane."""

    flow: FlowUid
    member: Number
    pane: Pane
    offsets: SourceOffsets
    reading: Reading


class RunSlice(Slice, frozen=True, kw_only=True):
    """The answer: the pane of the member, from the source offsets with this number."""

    offsets: Serial = 0


class NotRun(Message, frozen=True, kw_only=True):
    """The answer where it cannot be run (yet): why."""

    flow: FlowUid
    member: Number
    pane: Pane
    why: Text


REEXECUTION_MESSAGES = (RunSlice, Whereabouts, Reexecute, NotRun)
