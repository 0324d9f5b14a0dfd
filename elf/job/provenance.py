"""Provenance: which rows each pane of a flow has counted, named by where their lines lie.

A worker knows of each row whether it was on time, and in which pane. It writes down, for each pane and
source, from which offset to which one the pane's rows were counted (``elf.job.worker.provenance``): a row of
the pane is counted exactly if its line begins in one of these *ranges*. Rows of one pane that came too late
lie behind them, since a source never gets younger (protocol 3.5), so nearly always one range is enough. The
ranges of a pane become durable with its snapshot, in the same transaction (protocol 3.3), and so does the
number of its rows: who finds as many rows of the pane in these ranges of the archive has found all of them,
and none that was not counted (protocol 7.11).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

import msgspec

from elf.errors import PeerError
from elf.fields import Count, Label, Pane
from elf.ql.plan import Fragment, Plan
from elf.windows import Counted, Session

TRACE_BYTES_MAX: Final = 64 << 10
"""What is written down of the rows of one pane; of a pane with more nothing is."""
UNKNOWN: Final = -1
"""Rows of a pane of which nothing is written down."""

Range = tuple[int, int]
"""Offsets ``[from, to)`` of a source."""
Rows = Annotated[int, msgspec.Meta(ge=UNKNOWN, le=1 << 62)]


class PaneRows(msgspec.Struct, frozen=True, array_like=True):
    """The rows that a pane has counted, before WHERE: how many, and of each source (its id) the ranges of
    offsets in which they begin."""

    pane: Pane
    rows: Rows
    sources: tuple[tuple[Label, tuple[tuple[Count, Count], ...]], ...]


class Traced(NamedTuple):
    """Of a snapshot: panes ``[start, end)`` of a flow, part 0, or a part of late rows of one pane. Panes that
    had no row are not among ``panes``."""

    flow: str
    start: int
    end: int
    part: int
    panes: tuple[PaneRows, ...]


_decode: Final = msgspec.msgpack.Decoder(tuple[PaneRows, ...]).decode


def to_bytes(panes: Iterable[PaneRows]) -> bytes:
    """As they are stored; empty for none."""
    kept = tuple(map(_bounded, panes))
    return msgspec.msgpack.encode(kept) if kept else b""


def _bounded(one: PaneRows) -> PaneRows:
    if len(one.sources) <= 16 or len(msgspec.msgpack.encode(one)) <= TRACE_BYTES_MAX:
        return one
    return PaneRows(one.pane, UNKNOWN, ())


def from_bytes(data: bytes) -> tuple[PaneRows, ...]:
    """Raises ``PeerError``."""
    try:
        return _decode(data) if data else ()
    except msgspec.MsgspecError as error:
        raise PeerError(f"what panes have counted cannot be read: {error}") from error


def is_traced(fragment: Fragment) -> bool:
    """Whether it is written down which rows a flow counts: those with a pane of their own event time, whose
    lines alone decide what is counted of them."""
    own = not fragment.late_of and fragment.count is None and fragment.function is None
    return bool(own and fragment.pane_us and fragment.keep is None)


def untraced(plan: Plan) -> str:
    """Why nobody can say which rows a window of a job has counted; empty: the agents can."""
    if not plan.windows:
        return "has no windows"
    if any(isinstance(kind, Session) for kind in plan.windows):
        return (
            "has sessions: agents write down which lines a pane has counted, and not of which key; ask a job "
            "with the same WHERE and WINDOWING 1 MINUTE SINCE '-1 day', with a condition on the key"
        )
    if any(isinstance(kind, Counted) for kind in plan.windows):
        return "has windows of rows: ROWS OF names the rows of windows of time"
    if plan.beside or (plan.join is not None and plan.join.side):
        return (
            "joins streams or jobs: it counts pairs, and agents write down which lines they have read, not "
            "which of them met; ask a job over each of the streams, with a condition on the key"
        )
    for fragment in plan.unranged:
        if fragment.late_of:
            return "reads late rows, of which no agent writes down where they lie"
        if fragment.function is not None:
            return "has a map function, which decides what is counted of a row"
        if fragment.keep is not None:
            return "is APPROXIMATE: its cells are not the counts of rows"
    return ""
