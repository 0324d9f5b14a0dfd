"""The checkpoint: where an agent starts reading a stream again, with all that it had computed by then
(protocol 3.1).
"""

from __future__ import annotations

import msgspec

from elf.job.openparts import OpenedParts
from elf.job.past import Past
from elf.job.program.spec import Tap, Tapped
from elf.job.spec import Flow


class SourceCheckpoint(msgspec.Struct, frozen=True):
    """A source: the highest event time seen and the bytes consumed. ``number``: the number with which it
    began to speak (``elf.job.reexecution``); 0: it is to have a new one."""

    id: str
    highest: int
    end: int
    number: int = 0


class PostponedRows(msgspec.Struct, frozen=True):
    """Rows on time that a flow has yet to map, in its turn (``elf.job.worker.turns``). Each stands for
    ``weight``; ``left_out``: (pane, rows) that they stand for. ``path``: of their file, for people.
    ``number``: one that no others of the stream have, so that ``rows`` is stored once, apart."""

    number: int
    weight: int
    path: str
    left_out: tuple[tuple[int, int], ...]
    rows: bytes


class FlowCheckpoint(msgspec.Struct, frozen=True):
    """A flow: panes ``[live_from, sealed)`` are snapshots; ``tree`` (all its buffers) and ``counters`` hold
    the open ones. ``applied``: (source, bytes consumed), as each flow has its own. ``suspended``: the flow is
    over its quota, and its ``shed`` rows are not reported yet. ``rows``: rows on time that wait for the map.
    """

    flow: Flow
    live_from: int
    sealed: int
    applied: tuple[tuple[str, int], ...]
    tree: bytes
    counters: bytes
    suspended: bool = False
    shed: int = 0
    rows: bytes = b""
    late_tree: bytes = b""
    late_counters: bytes = b""
    """Late rows that are in no part yet (``elf.job.parts``); ``part``: number of the last one."""
    part: int = 0
    leapt: tuple[int, int] = (0, 0)
    """The last panes that were open when they were dropped (``elf.job.stragglers``): first, end."""
    since: int | None = None
    """Rows from this pane on are the flow's own, though it has been suspended since. None: from
    ``live_from``."""
    counted: bytes = b""
    """Windows of rows that are not full (``elf.job.worker.counted``)."""
    met: tuple[tuple[int, int, int], ...] = ()
    """Rows on time by pane and number of their source, where others may run the flow again
    (``elf.job.reexecution``)."""
    traced: bytes = b""
    late_traced: bytes = b""
    """Which rows its open panes, and parts that are not taken yet, have counted
    (``elf.job.worker.provenance``)."""
    fresh: bytes = b""
    """The tree of what has come to open panes since they were last copied, where copies are eager: it is in
    ``tree`` otherwise."""
    opened: OpenedParts | None = None
    """Which open parts its open panes have (``elf.job.openparts``); None: nothing of it is copied."""
    past: Past | None = None
    """How far it is in the archive (``elf.job.past``); ``applied`` is empty then. None: it takes live lines.
    """
    weight: int = 1
    whose: str = ""
    """One row in ``weight`` is mapped, for that budget (``elf.job.sampling``): so are those in ``rows``."""
    parted: bool = False
    """``tree`` is empty: what it would hold is in those open parts (protocol 9.9)."""
    parts: tuple[bytes, ...] = ()
    """Their groups, where a start goes on from it; they are never stored with it."""
    postponed: tuple[PostponedRows, ...] = ()
    groups: bytes = b""
    """Of open panes, in the place of ``tree``, where they are too few for one."""


class TapsCheckpoint(msgspec.Struct, frozen=True):
    """What a job in Python wants of a stream (``elf.job.worker.taps``). ``ends``: tap, source, end of the
    rows that it was given; ``unkept``: what its own checkpoint is not known to have."""

    uid: str
    taps: tuple[Tap, ...]
    pane_us: int
    ends: tuple[tuple[str, str, int], ...]
    unkept: tuple[Tapped, ...]


class StreamCheckpoint(msgspec.Struct, frozen=True):
    """The whole state of a stream task. Reading starts again at the least offset that any flow has
    applied."""

    highest: int
    sources: tuple[SourceCheckpoint, ...]
    flows: tuple[FlowCheckpoint, ...]
    number: int = 0
    """The highest number that a source has."""
    shared: str = ""
    """How others were to read the files: what is read otherwise now has other numbers."""
    gone_until: int = -(1 << 62)
    """The last event time of a gap, after which new flows begin."""
    taps: tuple[TapsCheckpoint, ...] = ()
