"""What a node wants done. The core returns these values; the driver performs them, in order.

Long work (``Work``, ``Combine``, ``CommitPanes``, ``CommitWindows``) runs on threads, in order for each
stream task, and comes back as an event of ``elf.job.events``. ``Save`` effects are done before the sends that
follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from elf.job.commands import Command
from elf.job.commits import WindowCommit
from elf.job.contributions import PartName, Piece, Pieces, members_of
from elf.job.messages.groups import FillHistory, ReconfigureJob
from elf.job.messages.helping import MapRows
from elf.job.messages.log import LogEntry
from elf.job.messages.rollup import PaneRow, Reexecute
from elf.job.output import OutputKept, OutputSpec
from elf.job.program.spec import ProgramSpec
from elf.job.snapshots import Threshold
from elf.job.spec import Flow, JobSpec, VersionRecord
from elf.job.tables import CopyShard, ReadShard, ReadTable, ShardRound, ShardRows, TableKept, TableRound
from elf.planning.costs import JobCosts
from elf.ql.own import OwnAggregate
from elf.ql.plan import Plan, Top
from elf.security.certificates import Signed
from elf.windows import Calendar
from elf.wire.base import Message, Request
from elf.wire.clients import WindowResult


class Send(msgspec.Struct, frozen=True):
    """A message, directly to an address (an agent's, or a client's return address)."""

    to: str
    message: Message


class Multicast(msgspec.Struct, frozen=True):
    """A message to all members of a topic's tree; the node hands it to its overlay."""

    topic: bytes
    message: Message


class Work(msgspec.Struct, frozen=True):
    """A command for a stream task; comes back as ``Worked``."""

    stream: str
    command: Command


class Run(msgspec.Struct, frozen=True):
    """Run another agent's work, for the root at ``to``, beside our own; comes back as ``Ran``
    (``elf.job.reexecution``)."""

    flow: Flow
    asked: Reexecute
    to: str


class Help(msgspec.Struct, frozen=True):
    """Map rows of the agent at ``to`` for it, beside our own work; comes back as ``Helped``
    (``elf.job.offload``)."""

    flow: Flow
    asked: MapRows
    to: str


class Combine(msgspec.Struct, frozen=True):
    """Merge disjoint pieces of the same panes into one for the parent; comes back as ``Combined``. ``unit``:
    so many panes, which are the same members' in all of them, become one (``elf.job.units``)."""

    flow: Flow
    pieces: Pieces
    unit: int = 1


@dataclass(frozen=True)
class CommitPanes:
    """Merge ``pieces``, each of which has all of panes ``[start, end)``, on top of the committed revision
    before this one (when ``revision`` > 0), and commit the result durably: then ``members`` are in it. Comes
    back as ``PanesCommitted``. ``whole``: of panes in which there are units, which are committed together or
    not at all; its pieces have all of these panes together.
    """

    flow: Flow
    start: int
    end: int
    pieces: Pieces
    revision: int
    members: int
    roster_version: int
    parts: frozenset[PartName] = frozenset()
    """All parts in the revision, and those of them that are ``new`` in it: one for each piece."""
    new: tuple[PartName, ...] = ()
    plain: bool = False
    """Without the flow's reduce function, which has failed."""
    told: tuple[Threshold, ...] = ()
    """What the flow's agents were last told to leave out."""
    whole: bool = False

    @cached_property
    def added(self) -> int:
        """Members that the pieces add to the revision before."""
        return self.members if self.whole else members_of(self.pieces)

    def overlaps(self, start: int, end: int) -> bool:
        """Whether it covers some of these panes."""
        return self.start < end and start < self.end


class StorePanes(msgspec.Struct, frozen=True):
    """Keep commits that came from a flow's root on another node, in order, under the name ``stored_as``;
    comes back as ``PanesStored``.
    """

    flow: Flow
    stored_as: str
    rows: tuple[PaneRow, ...]


class ReadCommits(msgspec.Struct, frozen=True):
    """Read a flow's commits after number ``after`` that have panes from ``start`` on, in order, some at a
    time, for the reader at ``to``; comes back as ``CommitsRead``. ``cut``: the rows of a pane that the reader
    needs."""

    flow: Flow
    to: str
    after: int
    start: int
    cut: Top | None = None


class Coverage(msgspec.Struct, frozen=True):
    """Panes ``[start, end)`` of a flow (its name in the store) and their revision; the members expected and
    present, as contribution sets over the members of the flow's stream. ``lost``: dropped before they were
    here. ``parts``: those of late rows in the revision."""

    flow: str
    start: int
    end: int
    revision: int
    expected: int
    reported: int
    lost: bool = False
    parts: frozenset[PartName] = frozenset()


class Named(msgspec.Struct, frozen=True, eq=False):
    """The members of a flow's stream: ``agents`` has id and name by member number. ``flow``: its name in the
    store. One value serves all windows as long as the roster stays, so it is compared by identity."""

    flow: str
    agents: Mapping[int, tuple[str, str]]


class CommitWindows(msgspec.Struct, frozen=True):
    """Assemble and commit the windows that end in ``(first_us, last_us]``; comes back as
    ``WindowsCommitted``.

    For a job without windows both are 0, and the one result is over everything. ``from_us``: windows that
    start earlier are skipped; ``landmarks``: where landmark windows begin, if not at ``from_us``.
    ``revised``: panes ``[start, end)`` that changed; only what they change is committed. ``until_us``:
    windows start before that. ``skipped_to``: instead of these windows, those that end later, up to here, are
    committed, as skipped. ``portion``: they are part of an endless range, in which only windows that counted
    something are reported.
    """

    spec: JobSpec
    first_us: int
    last_us: int
    coverage: tuple[Coverage, ...]
    names: tuple[Named, ...]
    final: bool = False
    from_us: int = -(1 << 62)
    landmarks: tuple[int, ...] = ()
    revised: tuple[int, int] | None = None
    until_us: int = 1 << 62
    skipped_to: int | None = None
    portion: bool = False

    @property
    def calendar(self) -> Calendar:
        """The windows of the job."""
        plan = self.spec.plan
        return Calendar(plan.windows, plan.fragment.pane_us, self.from_us, self.landmarks, self.until_us)


class MakeEarly(msgspec.Struct, frozen=True):
    """Make the windows of ``committed`` from its panes and from open ones, and commit nothing; comes back as
    ``EarlyMade``. ``whole``: the same with the coverage of open panes. ``pieces``: open panes, each of one
    agent and flow. ``number``: the number of early results of the job, this one included."""

    committed: CommitWindows
    whole: CommitWindows
    pieces: tuple[Piece, ...]
    number: int


class MakeReady(msgspec.Struct, frozen=True):
    """Make the last windows of a version once more, and commit nothing: this agent is to lead the job's
    group, as ``asker`` says, or leads it now (""), and goes on from them; comes back as ``MadeReady``."""

    asker: str
    spec: JobSpec


class TryFunctions(msgspec.Struct, frozen=True):
    """Try the plan's functions for panes and windows on some that its job has made; comes back as
    ``FunctionsTried``. ``flows``: uids of flows with the same groups."""

    request: ReconfigureJob
    plan: Plan
    flows: tuple[str, ...] = ()


class SaveLog(msgspec.Struct, frozen=True):
    """Append to the durable copy of the catalog log. ``forgotten``: tombstones, of what stands there."""

    entries: tuple[LogEntry, ...]
    forgotten: tuple[LogEntry, ...] = ()


class SaveJob(msgspec.Struct, frozen=True):
    """The record of a job at its job group: its current version, where that begins, and all of its
    versions."""

    spec: JobSpec
    state: str
    first_pane: int | None
    versions: tuple[VersionRecord, ...] = ()


class SaveFlow(msgspec.Struct, frozen=True):
    """The record of a flow at its root: the first pane that it commits."""

    flow: str
    first_pane: int


class SaveTable(msgspec.Struct, frozen=True, eq=False):
    """Have the job group commit that a table begins, or is over; comes back as committed."""

    kept: TableKept


class CopyRows(msgspec.Struct, frozen=True, eq=False):
    """Have the job group commit that a table gets the next rows of the one whose place it takes; comes back
    as committed."""

    round: TableRound


class SaveShard(msgspec.Struct, frozen=True, eq=False):
    """Have the job group of a shard commit what is of it in some results, or in the table whose place its own
    takes; comes back as committed."""

    rows: ShardRows | ShardRound


class LookUp(msgspec.Struct, frozen=True):
    """Read rows of a table, or results for one of its shards, from the store; comes back as ``Consulted``."""

    request: ReadTable | ReadShard | CopyShard


class SaveOutput(msgspec.Struct, frozen=True, eq=False):
    """The record of an output in the job group of its job."""

    kept: OutputKept


class SaveCosts(msgspec.Struct, frozen=True, eq=False):
    """What was learned of a job, in its job group."""

    kept: JobCosts


class KeepFilled(msgspec.Struct, frozen=True, eq=False):
    """Commit windows that were made offline; ``rest``: how many of the request come after it."""

    request: FillHistory
    row: WindowCommit
    rest: int = 0


class Deliver(msgspec.Struct, frozen=True, eq=False):
    """Read the committed results of a job numbered after those in ``kept``, as many as go at once, and bring
    them out of the fleet; comes back as ``Delivered``. ``versions``: those of the job that the log still
    knows."""

    output: OutputSpec
    job: JobSpec
    kept: OutputKept
    versions: tuple[JobSpec, ...] = ()


class SaveProgram(msgspec.Struct, frozen=True):
    """The checkpoint with this number of a job in Python (``elf.job.program.keeping``); comes back as
    ``ProgramSaved``."""

    uid: str
    number: int
    record: bytes


class BootstrapProgram(msgspec.Struct, frozen=True):
    """A new job in Python needs a job group, which its master's state is in."""

    spec: ProgramSpec


class SaveMaster(msgspec.Struct, frozen=True):
    """The checkpoint with this number of a master of a job in Python, which leads the job group of that uid
    in ``term``; comes back as ``Programs.committed``."""

    uid: str
    term: int
    number: int
    record: bytes


class ForgetProgram(msgspec.Struct, frozen=True):
    """That job is over: forget its checkpoint."""

    uid: str


class SaveFact(msgspec.Struct, frozen=True):
    """A small durable fact of this node (cluster, peers)."""

    key: str
    value: bytes


@dataclass(frozen=True)
class Forget:
    """Delete snapshots of a flow, named (first pane, end, part), that commits include or that were left out
    for good."""

    flow: str
    names: tuple[tuple[int, int, int], ...] = field(default=())
    whole_flow: bool = False


class PrunePanes(msgspec.Struct, frozen=True):
    """Forget commits of a flow, by its name in the store, whose panes are all below ``below``; with None all
    of its commits.
    """

    flow: str
    below: int | None


class PruneWindows(msgspec.Struct, frozen=True):
    """Forget windows of a job that ended by ``below_us``."""

    job: str
    below_us: int


class Fetch(msgspec.Struct, frozen=True):
    """Read retained snapshots of panes ``[start, end)`` with this part number from the store; comes back as
    ``Fetched``."""

    flow: Flow
    start: int
    end: int
    part: int = 0


class ReadWindows(msgspec.Struct, frozen=True):
    """Read committed windows of a job from the store, numbered above ``after`` or the last ``count``, or as
    ``ReadPast`` says; comes back as ``WindowsRead``.
    """

    spec: JobSpec
    request: Request
    after: int | None = None
    count: int = 0


class Consult(msgspec.Struct, frozen=True):
    """A request that a stream task answers (what columns have you seen, roll the archive); comes back as
    ``Consulted``."""

    stream: str
    request: Request


class Examine(msgspec.Struct, frozen=True):
    """A request that the process answers: how are you (``elf.wire.clients``), which panes have you
    stamped (``elf.job.stamps``)? Comes back as ``Consulted``."""

    request: Request


class Noticed(msgspec.Struct, frozen=True):
    """A broadcast of a job has come: for the log, and to be counted. ``sent_ms``: the clock of its sender."""

    job: str
    text: str
    sent_ms: int


class Namesake(msgspec.Struct, frozen=True):
    """Another agent, by id and address, is expected under our name in a stream: for the log."""

    stream: str
    agent_id: str
    address: str


class Known(msgspec.Struct, frozen=True):
    """The catalog log has a certificate or a revocation: connections are admitted accordingly from now on."""

    signed: Signed


class Seen(msgspec.Struct, frozen=True):
    """Another agent has come or gone (``what``, in words): for the log. ``name`` is empty where the catalog
    log does not know the agent; ``stream``: it is about this stream alone."""

    what: str
    name: str
    address: str
    stream: str = ""


class Skewed(msgspec.Struct, frozen=True):
    """The clock of an agent is off from the others' by more than the lateness of a flow: for the log."""

    address: str
    skew_ms: int
    limit_ms: int


class Paced(msgspec.Struct, frozen=True):
    """While a pane of a stream is due its files are looked at each ``poll_ms`` at first, from now on: as
    early as the promises of all jobs that read it want."""

    stream: str
    poll_ms: int


class Judged(msgspec.Struct, frozen=True):
    """Windows of a job that says WITHIN (``promise``) are committed: so many as early as that, and so many
    later; for the log."""

    job: str
    promise: str
    kept: int
    broken: int


class Unusable(msgspec.Struct, frozen=True):
    """What came of these members (a contribution set) for panes ``[start, end)`` of a flow cannot be opened,
    and is left out: for the log."""

    flow: Flow
    members: int
    start: int
    end: int
    why: str


class Faulted(msgspec.Struct, frozen=True):
    """A bug in elf has ended one thing, and nothing else: a client's request or, if ``about`` names its type,
    a message from ``sender``. For the log, and counted."""

    error: Exception
    about: str = ""
    sender: str = ""


class Skipped(msgspec.Struct, frozen=True):
    """Something that is committed cannot be used, by this agent or any other (``what`` it is, and why): it is
    skipped, and stays so after a restart. For the log, and counted."""

    what: str
    why: str


class Undone(msgspec.Struct, frozen=True):
    """What the catalog log wants of a job that is led here (``what``) was tried, and is not done. For the
    log."""

    what: str
    why: str


class Audited(msgspec.Struct, frozen=True):
    """Something that is kept for those who ask later who has done what (``agents.audit``): ``what`` it is,
    and facts about it; never what is in a row."""

    what: str
    facts: Mapping[str, object]


class Refused(msgspec.Struct, frozen=True):
    """A client was refused ``what`` is over a quota of its creator's, or ``planning`` that took too long. For
    the metrics."""

    what: str


class Offload(msgspec.Struct, frozen=True):
    """Reading a text, or planning, for a client of this agent: ``work`` is a function of values. It comes
    back as ``Offloaded``."""

    id: int
    work: Callable[[], object]


class PastQuestion(msgspec.Struct, frozen=True, eq=False):
    """A SELECT over past windows: ``select``, DuckDB's, over a table with the ``name`` of their job. Windows
    that start in ``[since_us, until_us)``; of each the last revision, or all of them."""

    select: str
    name: str
    windows: tuple[WindowResult, ...]
    since_us: int
    until_us: int
    all_revisions: bool = False


class TableQuestion(msgspec.Struct, frozen=True, eq=False):
    """A SELECT over rows of a table of that ``name``, which came as encoded tables."""

    select: str
    name: str
    rows: tuple[bytes, ...]


class PastAnswer(msgspec.Struct, frozen=True, eq=False):
    """Its rows, as encoded tables that are to be told one after the other; how many rows and windows there
    are, and how many windows have no rows."""

    portions: tuple[bytes, ...]
    rows: int
    windows: int
    empty: int


class EvaluatePast(msgspec.Struct, frozen=True, eq=False):
    """What does the SELECT come to? For a client of this agent. Comes back as ``Offloaded``, with a
    ``PastAnswer``."""

    id: int
    question: PastQuestion | TableQuestion


class TryAggregate(msgspec.Struct, frozen=True, eq=False):
    """Do the laws hold for an aggregate of somebody's own (``elf.paos.laws``)? For a client of this agent.
    ``rows``: an encoded table with a column for each argument, or without columns. Comes back as
    ``Offloaded``, with the law that is broken, in one line."""

    id: int
    own: OwnAggregate
    rows: bytes


class Disbelieved(msgspec.Struct, frozen=True):
    """An agent has said what its key does not let it say, and nothing came of it (``what`` it was, and why
    not). For the log, and counted."""

    what: str
    sender: str
    why: str


class Stop(msgspec.Struct, frozen=True):
    """The agent must stop: ``text`` for the log and the terminal, ``status`` for the exit."""

    text: str
    status: int


Saved = SaveJob | SaveFlow | SaveOutput | SaveCosts | SaveTable | CopyRows | SaveShard | KeepFilled
"""What a job group is to commit as it is."""
Effect = (
    Send
    | Multicast
    | Work
    | Paced
    | Run
    | Help
    | Combine
    | CommitPanes
    | CommitWindows
    | MakeEarly
    | MakeReady
    | TryFunctions
    | StorePanes
    | ReadCommits
    | SaveLog
    | Saved
    | LookUp
    | Deliver
    | SaveProgram
    | ForgetProgram
    | BootstrapProgram
    | SaveMaster
    | SaveFact
    | Forget
    | PrunePanes
    | PruneWindows
    | Fetch
    | ReadWindows
    | Consult
    | Examine
    | Noticed
    | Namesake
    | Known
    | Seen
    | Skewed
    | Judged
    | Unusable
    | Faulted
    | Audited
    | Skipped
    | Undone
    | Refused
    | Offload
    | EvaluatePast
    | TryAggregate
    | Disbelieved
    | Stop
)
