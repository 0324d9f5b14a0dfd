"""What a stream task asks of its worker, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from elf.job.checkpoint import StreamCheckpoint
from elf.job.gaps import Gap, Missed
from elf.job.messages.helping import RowsMapped, RowsNotMapped
from elf.job.messages.rollup import FlowProgress
from elf.job.offload import Mapped, RowsWanted
from elf.job.past import Past, Records
from elf.job.ports import ChunkLike, ExtractedLike, Int64s, Wanted
from elf.job.program.spec import Tap, Tapped
from elf.job.provenance import Traced
from elf.job.reexecution import Where
from elf.job.snapshots import Early, Name, Sealed, Span, Threshold
from elf.job.spec import Flow
from elf.planning.turns import Bound


class Feed(msgspec.Struct, frozen=True):
    """A chunk was read. ``ahead``: what was extracted from it before its turn came, and what was wanted then;
    it is used if the same is wanted now. ``missed``: what was found to be gone before it. ``new_sources``:
    other sources have lines, none of which was read yet, and windows wait for them. ``is_live``: the stream
    has been at the end of its files since it began."""

    chunk: ChunkLike
    now_ms: int
    ahead: tuple[Wanted, ExtractedLike] | None = None
    missed: tuple[Missed, ...] = ()
    new_sources: bool = False
    is_live: bool = True
    turns: int = 1 << 30
    """Flows that wait to be sealed very soon may have so many turns with it, at most."""


class Idle(msgspec.Struct, frozen=True):
    """A read at the end of every file returned nothing; ``gone``: sources that will never have more;
    ``missed``: what was found to be gone before that."""

    now_ms: int
    gone: tuple[str, ...] = ()
    missed: tuple[Missed, ...] = ()


class Finish(msgspec.Struct, frozen=True):
    """The input is finite and was read to its end: seal everything, for ever."""


class SealOpen(msgspec.Struct, frozen=True):
    """The agent leaves: seal the panes that have rows, early."""


class Install(msgspec.Struct, frozen=True):
    """Start to compute a flow, at this chunk boundary. ``samples``: lines on which its function is tried.
    ``covers_us``: from which event time on the archive lacks nothing, for a flow that begins in the past
    (None: there is none), and ``past`` where its reading begins."""

    flow: Flow
    samples: tuple[str, ...] = ()
    covers_us: int | None = None
    past: Past | None = None


class Uninstall(msgspec.Struct, frozen=True):
    """Stop computing a flow, and forget it."""

    uid: str


class Suspend(msgspec.Struct, frozen=True):
    """The flow retains more than its quota: drop its open panes, count its rows as shed, until ``Resume``."""

    uid: str


class Resume(msgspec.Struct, frozen=True):
    """Compute a suspended flow again, from the first pane after everything read by now."""

    uid: str


class DropStragglers(msgspec.Struct, frozen=True):
    """Panes of a flow were committed without us, for good: all open ones below ``below``, and, of these
    snapshots, those in the spans; each of their other panes is in a commit. ``counted``: what becomes of
    their counters, as the stream task finds them in the store (``elf.job.stragglers``)."""

    uid: str
    below: int
    names: tuple[tuple[Name, tuple[Span, ...]], ...] = ()
    counted: Mapping[str, int] = msgspec.field(default_factory=dict)


class Answered(msgspec.Struct, frozen=True):
    """Another agent has run these panes of our snapshots, and its piece is in the commit, for good: (first
    pane, end, number of its source offsets; ``elf.job.reexecution``). ``counted`` as in ``DropStragglers``;
    ``gaps``: what those panes of ours lack and the other agent does not know of."""

    uid: str
    names: tuple[tuple[Name, tuple[tuple[int, int, int], ...]], ...]
    counted: Mapping[str, int] = msgspec.field(default_factory=dict)
    gaps: tuple[Gap, ...] = ()


class SetThreshold(msgspec.Struct, frozen=True):
    """Which groups of a flow go up from now on (None: all)."""

    uid: str
    threshold: Threshold | None


class SetWeights(msgspec.Struct, frozen=True):
    """From this chunk boundary on one row in so many of these flows is mapped (``elf.job.sampling``): uid,
    weight (1: all are), and whose budget says so."""

    weights: tuple[tuple[str, int, str], ...]


class SetBounds(msgspec.Struct, frozen=True):
    """These flows take turns, and what their readers have agreed to, by uid (``elf.job.worker.turns``). None:
    all is mapped as it is read."""

    flows: tuple[tuple[str, Bound], ...]


class Turn(msgspec.Struct, frozen=True):
    """Map some of what flows have postponed: so often, and for as long as a turn takes, at most."""

    now_ms: int
    most: int = 1 << 30


class SetMemory(msgspec.Struct, frozen=True):
    """From now on the open panes of these flows have so many bytes in memory, and the rest on disk (None: as
    many as any flow's)."""

    flows: tuple[tuple[str, int | None], ...]


class Waited(msgspec.Struct, frozen=True):
    """Reading has waited until now for this budget: the panes that are open by now say so."""

    whose: str
    now_ms: int


class Replay(msgspec.Struct, frozen=True):
    """Archived records of the past of a flow; how far it is with them, or None: it has read all that is
    archived, and takes live lines from now on. ``holes``: event times (µs) between which records are gone.
    """

    uid: str
    records: tuple[Records, ...]
    past: Past | None
    now_ms: int
    holes: tuple[tuple[int, int], ...] = ()
    mapped: Mapped | None = None
    """What a helper has made of the records, in their place (``elf.job.offload``)."""
    until_us: int | None = None
    """Records of this event time or later are from the future (None: there is no bound)."""


class SetOffloaded(msgspec.Struct, frozen=True):
    """From now on helpers map the rows of these flows, and of no others (``elf.job.offload``)."""

    flows: tuple[str, ...]


class GoOver(msgspec.Struct, frozen=True):
    """These flows take no more live lines: their rows from ``position`` on, where the archive ends now, are
    read there, and mapped elsewhere."""

    flows: tuple[str, ...]
    position: int = 0


class TakeMapped(msgspec.Struct, frozen=True):
    """A helper has answered."""

    answer: RowsMapped | RowsNotMapped


class TakeCheckpoint(msgspec.Struct, frozen=True):
    """Write a checkpoint."""


class SetTaps(msgspec.Struct, frozen=True):
    """What a job in Python wants of this stream from now on; empty: nothing. ``pane_us``: of the panes of
    which it wants to know when all their rows have come, 0 for none."""

    uid: str
    taps: tuple[Tap, ...]
    pane_us: int = 0


class TapsKept(msgspec.Struct, frozen=True):
    """What a job has durably of its taps: tap, source, end of the rows."""

    uid: str
    given: tuple[tuple[str, str, int], ...]


Command = (
    Feed
    | Idle
    | Finish
    | SealOpen
    | Install
    | Uninstall
    | Suspend
    | Resume
    | DropStragglers
    | Answered
    | SetThreshold
    | SetWeights
    | SetBounds
    | Turn
    | SetMemory
    | Waited
    | Replay
    | SetOffloaded
    | GoOver
    | TakeMapped
    | TakeCheckpoint
    | SetTaps
    | TapsKept
)


class Outcome(msgspec.Struct, frozen=True, eq=False):
    """The outcome of a command. ``accepted`` and ``ts`` are for the archive; ``rejected``: line numbers of
    the chunk."""

    sealed: tuple[Sealed, ...] = ()
    checkpoint: StreamCheckpoint | None = None
    progress: tuple[FlowProgress, ...] = ()
    accepted: Int64s | None = None
    ts: pa.Array | None = None
    rejected: Int64s | None = None
    rows: int = 0
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    until_us: int = 0
    """Of ``SealOpen``: every pane that starts before it is sealed; there are no rows from then on."""
    tapped: tuple[Tapped, ...] = ()
    early: tuple[Early, ...] = ()
    work: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """What was done for each flow (its uid) so far, see ``elf.job.work``."""
    forgotten: tuple[tuple[str, Name], ...] = ()
    """Snapshots (flow, name) that are deleted together with the checkpoint, which has counted their rows."""
    where: tuple[Where, ...] = ()
    """With a checkpoint: where others may run our flows from."""
    gaps: tuple[tuple[Gap, Missed], ...] = ()
    """What was missed, and when it was."""
    failed: tuple[tuple[str, str], ...] = ()
    """Flows whose function has failed, and how."""
    traced: tuple[Traced, ...] = ()
    """Which rows the snapshots in ``sealed`` have counted."""
    took_us: int = 0
    """With ``sealed``: from when work on the rows that sealed it began until it was durable; a simulator has
    none."""
    sealing_us: int = 0
    """Of these, the time since the rows of the panes were mapped."""
    late_us: int = 0
    """How long after their deadline they were mapped, at most."""

    wanted: tuple[RowsWanted, ...] = ()
    """Rows that helpers are to map."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has changed but how far flows are, and what was done for them."""
        durable = self.sealed or self.checkpoint or self.forgotten
        said = (
            self.rows or self.counts or self.tapped or self.early or self.gaps or self.failed or self.wanted
        )
        return not (durable or said)
