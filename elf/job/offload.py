"""Rows of a flow on one agent that another agent maps (``ALTER JOB … OFFLOAD``; protocol 13.8).

A flow with a costly map takes no live lines where it is offloaded: it *stays in its past*
(``elf.job.past``), and reads what its agent has archived, in rounds. But its agent does not read the rows
itself:

    agent   ── MapRows: positions [a, b) of my archive, from this state on ──▶ helper
    helper  reads them at ``archive.path``, and maps them, with a state of its own that began empty
    agent  ◀── RowsMapped: groups and counters up to position p, what is left of the round ──

What comes back goes into the open panes of the agent together with the position, so both are in one
checkpoint (protocol 13.1): an answer that is not of the position where the flow stands is none. The agent
keeps its watermark, its panes, its snapshots and its names; the helper has nothing that could be lost. A
round ends where a closed and shipped roll does; its ceiling is what a live flow had sealed when that roll was
closed. So windows come later by ``archive.roll_secs``.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from elf.fields import Count, FlowUid, Labels, Length, Micros, Name, Pane, Serial, Text
from elf.job.past import Past
from elf.ql.plan import Fragment

ANY_TIME_US: Final = -(1 << 52)
"""All archived rows are of this event time or later."""
TRACES_BYTES_MAX: Final = 16 << 20


class Archive(msgspec.Struct, frozen=True, array_like=True):
    """Which archive it is, and how its lines are read: the run of its positions, the format, the field with
    the event time, and how it is masked."""

    life: Name
    format: Annotated[str, msgspec.Meta(max_length=1 << 16)] = ""
    timestamp: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    mask: Annotated[str, msgspec.Meta(max_length=1 << 16)] = ""


class Stand(msgspec.Struct, frozen=True, array_like=True):
    """Where a flow stands on its agent, as ``elf.job.worker.assigning.Stand``."""

    live_from: Pane
    sealed: Pane
    leapt: tuple[Pane, Pane] = (0, 0)
    since: Pane | None = None


class RowsWanted(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a flow that are to be mapped elsewhere: from ``past.position`` to ``past.until``. ``number``
    counts the requests of a stream task. The rest is as in ``WorkerSettings``; ``until_us``: rows of this
    event time or later are from the future (None: there is no bound)."""

    flow: FlowUid
    number: Serial
    past: Past
    stand: Stand
    archive: Archive
    since_us: Micros
    until_us: Micros | None = None
    lateness_us: Length | None = None
    name: Name = ""
    labels: Labels = ()
    event_time: Annotated[str, msgspec.Meta(max_length=4_096)] = ""
    """As the agent has found it in its lines, or was told."""


class Mapped(msgspec.Struct, frozen=True):
    """What rows have come to: partial aggregates with ``_pane``, counters by pane, and which rows these are
    (``elf.job.worker.provenance``). ``rows``, ``late`` and ``future``: how many there were; ``failed``: how
    the user's function has failed on some."""

    groups: bytes = b""
    counters: bytes = b""
    traced: Annotated[bytes, msgspec.Meta(max_length=TRACES_BYTES_MAX)] = b""
    rows: Count = 0
    late: Count = 0
    future: Count = 0
    failed: Text = ""


def why_not(fragment: Fragment) -> str:
    """Why nobody else can map the rows of a flow; empty: others can."""
    if not fragment.pane_us:
        return "it has no panes of time"
    if fragment.count is not None:
        return "it has windows of rows, which the agent counts that reads them"
    if fragment.late_of:
        return "it reads late rows"
    if fragment.since_us is not None:
        return "it begins in the past (SINCE)"
    if fragment.revise_us is not None:
        return "it revises windows with late rows (REVISE)"
    if fragment.leap:
        return "it leaves out who is behind (STRAGGLERS LEAP), and who is offloaded is"
    if fragment.mirror:
        return "others make up for who is behind (STRAGGLERS MIRROR), and who is offloaded is"
    return ""
