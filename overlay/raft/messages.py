"""The messages of Raft groups.

Frozen structs of plain values, like :mod:`overlay.messages`. What belongs to one group is a *part*; parts
of many groups for one peer share a message. A part names its group by key and birth (two bootstraps under one
key never mix), and both ends by their slots: a node that no longer has the addressed slot says so
(:class:`UnknownMember`) and does nothing else. Costs are without the sender, about 25 bytes; a header is
about 60.
"""

from __future__ import annotations

from typing import Final

from overlay.fields import Number, Several, Text, Value
from overlay.ids import Peer
from overlay.raft.values import Entry, Member, Membership

# -- parts ---------------------------------------------------------------------------------------------------


class Header(Value, frozen=True):
    """Sender and receiver of a part, its group, and the sender's term."""

    group: bytes
    birth: Number
    to_slot: Number
    from_slot: Number
    term: Number


class VoteRequest(Value, frozen=True):
    """Candidate to each other voter: may I lead in term ``ballot``? My log ends at (``last_index``,
    ``last_term``).

    ``pre``: I only ask whether you would, and nobody promises anything. ``told_to_stand``: the leader itself
    wants me to. One round of each an election. 80 bytes.
    """

    header: Header
    ballot: Number
    pre: bool
    told_to_stand: bool
    last_index: Number
    last_term: Number


class VoteReply(Value, frozen=True):
    """Answer to a :class:`VoteRequest`; a real vote has been written down before. 75 bytes."""

    header: Header
    ballot: Number
    pre: bool
    granted: bool


class AppendRequest(Value, frozen=True):
    """Leader to member: here is what follows (``prev_index``, ``prev_term``); up to ``commit`` all is
    decided.

    One at a time for each member: what comes meanwhile goes with the next. Repeated every ``push_ms`` until
    answered, as long as the member's node is heard. ``round`` grows with each. 90 bytes and the records,
    which are at most ``batch_bytes`` unless it is one.
    """

    header: Header
    round: Number
    prev_index: Number
    prev_term: Number
    commit: Number
    entries: Several[Entry]


class AppendReply(Value, frozen=True):
    """Answer to an :class:`AppendRequest` or to the last :class:`InstallSnapshot`, after the records are
    durable.

    ``match``: up to here our logs are equal; if not ``matched``, the highest index where they may be.
    ``commit``: what the member knows to be decided. 85 bytes.
    """

    header: Header
    round: Number
    matched: bool
    match: Number
    commit: Number


class UnknownMember(Value, frozen=True):
    """Answer to a request for a voter slot that is not here (any more): no hard state, so no vote and no
    promise. 40 bytes."""

    group: bytes
    birth: Number
    slot: Number


class Followed(Value, frozen=True):
    """A group in which the sender follows the receiver, and in which term."""

    group: bytes
    birth: Number
    term: Number


# -- messages of many groups ---------------------------------------------------------------------------------


class Beat(Value, frozen=True):
    """Every ``beat_ms`` between two nodes of which one leads a group of the other: I live.

    ``mark`` is a checksum of (group, term) over all groups that the sender leads and the receiver is in; if
    the receiver's own is another, it says :class:`Follows`. 10 bytes, for any number of groups.
    """

    sender: Peer
    mark: Number


class Follows(Value, frozen=True):
    """Answer to a :class:`Beat` whose mark is wrong: in these groups I follow you. The receiver says
    :class:`Told` of those that it doesn't lead and sends appends for those that are missing. 35 bytes a
    group."""

    sender: Peer
    groups: Several[Followed]


class VoteRequests(Value, frozen=True):
    """The :class:`VoteRequest` of all groups in which the sender stands at this moment. 80 bytes a group."""

    sender: Peer
    parts: Several[VoteRequest]


class VoteReplies(Value, frozen=True):
    """The answers to :class:`VoteRequests`. 75 bytes a group."""

    sender: Peer
    parts: Several[VoteReply]


class AppendRequests(Value, frozen=True):
    """The :class:`AppendRequest` of all groups that have something for the receiver. 90 bytes a group and the
    records."""

    sender: Peer
    parts: Several[AppendRequest]


class AppendReplies(Value, frozen=True):
    """The answers to :class:`AppendRequests`. 85 bytes a group."""

    sender: Peer
    parts: Several[AppendReply]


class UnknownMembers(Value, frozen=True):
    """The slots of one message that are not here. 40 bytes a group."""

    sender: Peer
    parts: Several[UnknownMember]


# -- messages of one group -----------------------------------------------------------------------------------


class InstallSnapshot(Value, frozen=True):
    """Leader to a member that is behind the leader's log: bytes from ``offset`` on of the state at
    (``index``, ``index_term``), ``size`` bytes long.

    One at a time a member, repeated like an append. ``piece_bytes`` and 250 bytes.
    """

    sender: Peer
    header: Header
    round: Number
    index: Number
    index_term: Number
    membership: Membership
    size: Number
    offset: Number
    data: bytes


class InstallSnapshotReply(Value, frozen=True):
    """Answer to a :class:`InstallSnapshot` that is not the last: go on at ``offset``. Nothing of it is
    durable yet. 80 bytes."""

    sender: Peer
    header: Header
    round: Number
    index: Number
    offset: Number


class TimeoutNow(Value, frozen=True):
    """Leader to the voter that is to succeed it, whose log is complete: stand at once. Once a transfer, 60
    bytes."""

    sender: Peer
    header: Header


class Ask(Value, frozen=True):
    """A node that is no member, to nodes near the key: what do you know of this group? Every ``ask_ms`` until
    answered. 20 bytes."""

    sender: Peer
    group: bytes


class Told(Value, frozen=True):
    """What the sender knows of a group; ``birth`` is 0 if nothing: an unknown id is looked up, never created.

    Answer to :class:`Ask`; to :class:`Enter` and :class:`Exit` by one that doesn't lead; to a member that
    follows one who no longer leads; to a candidate that was removed. ``members`` are those of ``epoch``,
    which is committed; ``leader`` is "" if not known. 60 bytes and 30 a member.
    """

    sender: Peer
    group: bytes
    birth: Number
    epoch: Number
    term: Number
    committed: Number
    leader: Text
    members: Several[Member]


class Invite(Value, frozen=True):
    """Leader to a node that is to join: take a voter slot. Every ``ask_ms`` until it is a member or given up.
    30 bytes."""

    sender: Peer
    group: bytes
    birth: Number


class Enter(Value, frozen=True):
    """A node with a voter slot (durable) to the leader: take me in. Every ``ask_ms`` until its log says so.
    40 bytes."""

    sender: Peer
    group: bytes
    birth: Number
    slot: Number


class Exit(Value, frozen=True):
    """A member that goes, to the leader: release this slot. Every ``ask_ms`` until it hears that it is. 40
    bytes."""

    sender: Peer
    group: bytes
    birth: Number
    slot: Number


class Forward(Value, frozen=True):
    """A node that doesn't lead, to the leader of ``term``: append this, in that term only. Once; the payload
    and 50 bytes."""

    sender: Peer
    group: bytes
    token: Number
    term: Number
    payload: bytes


class Forwarded(Value, frozen=True):
    """Answer to a :class:`Forward`: committed at (``index``, ``term``), or the ``reason`` why not. 60
    bytes."""

    sender: Peer
    group: bytes
    token: Number
    reason: Text
    index: Number
    term: Number


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
