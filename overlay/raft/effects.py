"""What goes into Raft groups (events) and what comes out (effects). Only the driver performs effects.

**The order is the contract.** Effects are performed in order, and a :class:`Persist` is durable before any
effect behind it is performed; a crash may keep any prefix of it. A driver may join several lists, first all
their ``Persist`` as one transaction, then the rest: to be durable earlier is never wrong. It need not wait
for the disk with what ``Groups.ahead`` lets go.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from overlay.effects import Tick
from overlay.raft.messages import Message
from overlay.raft.values import Entry, Membership, Snapshot

Reason = Literal["not leader", "stale term", "busy", "moving", "unsure"]
"""Why a record or a read was refused. Only ``unsure`` records may be in the log, now or later."""


class Received(Struct, frozen=True):
    """Event: a message has arrived."""

    message: Message


Event = Received | Tick

# -- what a disk is told -------------------------------------------------------------------------------------


class SlotTaken(Struct, frozen=True):
    """The group's hard state begins on this disk, with a voter slot: at the founder with the bootstrap as
    snapshot, elsewhere empty."""

    group: bytes
    birth: int
    slot: int
    snapshot: Snapshot


class Promised(Struct, frozen=True):
    """No lower term will be obeyed, and only ``vote`` (0: none yet) gets our vote in this one."""

    group: bytes
    term: int
    vote: int


class Recorded(Struct, frozen=True):
    """These entries follow what is before the first of them; existing entries from its index on are
    removed."""

    group: bytes
    entries: tuple[Entry, ...]


class Snapped(Struct, frozen=True):
    """The snapshot replaces the one before. Entries up to its index go; those behind it stay only if the
    entry at its index is there and of its term."""

    group: bytes
    snapshot: Snapshot


class Forgotten(Struct, frozen=True):
    """We are no longer a member: all of the group's hard state is removed."""

    group: bytes


Write = SlotTaken | Promised | Recorded | Snapped | Forgotten

# -- effects -------------------------------------------------------------------------------------------------


class Persist(Struct, frozen=True):
    """Effect: make these writes durable, in order. See the module's contract."""

    writes: tuple[Write, ...]


class Send(Struct, frozen=True):
    """Effect: put the message on the wire to an address. It may be lost; what must arrive is repeated."""

    to: str
    message: Message


class Installed(Struct, frozen=True):
    """Effect: the caller's state of the group is now this (at a start, at a bootstrap, or because we were far
    behind)."""

    group: bytes
    index: int
    state: bytes


class Committed(Struct, frozen=True):
    """Effect: the entry is decided for ever. Comes at every member in the order of the indices, again after a
    restart; for blanks and memberships too."""

    group: bytes
    entry: Entry


class Reconfigured(Struct, frozen=True):
    """Effect: this membership is committed."""

    group: bytes
    membership: Membership


class Elected(Struct, frozen=True):
    """Effect: this node leads in ``term``. It may not know yet what is committed: wait for
    :class:`Leading`."""

    group: bytes
    term: int


class Leading(Struct, frozen=True):
    """Effect: a record of our own term is committed, and all before it has been reported: the root may
    act."""

    group: bytes
    term: int


class Following(Struct, frozen=True):
    """Effect: this node does not lead in ``term``; ``leader`` is an address, "" while nobody is known."""

    group: bytes
    term: int
    leader: str


class Accepted(Struct, frozen=True):
    """Effect: the record of that token is committed at (``index``, ``term``)."""

    group: bytes
    token: int
    index: int
    term: int


class Rejected(Struct, frozen=True):
    """Effect: the record or read of that token is refused; ``leader`` may know better ("": none known)."""

    group: bytes
    token: int
    reason: Reason
    leader: str


class Readable(Struct, frozen=True):
    """Effect: what was committed anywhere before the read was requested is at most ``index``, which has been
    reported here."""

    group: bytes
    token: int
    index: int


class CompactWanted(Struct, frozen=True):
    """Effect: the log has grown long; call ``compact`` with the state at ``index`` or later."""

    group: bytes
    index: int


class Retired(Struct, frozen=True):
    """Effect: this node is no longer a member and has forgotten the group."""

    group: bytes


Effect = (
    Persist
    | Send
    | Installed
    | Committed
    | Reconfigured
    | Elected
    | Leading
    | Following
    | Accepted
    | Rejected
    | Readable
    | CompactWanted
    | Retired
)
