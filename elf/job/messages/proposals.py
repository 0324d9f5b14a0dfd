"""Proposals to the voters of the catalog log, each repeated until its entry is seen."""

from __future__ import annotations

from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec
from elf.wire.base import Message


class JoinStream(Message, frozen=True, kw_only=True, tag=True):
    """Agent to a voter, until it sees its own entry: I have this stream, from ``since_us`` on."""

    stream: str
    agent_id: str
    name: str
    incarnation: int
    address: str
    since_us: int


class LeaveStream(Message, frozen=True, kw_only=True, tag=True):
    """Agent to a voter, until it sees the entry: I am gone for panes that start at ``until_us`` or later."""

    stream: str
    agent_id: str
    until_us: int


class AddJob(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a voter, until it sees the entry. The voters replace each proposed flow by an equal
    running one."""

    spec: JobSpec


class DropJobEntry(Message, frozen=True, kw_only=True, tag=True):
    """A job group to a voter, until it sees the entry."""

    uid: str


class AddVersion(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a voter, until it sees the entry; flows are replaced as for ``AddJob``."""

    spec: JobSpec


class EndVersion(Message, frozen=True, kw_only=True, tag=True):
    """A job's master to a voter, until it sees the entry."""

    uid: str
    version: int


class AddProgram(Message, frozen=True, kw_only=True, tag=True):
    """The node nearest to an app id to a voter, until it sees the entry of this job in Python."""

    spec: ProgramSpec


class MoveJobGroup(Message, frozen=True, kw_only=True, tag=True):
    """The leader of a job group to a voter, until it sees the entry: the job group is here now."""

    uid: str
    leader: str
    term: int


class EndFlow(Message, frozen=True, kw_only=True, tag=True):
    """The leader of the voters to itself: no job has read this flow for a while."""

    uid: str


Proposal = (
    JoinStream
    | LeaveStream
    | AddJob
    | DropJobEntry
    | AddProgram
    | MoveJobGroup
    | EndFlow
    | AddVersion
    | EndVersion
)
"""What may be asked of the catalog log. A proposal is a record of its Raft group; see
``elf.job.catalog.voters``."""


PROPOSALS = (
    JoinStream,
    LeaveStream,
    AddJob,
    DropJobEntry,
    AddVersion,
    EndVersion,
    AddProgram,
    MoveJobGroup,
    EndFlow,
)
