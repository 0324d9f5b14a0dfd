"""What happens to a node: the values that the driver hands to ``Node.handle``."""

from __future__ import annotations

import msgspec

from elf.job.commands import Outcome
from elf.job.contributions import Piece, UnusablePieces
from elf.job.effects import CommitPanes, CommitWindows, Deliver, SaveShard, SaveTable
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.helping import RowsMapped, RowsNotMapped
from elf.job.messages.rollup import NotRun, PaneRow, RunSlice
from elf.job.output import OutputKept
from elf.job.snapshots import Sealed, Threshold
from elf.job.spec import Flow
from elf.job.tables import StoredTable
from elf.security.principals import Principal
from elf.wire.base import Message, Request
from elf.wire.clients import WindowResult


class Arrived(msgspec.Struct, frozen=True):
    """A message of ours from an address (an agent's, or a client's return address). ``who``: whose connection
    it came over; None: one without a key, or it is from this very process."""

    sender: str
    message: Message
    who: Principal | None = None


class Worked(msgspec.Struct, frozen=True):
    """A stream task has performed a command (``command`` names its class), and its checkpoint is durable."""

    stream: str
    command: str
    outcome: Outcome


class Combined(msgspec.Struct, frozen=True):
    """Pieces were merged into one, in so much CPU time. None: all of them were ``unusable``."""

    flow: Flow
    piece: Piece | None
    cpu_us: int = 0
    unusable: UnusablePieces = ()


class PanesCommitted(msgspec.Struct, frozen=True):
    """The commit is durable, as number ``seq`` of its flow, with its keys and bytes, CPU time, and the rows
    of ``panes``. ``gone``: it revises panes that have been dropped meanwhile, and is not made. ``unsure``: it
    is not made, since groups that were left out may matter. ``failure``: how the flow's reduce function has
    failed on some of them; ``unstaged``: how later stages of its query have. ``threshold``: what agents may
    leave out of the next ones. ``unusable``: pieces of the batch because of which it is not made."""

    done: CommitPanes
    seq: int
    keys: int = 0
    bytes: int = 0
    cpu_us: int = 0
    gone: bool = False
    failure: str = ""
    unstaged: str = ""
    unsure: bool = False
    threshold: Threshold | None = None
    panes: int = 0
    rows: int = 0
    unusable: UnusablePieces = ()


class PanesStored(msgspec.Struct, frozen=True):
    """Commits from a root on another node are durable here, under the name ``stored_as``."""

    flow: Flow
    stored_as: str
    rows: tuple[PaneRow, ...]


class CommitsRead(msgspec.Struct, frozen=True):
    """Commits of a flow for the reader at ``to``."""

    flow: Flow
    to: str
    rows: tuple[PaneRow, ...]


class WindowsCommitted(msgspec.Struct, frozen=True):
    """The windows are durable. ``result`` is None when none of them has a row or a status; result rows and
    CPU time. ``failure``: how the version's final function has failed on some of them; ``aggregate_failure``:
    why some values of aggregates of somebody's own are NULL. ``gone``: they are not made, as some of their
    panes are no longer here."""

    done: CommitWindows
    result: WindowResult | None
    rows: int = 0
    cpu_us: int = 0
    failure: str = ""
    aggregate_failure: str = ""
    gone: bool = False


class Delivered(msgspec.Struct, frozen=True):
    """How far an output has got by now (``done.kept``: before), and why no further, if anything is against
    it."""

    done: Deliver
    kept: OutputKept
    error: str = ""


class EarlyMade(msgspec.Struct, frozen=True):
    """Early results of a job; None if there was nothing to make them of."""

    uid: str
    result: WindowResult | None


class MadeReady(msgspec.Struct, frozen=True):
    """``made_us``: the end of the last windows of the version; None: there are none."""

    asker: str
    uid: str
    made_us: int | None


class FunctionsTried(msgspec.Struct, frozen=True):
    """``error``: why the change cannot be made; empty when its functions work."""

    request: ReconfigureJob
    error: str


class Fetched(msgspec.Struct, frozen=True):
    """Retained snapshots of a flow, as stored."""

    flow: Flow
    snapshots: tuple[Sealed, ...]


class Ran(msgspec.Struct, frozen=True):
    """Another agent's work was run, or not: the answer to the root that asked. ``refused``: why it must never
    be; empty else."""

    to: str
    answer: RunSlice | NotRun
    refused: str = ""


class Helped(msgspec.Struct, frozen=True):
    """Rows of another agent were mapped, or not: the answer to it."""

    to: str
    answer: RowsMapped | RowsNotMapped


class WindowsRead(msgspec.Struct, frozen=True):
    """Committed windows, oldest first, for the one that made the request; to ``ReadPast`` the answer, in
    bytes."""

    request: Request
    results: tuple[WindowResult, ...]
    past: bytes = b""


class Consulted(msgspec.Struct, frozen=True):
    """A stream task's answer to a request, or the process's."""

    request: Request
    error: str
    body: bytes


class RingKept(msgspec.Struct, frozen=True, eq=False):
    """A replica of a table with a ring has begun or ended, or has more: what there is of it now."""

    done: SaveTable | SaveShard
    stored: StoredTable | None


class HeldBack(msgspec.Struct, frozen=True):
    """Reading has waited for the agent's own budget: the inputs are so far behind."""

    lag_ms: int


class Lagging(msgspec.Struct, frozen=True):
    """What a stream task has taken last had been all there was so long ago; 0: it is as far as its files.
    Since its start it was at work for ``busy_ms``, of which it had a core, or waited for something else, for
    ``cpu_ms``; 0: nobody knows."""

    stream: str
    lag_ms: int
    busy_ms: int = 0
    cpu_ms: int = 0


class Offloaded(msgspec.Struct, frozen=True):
    """What ``work`` of an ``Offload`` came to: a value, or what it raised."""

    id: int
    value: object
    error: Exception | None


class Failure(msgspec.Struct, frozen=True):
    """Long work of a job failed (its query raised on real data): this affects only the job itself."""

    uid: str
    text: str
    version: int = 1


Event = (
    Arrived
    | Worked
    | Combined
    | PanesCommitted
    | PanesStored
    | CommitsRead
    | WindowsCommitted
    | Delivered
    | EarlyMade
    | MadeReady
    | FunctionsTried
    | Fetched
    | Ran
    | Helped
    | WindowsRead
    | Consulted
    | RingKept
    | HeldBack
    | Lagging
    | Offloaded
    | Failure
)
