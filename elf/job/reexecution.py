"""Speculative re-execution: a neighbour reads the files of an agent that is behind, where both see them
(``STRAGGLERS MIRROR``; ``streams.<name>.shared``; protocol 9.5).

Why the result is the piece that the agent itself would make: a row is late by what its *own source* had
before it, row by row (``elf.job.worker.assigning``), whatever the chunks. So the rows of pane P in a source
that are not late by that are a function of the file alone, and all of them have been read when the source
itself has passed P's end and lateness. What the agent seals of P has no other rows; it may have fewer, where
the agent did not wait for a silent file. A neighbour reads each source from a place before its first row of
P, knowing the highest event time that it had by then, until the source has passed the end of P. So it has all
rows that the agent could ever seal.

    at the agent    read: the first row of an open pane ── its source offsets: where its sources stood
                    before the chunk. Checkpoint durable ── Whereabouts: those of open panes, and where it
                    is now ──▶ root
    at the root     the pane has waited (half of the limit), the agent is not in it, nor seen to have sealed
                    it ── Reexecute ──▶ one other agent that shares the stream
    there           reads from them, on a thread ── RunSlice, one pane, in the agent's number ──▶ root
                      └─ cannot, or a source has not gone by P's end ── NotRun: why ──▶ root
    at the root     held or refused like the agent's own: one of both. The commit says by which
                    source offsets it was made, durably (part (member, -number)), to all roots after it
    at the agent    sealed P (or seals it when it is back) ── ``answered``: by which ──▶ its task counts

- **Once.** (member, pane) is taken once (protocol 9.6); a commit says whose piece it was. The agent's own is
  not forgotten before the agent hears that of a durable commit, and nothing is dropped that is not in one.
- **Nothing is lost without being named.** Source offsets have a number, which counts the sources that began
  to speak; each source has the number with which it did. Files that the agent met later than the source
  offsets were not read for it: what the agent's own snapshot has of them (``met``, by pane and number, in its
  checkpoint) is counted as late. What the dropped counters had counted (rejects, late rows, other panes'
  NULLs) goes on in the open pane, in the checkpoint that deletes the snapshot, as under LEAP
  (``elf.job.stragglers``).
- **A silent file** says nothing about a pane. The agent does not wait for it (idle timeout): source offsets
  that are taken then have it *asleep*, its next row gives it a new number, and the neighbour only checks that
  it has not grown. A file that has not passed P's end and is not asleep keeps P from being answered.
- **The clock** decides which rows are from the future. The neighbour uses the clock of the source offsets,
  which is not later than the agent's when it reads; where a row is beyond that it answers nothing.

Rows that the agent had named late, as it had sealed P without a silent file, and that are in the neighbour's
answer, are in the window and stay counted as late: that names too much, never too little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from elf.fields import Count, FlowUid, Label, Length, Micros, Millis, Pane, Serial
from elf.schema import is_origin

if TYPE_CHECKING:
    from elf.ql.plan import Fragment

SOURCES_MAX: Final = 64
"""With more open files than that an agent does not say where it is."""
OFFSETS_MAX: Final = 16
"""The most open panes whose source offsets it reports."""
MET_MAX: Final = 4096
"""For so many (pane, number) the number of rows is known. Of older ones all rows count as new."""
FILES_MAX: Final = 1_024
"""Files of a stream, and panes, that anybody may name at once."""
Inode = Annotated[int, msgspec.Meta(ge=0)]
LineBytes = Annotated[int, msgspec.Meta(ge=1, le=1 << 30)]


class SourceAt(msgspec.Struct, frozen=True, array_like=True):
    """Where a source stood: bytes consumed and the highest event time (µs) by then; where the file was and
    what identifies it. ``asleep``: it was silent, and not waited for."""

    id: Label
    offset: Count
    highest: Micros
    asleep: bool
    path: Label = ""
    inode: Inode = 0
    head_bytes: Count = 0
    head_crc: Count = 0


class SourceOffsets(msgspec.Struct, frozen=True, array_like=True):
    """Where an agent was in a stream, by its clock. ``number``: it knew the sources with numbers up to it."""

    number: Serial
    now_ms: Millis
    sources: Annotated[tuple[SourceAt, ...], msgspec.Meta(max_length=FILES_MAX)]


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """How an agent reads a stream: format, column with the event time (None: not known yet), bounds in µs,
    and which files are its own (patterns)."""

    format: Label
    event_time: Label | None
    future_us: Length | None
    lateness_us: Length | None
    since_us: Micros
    max_line_bytes: LineBytes
    include: tuple[Label, ...]
    exclude: tuple[Label, ...] = ()


class Where(msgspec.Struct, frozen=True, array_like=True):
    """Of one flow: source offsets from before the first row of open panes (None: from before a restart, so
    nobody can run that pane), and where the agent is, for panes without rows (None: too much is open)."""

    flow: FlowUid
    sealed: Pane
    panes: Annotated[tuple[tuple[Pane, SourceOffsets | None], ...], msgspec.Meta(max_length=FILES_MAX)]
    now: SourceOffsets | None
    reading: Reading | None = None

    def offsets(self, pane: int) -> SourceOffsets | None:
        """From which source offsets a pane is to be read, if it can be."""
        return None if pane < self.sealed else dict(self.panes).get(pane, self.now)


def can_run(fragment: Fragment) -> bool:
    """Whether another agent may run it: it needs only the map, a pane and a bound on lateness, and no column
    that says which agent it is. It is not one
    of several key ranges: the first of them counts the rows of all, so after a restart the others do not know
    which panes are open."""
    plain = fragment.function is None and not fragment.owns and fragment.count is None
    plain = plain and not fragment.late_of
    whole = fragment.range[1] == 1 and fragment.revise_us is None and fragment.since_us is None
    own = any(is_origin(column.name) for column in fragment.columns)
    return bool(fragment.mirror and fragment.pane_us and plain and whole and not own)
