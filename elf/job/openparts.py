"""Open parts: what each checkpoint adds to a pane that is still open (``protocol.copies: eager``; protocol
9.7 and protocol 9.8).

An agent whose copies are eager makes a snapshot of what has come to each open pane since the last checkpoint,
and copies it to neighbours like any other (``elf.job.rollup.replication``). Such a snapshot is a *part* of
its pane (``elf.job.parts``), numbered from ``OPEN`` on: 1, 2, 3 … within its pane, the last one marked. The
parts of a pane share no row, and all of them together are the pane's main snapshot (part 0). So what a member
gives to a pane is either its main snapshot or some of its open parts:

    at the owner   open ── checkpoint ──▶ parts 1 … k, in reserve ── sealed ──▶ main snapshot, last part
                     main included, or answered ──────────────▶ all of the pane's parts are forgotten
                     a part is in a commit: main is *covered* ──▶ main is forgotten, other parts are owed
                     a part is answered before its pane is sealed ──▶ it is forgotten when that is
    at a holder    as any copy; a commit with the member's main snapshot answers its open parts too
    at the root    parts of a member that is dead or silent are held beside the pane. They become a revision
                   of it when it is committed without that member; when the main snapshot comes they go.

Why no row is there twice: in all revisions of a pane a member is in the contribution set, or open parts of it
are in the commit, and never both (``History.add`` refuses it). Whichever is committed first decides. An agent
that comes back with its disk is told ``covered``, and sends the parts that are not there yet, each once, by
its name: nothing of it is lost. Of an agent that is gone with its disk is lost what came after the last
checkpoint that was copied, and its windows name it as missing and ``covered``.

Not copied so: panes of flows with ``STRAGGLERS LEAP`` (their commits take no revision), and windows of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from elf.job.contributions import PartName
from elf.job.snapshots import Name

if TYPE_CHECKING:
    from elf.ql.plan import Fragment

OPEN: Final = 1 << 40
"""Parts from this number on are open parts; those below it are of late rows."""


class PaneParts(msgspec.Struct, frozen=True, array_like=True):
    """The parts of one open pane: how many there are, and what they have counted, in the order of
    ``elf.job.counters.COUNTER_COLUMNS``, and how many gaps they name."""

    pane: int
    place: int
    counted: tuple[int, ...]
    gaps: int = 0


class OpenedParts(msgspec.Struct, frozen=True, array_like=True):
    """As a checkpoint has them. Panes below ``since`` were open before copies were eager: they have none."""

    since: int
    panes: tuple[PaneParts, ...] = ()


def open_part(place: int, *, last: bool = False) -> int:
    """The number of the part that stands at this place in its pane (from 1); ``last``: the pane is sealed."""
    return OPEN + 2 * place + last


def names_of(opened: OpenedParts) -> list[Name]:
    """The parts that these open panes have."""
    return [
        (one.pane, one.pane + 1, open_part(place))
        for one in opened.panes
        for place in range(1, one.place + 1)
    ]


def is_open(part: int) -> bool:
    """Whether a part is an open one."""
    return part >= OPEN


def in_part(parts: Iterable[PartName]) -> int:
    """The members of which open parts are among these, as a contribution set."""
    found = 0
    for member, part in parts:
        if part >= OPEN:
            found |= 1 << member
    return found


def in_whole(parts: Iterable[PartName]) -> int:
    """The members of which all open parts of a pane are among these, as a contribution set."""
    places: dict[int, int] = {}
    last: dict[int, int] = {}
    for member, part in parts:
        if part >= OPEN:
            places[member] = places.get(member, 0) + 1
            if part & 1:
                last[member] = (part - OPEN) // 2
    found = 0
    for member, place in last.items():
        found |= (places[member] == place) << member
    return found


def is_copied_open(fragment: Fragment) -> bool:
    """Whether the open panes of a flow are copied where copies are eager."""
    return bool(fragment.pane_us) and fragment.count is None and not fragment.leap
