"""Which decoded messages make sense. The rest is dropped and counted."""

from __future__ import annotations

from overlay.ids import KEY_BYTES
from overlay.raft.messages import (
    AppendReplies,
    AppendRequest,
    AppendRequests,
    Beat,
    Follows,
    Header,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    TimeoutNow,
    UnknownMembers,
    VoteReplies,
    VoteRequest,
    VoteRequests,
)
from overlay.raft.values import Entry, Membership


def well_formed(message: Message) -> bool:
    """Whether keys have the length of a key, numbers make sense, and entries follow each other; decoded
    messages may be wrong."""
    match message:
        case Beat():
            return True
        case Follows():
            return all(len(item.group) == KEY_BYTES for item in message.groups)
        case UnknownMembers():
            return all(len(part.group) == KEY_BYTES for part in message.parts)
        case VoteRequests():
            return all(_vote_request(part) for part in message.parts)
        case VoteReplies():
            return all(_header(part.header) for part in message.parts)
        case AppendRequests():
            return all(_append_request(part) for part in message.parts)
        case AppendReplies():
            return all(_header(part.header) and min(part.match, part.commit) >= 0 for part in message.parts)
        case InstallSnapshot():
            return _piece(message)
        case InstallSnapshotReply():
            return _header(message.header) and message.offset >= 0
        case TimeoutNow():
            return _header(message.header)
        case _:
            return len(message.group) == KEY_BYTES


def _header(header: Header) -> bool:
    return len(header.group) == KEY_BYTES and min(header.to_slot, header.from_slot) > 0 and header.term >= 0


def _vote_request(part: VoteRequest) -> bool:
    return _header(part.header) and part.ballot > 0 and 0 <= part.last_term <= part.last_index


def _append_request(part: AppendRequest) -> bool:
    if not _header(part.header) or part.prev_term < 0 or min(part.prev_index, part.commit) < 0:
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
    return membership.epoch > 0 and bool(membership.voters) and len(slots) == len(membership.members)


def _piece(piece: InstallSnapshot) -> bool:
    inside = piece.offset >= 0 and piece.offset + len(piece.data) <= piece.size
    return (
        inside
        and _header(piece.header)
        and 0 < piece.index_term <= piece.header.term
        and piece.index > 0
        and _membership(piece.membership)
    )
