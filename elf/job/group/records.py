"""The log of a job group: the records of its Raft group, and the state that they lead to.

A *job group* is a job's master together with the roots of the flows that the job brought (protocol 5.6). It
is one Raft group, keyed by the job's uid: its leader is master and root, the others hold what it has
committed. Each key range after a job's first (``TREES m``) has a job group of its own, elsewhere on the ring,
keyed by its ``group_uid``: a group of the same kind whose leader is only a root. A record is a fact: a member
that applies it to its own store has what the leader has. So every member can continue where the last leader
stopped, and nothing that was told can be forgotten or done differently. The job group of a job in Python has
its master's state, and nothing else (``elf.job.program.masters``); each of its further trees has a group as
key ranges have. Members number the commits (``elf.job.commits``) in the order of the records; in a state the
commits have their numbers.

What is committed of a job or a flow is in the records alone; who leads is in the catalog log
(``JobGroupMoved``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Final, get_args

import msgspec

from elf.errors import ElfBug
from elf.fields import AgentId, FlowUid, GroupUid, JobUid, Micros, Pane, Serial
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.group.master import JobState
from elf.job.output import OutputKept
from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec, VersionRecord, flow_uid
from elf.job.tables import ShardRound, ShardRows, TableKept, TableRound, TableState
from elf.planning.costs import JobCosts

RECORD_BYTES_MAX: Final = 32 << 20
"""A pane commit that is larger is known to the other members by name only."""


def group_key(uid: str) -> bytes:
    """Key of the Raft group of a job group: first 128 bits of SHA-1("home", NUL, uid)."""
    return hashlib.sha1(f"home\0{uid}".encode()).digest()[:16]


def bootstrapped_flows(spec: JobSpec) -> tuple[str, ...]:
    """Uids of the flows that a version of a job proposes. The catalog log says which of them it brings; the
    others never exist. Flows of key ranges after the first are not in the job group."""
    return tuple(
        flow_uid(fragment, f"{spec.uid}.{spec.version}.{n}")
        for n, fragment in enumerate(spec.plan.fragments)
        if not fragment.range[0]
    )


States = Annotated[str, msgspec.Meta(pattern=rf"\A({'|'.join(get_args(JobState))})\Z")]


class JobKept(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A job's record."""

    spec: JobSpec
    state: States
    first_pane: Pane | None
    versions: tuple[VersionRecord, ...] = ()

    def __post_init__(self) -> None:
        self.spec.check()
        if any(version.spec.uid != self.spec.uid for version in self.versions):
            raise ValueError("versions of several jobs")

    @property
    def bootstrapped(self) -> tuple[str, ...]:
        """Flows that its versions propose."""
        specs = [self.spec, *(version.spec for version in self.versions)]
        return tuple(dict.fromkeys(uid for spec in specs for uid in bootstrapped_flows(spec)))


class RangeKept(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The job group of a key range after a job's first, or of a further tree of a job in Python: it has no
    job's record. ``founder``: the id of the agent that bootstrapped the group
    (``elf.job.catalog.bootstrap``)."""

    uid: GroupUid
    founder: AgentId


class FlowKept(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The first pane that a flow's root commits."""

    flow: FlowUid
    first_pane: Pane


class PanesDropped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Commits of a flow whose panes are all below ``below`` are no longer needed."""

    flow: FlowUid
    below: Pane


class WindowsDropped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Windows of a job that ended by ``below_us`` are no longer kept."""

    job: JobUid
    below_us: Micros


class JointCommit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Panes of a flow, and the windows that they complete (protocol 5.11)."""

    panes: PaneCommit
    windows: tuple[WindowCommit, ...]


class ProgramKept(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A job in Python, in a state. Its ``master`` is the address of the agent that bootstrapped the group."""

    spec: ProgramSpec

    def __post_init__(self) -> None:
        self.spec.check()


class MasterKept(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The checkpoint of the master of a job in Python, or of a further tree of one
    (``elf.job.program.keeping``), in place of those with lower numbers."""

    uid: GroupUid
    number: Serial
    checkpoint: Annotated[bytes, msgspec.Meta(max_length=RECORD_BYTES_MAX)]


JobGroupRecord = (
    JobKept
    | FlowKept
    | PaneCommit
    | WindowCommit
    | JointCommit
    | PanesDropped
    | WindowsDropped
    | OutputKept
    | MasterKept
    | TableKept
    | TableRound
    | ShardRows
    | ShardRound
    | JobCosts
)


class JobGroupState(msgspec.Struct, frozen=True, array_like=True):
    """The whole state, for a snapshot."""

    job: JobKept | RangeKept | ProgramKept
    flows: tuple[FlowKept, ...] = ()
    panes: tuple[PaneCommit, ...] = ()
    windows: tuple[WindowCommit, ...] = ()
    outputs: tuple[OutputKept, ...] = ()
    master: MasterKept | None = None
    tables: tuple[TableState, ...] = ()
    costs: JobCosts | None = None

    @property
    def uid(self) -> str:
        """Whose job group it is (``group_uid``)."""
        return self.job.uid if isinstance(self.job, RangeKept) else self.job.spec.uid

    @property
    def founder(self) -> str:
        """The founder, of a key range."""
        return self.job.founder if isinstance(self.job, RangeKept) else ""

    @property
    def bootstrapped(self) -> tuple[str, ...]:
        """Flows that belong to this job group, if they were begun."""
        bootstrapped = self.job.bootstrapped if isinstance(self.job, JobKept) else ()
        return (*bootstrapped, *(fact.flow for fact in self.flows))


encode: Final = msgspec.msgpack.Encoder().encode
_record_of: Final[Callable[[bytes], JobGroupRecord]] = msgspec.msgpack.Decoder(JobGroupRecord).decode
_program_of: Final[Callable[[bytes], ProgramKept]] = msgspec.msgpack.Decoder(ProgramKept).decode
_state_of: Final[Callable[[bytes], JobGroupState]] = msgspec.msgpack.Decoder(JobGroupState).decode


def record_of(data: bytes, uid: str = "") -> JobGroupRecord | str:
    """What a record says; or why it cannot be used by the job group of ``uid`` (if that is known), by these
    two alone, so all members say the same."""
    try:
        fact = _record_of(data)
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)
    match fact:
        case JobKept():
            jobs = [fact.spec.uid]
        case MasterKept():
            jobs = [fact.uid]
        case (
            WindowCommit()
            | WindowsDropped()
            | OutputKept()
            | TableKept()
            | TableRound()
            | ShardRows()
            | ShardRound()
            | JobCosts()
        ):
            jobs = [fact.job]
        case JointCommit():
            jobs = [one.job for one in fact.windows]
        case _:
            return fact
    others = [job for job in jobs if uid and job != uid]
    return f"it is of {others[0]}" if others else fact


def program_of(data: bytes) -> ProgramKept:
    """A job in Python as it was stored. Raises ``ElfBug`` for what is none: it is of this agent's own
    disk."""
    try:
        return _program_of(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise ElfBug(f"what is stored of a job in Python cannot be read: {error}") from error


def state_of(data: bytes) -> JobGroupState | str:
    """The same of a state."""
    try:
        return _state_of(data)
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)
