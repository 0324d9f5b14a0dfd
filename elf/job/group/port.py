"""What a replicated job group wants of its group (``FoundJobGroup``, ``Commit``) and of the driver, and what
comes back. Except for ``Draft`` the driver performs these one after the other, in the order in which they are
given: a job group is loaded with all that was applied before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elf.job.effects import CommitPanes, CommitWindows, SaveFlow, SaveJob
from elf.job.events import Failure, PanesCommitted, WindowsCommitted
from elf.job.rollup.flowroots import StoredPanes
from elf.job.spec import JobSpec, VersionRecord


@dataclass(frozen=True)
class StoredJob:
    """A job's record from the store, by version the end of what was assembled of it, and the number of its
    last windows."""

    spec: JobSpec
    state: str
    versions: tuple[VersionRecord, ...]
    assembled: Mapping[int, int] = field(default_factory=dict)
    published: int = 0


@dataclass(frozen=True)
class Draft:
    """Do the work of a commit, and commit nothing; comes back as ``Drafted``."""

    work: CommitPanes | CommitWindows
    seq: int = 0
    """The number of a pane commit."""


@dataclass(frozen=True)
class Apply:
    """A record of a job group's group is committed: to the store with it. It need not be durable there, since
    it is in the group's log; comes back as ``Applied``."""

    group: bytes
    record: bytes
    commit: Commit | None = None
    """The leader's, of which the record is."""


@dataclass(frozen=True)
class InstallJobGroup:
    """The same for a whole state: what the store has of it already stays as it is."""

    group: bytes
    state: bytes


@dataclass(frozen=True)
class SummariseJobGroup:
    """The state of a job group, with all that was applied up to ``index``; comes back as ``Summarised``.
    ``founder``: of a key range."""

    group: bytes
    index: int
    uid: str
    flows: tuple[str, ...]
    founder: str = ""


@dataclass(frozen=True)
class LoadJobGroup:
    """Read a job group, to go on with it in ``term``; comes back as ``JobGroupLoaded``."""

    group: bytes
    term: int
    uid: str
    flows: tuple[str, ...]


@dataclass(frozen=True)
class ForgetJobGroup:
    """A job group is over, or no more our business: forget the job's record and windows, and its flows."""

    uid: str
    flows: tuple[str, ...]


JobGroupEffect = Draft | Apply | InstallJobGroup | SummariseJobGroup | LoadJobGroup | ForgetJobGroup


@dataclass(frozen=True)
class Drafted:
    """``record`` is to be committed, and ``done`` is what is said then. Without a record there is nothing to
    commit: the store has it already, or what is done says why it cannot be."""

    work: CommitPanes | CommitWindows
    done: PanesCommitted | WindowsCommitted | Failure
    record: bytes = b""


@dataclass(frozen=True)
class FoundJobGroup:
    """A new job group is to have a group, which begins with this state."""

    uid: str
    state: bytes


@dataclass(frozen=True, eq=False)
class Commit:
    """A record that a job group is to commit which we lead in this ``term``. ``whole``: what the record
    stands for, if that is too large for the group. ``done``: of what is told when it is applied."""

    uid: str
    term: int
    record: bytes
    whole: bytes = b""
    done: Drafted | SaveJob | SaveFlow | None = None


@dataclass(frozen=True)
class Applied:
    """``seq``: number of the pane commit, of one."""

    group: bytes
    record: bytes
    seq: int
    commit: Commit | None = None


@dataclass(frozen=True)
class Summarised:
    group: bytes
    index: int
    state: bytes


@dataclass(frozen=True)
class JobGroupLoaded:
    """``job`` is None for the job group of a key range. For a job's it is None when the store knows nothing
    of it, which must not be."""

    group: bytes
    term: int
    job: StoredJob | None
    flows: Mapping[str, StoredPanes] = field(default_factory=dict)


JobGroupEvent = Drafted | Applied | Summarised | JobGroupLoaded
