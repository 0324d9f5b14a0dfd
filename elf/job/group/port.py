"""What a replicated job group asks of its Raft group (``FoundJobGroup``, ``Commit``) and of the driver, and
the answers. The driver performs these one after the other, in the given order, except for ``Draft``: a job
group is loaded with all that was applied before."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from elf.job.effects import CommitPanes, CommitWindows, Saved, SaveMaster
from elf.job.events import Failure, PanesCommitted, WindowsCommitted
from elf.job.output import OutputKept
from elf.job.program.spec import ProgramSpec
from elf.job.rollup.flowroots import StoredPanes
from elf.job.spec import JobSpec, VersionRecord
from elf.job.tables import StoredTable
from elf.planning.costs import JobCosts


class StoredJob(msgspec.Struct, frozen=True):
    """A job's record from the store, the end of each version's assembled windows, the number of its last
    windows, how far its outputs have got, its tables, and what was learned of it."""

    spec: JobSpec
    state: str
    versions: tuple[VersionRecord, ...]
    assembled: Mapping[int, int] = msgspec.field(default_factory=dict)
    published: int = 0
    outputs: tuple[OutputKept, ...] = ()
    tables: tuple[StoredTable, ...] = ()
    costs: JobCosts | None = None


class StoredMaster(msgspec.Struct, frozen=True):
    """A job in Python from the store, and the last checkpoint of its master with its number; 0: there is none
    yet. The group of a further tree does not know the job itself, which the log has."""

    spec: ProgramSpec | None
    number: int = 0
    checkpoint: bytes = b""


class Draft(msgspec.Struct, frozen=True):
    """Do the work of a commit without committing it; comes back as ``Drafted``."""

    work: CommitPanes | CommitWindows
    seq: int = 0
    """The number of a pane commit."""
    term: int = 0
    """In which we lead the job group: what is kept of its windows is of one term."""
    windows: tuple[CommitWindows, ...] = ()
    """Those that a pane commit completes: work of the same record, if it can be done now."""
    commit_ms: int = 0
    """What commits have taken lately, from the draft on."""


class Apply(msgspec.Struct, frozen=True):
    """A record of a job group is committed: store it. It need not be durable there, since it is in the
    group's log; comes back as ``Applied``."""

    group: bytes
    record: bytes
    commit: Commit | None = None
    """The leader's commit that the record is of."""


class InstallJobGroup(msgspec.Struct, frozen=True):
    """The same for a whole state: what the store already has of it stays as it is."""

    group: bytes
    state: bytes


class SummariseJobGroup(msgspec.Struct, frozen=True):
    """The state of a job group, with all that was applied up to ``index``; comes back as ``Summarised``.
    ``founder``: of a key range."""

    group: bytes
    index: int
    uid: str
    flows: tuple[str, ...]
    founder: str = ""


class LoadJobGroup(msgspec.Struct, frozen=True):
    """Read a job group, to continue it in ``term``; comes back as ``JobGroupLoaded``."""

    group: bytes
    term: int
    uid: str
    flows: tuple[str, ...]


class ForgetJobGroup(msgspec.Struct, frozen=True):
    """A job group is over, or no longer ours: forget the job's record and windows, and its flows."""

    uid: str
    flows: tuple[str, ...]


JobGroupEffect = Draft | Apply | InstallJobGroup | SummariseJobGroup | LoadJobGroup | ForgetJobGroup


class Drafted(msgspec.Struct, frozen=True):
    """``record`` is to be committed; ``done`` is the answer after that. Without a record there is nothing to
    commit: the store has it already, or ``done`` says why it cannot be committed. ``windows``: the answers of
    those that the record commits together with panes."""

    work: CommitPanes | CommitWindows
    done: PanesCommitted | WindowsCommitted | Failure
    record: bytes = b""
    windows: tuple[WindowsCommitted, ...] = ()


class FoundJobGroup(msgspec.Struct, frozen=True):
    """A new job group needs a Raft group, which begins with this state."""

    uid: str
    state: bytes


class Commit(msgspec.Struct, frozen=True, eq=False):
    """A record to commit for a job group that we lead in this ``term``. ``whole``: what the record stands
    for, if that is too large for the group. ``done``: the answer when it is applied; ``at_ms``: when it was
    drafted."""

    uid: str
    term: int
    record: bytes
    whole: bytes = b""
    done: Drafted | Saved | SaveMaster | None = None
    at_ms: int = 0


class Applied(msgspec.Struct, frozen=True):
    """``seqs``: the numbers of the commits in the record. ``why``: it says otherwise what is committed
    already, and was skipped."""

    group: bytes
    record: bytes
    seqs: tuple[int, ...] = ()
    commit: Commit | None = None
    why: str = ""


class Summarised(msgspec.Struct, frozen=True):
    group: bytes
    index: int
    state: bytes


class JobGroupLoaded(msgspec.Struct, frozen=True):
    """``job`` is None for the job group of a key range, and of a job in Python. For that of another job it is
    None when the store knows nothing of it, which must not happen."""

    group: bytes
    term: int
    job: StoredJob | None
    flows: Mapping[str, StoredPanes] = msgspec.field(default_factory=dict)
    master: StoredMaster | None = None
    """Of a job in Python."""
    tables: tuple[StoredTable, ...] = ()
    """Of a key range: its shards of tables."""


JobGroupEvent = Drafted | Applied | Summarised | JobGroupLoaded
