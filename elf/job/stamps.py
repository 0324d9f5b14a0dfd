"""When a pane was how far, as each agent saw it: stamps, and how EXPLAIN LATENCY asks for them.

One pane in sixteen is stamped, more of them where panes are long: about one in ten seconds of event time.
Which ones follows from a pane's number and length alone, so that all agents and all flows of a job stamp the
same. No row is. An agent keeps the last ``LAST`` of each flow and job (``agents.traces.stamps``); they are
gone with its process.
"""

from __future__ import annotations

from typing import Final

import msgspec

from elf.fields import FlowUid, JobUid, Micros, Name, Pane
from elf.wire.base import Message, Request

ONE_IN: Final = 16
LAST: Final = 64
"""Stamps of a kind that are kept of a flow, or job."""
APART_US: Final = 10_000_000
"""Panes that are longer than a sixteenth of it are stamped more often."""
_MIXED: Final = 0x9E3779B97F4A7C15


def one_in(pane_us: int) -> int:
    """A power of two, so that what is stamped of long panes has what is stamped where their length is not
    known (0)."""
    most = min(ONE_IN, APART_US // pane_us) if pane_us else ONE_IN
    return 1 << max(0, most.bit_length() - 1)


def is_stamped(pane: int, pane_us: int = 0) -> bool:
    """Panes at round times are no more likely than others."""
    mixed = (pane * _MIXED) & ((1 << 64) - 1)
    return (mixed >> 40) & (one_in(pane_us) - 1) == 0


class SealStamp(msgspec.Struct, frozen=True, array_like=True):
    """On a member: a pane could be sealed from ``due_us`` on (its end and lateness); the work on the rows
    that sealed it began, and its snapshot was durable. In µs since the epoch by the agent's clock, as all of
    these."""

    flow: FlowUid
    pane: Pane
    due_us: Micros
    begun_us: Micros
    done_us: Micros


class RootStamp(msgspec.Struct, frozen=True, array_like=True):
    """At a root: the first and last slices of others came (0: none did), the draft of the pane's commit
    began, was made, and was applied."""

    flow: FlowUid
    pane: Pane
    first_us: Micros
    last_us: Micros
    draft_us: Micros
    made_us: Micros
    applied_us: Micros


class WindowStamp(msgspec.Struct, frozen=True, array_like=True):
    """At a master: the draft of the windows that end with a pane began, and they were applied."""

    job: JobUid
    pane: Pane
    begun_us: Micros
    applied_us: Micros


class InspectStamps(Request, frozen=True, kw_only=True):
    """To an agent: its stamps of these flows and jobs (uids). Answered with ``StampStatus``."""

    flows: tuple[FlowUid, ...]
    jobs: tuple[JobUid, ...] = ()


class StampStatus(msgspec.Struct, frozen=True, array_like=True):
    """``old``: panes of these flows that were sealed a minute late or more, as of old lines, or before they
    were due, where clocks differ: they have no stamp."""

    agent: Name
    seals: tuple[SealStamp, ...] = ()
    roots: tuple[RootStamp, ...] = ()
    windows: tuple[WindowStamp, ...] = ()
    old: int = 0


MESSAGES: tuple[type[Message], ...] = (InspectStamps,)
