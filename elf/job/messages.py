"""What agents and clients say to each other about streams, jobs and windows.

Overlay messages are the overlay's own business (``overlay.messages``); these ride beside them, straight to an
address, or inside a routed or multicast overlay message. Every message is a frozen struct of plain values, so
that the codec can check any bytes against its type; on the wire it is an array of its fields, so a new field
goes to the end, with a default. ``payload`` fields hold Arrow IPC and travel as a frame of their own.

Numbers of panes, members and revisions are integers; contribution sets are little-endian bitmaps over member
numbers; event times are microseconds. ``epoch`` and ``term`` fence off earlier holders of a log.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elf.job.program import ProgramSpec
from elf.job.spec import START_OF_TIME, Flow, JobSpec, VersionRecord
from elf.ql.plan import Plan, Top
from elf.schema import Schema


class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Base of all messages; the codec says which one it is."""


# -- rolling up (PROTOCOL 4, 5) ------------------------------------------------------------------------------


class Slice(Message, frozen=True, kw_only=True):
    """Worker or inner node to its parent, or (``direct``) to the root: panes ``[start, end)`` of a flow for
    ``members``.

    ``payload`` holds the non-empty panes (``_pane``, keys, states) and is empty when there are none;
    ``tally`` counts rows a pane. ``parts`` names later deltas as (member, part) pairs.
    """

    flow: str
    epoch: int = 0
    term: int = 0
    start: int
    end: int
    members: bytes
    parts: tuple[tuple[int, int], ...] = ()
    direct: bool = False
    tally: bytes = b""
    payload: bytes = b""


class FlowProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far a member is with a flow: first pane that it answers for, first pane that it has not sealed; its
    parent in the tree. Since its start: rows in time, late ones, and rows from the future.
    """

    flow: str
    live_from: int
    sealed: int
    parent: str = ""
    rows: int = 0
    late: int = 0
    future: int = 0


class Progress(Message, frozen=True, kw_only=True):
    """Member to the home of its flows, every second and when something changed. Carries the watermark."""

    member: int
    incarnation: int
    flows: tuple[FlowProgress, ...]
    now_ms: int = 0
    """The sender's clock."""


class EarlyState(Message, frozen=True, kw_only=True):
    """Member to the root of a flow, and on to its readers: all open panes, from ``start`` on, as they are now
    (``elf.job.early``). ``end``: after the last that has a row; ``number`` counts since the agent's start.
    """

    flow: str
    member: int
    incarnation: int
    number: int
    start: int
    end: int
    tally: bytes = b""
    payload: bytes = b""


class FunctionFailed(Message, frozen=True, kw_only=True):
    """Member to the masters of the jobs that read a flow, each second while it stands in the log: its user's
    function has failed here, and ``text`` says on which line of which input."""

    flow: str
    agent: str
    text: str


class SendAgain(Message, frozen=True, kw_only=True):
    """Root to a member that it misses: send your snapshots of these panes straight to me."""

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
    """Root's answer to an offer: ``included`` (delete it), ``final`` (too late, count it as left out),
    ``send``.
    """

    flow: str
    start: int
    end: int
    verdict: str
    part: int = 0


class Committed(Message, frozen=True, kw_only=True):
    """Root to all workers, down the tree: panes ``[start, end)`` are committed with these members.
    ``parts``: (member, part) of late rows that the revision adds."""

    flow: str
    epoch: int = 0
    term: int = 0
    start: int
    end: int
    revision: int
    members: bytes
    parts: tuple[tuple[int, int], ...] = ()


class Notice(Message, frozen=True, kw_only=True):
    """The root of a job's flow to all its workers, down the tree: what a person has to tell them
    (``elf.job.notices``). ``sent_ms`` is the root's clock."""

    job: str
    sent_ms: int
    text: str
    flow: str


# -- reading a flow from another node (PROTOCOL 1) -----------------------------------------------------------


class PaneWish(msgspec.Struct, frozen=True):
    """What a reader has of a flow: commits up to number ``after``, panes below ``end``, durably. It wants the
    later commits of panes from ``start`` on; with None it wants to begin, where the flow is now. ``cut``: of
    each pane it needs these rows only.
    """

    flow: str
    after: int
    start: int | None
    end: int
    cut: Top | None = None


class ReadPanes(Message, frozen=True, kw_only=True):
    """A node whose jobs read flows, to the root of these, every second: what it has (and the root need not
    keep for it), and that it is still there.
    """

    wishes: tuple[PaneWish, ...]


class FlowHead(Message, frozen=True, kw_only=True):
    """Root to a reader that begins: commit ``after`` was the last one; pane ``start`` is the next."""

    flow: str
    after: int
    start: int


class PaneRow(Message, frozen=True, kw_only=True):
    """Root to a reader, at each commit and when asked: commit number ``seq`` of a flow, the next one that
    concerns the reader after ``after``, if that wants panes from ``wanted`` on. ``more``: there are others,
    to be asked for. ``cut``: the rows that it has of each pane, all of them with None.
    """

    flow: str
    after: int
    seq: int
    more: bool = False
    start: int
    end: int
    revision: int
    members: bytes
    roster_version: int
    epoch: int = 0
    term: int = 0
    tally: bytes = b""
    payload: bytes = b""
    cut: Top | None = None
    wanted: int = START_OF_TIME


# -- the stream log (PROTOCOL 1) -----------------------------------------------------------------------------


class MemberJoined(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Member ``number`` of ``stream``: expected in panes that start at ``since_us`` or later. A restart is a
    new entry.
    """

    seq: int
    stream: str
    number: int
    agent_id: str
    name: str
    incarnation: int
    address: str
    since_us: int


class MemberLeft(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The member is not expected in panes that start at ``until_us`` or later."""

    seq: int
    stream: str
    number: int
    until_us: int


class JobAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job, with its master and the flows that it reads; those that the log does not know yet begin with
    it.
    """

    seq: int
    spec: JobSpec


class JobDropped(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone. ``lingers``: the job's flows go on until a ``FlowEnded`` (before there was one, they ended
    with their job).
    """

    seq: int
    uid: str
    lingers: bool = False


class FlowEnded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: no job has read the flow for a while; its workers and its root forget it."""

    seq: int
    uid: str


class ProgramAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job written in Python. ``JobDropped`` ends it too."""

    seq: int
    spec: ProgramSpec


class HomeMoved(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The home of a job, and of the flows that it founded, is the agent at ``home``: the leader of its
    replica group in ``term``.
    """

    seq: int
    uid: str
    home: str
    term: int


class VersionAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """PREPARE: a new version of a job, with the flows that it reads beside those of the versions before."""

    seq: int
    spec: JobSpec


class VersionEnded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: the version was aborted, or its last window is committed. It reads nothing any more."""

    seq: int
    uid: str
    version: int


LogEntry = (
    MemberJoined
    | MemberLeft
    | JobAdded
    | JobDropped
    | FlowEnded
    | ProgramAdded
    | HomeMoved
    | VersionAdded
    | VersionEnded
)


class LogKeepers(msgspec.Struct, frozen=True):
    """Who keeps the stream log: the voters of its replica group, as of a membership (``epoch``) and a term,
    and who leads them ("" while nobody is known). The higher (epoch, term) is news.
    """

    epoch: int
    term: int
    leader: str
    addresses: tuple[str, ...]


class Hello(Message, frozen=True, kw_only=True):
    """A node to a neighbour: who keeps the stream log of this cluster? Four times a second until it knows,
    then every ten seconds: two clusters in one ring must not stay unnoticed.
    """


class Welcome(Message, frozen=True, kw_only=True):
    """The answer of one that knows. ``entries``: how many of the log it has."""

    keepers: LogKeepers
    cluster_uid: str
    entries: int


class Follow(Message, frozen=True, kw_only=True):
    """Every agent to one keeper after the other, every two seconds: I know the log up to ``known``, and its
    keepers as of (``epoch``, ``term``).
    """

    agent_id: str
    known: int
    epoch: int
    term: int


class LogTail(Message, frozen=True, kw_only=True):
    """Entries of the log, in order, after ``after``: a keeper to one follower, if there is news; and the
    leader down the trees of the streams that they are about.
    """

    cluster_uid: str
    keepers: LogKeepers
    after: int
    entries: tuple[LogEntry, ...]


class Spread(Message, frozen=True, kw_only=True):
    """Routed to a topic without a home: the node nearest to it, its root, multicasts ``body`` (a packed
    message) down the tree.
    """

    topic: bytes
    body: bytes


class JoinStream(Message, frozen=True, kw_only=True, tag=True):
    """Agent to a keeper, until it sees its own entry: I have this stream, from ``since_us`` on."""

    stream: str
    agent_id: str
    name: str
    incarnation: int
    address: str
    since_us: int


class LeaveStream(Message, frozen=True, kw_only=True, tag=True):
    """Agent to a keeper, until it sees the entry: I am gone for panes that start at ``until_us`` or later."""

    stream: str
    agent_id: str
    until_us: int


class AddJob(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a keeper, until it sees the entry. The keepers put a running flow in the place of
    each proposed one that is equal to it.
    """

    spec: JobSpec


class DropJobEntry(Message, frozen=True, kw_only=True, tag=True):
    """A job's home to a keeper, until it sees the entry."""

    uid: str


class AddVersion(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a keeper, until it sees the entry; flows are put in place as for ``AddJob``."""

    spec: JobSpec


class EndVersion(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a keeper, until it sees the entry."""

    uid: str
    version: int


class AddProgram(Message, frozen=True, kw_only=True, tag=True):
    """The node nearest to an app id to a keeper, until it sees the entry of this job in Python."""

    spec: ProgramSpec


class MoveHome(Message, frozen=True, kw_only=True, tag=True):
    """The leader of a home's replica group to a keeper, until it sees the entry: the home is here now."""

    uid: str
    home: str
    term: int


class EndFlow(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the keepers to itself: no job has read this flow for a while."""

    uid: str


Wish = (
    JoinStream
    | LeaveStream
    | AddJob
    | DropJobEntry
    | AddProgram
    | MoveHome
    | EndFlow
    | AddVersion
    | EndVersion
)
"""What may be asked of the stream log. A wish is a record of its replica group; see ``elf.job.keepers``."""


class Refused(Message, frozen=True, kw_only=True):
    """A keeper to an agent that may not join (a copied data folder): it stops and says ``text``, if the wish
    was of its present life. An earlier one's may come late. ``incarnation``: whose wish it was.
    """

    agent_id: str
    text: str
    incarnation: int = 0


# -- results -------------------------------------------------------------------------------------------------


class WindowResult(Message, frozen=True, kw_only=True):
    """Committed windows of a job, once a revision; in a fleet mostly one window, in ``elf run`` many at once.

    ``status`` and ``payload`` are Arrow IPC. Status has a row a window: ``window_start``, ``window_end``
    (timestamp µs), ``revision``, ``expected``, ``reported``, ``missing`` (names), ``rows_in``, ``late``,
    ``rejected``, ``uncast``, ``future``, ``unrostered``, ``shed``, ``skipped`` (panes of it were dropped
    before the master had them, or a change of the job cut it off: it has no rows), ``version``. Payload has
    the result rows, ``window_start`` and ``window_end`` first when the job has windows.
    """

    job: str
    name: str
    version: int
    provisional: bool = False
    master: str
    first_us: int
    last_us: int
    revision: int
    final: bool = False
    """True when no window can follow (a finite input)."""
    status: bytes
    payload: bytes
    changes: bool = False
    """The job says EMIT CHANGES: readers are told what differs from what they had of a window."""
    early: int = 0
    """Above 0: not committed, and replaced by the next of the windows in it."""


class JobFailed(Message, frozen=True, kw_only=True):
    """A job's home to its subscribers: a window cannot be finished, and ``text`` says why."""

    job: str
    text: str


# -- requests between nodes ----------------------------------------------------------------------------------


class Request(Message, frozen=True, kw_only=True):
    """Base of what wants exactly one ``Answer``; ``id`` is the asker's, ``origin`` its address."""

    id: int
    origin: str


class LocateInTree(Request, frozen=True, kw_only=True):
    """To the members of a stream, and routed to its topic: where do you hang in its tree? Answered with
    ``TreePlace``.
    """

    stream: str


class DescribeStream(Request, frozen=True, kw_only=True):
    """Which columns have you seen in this stream? Answered with ``StreamSeen``."""

    stream: str


class CreateJob(Request, frozen=True, kw_only=True):
    """Routed to the app id: become the home of this job, or find it one.

    The node at the first of the job's two keys (``elf.job.placing``) routes it on to the second, with its own
    number of jobs: ``rival_jobs``. The node there takes the job if it has fewer, or routes it back,
    ``settled``.
    """

    spec: JobSpec
    replace: bool
    rival_jobs: int | None = None
    settled: bool = False


class WhoIsThere(Request, frozen=True, kw_only=True):
    """Routed to a key: which node is nearest to it? Answered with its address."""


class DropJob(Request, frozen=True, kw_only=True):
    """To a job's home."""

    uid: str


class SteerJob(Request, frozen=True, kw_only=True):
    """To a job's home: change what it does. Answered with ``JobFacts`` when that is decided.

    ``verb``: ``alter`` to ``plan``, ``rollback`` to what ``version`` did, ``pause``, ``resume``, ``empty``.
    ``note``: the statement.
    """

    uid: str
    verb: Literal["alter", "rollback", "pause", "resume", "empty"]
    plan: Plan | None = None
    version: int = 0
    reset: bool = False
    immediately: bool = False
    note: str = ""


class NotifyJob(Request, frozen=True, kw_only=True):
    """To the root of a job's flow: tell all its workers this. Answered with the ids of the agents it was
    sent to."""

    uid: str
    text: str
    flow: str


class Inspect(Request, frozen=True, kw_only=True):
    """To a job's home: its state and last ``windows`` committed windows. Answered with ``JobFacts``."""

    uid: str
    windows: int


class AskWhy(Request, frozen=True, kw_only=True):
    """To a flow's root: why is nothing committed? Answered with a text."""

    uid: str


class InspectClocks(Request, frozen=True, kw_only=True):
    """To the root of some flow: how far are the clocks apart that you hear? Answered with a map from address
    to ms ahead of their median."""


class InspectFlow(Request, frozen=True, kw_only=True):
    """To a flow's root: its tree and its readers. Answered with ``FlowFacts``."""

    uid: str


class SubscribeJob(Request, frozen=True, kw_only=True):
    """To a job's home, renewed every two seconds (a lease): publish to ``origin``; ``after_us`` is the end of
    the last window seen.
    """

    uid: str
    after_us: int | None


class RollArchive(Request, frozen=True, kw_only=True):
    """To a member: close and ship the open roll of the stream."""

    stream: str


class Answer(Message, frozen=True, kw_only=True):
    """The answer to a request; ``error`` is empty when it went well. ``body`` is msgpack, as the request
    says.
    """

    id: int
    error: str = ""
    body: bytes = b""
    payload: bytes = b""


class TreeEdge(msgspec.Struct, frozen=True):
    """A member's place in a flow's tree, as its root last heard."""

    member: int
    name: str
    address: str
    parent: str
    sealed_us: int | None


class FlowReader(msgspec.Struct, frozen=True):
    """A job that reads a flow."""

    name: str
    creator: str
    master: str


class FlowFacts(msgspec.Struct, frozen=True):
    """What a flow's root knows of it. ``first_us``: start of its first pane."""

    flow: Flow
    first_us: int | None
    committed_us: int | None
    readers: tuple[FlowReader, ...]
    tree: tuple[TreeEdge, ...]


class JobFacts(msgspec.Struct, frozen=True):
    """What a job's home knows of it. ``first_us``: start of the first window that it answers for."""

    spec: JobSpec
    state: str
    master: str
    first_us: int | None
    committed_us: int | None
    windows: tuple[WindowResult, ...]
    failure: str = ""
    versions: tuple[VersionRecord, ...] = ()


class TreePlace(msgspec.Struct, frozen=True):
    """A node and its parent in a tree: "" for the root, and for one that has none yet."""

    address: str
    parent: str


class StreamSeen(msgspec.Struct, frozen=True):
    """A member's view of a stream."""

    schema: Schema
    format: str
    timestamp: str | None
    archive: str
    rows: int


# -- clients -------------------------------------------------------------------------------------------------


class Execute(Message, frozen=True, kw_only=True):
    """A client's statement, to any agent. ``windows`` ends a SELECT or SUBSCRIBE after that many windows."""

    request: int
    sql: str
    creator: str
    windows: int | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Names and texts of the files that it names."""
    tables: tuple[tuple[str, bytes], ...] = ()
    """Names and contents (``elf.batch``) of those that it joins."""


class Call(Message, frozen=True, kw_only=True):
    """A client's other wishes: ``verb`` is one of ``tree JOB``, ``compare JOB``, ``leave``, ``status``;
    ``argument`` as it says.
    """

    request: int
    verb: str
    argument: str = ""
    creator: str = ""


class KeepAlive(Message, frozen=True, kw_only=True):
    """Client to agent every two seconds while a request is open; silence for ten ends it."""

    request: int


class Cancel(Message, frozen=True, kw_only=True):
    """Client to agent: I want no more of this."""

    request: int


class Reply(Message, frozen=True, kw_only=True):
    """Agent to client. ``text`` is for people; ``body`` JSON; ``payload`` an Arrow table; ``done`` ends the
    request.
    """

    request: int
    text: str = ""
    body: bytes = b""
    payload: bytes = b""
    done: bool = True


class Failed(Message, frozen=True, kw_only=True):
    """Agent to client: the request cannot be done; ``text`` says what, where and what to do."""

    request: int
    text: str


class Published(Message, frozen=True, kw_only=True):
    """Agent to client: windows of the job that it subscribed to."""

    request: int
    result: WindowResult


MESSAGES: tuple[type[Message], ...] = (
    Slice,
    Progress,
    EarlyState,
    FunctionFailed,
    SendAgain,
    Offer,
    Verdict,
    Committed,
    ReadPanes,
    FlowHead,
    PaneRow,
    Notice,
    Hello,
    Welcome,
    Follow,
    LogTail,
    Spread,
    JoinStream,
    LeaveStream,
    AddJob,
    DropJobEntry,
    AddProgram,
    MoveHome,
    EndFlow,
    AddVersion,
    EndVersion,
    Refused,
    LocateInTree,
    DescribeStream,
    CreateJob,
    WhoIsThere,
    DropJob,
    SteerJob,
    NotifyJob,
    Inspect,
    InspectFlow,
    InspectClocks,
    AskWhy,
    SubscribeJob,
    RollArchive,
    Answer,
    WindowResult,
    JobFailed,
    Execute,
    Call,
    KeepAlive,
    Cancel,
    Reply,
    Failed,
    Published,
)
"""Everything that may stand in a frame."""
