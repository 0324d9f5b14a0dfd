"""The members of a flow and its root: what goes up the flow's tree (protocol 4.1), and what comes down."""

from __future__ import annotations

import msgspec

from elf.wire.base import Message


class Slice(Message, frozen=True, kw_only=True):
    """Worker or inner node to its parent, or (``direct``) to the root: panes ``[start, end)`` of a flow for
    ``members``.

    ``payload`` holds the non-empty panes (``_pane``, keys, states) and is empty when there are none;
    ``counters`` counts rows a pane. ``parts`` names later deltas as (member, part) pairs.
    """

    flow: str
    start: int
    end: int
    members: bytes
    parts: tuple[tuple[int, int], ...] = ()
    direct: bool = False
    counters: bytes = b""
    payload: bytes = b""


class Excerpt(Slice, frozen=True, kw_only=True):
    """A slice in which groups are left out (``elf.job.thresholds``)."""


class LeaveOut(Message, frozen=True, kw_only=True):
    """Root to all workers, down the tree: which groups to send from now on (``elf.job.thresholds``); with
    ``least`` 0 all."""

    flow: str
    least: float
    watched: bytes


class FlowProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a member is with a flow: the first pane that it answers for, the first pane that it has not
    sealed; its parent in the tree. Since its start: rows in time, late rows, and rows from the future.
    ``later_ms``: with many job groups to speak to, its next message to this one comes that much later than
    after a second."""

    flow: str
    live_from: int
    sealed: int
    parent: str = ""
    rows: int = 0
    late: int = 0
    future: int = 0
    later_ms: int = 0


class Progress(Message, frozen=True, kw_only=True):
    """Member to the job group of its flows, every second and when something changed; to each of many job
    groups in its turn, at least every four seconds. Carries the watermark."""

    member: int
    incarnation: int
    flows: tuple[FlowProgress, ...]
    now_ms: int = 0
    """The sender's clock."""


class Began(msgspec.Struct, frozen=True, array_like=True):
    """A member that answers for a flow from pane ``live_from`` on; ``sealed`` as in ``FlowProgress``."""

    member: int
    live_from: int
    sealed: int


class FlowBegun(msgspec.Struct, frozen=True, array_like=True):
    """Members that have begun a flow."""

    flow: str
    members: tuple[Began, ...]


class Begun(Message, frozen=True, kw_only=True):
    """Members to the job groups of new flows, up their trees: who has begun (``elf.job.rollup.combiner``)."""

    flows: tuple[FlowBegun, ...]


class EarlyState(Message, frozen=True, kw_only=True):
    """Member to the root of a flow, and on to its readers: all open panes, from ``start`` on, as they are now
    (``elf.job.group.subscribers``). ``end``: after the last with a row; ``number``: counts since the agent's
    start."""

    flow: str
    member: int
    incarnation: int
    number: int
    start: int
    end: int
    counters: bytes = b""
    payload: bytes = b""


class Resend(Message, frozen=True, kw_only=True):
    """Root to a missing member: send your snapshots of these panes directly to me."""

    flow: str
    start: int
    end: int


class Offer(Message, frozen=True, kw_only=True):
    """Member to root, for snapshots that it still retains: are these included?"""

    flow: str
    member: int
    panes: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int, int, int], ...] = ()
    """(First pane, end, part) of parts of late rows."""


class Verdict(Message, frozen=True, kw_only=True):
    """The root's answer to an offer: ``included`` (delete it), ``final`` (too late, count it as left out),
    ``leapt`` (count its rows, see ``elf.job.stragglers``), ``answered`` (by another, from the source offsets
    with that number: count what that one lacked, see ``elf.job.reexecution``), ``send``."""

    flow: str
    start: int
    end: int
    verdict: str
    part: int = 0
    offsets: int = 0


class Committed(Message, frozen=True, kw_only=True):
    """Root to all workers, down the tree: panes ``[start, end)`` are committed with these members. ``parts``:
    (member, part) of late rows that the revision adds; ``reexecution``: (member, source offsets) of members
    whose work another agent has run (``elf.job.reexecution``)."""

    flow: str
    start: int
    end: int
    revision: int
    members: bytes
    parts: tuple[tuple[int, int], ...] = ()
    reexecution: tuple[tuple[int, int], ...] = ()


class Broadcast(Message, frozen=True, kw_only=True):
    """The root of a job's flow to all its workers, down the tree: a message from a person
    (``elf.job.rollup.broadcasts``). ``sent_ms`` is the root's clock."""

    job: str
    sent_ms: int
    text: str
    flow: str


ROLLUP_MESSAGES = (
    Slice,
    Excerpt,
    Progress,
    Begun,
    EarlyState,
    LeaveOut,
    Resend,
    Offer,
    Verdict,
    Committed,
    Broadcast,
)
