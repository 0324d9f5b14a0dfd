"""The final commits of roots and masters: of panes and of windows.

Each is one value from when it is made until it is forgotten: a row of an agent's store
(``agents.disk.store``) and, where a job group is replicated, a record of its group
(``elf.job.group.records``), so that all members have the same rows.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from elf.errors import PeerError
from elf.fields import FlowUid, GroupUid, Label, Members, Micros, Number, Pane, Serial, span

UNNUMBERED: Final = -1

_Part = tuple[Number, Annotated[int, msgspec.Meta(gt=-(1 << 53), lt=1 << 53)]]
part_names: Final = msgspec.msgpack.Decoder(list[_Part]).decode


class PaneCommitName(msgspec.Struct, frozen=True, array_like=True):
    """A pane commit without its contents: which members panes ``[start, end)`` cover in this revision."""

    flow: FlowUid
    start: Pane
    end: Pane
    revision: Serial
    members: Members
    roster_version: Serial


class PaneCommit(PaneCommitName, frozen=True, array_like=True, tag=True):
    """A root's final word on a revision of panes ``[start, end)``, with its counters (protocol 5.8). ``seq``:
    its number among those of its flow, ascending; 0 until it is committed. ``parts``: the parts of late rows
    in its one pane (``elf.job.parts``). ``raw``: the payload before a reduce function changed it. Of a stored
    commit these two are read apart. Two commits are the same if they differ in nothing else."""

    counters: bytes
    payload: bytes
    seq: Serial = 0
    parts: bytes = b""
    raw: bytes = b""

    def __post_init__(self) -> None:
        span(self.start, self.end)
        if self.parts:
            part_names(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PaneCommit) and self._said() == other._said()

    def __hash__(self) -> int:
        return hash(self._said())

    def _said(self) -> tuple[object, ...]:
        return (*self.name, self.members, self.roster_version, self.counters, self.payload)

    @property
    def name(self) -> tuple[str, int, int, int]:
        """Flow, first pane, end and revision: only one commit has that name."""
        return self.flow, self.start, self.end, self.revision

    @property
    def bare(self) -> PaneCommit:
        """A commit of which only the name is left, with no members."""
        return msgspec.structs.replace(self, members=b"", counters=b"", payload=b"", raw=b"")


class PanesUsed(msgspec.Struct, frozen=True, array_like=True):
    """Panes ``[start, end)`` of a flow that windows were made of: their revision, whose contributions it has,
    and which parts of late rows. The flow has the name under which the master's store had it."""

    flow: Label
    start: Pane
    end: Pane
    revision: Serial
    members: Members
    lost: bool
    parts: tuple[_Part, ...] = ()


_panes_used: Final = msgspec.msgpack.Decoder(tuple[PanesUsed, ...]).decode


def panes_used(data: bytes) -> tuple[PanesUsed, ...]:
    """Those of a window commit. Raises ``PeerError`` for what an earlier release has committed."""
    try:
        return _panes_used(data)
    except msgspec.MsgspecError as error:
        raise PeerError(f"the panes that were used cannot be read: {error}") from error


class WindowCommit(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A master's final word on a revision of the windows from ``first_start`` to ``last_end`` (µs). ``seq``:
    its number among those of its job, ascending by one; ``UNNUMBERED`` until it is committed; 0 if nothing of
    it is published, as it has no window. Two commits are the same if they differ in nothing else."""

    job: GroupUid
    first_start: Micros
    last_end: Micros
    revision: Serial
    version: Serial
    provisional: bool
    status: bytes
    rows: bytes
    panes_used: bytes
    seq: Annotated[int, msgspec.Meta(ge=UNNUMBERED, lt=1 << 53)] = UNNUMBERED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WindowCommit) and self._said() == other._said()

    def __hash__(self) -> int:
        return hash(self._said())

    def _said(self) -> tuple[object, ...]:
        return (*self.name, self.provisional, self.status, self.rows, self.panes_used)

    @property
    def name(self) -> tuple[str, int, int, int, int]:
        """Job, first start, last end, revision and version."""
        return self.job, self.first_start, self.last_end, self.revision, self.version
