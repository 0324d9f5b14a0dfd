"""Raft groups: small replicated logs for the hard state of roots and masters, as a pure state machine.

A *group* is up to five nodes that keep one log. What is committed in it is decided for ever, as long as a
majority of them keep their disks. It is Raft (Ongaro and Ousterhout 2014, Ongaro's thesis), with many groups
in one node sharing beats and messages. A node calls :class:`Groups`, with the time in ms, and performs
effects::

    groups = Groups(Peer("10.0.0.7:7400", incarnation=3), RaftConfig(), random.Random(), stored)
    perform(groups.start(now_ms))
    perform(groups.create(key, b"state", ["10.0.0.8:7400", ...], now_ms))
    perform(groups.propose(key, token, b"record", now_ms, term=4))
    perform(groups.handle(Received(message), now_ms))
    if groups.deadline() <= now_ms: perform(groups.handle(Tick(), now_ms))

**States** (``local``). A member is FOLLOWER, ASKING (pre-vote: would I be elected?), CANDIDATE or LEADER.
Leadership is soft (``leading``); term, vote and log are hard (``hard``) and survive in what ``Persist``
wrote. A node has a *voter slot* (62 random bits, drawn with the hard state) before it is a member: it enters
as a learner, catches up, gets its vote. A voter slot that is gone from a committed membership, or from its
disk, never returns.

**Messages** (``messages``). Parts of many groups for one peer travel together. Two nodes of which one leads a
group of the other exchange one ``Beat`` a second each way, whatever the number of groups; a mark in it shows
whether they agree on who leads what. An idle group costs nothing.

**Invariants**, checked in simulated worlds:

1. A term has one leader: a vote is durable before it is sent, and no slot votes twice in a term.
2. Equal index and term mean equal logs up to there; a leader only appends.
3. A leader has all that was committed before it. Only records of its own term are committed by counting.
4. No index is ever committed with two records; what was ``Accepted`` stays, in an order that agrees with
   time.
5. An unknown id is looked up, never created. Only ``create`` bootstraps a group. A node without hard state
   says so (``UnknownMember``) and promises nothing; it is removed through the log and enters again, under
   another slot. Each bootstrap has a *birth*, so two under one key never mix.
6. Memberships change by one member, one after the other, and never to one whose majority is not heard, or has
   not answered since a member asked to go.
7. A deposed leader writes nothing: a record is refused unless its term is the leader's, and a read waits for
   a majority of that term.

**What can go wrong.** Without a majority a group stalls and loses nothing. It goes on when the disks are
back; if they never are, only an operator can help (``RECOVER``, not here). Too few members may be left if a
healthy member is removed before two lost disks of five have been noticed. A founder is alone until others
have joined: answer CREATE when ``standing`` shows enough voters. An ``unsure`` record may be committed later,
and one that is proposed again may stand twice: the meaning of records must allow for that. A doubled
``Forward`` older than ``forwards_max`` others is a second record. A driver that sends before it has
persisted, or a restart that does not raise the incarnation, breaks everything. A link that works in one
direction only can leave a follower without records, not a group without a leader. Each member calls ``end``
itself: one that has not heard that the purpose is over may let others in again, which end it again.

**Never here**: sockets, threads, clocks, disks, a random generator of its own, or what the records mean.
"""

from overlay.raft.config import RaftConfig
from overlay.raft.effects import (
    Accepted,
    Committed,
    CompactWanted,
    Effect,
    Elected,
    Event,
    Following,
    Forgotten,
    Installed,
    Leading,
    Persist,
    Promised,
    Readable,
    Received,
    Reconfigured,
    Recorded,
    Rejected,
    Retired,
    Send,
    SlotTaken,
    Snapped,
    Write,
)
from overlay.raft.forms import well_formed
from overlay.raft.groups import Groups
from overlay.raft.messages import MESSAGES, Message
from overlay.raft.values import Entry, Member, Membership, Snapshot, Standing, Stored

__all__ = [
    "MESSAGES",
    "Accepted",
    "Committed",
    "CompactWanted",
    "Effect",
    "Elected",
    "Entry",
    "Event",
    "Following",
    "Forgotten",
    "Groups",
    "Installed",
    "Leading",
    "Member",
    "Membership",
    "Message",
    "Persist",
    "Promised",
    "RaftConfig",
    "Readable",
    "Received",
    "Reconfigured",
    "Recorded",
    "Rejected",
    "Retired",
    "Send",
    "SlotTaken",
    "Snapped",
    "Snapshot",
    "Standing",
    "Stored",
    "Write",
    "well_formed",
]
