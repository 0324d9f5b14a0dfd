"""The entries of the catalog log (protocol 2.1), in the order of ``seq``."""

from __future__ import annotations

import msgspec

from elf.job.program.spec import ProgramSpec
from elf.job.spec import JobSpec


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
    """A job, with its master and the flows that it reads; flows that the log does not know yet begin with
    it."""

    seq: int
    spec: JobSpec


class JobDropped(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: the job is over. Its flows go on until a ``FlowEnded``."""

    seq: int
    uid: str


class FlowEnded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: no job has read the flow for a while; its workers and its root forget it."""

    seq: int
    uid: str


class ProgramAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A job written in Python. ``JobDropped`` ends it too."""

    seq: int
    spec: ProgramSpec


class JobGroupMoved(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The job group of a job, and of the flows that it brought, is at ``leader``, the leader of its Raft
    group in ``term``."""

    seq: int
    uid: str
    leader: str
    term: int


class VersionAdded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """PREPARE: a new version of a job, with the flows that it reads beside those of earlier versions."""

    seq: int
    spec: JobSpec


class VersionEnded(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tombstone: the version was aborted, or its last window is committed. It no longer reads anything."""

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
    | JobGroupMoved
    | VersionAdded
    | VersionEnded
)
