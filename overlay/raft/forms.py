"""Which decoded messages make sense. The rest is dropped and counted.

Numbers are bounded well below the 64 bits in which disks keep them, since much is counted up from what others
say: a term that nobody could follow by another one would end its group for good.
"""

from __future__ import annotations

from typing import Final

from overlay.ids import KEY_BYTES
from overlay.raft.messages import (
    AppendReplies,
    AppendReply,
    AppendRequest,
    AppendRequests,
    Ask,
    Beat,
    Enter,
    Exit,
    Follows,
    Forward,
    Forwarded,
    Header,
    InstallSnapshot,
    InstallSnapshotReply,
    Invite,
    Message,
    TimeoutNow,
    Told,
    UnknownMembers,
    VoteReplies,
    VoteReply,
    VoteRequest,
    VoteRequests,
)
from overlay.raft.values import Entry, Member, Membership

COUNTED_MAX: Final = 1 << 53
"""Of terms, indices, epochs, rounds, sizes, and starts of a node."""
DRAWN_MAX: Final = 1 << 62
"""Of what is drawn: slots, births, tokens (``draw``)."""


def well_formed(message: Message) -> bool:
    """Whether keys have the length of a key, numbers make sense, and entries follow each other; decoded
    messages may be wrong."""
    return _counted(message.sender.incarnation) and _content(message)


def _content(message: Message) -> bool:
    match message:
        case Beat():
            return True
        case Follows():
            return all(_group(item.group, item.birth) and _counted(item.term) for item in message.groups)
        case UnknownMembers():
            return all(_group(part.group, part.birth) and _slots(part.slot) for part in message.parts)
        case VoteRequests():
            return all(_vote_request(part) for part in message.parts)
        case VoteReplies():
            return all(_vote_reply(part) for part in message.parts)
        case AppendRequests():
            return all(_append_request(part) for part in message.parts)
        case AppendReplies():
            return all(_append_reply(part) for part in message.parts)
        case InstallSnapshot():
            return _piece(message)
        case InstallSnapshotReply():
            return _header(message.header) and _counted(message.round, message.index, message.offset)
        case TimeoutNow():
            return _header(message.header)
        case Ask():
            return len(message.group) == KEY_BYTES
        case Told():
            return _told(message)
        case Invite():
            return _group(message.group, message.birth)
        case Enter() | Exit():
            return _group(message.group, message.birth) and _slots(message.slot)
        case Forward():
            return len(message.group) == KEY_BYTES and _drawn(message.token) and _counted(message.term)
        case Forwarded():
            known = _drawn(message.token) and _counted(message.index, message.term)
            return len(message.group) == KEY_BYTES and known


def _counted(*numbers: int) -> bool:
    return all(0 <= number <= COUNTED_MAX for number in numbers)


def _drawn(*numbers: int) -> bool:
    return all(0 <= number <= DRAWN_MAX for number in numbers)


def _slots(*numbers: int) -> bool:
    """Never 0: who has that one is sent what all refuse."""
    return all(0 < number <= DRAWN_MAX for number in numbers)


def _group(key: bytes, birth: int) -> bool:
    return len(key) == KEY_BYTES and _drawn(birth)


def _header(header: Header) -> bool:
    return (
        _slots(header.to_slot, header.from_slot)
        and _group(header.group, header.birth)
        and _counted(header.term)
    )


def _vote_request(part: VoteRequest) -> bool:
    """A candidate's last record is of an earlier term than the one that it wants. (The index says nothing: a
    ballot that nobody wins takes a term and leaves no record.)"""
    counted = part.ballot > 0 and _counted(part.ballot, part.last_index)
    return counted and _header(part.header) and 0 <= part.last_term < part.ballot


def _vote_reply(part: VoteReply) -> bool:
    return _header(part.header) and _counted(part.ballot)


def _append_reply(part: AppendReply) -> bool:
    return _header(part.header) and _counted(part.round, part.match, part.commit)


def _append_request(part: AppendRequest) -> bool:
    if not _header(part.header) or not _counted(part.round, part.prev_index, part.prev_term, part.commit):
        return False
    term = part.prev_term
    for index, entry in enumerate(part.entries, part.prev_index + 1):
        if entry.index != index or not term <= entry.term <= part.header.term or not _entry(entry):
            return False
        term = entry.term
    return term <= part.header.term


def _entry(entry: Entry) -> bool:
    if not entry.membership:
        return True
    return len(entry.membership) == 1 and not entry.payload and _membership(entry.membership[0])


def _membership(membership: Membership) -> bool:
    slots = {member.slot for member in membership.members}
    unique = bool(membership.voters) and len(slots) == len(membership.members)
    return unique and 0 < membership.epoch <= COUNTED_MAX and _members(membership.members)


def _members(members: tuple[Member, ...]) -> bool:
    return all(member.address and _slots(member.slot) for member in members)


def _told(told: Told) -> bool:
    counted = _counted(told.epoch, told.term, told.committed)
    return counted and _group(told.group, told.birth) and _members(told.members)


def _piece(piece: InstallSnapshot) -> bool:
    inside = piece.offset >= 0 and piece.offset + len(piece.data) <= piece.size
    return (
        inside
        and _counted(piece.round, piece.size, piece.index)
        and _header(piece.header)
        and 0 < piece.index_term <= piece.header.term
        and piece.index > 0
        and _membership(piece.membership)
    )
