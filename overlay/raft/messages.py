"""The messages of Raft groups.

Frozen dataclasses of plain values, like :mod:`overlay.messages`. What belongs to one group is a *part*; parts
of many groups for one peer share a message. A part names its group by key and birth (two bootstraps under one
key never mix), and both ends by their slots: a node that no longer has the addressed slot says so
(:class:`UnknownMember`) and does nothing else. Costs are without the sender, about 25 bytes; a header is
about 60.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from overlay.ids import Peer
from overlay.raft.values import Entry, Member, Membership

# -- parts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Header:
    """Sender and receiver of a part, its group, and the sender's term."""

    group: bytes
    birth: int
    to_slot: int
    from_slot: int
    term: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """Candidate to each other voter: may I lead in term ``ballot``? My log ends at (``last_index``,
    ``last_term``).

    ``pre``: I only ask whether you would, and nobody promises anything. ``told_to_stand``: the leader itself
    wants me to. One round of each an election. 80 bytes.
    """

    header: Header
    ballot: int
    pre: bool
    told_to_stand: bool
    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Answer to a :class:`VoteRequest`; a real vote has been written down before. 75 bytes."""

    header: Header
    ballot: int
    pre: bool
    granted: bool


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Leader to member: here is what follows (``prev_index``, ``prev_term``); up to ``commit`` all is
    decided.

    One at a time for each member: what comes meanwhile goes with the next. Repeated every ``push_ms`` until
    answered, as long as the member's node is heard. ``round`` grows with each. 90 bytes and the records,
    which are at most ``batch_bytes`` unless it is one.
    """

    header: Header
    round: int
    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class AppendReply:
    """Answer to an :class:`AppendRequest` or to the last :class:`InstallSnapshot`, after the records are
    durable.

    ``match``: up to here our logs are equal; if not ``matched``, the highest index where they may be.
    ``commit``: what the member knows to be decided. 85 bytes.
    """

    header: Header
    round: int
    matched: bool
    match: int
    commit: int


@dataclass(frozen=True, slots=True)
class UnknownMember:
    """Answer to a request for a voter slot that is not here (any more): no hard state, so no vote and no
    promise. 40 bytes."""

    group: bytes
    birth: int
    slot: int


@dataclass(frozen=True, slots=True)
class Followed:
    """A group in which the sender follows the receiver, and in which term."""

    group: bytes
    birth: int
    term: int


# -- messages of many groups ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beat:
    """Every ``beat_ms`` between two nodes of which one leads a group of the other: I live.

    ``mark`` is a checksum of (group, term) over all groups that the sender leads and the receiver is in; if
    the receiver's own is another, it says :class:`Follows`. 10 bytes, for any number of groups.
    """

    sender: Peer
    mark: int


@dataclass(frozen=True, slots=True)
class Follows:
    """Answer to a :class:`Beat` whose mark is wrong: in these groups I follow you. The receiver says
    :class:`Told` of those that it doesn't lead and sends appends for those that are missing. 35 bytes a
    group."""

    sender: Peer
    groups: tuple[Followed, ...]


@dataclass(frozen=True, slots=True)
class VoteRequests:
    """The :class:`VoteRequest` of all groups in which the sender stands at this moment. 80 bytes a group."""

    sender: Peer
    parts: tuple[VoteRequest, ...]


@dataclass(frozen=True, slots=True)
class VoteReplies:
    """The answers to :class:`VoteRequests`. 75 bytes a group."""

    sender: Peer
    parts: tuple[VoteReply, ...]


@dataclass(frozen=True, slots=True)
class AppendRequests:
    """The :class:`AppendRequest` of all groups that have something for the receiver. 90 bytes a group and the
    records."""

    sender: Peer
    parts: tuple[AppendRequest, ...]


@dataclass(frozen=True, slots=True)
class AppendReplies:
    """The answers to :class:`AppendRequests`. 85 bytes a group."""

    sender: Peer
    parts: tuple[AppendReply, ...]


@dataclass(frozen=True, slots=True)
class UnknownMembers:
    """The slots of one message that are not here. 40 bytes a group."""

    sender: Peer
    parts: tuple[UnknownMember, ...]


# -- messages of one group -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """Leader to a member that is behind the leader's log: bytes from ``offset`` on of the state at
    (``index``, ``index_term``), ``size`` bytes long.

    One at a time a member, repeated like an append. ``piece_bytes`` and 250 bytes.
    """

    sender: Peer
    header: Header
    round: int
    index: int
    index_term: int
    membership: Membership
    size: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class InstallSnapshotReply:
    """Answer to a :class:`InstallSnapshot` that is not the last: go on at ``offset``. Nothing of it is
    durable yet. 80 bytes."""

    sender: Peer
    header: Header
    round: int
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """Leader to the voter that is to succeed it, whose log is complete: stand at once. Once a transfer, 60
    bytes."""

    sender: Peer
    header: Header


@dataclass(frozen=True, slots=True)
class Ask:
    """A node that is no member, to nodes near the key: what do you know of this group? Every ``ask_ms`` until
    answered. 20 bytes."""

    sender: Peer
    group: bytes


@dataclass(frozen=True, slots=True)
class Told:
    """What the sender knows of a group; ``birth`` is 0 if nothing: an unknown id is looked up, never created.

    Answer to :class:`Ask`; to :class:`Enter` and :class:`Exit` by one that doesn't lead; to a member that
    follows one who no longer leads; to a candidate that was removed. ``members`` are those of ``epoch``,
    which is committed; ``leader`` is "" if not known. 60 bytes and 30 a member.
    """

    sender: Peer
    group: bytes
    birth: int
    epoch: int
    term: int
    committed: int
    leader: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Invite:
    """Leader to a node that is to join: take a voter slot. Every ``ask_ms`` until it is a member or given up.
    30 bytes."""

    sender: Peer
    group: bytes
    birth: int


@dataclass(frozen=True, slots=True)
class Enter:
    """A node with a voter slot (durable) to the leader: take me in. Every ``ask_ms`` until its log says so.
    40 bytes."""

    sender: Peer
    group: bytes
    birth: int
    slot: int


@dataclass(frozen=True, slots=True)
class Exit:
    """A member that goes, to the leader: release this slot. Every ``ask_ms`` until it hears that it is. 40
    bytes."""

    sender: Peer
    group: bytes
    birth: int
    slot: int


@dataclass(frozen=True, slots=True)
class Forward:
    """A node that doesn't lead, to the leader of ``term``: append this, in that term only. Once; the payload
    and 50 bytes."""

    sender: Peer
    group: bytes
    token: int
    term: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Forwarded:
    """Answer to a :class:`Forward`: committed at (``index``, ``term``), or the ``reason`` why not. 60
    bytes."""

    sender: Peer
    group: bytes
    token: int
    reason: str
    index: int
    term: int


Part = VoteRequest | VoteReply | AppendRequest | AppendReply | UnknownMember
"""What may share a message with others of its kind."""

Message = (
    Beat
    | Follows
    | VoteRequests
    | VoteReplies
    | AppendRequests
    | AppendReplies
    | UnknownMembers
    | InstallSnapshot
    | InstallSnapshotReply
    | TimeoutNow
    | Ask
    | Told
    | Invite
    | Enter
    | Exit
    | Forward
    | Forwarded
)

MESSAGES: Final[tuple[type[Message], ...]] = (
    Beat,
    Follows,
    VoteRequests,
    VoteReplies,
    AppendRequests,
    AppendReplies,
    UnknownMembers,
    InstallSnapshot,
    InstallSnapshotReply,
    TimeoutNow,
    Ask,
    Told,
    Invite,
    Enter,
    Exit,
    Forward,
    Forwarded,
)
