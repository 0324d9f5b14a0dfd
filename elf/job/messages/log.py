"""The catalog log (protocol 2.1): its entries, in the order of ``seq``; its voters and everybody, who follows
it; and what it may be asked for, words to its voters, each said until its entry is seen.
"""

from __future__ import annotations

from typing import Annotated, Final, get_args

import msgspec

from elf.fields import (
    Address,
    AgentId,
    Count,
    FlowUid,
    Founder,
    GroupUid,
    JobUid,
    Key,
    Labels,
    Locality,
    Micros,
    Millis,
    Name,
    Number,
    Proper,
    Serial,
    Text,
    Tombstone,
    Trees,
)
from elf.job.messages.rollup import UNIT_PANES_MAX
from elf.job.output import OutputSpec
from elf.job.own import OwnSpec
from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec
from elf.security.authored import Authorship, Nonces, Signature
from elf.security.certificates import Signed
from elf.wire.base import Message

REGIONS_MAX: Final = 64
"""Regions that send over others in the way of a flow."""
Vias = Annotated[tuple[tuple[Proper, Proper], ...], msgspec.Meta(max_length=REGIONS_MAX)]
Panes = Annotated[int, msgspec.Meta(ge=0, le=UNIT_PANES_MAX)]
LOADS_MAX: Final = 256
"""Job groups of which an agent says what they take; the others are among the rest."""


class MemberJoined(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Member ``number`` of ``stream``: expected in panes that start at ``since_us`` or later. A restart is a
    new entry. ``labels``: of the agent; None: it is of a release that does not say them. ``place``: where it
    stands, if its trees go by regions (``overlay.regions``). ``lends``: whether it may have copies of tables
    with a ring.
    """

    seq: Serial
    stream: Proper
    number: Number
    agent_id: AgentId
    name: Proper
    incarnation: Serial
    address: Address
    since_us: Micros
    labels: Labels | None = None
    place: Locality = ""
    lends: bool = True


class MemberLeft(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The member is not expected in panes that start at ``until_us`` or later."""

    seq: Serial
    stream: Proper
    number: Number
    until_us: Micros


class JobAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job, with its master and the flows that it reads; flows that the log does not know yet begin with
    it."""

    seq: Serial
    spec: JobSpec


class JobDropped(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: the job is over. Its flows go on until a ``FlowEnded``. ``nonces``: of the signed
    statements that it stands for (``elf.job.catalog.authors``)."""

    seq: Serial
    uid: Tombstone
    nonces: Nonces = ()


class FlowEnded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: no job has read the flow for a while; its workers and its root forget it."""

    seq: Serial
    uid: FlowUid


class ProgramAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job written in Python. ``JobDropped`` ends it too."""

    seq: Serial
    spec: ProgramSpec


class OutputAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An output of a job. ``JobDropped`` ends it, under its own uid or that of its job."""

    seq: Serial
    spec: OutputSpec


class RekeyingPaused(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """No more rows of this table get the key that it is to have (protocol 7.18); or, not ``paused``, they do
    again. ``nonces``: as in ``JobDropped``."""

    seq: Serial
    uid: JobUid
    paused: bool
    nonces: Nonces = ()


class RingSwapped(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """This table with a ring has taken the place of the one whose place it takes (protocol 7.21): it is read
    from here on, and lacks nothing of that with all results up to ``number``."""

    seq: Serial
    uid: JobUid
    number: Serial


class AggregateAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An aggregate of one's own, in place of the one of that name of the same person, if there is one.
    ``JobDropped`` ends it too."""

    seq: Serial
    spec: OwnSpec


class JobGroupMoved(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The job group of a job, and of the flows that it brought, is at ``leader``, the leader of its Raft
    group in ``term``."""

    seq: Serial
    uid: GroupUid
    leader: Address
    term: Serial


class JobGroupAssigned(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The job group at ``origin`` is to go to ``target`` (protocol 5.14), as was decided at ``at_ms``;
    ``why`` in words. Whether it has gone there a ``JobGroupMoved`` says."""

    seq: Serial
    uid: GroupUid
    origin: Address
    target: Address
    at_ms: Millis
    why: Text


class TreesDecided(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job that scales by itself is to have ``trees``, and not ``before`` (protocol 5.15), as was decided at
    ``at_ms``; ``why`` in words. ``roots``: as ``JobSpec.roots``. Whether it has them a ``VersionAdded``
    says."""

    seq: Serial
    uid: JobUid
    before: Trees
    trees: Trees
    at_ms: Millis
    why: Text
    roots: tuple[Address, ...] = ()


class RouteDecided(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """How the panes of a flow go to its root while that stands in the region ``target`` (protocol 4.12), as
    was decided at ``at_ms``; ``why`` in words. ``vias``: regions, each with the one over which it sends;
    others send directly. ``panes``: how many heads hold, at most; 0: as many as readers allow. ``acts``:
    False: it is proposed to people, and nobody goes by it."""

    seq: Serial
    uid: FlowUid
    target: Proper
    vias: Vias = ()
    panes: Panes = 0
    at_ms: Millis
    why: Text
    acts: bool = True


class PauseDecided(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job that promises when its windows come is to have looks ``pause_ms`` apart for what ends its panes,
    and not ``before_ms`` (protocol 5.17), as was decided at ``at_ms``; ``why`` in words. What is promised
    should come to ``reached_ms`` then. Whether it has them a ``VersionAdded`` says."""

    seq: Serial
    uid: JobUid
    before_ms: Millis
    pause_ms: Millis
    reached_ms: Count
    at_ms: Millis
    why: Text


class RowsOffloaded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The rows of a job on an agent are mapped by the agent at ``helper`` from now on (protocol 13.8), or
    (empty) by the agent itself, as a person has said at ``at_ms``. ``nonces``: as in ``JobDropped``."""

    seq: Serial
    uid: JobUid
    agent_id: AgentId
    helper: Address
    at_ms: Millis
    nonces: Nonces = ()


class VersionAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """PREPARE: a new version of a job, with the flows that it reads beside those of earlier versions."""

    seq: Serial
    spec: JobSpec


class VersionEnded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: the version was aborted, or its last window is committed. It no longer reads anything.
    ``nonces``: as in ``JobDropped``."""

    seq: Serial
    uid: JobUid
    version: Serial
    nonces: Nonces = ()


class RosterChanged(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A certificate or a revocation (``elf.security.roster``), which holds from here on."""

    seq: Serial
    signed: Signed


LogEntry = (
    MemberJoined
    | MemberLeft
    | JobAdded
    | JobDropped
    | FlowEnded
    | ProgramAdded
    | OutputAdded
    | RekeyingPaused
    | RingSwapped
    | AggregateAdded
    | JobGroupMoved
    | JobGroupAssigned
    | TreesDecided
    | RouteDecided
    | PauseDecided
    | RowsOffloaded
    | VersionAdded
    | VersionEnded
    | RosterChanged
)


# -- voters and followers ------------------------------------------------------------------------------------


class LogVoters(msgspec.Struct, frozen=True):
    """The voters of the catalog log: those of its Raft group, as of a membership (``epoch``) and a term, and
    their leader ("" while none is known). The higher (epoch, term) is newer."""

    epoch: Serial
    term: Serial
    leader: Address
    addresses: tuple[Address, ...]


class Hello(Message, frozen=True, kw_only=True):
    """A node to a neighbour: who votes on the catalog log of this cluster? Sent four times a second until the
    node knows, then every ten seconds: two clusters in one ring must not stay unnoticed."""


class Welcome(Message, frozen=True, kw_only=True):
    """The answer of a node that knows. ``entries``: how many entries of the log it has."""

    voters: LogVoters
    cluster_uid: Name
    entries: Serial


class GroupLoad(msgspec.Struct, frozen=True, array_like=True):
    """What a job group takes of the agent that leads it, in millionths of a core; ``windows``: of it, those
    that the master makes beside the panes. ``reached_ms``: what the last windows of a job that promises when
    they come have come to; None: it promises nothing, or they are too few; ``kept``: they were in time."""

    uid: GroupUid
    load: Count
    windows: Count = 0
    reached_ms: Count | None = None
    kept: bool = True


class AgentLoad(msgspec.Struct, frozen=True, array_like=True):
    """What an agent has done of late, as far as it is counted (``elf.job.work``), in millionths of a core:
    for the job groups that it leads, those with the most; and for all else. ``whole``: what its process has
    taken, with what is not counted; None: that is not known."""

    rest: Count
    groups: Annotated[tuple[GroupLoad, ...], msgspec.Meta(max_length=LOADS_MAX)] = ()
    whole: Count | None = None


class Follow(Message, frozen=True, kw_only=True):
    """Every agent to one voter after the other, every two seconds: I know the log up to ``known``, and its
    voters as of (``epoch``, ``term``). ``load``: None while it has not been measured.
    """

    agent_id: AgentId
    known: Serial
    epoch: Serial
    term: Serial
    load: AgentLoad | None = None


class LogTail(Message, frozen=True, kw_only=True):
    """Entries of the log, in order, after ``after``: from a voter to one follower, if it lacks some; and from
    the leader down the trees of the streams that they are about. ``last``: how many the log has there; a
    follower that has fewer after taking these asks for more at once."""

    cluster_uid: Name
    voters: LogVoters
    after: Serial
    entries: tuple[LogEntry, ...]
    last: Serial


class SignedTail(Message, frozen=True, kw_only=True):
    """A packed ``LogTail`` of the voter at an address, with its signature (``elf.security.tails``): how a
    tail comes down a tree in a fleet with keys, where whoever hands it on may be a liar."""

    voter: Address
    tail: bytes
    signature: Signature


class Spread(Message, frozen=True, kw_only=True):
    """Routed to a topic without a job group: the node nearest to it, its root, multicasts ``body`` (a packed
    ``LogTail`` or ``SignedTail``) down the tree."""

    topic: Key
    body: bytes


class Refused(Message, frozen=True, kw_only=True):
    """A voter to an agent that may not join (a copied data folder): the agent stops and says ``text``, if the
    proposal was of its present life. The refusal of an earlier one may come late. ``incarnation``: the
    proposer's."""

    agent_id: Founder
    text: Text
    incarnation: Serial = 0


LOG_MESSAGES = (Hello, Welcome, Follow, LogTail, SignedTail, Spread, Refused)


# -- proposals -----------------------------------------------------------------------------------------------


class JoinStream(Message, frozen=True, kw_only=True, tag=True):
    """Agent to a voter, until it sees its own entry: I have this stream, from ``since_us`` on. ``labels``,
    ``place`` and ``lends``: as in ``MemberJoined``."""

    stream: Proper
    agent_id: AgentId
    name: Proper
    incarnation: Serial
    address: Address
    since_us: Micros
    labels: Labels | None = None
    place: Locality = ""
    lends: bool = True


class LeaveStream(Message, frozen=True, kw_only=True, tag=True):
    """Agent to a voter, until it sees the entry: I am gone for panes that start at ``until_us`` or later. Of
    another agent, with keys, ``author``: an admin has signed that it is."""

    stream: Proper
    agent_id: AgentId
    until_us: Micros
    author: Authorship | None = None


class AddJob(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a voter, until it sees the entry. The voters replace each proposed flow by an equal
    running one."""

    spec: JobSpec

    def __post_init__(self) -> None:
        self.spec.check()


class DropJobEntry(Message, frozen=True, kw_only=True, tag=True):
    """A job group to a voter, until it sees the entry. With keys: the signed statement, and of which job of
    whom it is, which the log may not have come to."""

    uid: Tombstone
    author: Authorship | None = None
    name: Name = ""
    creator: Name = ""


class AddVersion(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a voter, until it sees the entry; flows are replaced as for ``AddJob``."""

    spec: JobSpec

    def __post_init__(self) -> None:
        self.spec.check()


class EndVersion(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a voter, until it sees the entry."""

    uid: JobUid
    version: Serial


class AddProgram(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the job's group to a voter, until it sees the entry of this job in Python."""

    spec: ProgramSpec

    def __post_init__(self) -> None:
        self.spec.check()


class AddOutput(Message, frozen=True, kw_only=True, tag=True):
    """The agent that was asked for an output to a voter, until it sees the entry."""

    spec: OutputSpec


class PauseRekeying(Message, frozen=True, kw_only=True, tag=True):
    """The agent that was asked for it to a voter, until it sees the entry. ``author``: the signed statement,
    where there are keys."""

    uid: JobUid
    paused: bool
    author: Authorship | None = None


class OffloadRows(Message, frozen=True, kw_only=True, tag=True):
    """The agent that was asked for it to a voter, until it sees the entry; as ``RowsOffloaded``. ``author``:
    as in ``PauseRekeying``."""

    uid: JobUid
    agent_id: AgentId
    helper: Address
    at_ms: Millis
    author: Authorship | None = None


class SwapRing(Message, frozen=True, kw_only=True, tag=True):
    """The master of a table's job, at ``leader``, to a voter, until it sees the entry: see
    ``RingSwapped``."""

    uid: JobUid
    number: Serial
    leader: Address


class AddAggregate(Message, frozen=True, kw_only=True, tag=True):
    """The agent that was asked for an aggregate to a voter, until it sees the entry."""

    spec: OwnSpec


class MoveJobGroup(Message, frozen=True, kw_only=True, tag=True):
    """The leader of a job group to a voter, until it sees the entry: the job group is here now."""

    uid: GroupUid
    leader: Address
    term: Serial


class AssignJobGroup(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the voters to itself: a job group is to go from one agent to another."""

    uid: GroupUid
    origin: Address
    target: Address
    at_ms: Millis
    why: Text


class DecideTrees(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the voters to itself: a job is to have more or fewer trees."""

    uid: JobUid
    before: Trees
    trees: Trees
    at_ms: Millis
    why: Text
    roots: tuple[Address, ...] = ()


class DecideRoute(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the voters to itself: how the panes of a flow go from now on; as ``RouteDecided``."""

    uid: FlowUid
    target: Proper
    vias: Vias = ()
    panes: Panes = 0
    at_ms: Millis
    why: Text
    acts: bool = True


class DecidePause(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the voters to itself: looks for what ends a job's panes are to be closer, or further
    apart."""

    uid: JobUid
    before_ms: Millis
    pause_ms: Millis
    reached_ms: Count
    at_ms: Millis
    why: Text


class EndFlow(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the voters to itself: no job has read this flow for a while."""

    uid: FlowUid


class ChangeRoster(Message, frozen=True, kw_only=True, tag=True):
    """Any agent to a voter, until it sees the entry: this certificate or revocation was signed."""

    signed: Signed


Proposal = (
    JoinStream
    | LeaveStream
    | AddJob
    | DropJobEntry
    | AddProgram
    | AddOutput
    | PauseRekeying
    | OffloadRows
    | SwapRing
    | AddAggregate
    | MoveJobGroup
    | AssignJobGroup
    | DecideTrees
    | DecideRoute
    | DecidePause
    | EndFlow
    | AddVersion
    | EndVersion
    | ChangeRoster
)
"""What may be asked of the catalog log. A proposal is a record of its Raft group; see
``elf.job.catalog.voters``."""
Wanted = AddOutput | PauseRekeying | OffloadRows | AddAggregate | DropJobEntry
"""Those of an agent that is asked for something by a person, until it sees what has come of it."""
PROPOSALS: Final[tuple[type[Message], ...]] = get_args(Proposal)
