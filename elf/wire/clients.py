"""A client and the agent that it talks to: statements, calls and windows, what ``elf tap`` is answered, and
how an agent is, in a few numbers, for ``elf top``.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from elf.fields import Address, Count, JobUid, Label, Micros, Name, Serial, Statement, Text, Ticket, Word
from elf.security.authored import SUBMIT, Authored, Authorship, digests_of
from elf.wire.base import Message, Request

ONE_SHOT_PREFIX: Final = "_select_"
"""What the name of a SELECT's job begins with."""

ROWS_MAX: Final = 1_000
"""Rows that an agent shows a second."""
LINES_MAX: Final = 10_000
"""Lines a second that an agent looks at, to find those that a condition is true for."""
RETRY_MS_MIN: Final = 300
"""Between an answer and the next request: what is shorter looks no quicker."""


class Execute(Message, frozen=True, kw_only=True):
    """A client's statement, to any agent. ``windows`` ends a SELECT or SUBSCRIBE after that many windows."""

    request: Ticket
    sql: str
    creator: str
    windows: int | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Names and texts of the files that it names."""
    tables: tuple[tuple[str, bytes], ...] = ()
    """Names and contents (``elf.batch``) of those that it joins."""
    after: tuple[str, int] | None = None
    """A SUBSCRIBE goes on after the result of that number of the job with that uid, told by another agent."""
    authored: Authored | None = None
    """Its author's signature, in a fleet with keys."""


class Call(Message, frozen=True, kw_only=True):
    """A client's other proposals: ``verb`` is one of ``tree JOB``, ``compare JOB``, ``leave``, ``status``,
    ``take off AGENT``, ``submit``, ``query``, ``fleet``, ``tap PROPOSAL``, ``enrol``, ``keys``;
    ``argument`` as it says.
    """

    request: Ticket
    verb: str
    argument: str = ""
    creator: str = ""
    authored: Authored | None = None


class _Submitted(msgspec.Struct, frozen=True):
    """What is signed of a submission beside the whole of it (``elf.job.program.spec.Submission``)."""

    name: str
    text: str
    filename: str


class _OfJob(msgspec.Struct, frozen=True):
    """The same of results that fill a history."""

    job: str


def signed_part(asked: Execute | Call) -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """What its author signs: a text, and the digests of what comes with it. Raises ``ValueError`` for a
    submission that is none."""
    if isinstance(asked, Execute):
        return asked.sql, digests_of((*asked.files, *asked.tables))
    if asked.verb == "submit":
        made = msgspec.json.decode(asked.argument, type=_Submitted)
        return SUBMIT + made.name, digests_of(((made.filename, made.text), ("", asked.argument)))
    if asked.verb == "fill":
        job = msgspec.json.decode(asked.argument, type=_OfJob).job
        return f"{asked.verb} {job}", digests_of((("", asked.argument),))
    return f"{asked.verb} {asked.argument}", ()


def authorship_of(asked: Execute | Call) -> Authorship | None:
    """The signed statement, to be kept; None: it is not signed."""
    return None if asked.authored is None else Authorship(*signed_part(asked), asked.authored)


class KeepAlive(Message, frozen=True, kw_only=True):
    """Client to agent every two seconds while a request is open; silence for ten ends it."""

    request: Ticket


class Cancel(Message, frozen=True, kw_only=True):
    """Client to agent: I want no more of this."""

    request: Ticket


class Reply(Message, frozen=True, kw_only=True):
    """Agent to client. ``text`` is for people; ``body`` JSON; ``payload`` an Arrow table; ``done`` ends the
    request.
    """

    request: Ticket
    text: Text = ""
    body: bytes = b""
    payload: bytes = b""
    done: bool = True


class Failed(Message, frozen=True, kw_only=True):
    """Agent to client: the request cannot be done; ``text`` says what, where and what to do."""

    request: Ticket
    text: Text


class WindowResult(Message, frozen=True, kw_only=True):
    """Committed windows of a job, once a revision; in a fleet mostly one window, in ``elf run`` many at once.

    ``status`` and ``payload`` are Arrow IPC. Status has a row a window: ``window_start``, ``window_end``
    (timestamp µs), ``revision``, ``expected``, ``reported``, ``missing`` (names), ``rows_in``, ``late``,
    ``rejected``, ``uncast``, ``future``, ``unrostered``, ``shed``, ``leapt`` (see ``elf.job.stragglers``),
    ``archived`` (of ``rows_in``), ``skipped`` (panes of it were dropped before the master had them, or a
    change of the job cut it off: it has no rows), ``version``. Payload has the result rows, ``window_start``
    and ``window_end`` first when the job has windows.
    """

    job: JobUid
    name: Name
    version: Serial
    provisional: bool = False
    master: Address
    first_us: Micros
    last_us: Micros
    revision: Serial
    final: bool = False
    """True when no window can follow (a finite input)."""
    status: bytes
    payload: bytes
    changes: bool = False
    """The job says EMIT CHANGES: readers are told what differs from what they had of a window."""
    early: Serial = 0
    """Above 0: not committed, and replaced by the next of the windows in it."""
    number: Serial = 0
    """Of this result among those of its job, by which readers know what they miss; 0: it has none."""
    before: Serial = 0
    """The number of the result before it, as far as the job group still has that."""


class Published(Message, frozen=True, kw_only=True):
    """Agent to client: windows of the job that it subscribed to."""

    request: Ticket
    result: WindowResult


CLIENT_MESSAGES: Final = (Execute, Call, KeepAlive, Cancel, Reply, Failed, Published)


class CompareOptions(msgspec.Struct, frozen=True):
    """Which windows of ``job`` a comparison is told of: those of all its ``versions``, or of the current one.
    The argument of the call ``compare`` is this as JSON; a job's name alone means the current version."""

    job: Name
    versions: bool = False


class Preview(msgspec.Struct, frozen=True):
    """What is told before the windows of ALTER JOB … PREVIEW, in the body of a reply: the ``job``, whose
    ``version`` goes on, the name under which the new one runs ``beside`` it, how many ``windows`` are wanted,
    the statement that would ``change`` the job, and the jobs that read it, for which it is refused."""

    job: Name
    beside: Name
    version: Serial
    windows: int
    change: Statement
    readers: tuple[Name, ...] = ()


class TapOptions(msgspec.Struct, frozen=True):
    """Rows of ``stream`` for which ``where`` is true (ELF-QL; empty: all), since the last request of this
    ``tap``, a name that the client has made up; the first one begins it. ``columns``: which of them, beside
    time and agent; none: all."""

    tap: Name
    stream: Name
    where: Statement = ""
    columns: tuple[Label, ...] = ()


class TapReply(msgspec.Struct, frozen=True):
    """What is told beside the rows of a tap.

    Attributes:
        hidden (int): rows that are not among those shown, since an agent shows ``rows_max`` a second.
        unseen (int): lines at which nobody looked, since an agent looks at ``lines_max`` a second.
        rows_max (int): rows a second.
        lines_max (int): lines a second.
        silent (dict[str, str]): agents of which nothing came, and why.
        waiting (str): why there cannot be any rows yet; empty where there can.
        retry_ms (int): milliseconds until the next question, so that those to many agents are not too many.

    Example:
        >>> TapReply(hidden=3).retry_ms
        300
    """

    hidden: Count = 0
    unseen: Count = 0
    rows_max: int = ROWS_MAX
    lines_max: int = LINES_MAX
    silent: dict[str, str] = {}
    waiting: Text = ""
    retry_ms: int = RETRY_MS_MIN


class PastOptions(msgspec.Struct, frozen=True):
    """Past windows of ``job`` that start since and until these moments (as in SELECT … WINDOWS SINCE; empty:
    all), in results numbered above ``after``. ``rows``: with their rows, not their statuses alone."""

    job: Name
    since: Text = ""
    until: Text = ""
    after: Serial = 0
    rows: bool = True


FILLED_MAX: Final = 200
"""Results that fill a job's history in one request."""


class Filled(msgspec.Struct, frozen=True):
    """A result that was made offline: the windows of a job that end at ``last_us`` (the first of them starts
    at ``first_us``), a row of ``status`` for each, and their rows; Arrow tables, encoded."""

    first_us: Micros
    last_us: Micros
    status: bytes
    rows: bytes


class FillOptions(msgspec.Struct, frozen=True):
    """Results of a version of ``job``, of before it began."""

    job: Name
    version: Serial
    results: Annotated[tuple[Filled, ...], msgspec.Meta(min_length=1, max_length=FILLED_MAX)]


class InspectAgent(Request, frozen=True, kw_only=True):
    """To an agent: how are you? Answered with ``Stats``."""


class StreamStats(msgspec.Struct, frozen=True):
    """One stream that an agent reads. Counts are since the agent's start.

    Attributes:
        stream (str): the stream.
        rows (int): rows that were read.
        bytes (int): bytes that were read.
        rejected (int): lines that did not parse.
        late (int): rows that parsed and are in no result, as LATENESS says.
        future (int): rows that parsed and are in no result: ahead of the clock.
        unrostered (int): rows that parsed and are in no result: outside the roster.
        shed (int): rows that parsed and are in no result: shed.
        leapt (int): rows that parsed and are in no result, as STRAGGLERS LEAP says.
        backlog_bytes (int): bytes in its files by the last look at them, and not read yet.
        uncast (int): values that are NULL since they do not fit the types of their flow.

    Example:
        >>> StreamStats("access", rows=12, rejected=1).late
        0
    """

    stream: Name
    rows: Count = 0
    bytes: Count = 0
    rejected: Count = 0
    late: Count = 0
    future: Count = 0
    unrostered: Count = 0
    shed: Count = 0
    leapt: Count = 0
    backlog_bytes: Count = 0
    uncast: Count = 0


AWAY: Final = "it does not answer"
"""The problem of an archive whose agent is away."""


class ArchiveStats(msgspec.Struct, frozen=True):
    """What an agent has archived of a stream, by its last look (every ten seconds).

    Attributes:
        stream (str): the stream.
        path (str): where, ``archive.path``.
        files (int): files there.
        rows (int): their rows.
        bytes (int): their bytes.
        from_us (int | None): when the hour of the oldest row begins; None: no row has a time.
        gone_rows (int): rows that retention has deleted, since ever.
        gone_to_us (int | None): when the last hour ends of which it has deleted rows.
        waiting (int): rolls that are not there yet.
        problem (str): why the archive takes none; empty: it does.
        hold (str): who is sorting the stream (``elf offline recluster``); empty: nobody.

    Example:
        >>> ArchiveStats("access", "/var/lib/elf/archive", rows=12).gone_rows
        0
    """

    stream: Name
    path: Text = ""
    files: Count = 0
    rows: Count = 0
    bytes: Count = 0
    from_us: Micros | None = None
    gone_rows: Count = 0
    gone_to_us: Micros | None = None
    waiting: Count = 0
    problem: Text = ""
    hold: Text = ""


class Stats(msgspec.Struct, frozen=True):
    """How an agent is. Two of one ``incarnation`` give rates.

    Attributes:
        incarnation (int): greater after each start of the agent.
        clock_us (int): microseconds on a clock that never steps back.
        state (str): ``joining``, ``live`` or ``leaving``.
        streams (tuple[StreamStats, ...]): the streams that it reads.
        jobs (int): jobs that it is the master of.
        flows (int): flows that it computes.
        windows (int): windows that it has committed as a master.
        retained (int): snapshots that wait for their commit.
        resident_bytes (int): memory of its process.
        cpu_us (int): CPU time of its process, in microseconds.
        runs_no_code (str): why it runs no users' code; empty where it runs some.
        outputs (tuple[str, ...]): the beginnings of targets that its host lets outputs go to.
        outputs_stopped (int): outputs of its jobs that something is against (SHOW OUTPUTS).
        archives (tuple[ArchiveStats, ...]): what it has archived; of streams with ``archive: off`` nothing.
        version (str): of elf; empty of one that does not tell.

    Example:
        >>> Stats(1, 0, "live", (), 0, 0, 0, 0, 0, 0).state
        'live'
    """

    incarnation: Serial
    clock_us: Count
    state: Word
    streams: tuple[StreamStats, ...]
    jobs: Count
    flows: Count
    windows: Count
    retained: Count
    resident_bytes: Count
    cpu_us: Count
    runs_no_code: Text = ""
    outputs: tuple[Label, ...] = ()
    outputs_stopped: Count = 0
    archives: tuple[ArchiveStats, ...] = ()
    version: Text = ""


class AgentStats(msgspec.Struct, frozen=True):
    """An agent as the one that was asked knows it.

    Attributes:
        agent (str): its name.
        address (str): ``"host:port"``.
        streams (tuple[str, ...]): the streams that it is a member of.
        stats (Stats | None): None of one that did not answer within two seconds.

    Example:
        >>> AgentStats("web-1", "web-1:7071", ("access",), None).stats is None
        True
    """

    agent: Name
    address: Address
    streams: tuple[Name, ...]
    stats: Stats | None


class FleetStats(msgspec.Struct, frozen=True):
    """All agents that have not left.

    Attributes:
        jobs (int): how many jobs there are.
        agents (tuple[AgentStats, ...]): the agents.

    Example:
        >>> FleetStats(0, ()).agents
        ()
    """

    jobs: Count
    agents: tuple[AgentStats, ...]


STATS_MESSAGES: Final[tuple[type[Message], ...]] = (InspectAgent,)
