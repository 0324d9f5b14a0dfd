"""A job group and those who create the job, change it, or read its windows."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from elf.fields import Address, Count, FlowUid, JobUid, Micros, Name, Serial, Statement, Text, Trees, Word
from elf.job.spec import JobSpec, VersionRecord
from elf.planning.costs import JobCosts
from elf.ql.definition import Definition, why_not
from elf.security.authored import Authorship, Authorships
from elf.wire.base import Message, Request
from elf.wire.clients import FILLED_MAX, Filled, WindowResult

WindowCount = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
"""Windows that are asked for at a time."""
PAST_BYTES_MAX: Final = 8 << 20
"""Of past windows that are read at a time, but for a single larger one."""


class JobFailed(Message, frozen=True, kw_only=True):
    """A job group to its subscribers: a window cannot be finished, and ``text`` says why."""

    job: JobUid
    text: Text


class FunctionFailed(Message, frozen=True, kw_only=True):
    """Member to the masters of the jobs that read a flow, each second while the flow is in the catalog log:
    its user's function has failed here, and ``text`` says on which line of which input. ``stage``: a later
    stage of its query has, and is tried again on the next panes; that is said once."""

    flow: FlowUid
    agent: Name
    text: Text
    stage: bool = False


class CreateJob(Request, frozen=True, kw_only=True):
    """Routed to the app id: become the job group of this job, or find it one.

    The node at the first of the job's two keys (``elf.job.group.placing``) routes it on to the second, with
    its own number of jobs: ``rival_jobs``. The node there takes the job if it has fewer, or routes it back,
    ``settled``.
    """

    spec: JobSpec
    replace: bool
    rival_jobs: Count | None = None
    settled: bool = False

    def __post_init__(self) -> None:
        self.spec.check()


class WhoIsThere(Request, frozen=True, kw_only=True):
    """Routed to a key: which node is nearest to it? Answered with its address."""


class DropJob(Request, frozen=True, kw_only=True):
    """To a job group. ``author``: the signed statement, where there are keys."""

    uid: JobUid
    author: Authorship | None = None


class ReconfigureJob(Request, frozen=True, kw_only=True):
    """To a job group: change the job. Answered with ``JobStatus`` when that is decided.

    ``verb``: ``alter`` to ``definition``, ``rollback`` to what ``version`` did, ``pause``, ``resume``,
    ``empty``. ``version`` of ``alter``: the one in whose place it comes; 0: the last. ``note``: the
    statement. ``roots``: as ``JobSpec.roots``, for key ranges that have no job group yet; empty: as before.
    """

    uid: JobUid
    verb: Literal["alter", "rollback", "pause", "resume", "empty"]
    definition: Definition | None = None
    version: Serial = 0
    reset: bool = False
    immediately: bool = False
    note: Statement = ""
    roots: tuple[Address, ...] = ()
    authors: Authorships = ()
    """Of ``alter``: as ``JobSpec.authors``."""
    author: Authorship | None = None
    """The signed statement, where there are keys."""
    scale: tuple[Trees, Trees] | None = None
    """Of ``alter``: as ``JobSpec.scale``."""
    by_itself: bool = False
    """Of ``alter``: as ``VersionRecord.by_itself``."""

    def __post_init__(self) -> None:
        if self.definition is not None and (why := why_not(self.definition)):
            raise ValueError(why)


def altered(
    spec: JobSpec,
    definition: Definition,
    note: str,
    *,
    roots: tuple[Address, ...] = (),
    scale: tuple[int, int] | None = None,
    in_place_of: int = 0,
    by_itself: bool = False,
) -> ReconfigureJob:
    """To a job's master: ``alter`` it, signed by nobody but those who have signed what it does."""
    return ReconfigureJob(
        id=0,
        origin="",
        uid=spec.uid,
        verb="alter",
        definition=definition,
        version=in_place_of,
        note=note,
        roots=roots,
        authors=spec.authors,
        scale=scale,
        by_itself=by_itself,
    )


class HandOverJob(Request, frozen=True, kw_only=True):
    """To the agent that leads a job's group: hand it to the agent that a statement names, at ``address``.
    Answered when it has begun; the catalog log says who leads."""

    uid: JobUid
    agent: Name
    address: Address
    author: Authorship | None = None
    """The signed statement, where there are keys."""


class GetReady(Message, frozen=True, kw_only=True):
    """The leader of a job's group to a member that it is to hand the group to: make what its next windows
    go on from. Answered with ``Ready``."""

    uid: JobUid


class Ready(Message, frozen=True, kw_only=True):
    """``made_us``: all is as after the windows that end there; None: there are none yet."""

    uid: JobUid
    made_us: Micros | None


class Inspect(Request, frozen=True, kw_only=True):
    """To a job group: its state and last ``windows`` committed windows. Answered with ``JobStatus``."""

    uid: JobUid
    windows: WindowCount


class ReadPast(Request, frozen=True, kw_only=True):
    """To a job group: the committed windows that it keeps and that overlap event times ``[from_us, to_us)``,
    numbered above ``after``, in that order, as many as about ``bytes_max`` holds. Answered with
    ``PastWindows``.

    Without ``rows`` their statuses alone; with ``panes`` also what each was made of.
    """

    uid: JobUid
    from_us: Micros
    to_us: Micros
    after: Serial = 0
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=PAST_BYTES_MAX)] = PAST_BYTES_MAX
    rows: bool = True
    panes: bool = False


class FillHistory(Request, frozen=True, kw_only=True):
    """To a job group: commit these results, made offline, of windows that start before any version of the job
    has begun, and end where its live ones are committed (protocol 13.7). Answered when all are committed;
    those that were committed before stay as they are."""

    uid: JobUid
    version: Serial
    results: Annotated[tuple[Filled, ...], msgspec.Meta(min_length=1, max_length=FILLED_MAX)]
    author: Authorship | None = None
    """The signed call, where there are keys."""


class PastWindow(msgspec.Struct, frozen=True):
    """``panes``: see ``elf.job.commits.panes_used``."""

    result: WindowResult
    panes: Annotated[bytes, msgspec.Meta(max_length=64 << 20)] = b""


class PastWindows(msgspec.Struct, frozen=True):
    """``more``: there are others, numbered higher than the last of these. ``first_us``: windows that end
    later are kept; None: none is."""

    windows: tuple[PastWindow, ...]
    more: bool
    first_us: Micros | None


class SubscribeJob(Request, frozen=True, kw_only=True):
    """To a job group, renewed every two seconds (a lease): publish to ``origin``, and send again what is
    numbered above ``after``; None: nothing.
    """

    uid: JobUid
    after: Serial | None


class JobStatus(msgspec.Struct, frozen=True):
    """What a job group knows of its job. ``first_us``: start of the first window that it answers for;
    ``voters``: the agents that vote in the group, by address; ``waiting``: for what, if nothing can be
    committed; ``costs``: what was learned of it."""

    spec: JobSpec
    state: Word
    master: Address
    first_us: Micros | None
    committed_us: Micros | None
    windows: tuple[WindowResult, ...]
    failure: Text = ""
    versions: tuple[VersionRecord, ...] = ()
    voters: tuple[Address, ...] = ()
    waiting: Text = ""
    costs: JobCosts | None = None

    def __post_init__(self) -> None:
        self.spec.check()


GROUP_MESSAGES = (
    JobFailed,
    FunctionFailed,
    CreateJob,
    WhoIsThere,
    DropJob,
    ReconfigureJob,
    HandOverJob,
    GetReady,
    Ready,
    Inspect,
    SubscribeJob,
    ReadPast,
    FillHistory,
)
